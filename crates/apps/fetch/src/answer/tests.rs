use super::*;
use crate::http1::{Connection, Event, Method, Request};

fn head(status: u16, fields: &str) -> Head {
    let mut connection = Connection::new();
    connection.request(Request::new(Method::Head, "h", "/").unwrap());
    while connection.poll_transmit().is_some() {}
    connection.handle_bytes(format!("HTTP/1.1 {status} X\r\n{fields}\r\n").into()).unwrap();
    let Some(Event::Head { head, .. }) = connection.poll_event() else { panic!("no head") };
    head
}

const ASKED: AskedRange = AskedRange { first: 100, last: Some(199) };

fn read(status: u16, fields: &str) -> Result<Answer, Unusable> {
    Answer::read(&head(status, fields), Some(ASKED))
}

#[test]
fn a_part_is_what_was_asked_for() {
    let answer =
        read(206, "Content-Range: bytes 100-199/1000\r\nContent-Length: 100\r\nETag: \"x\"\r\n").unwrap();
    assert_eq!(answer.extent, Extent::Part { first: 100, last: 199 });
    assert_eq!((answer.version.total(), answer.version.validator()), (Some(1000), Some("\"x\"")));
    assert!(answer.has_ranges && answer.digests.is_empty());
    assert_eq!(read(206, "Content-Range: bytes 100-199/*\r\n").unwrap().version.total(), None);
    // The file ends before what was asked for does.
    assert!(read(206, "Content-Range: bytes 100-149/150\r\n").is_ok());
    let open = AskedRange { first: 100, last: None };
    assert_eq!((ASKED.to_field(), open.to_field()), ("bytes=100-199".to_owned(), "bytes=100-".to_owned()));
    assert!(Answer::read(&head(206, "Content-Range: bytes 100-999/1000\r\n"), Some(open)).is_ok());
    assert!(Answer::read(&head(206, "Content-Range: bytes 100-998/1000\r\n"), Some(open)).is_err());
}

#[test]
fn the_whole_may_come_instead() {
    let answer =
        read(200, "Content-Length: 1000\r\nAccept-Ranges: none\r\nContent-Encoding: gzip\r\n").unwrap();
    assert_eq!(
        (answer.extent, answer.version.total(), answer.has_ranges),
        (Extent::Whole, Some(1000), false)
    );
    assert_eq!(answer.version.encoding(), Some("gzip"));
    assert!(Answer::read(&head(200, "Accept-Ranges: bytes\r\n"), None).unwrap().has_ranges);
}

#[test]
fn what_was_not_asked_for_is_said_in_words() {
    let words = |status, fields| read(status, fields).unwrap_err().to_string();
    for (status, fields, expected) in [
        (206, "Content-Range: bytes 0-99/1000\r\n", "the server sends the bytes 0-99; asked were 100-199"),
        (
            206,
            "Content-Range: bytes 100-198/1000\r\n",
            "the server sends the bytes 100-198; asked were 100-199",
        ),
        (
            206,
            "Content-Range: bytes 100-199/1000\r\nContent-Length: 99\r\n",
            "the server sends 99 bytes as the bytes 100-199",
        ),
        (206, "", "the server sends a part of the file, and doesn't say which (no Content-Range)"),
        (
            206,
            "Content-Range: x\r\n",
            "the server's Content-Range is \"x\"; expected such as \"bytes 0-99/1000\"",
        ),
        (416, "Content-Range: bytes */50\r\n", "the server has no bytes 100-199: the file has 50"),
        (416, "", "the server has no bytes 100-199"),
        (404, "", "the server answers with status 404; expected 200 or 206"),
    ] {
        assert_eq!(words(status, fields), expected);
    }
    let unasked = Answer::read(&head(206, "Content-Range: bytes 0-0/1\r\n"), None);
    assert_eq!(unasked, Err(Unusable::Unasked));
}

#[test]
fn another_version_is_said_in_words() {
    let part = |total, tag| {
        read(206, &format!("Content-Range: bytes 100-199/{total}\r\nETag: \"{tag}\"\r\n")).unwrap()
    };
    let first = part("1000", "x").version;
    assert_eq!(part("*", "x").check_version(&first), Ok(()));
    let words = |answer: Answer| answer.check_version(&first).unwrap_err().to_string();
    assert_eq!(words(part("1001", "x")), "the file changed on the server: it had 1000 bytes, and has 1001");
    assert_eq!(words(part("1000", "y")), "the file changed on the server: its ETag was \"x\", and is \"y\"");
}

#[test]
fn a_part_may_end_earlier_where_that_is_taken() {
    let begun = |range: &str, last: Option<u64>| {
        let head = head(206, &format!("Content-Range: bytes {range}\r\n"));
        Answer::read_begun(&head, Some(AskedRange { first: 100, last })).map(|answer| answer.extent)
    };
    for last in [100, 150, 199] {
        assert_eq!(begun(&format!("100-{last}/1000"), Some(199)), Ok(Extent::Part { first: 100, last }));
    }
    assert_eq!(begun("100-150/1000", None), Ok(Extent::Part { first: 100, last: 150 }));
    for range in ["100-200/1000", "101-150/1000", "0-199/1000"] {
        assert!(begun(range, Some(199)).is_err(), "{range}");
    }
}
