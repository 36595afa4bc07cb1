use proptest::prelude::*;

use super::*;

fn request(method: Method) -> Request {
    Request::new(method, "example.org", "/file").unwrap()
}

/// A connection on which so many requests were sent.
fn asked(methods: &[Method]) -> Connection {
    let mut connection = Connection::new();
    for method in methods {
        connection.request(request(*method));
    }
    while connection.poll_transmit().is_some() {}
    connection
}

/// Events in short, with neighbouring data put together: where data is cut is no promise.
fn events(connection: &mut Connection) -> Vec<String> {
    let mut found: Vec<(String, String)> = Vec::new();
    while let Some(event) = connection.poll_event() {
        let (what, data) = match event {
            Event::Head { id, head } => (format!("{} head {}", id.0, head.status), String::new()),
            Event::Data { id, bytes } => {
                (format!("{} data ", id.0), String::from_utf8_lossy(&bytes).into_owned())
            }
            Event::End { id } => (format!("{} end", id.0), String::new()),
            Event::Unanswered { id } => (format!("{} unanswered", id.0), String::new()),
            Event::Truncated { id } => (format!("{} truncated", id.0), String::new()),
        };
        match found.last_mut() {
            Some((last, text)) if *last == what && !data.is_empty() => text.push_str(&data),
            _ => found.push((what, data)),
        }
    }
    found.into_iter().map(|(what, data)| what + &data).collect()
}

/// What comes of an input, cut into pieces, with and without the end of the connection.
fn fed<'a>(
    methods: &[Method],
    pieces: impl IntoIterator<Item = &'a [u8]>,
    ends: bool,
) -> (Result<(), Error>, Vec<String>) {
    let mut connection = asked(methods);
    let mut result = Ok(());
    for piece in pieces {
        result = connection.handle_bytes(Bytes::copy_from_slice(piece));
        if result.is_err() {
            break;
        }
    }
    if ends {
        connection.handle_end();
    }
    (result, events(&mut connection))
}

fn all(methods: &[Method], input: &str, ends: bool) -> (Result<(), Error>, Vec<String>) {
    fed(methods, [input.as_bytes()], ends)
}

const GET: Method = Method::Get;

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let mut connection = Connection::new();
    let first = connection.request(request(GET));
    let second = connection.request(request(Method::Head));
    let third = connection.request(request(GET));
    assert!(first < second && second < third);
    assert_eq!(connection.poll_transmit().unwrap(), "GET /file HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert_eq!(connection.poll_transmit().unwrap(), "HEAD /file HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert!(connection.poll_transmit().is_some());
    assert_eq!(connection.poll_transmit(), None);
    assert_eq!(connection.outstanding(), 3);
    let input = "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc\
                 HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\
                 HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n";
    connection.handle_bytes(Bytes::from(input)).unwrap();
    let expected =
        ["0 head 206", "0 data abc", "0 end", "1 head 200", "1 end", "2 head 200", "2 data def", "2 end"];
    assert_eq!(events(&mut connection), expected);
    assert!(connection.is_open());
    assert_eq!(connection.outstanding(), 0);
    connection.handle_end();
    assert_eq!(events(&mut connection), [""; 0]);
    assert!(!connection.is_open());
}

#[test]
fn data_is_a_slice_of_what_came_in() {
    let mut connection = asked(&[GET]);
    connection.handle_bytes(Bytes::from("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")).unwrap();
    let input = Bytes::from(vec![7; 8]);
    connection.handle_bytes(input.clone()).unwrap();
    assert!(matches!(connection.poll_event(), Some(Event::Head { .. })));
    let Some(Event::Data { bytes, .. }) = connection.poll_event() else { panic!("no data") };
    assert_eq!(bytes.as_ptr(), input.as_ptr());
}

#[test]
fn what_is_missing_never_looks_like_an_end() {
    let begun = ["0 head 200", "0 data ab", "0 truncated", "1 unanswered"];
    for input in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n",
    ] {
        assert_eq!(all(&[GET, GET], input, true).1, begun, "{input}");
    }
    for input in ["", "HTTP/1.1 200 OK\r\nConte", "HTTP/1.1 100 Continue\r\n\r\n"] {
        assert_eq!(all(&[GET, GET], input, true).1, ["0 unanswered", "1 unanswered"], "{input}");
    }
    let until_end = "HTTP/1.1 200 OK\r\n\r\nab";
    assert_eq!(all(&[GET, GET], until_end, true).1, ["0 head 200", "0 data ab", "0 end", "1 unanswered"]);
    let mut connection = asked(&[GET, GET]);
    connection.handle_bytes(Bytes::from(until_end)).unwrap();
    connection.handle_lost();
    assert_eq!(events(&mut connection), begun);
}

#[test]
fn requests_behind_the_last_answer_are_to_be_asked_again() {
    for head in ["HTTP/1.1 200 OK\r\nConnection: close\r\n", "HTTP/1.0 200 OK\r\n"] {
        let mut connection = asked(&[GET, GET]);
        // Not sent yet.
        connection.request(request(GET));
        let input = format!("{head}Content-Length: 2\r\n\r\nabHTTP/1.1 200 OK\r\n\r\n");
        connection.handle_bytes(Bytes::from(input)).unwrap();
        assert_eq!(
            events(&mut connection),
            ["0 head 200", "0 data ab", "0 end", "1 unanswered", "2 unanswered"]
        );
        assert!(!connection.is_open());
        assert_eq!(connection.poll_transmit(), None);
        connection.request(request(GET));
        assert_eq!(events(&mut connection), ["3 unanswered"]);
    }
}

#[test]
fn an_answer_to_what_was_not_sent_is_refused() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(all(&[], answer, false), (Err(Error::Unasked), vec![]));
    let twice = answer.repeat(2);
    let ended = || vec!["0 head 200".to_owned(), "0 end".to_owned()];
    assert_eq!(all(&[GET], &twice, false), (Err(Error::Unasked), ended()));
    assert_eq!(all(&[GET], &format!("{answer}\r\n"), false), (Err(Error::Unasked), ended()));
    // Queued only: the answer of a server that lost its patience.
    let mut connection = Connection::new();
    connection.request(request(GET));
    assert_eq!(connection.handle_bytes(Bytes::from(answer)), Err(Error::Unasked));
    assert_eq!(events(&mut connection), ["0 unanswered"]);
    assert_eq!(connection.handle_bytes(Bytes::from(answer)), Err(Error::Unasked));
}

#[test]
fn an_error_in_the_middle_truncates() {
    let input = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nx";
    let expected = ["0 head 200", "0 data ab", "0 truncated", "1 unanswered"].map(str::to_owned).to_vec();
    assert_eq!(all(&[GET, GET], input, false), (Err(Error::MalformedChunk), expected));
}

#[test]
fn heads_are_bounded() {
    let head = |bytes: usize| {
        let begin = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: ";
        format!("{begin}{}\r\n\r\n", "a".repeat(bytes - begin.len() - 4))
    };
    assert_eq!(all(&[GET], &head(MAX_HEAD_BYTES), false).0, Ok(()));
    for input in [head(MAX_HEAD_BYTES + 1), head(MAX_HEAD_BYTES + 1)[..=MAX_HEAD_BYTES].to_owned()] {
        let refused = (Err(Error::HeadTooLong), vec!["0 unanswered".to_owned()]);
        assert_eq!(all(&[GET], &input, false), refused);
        assert_eq!(fed(&[GET], input.as_bytes().chunks(1000), false), refused);
    }
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(MAX_INTERIM_ANSWERS + 1);
    assert_eq!(all(&[GET], &interim, false).0, Err(Error::TooManyInterimAnswers));
    assert_eq!(all(&[GET], "HTTP/1.1 101 Switching\r\n\r\n", false).0, Err(Error::ProtocolChanged));
}

/// Answers of all kinds, good and bad, and the methods that they answer.
const INPUTS: &[(&[Method], &str)] = &[
    (&[GET], "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\nhello"),
    (
        &[GET, GET],
        "HTTP/1.1 206 Partial\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n",
    ),
    (&[Method::Head, GET], "HTTP/1.1 200 OK\nContent-Length: 9\n\nHTTP/1.1 204 None\r\n\r\n"),
    (
        &[GET, GET],
        "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA \r\n\
         0123456789\r\n0\r\nDigest: x\r\n\r\nHTTP/1.0 200 OK\r\n\r\nuntil the end\r\n\r\n",
    ),
    (
        &[GET, GET],
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n",
    ),
    (&[GET], "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx\r\n"),
    (&[GET], "HTTP/1.1 200 OK\r\nA: b\r\n c: d\r\n\r\n"),
    (&[GET, GET], "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n"),
    (&[GET], "HTTX/1.1 200 OK\r\n\r\n"),
    (&[GET], "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy"),
];

#[test]
fn any_cut_of_the_input_gives_the_same_events() {
    for (methods, input) in INPUTS {
        let input = input.as_bytes();
        for ends in [false, true] {
            let whole = fed(methods, [input], ends);
            assert_eq!(fed(methods, input.chunks(1), ends), whole);
            for cut in 0..=input.len() {
                let (first, second) = input.split_at(cut);
                assert_eq!(fed(methods, [first, second], ends), whole, "cut at {cut}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_cuts_of_many_answers_give_the_same_events(
        chosen in proptest::collection::vec(0..INPUTS.len(), 1..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        lost in any::<prop::sample::Index>(),
        ends in any::<bool>(),
    ) {
        let methods: Vec<Method> = chosen.iter().flat_map(|index| INPUTS[*index].0).copied().collect();
        let input: String = chosen.iter().map(|index| INPUTS[*index].1).collect();
        let input = &input.as_bytes()[..lost.index(input.len() + 1)];
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]);
        prop_assert_eq!(fed(&methods, pieces, ends), fed(&methods, [input], ends));
    }

    #[test]
    fn random_bytes_never_panic(
        begin in 0..INPUTS.len(),
        kept in any::<prop::sample::Index>(),
        rest in proptest::collection::vec(any::<u8>(), 0..300),
        piece in 1..50usize,
    ) {
        let (methods, answer) = INPUTS[begin];
        let mut input = answer.as_bytes()[..kept.index(answer.len() + 1)].to_vec();
        input.extend(rest);
        let (_, events) = fed(methods, input.chunks(piece), true);
        // Every request is told of.
        let ends = ["end", "unanswered", "truncated"];
        let ended = events.iter().filter(|event| ends.iter().any(|end| event.split(' ').nth(1) == Some(end)));
        prop_assert_eq!(ended.count(), methods.len());
    }
}
