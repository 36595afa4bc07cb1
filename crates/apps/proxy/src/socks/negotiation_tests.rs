use proptest::prelude::*;

use super::*;

const GREETING: &[u8] = b"\x05\x02\x00\x02";
const ALICE: &[u8] = b"\x01\x05alice\x06secret";
const TO_NAME: &[u8] = b"\x05\x01\x00\x03\x0bexample.org\x01\xbb";

fn with_users() -> Socks5 {
    let alice = |name: &[u8], password: &[u8]| (name, password) == (b"alice", b"secret");
    Socks5::new(Some(Arc::new(alice)))
}

/// What goes back to the client, how it ends, and what is left of its bytes.
#[derive(Debug, PartialEq)]
struct Talk {
    sent: Vec<u8>,
    end: Result<Request, Option<Refusal>>,
    left: Vec<u8>,
}

/// A client that sends all this, whatever it hears, in pieces of these lengths and then the rest.
fn talk(mut socks: Socks5, bytes: &[u8], pieces: &[usize]) -> Talk {
    let mut input = BytesMut::new();
    let mut sent = Vec::new();
    let mut end = Err(None);
    let mut rest = bytes;
    for piece in pieces.iter().copied().chain([usize::MAX]) {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        input.extend_from_slice(now);
        rest = later;
        loop {
            match socks.poll_step(&mut input) {
                Step::Wait => break,
                Step::Send(answer) => sent.extend_from_slice(&answer),
                Step::Ask(request) => end = Ok(request),
                Step::Refuse(answer, refusal) => {
                    sent.extend_from_slice(&answer);
                    end = Err(Some(refusal));
                }
            }
        }
    }
    Talk { sent, end, left: input.to_vec() }
}

fn request(command: Command, target: &str, user: Option<&str>) -> Request {
    Request { command, target: target.parse().unwrap(), user: user.map(Into::into) }
}

#[track_caller]
fn assert_refused(socks: Socks5, bytes: &[u8], answer: &[u8], words: &str) {
    let talk = talk(socks, bytes, &[]);
    let said = talk.end.unwrap_err().map_or(String::new(), |refusal| refusal.to_string());
    assert!(said.contains(words), "{said}");
    assert_eq!(talk.sent, answer);
}

#[test]
fn a_client_without_a_name_connects() {
    for (address, target) in [
        (&b"\x01\xc0\x00\x02\x01\x00\x50"[..], "192.0.2.1:80"),
        (b"\x03\x0bExample.ORG\x01\xbb", "example.org:443"),
        (b"\x03\x09192.0.2.1\x00\x50", "192.0.2.1:80"),
        (b"\x03\x0b2001:db8::1\x00\x50", "[2001:db8::1]:80"),
        (b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50", "[2001:db8::1]:80"),
        (b"\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01\x00\x50", "192.0.2.1:80"),
    ] {
        let bytes = [GREETING, b"\x05\x01\x00", address].concat();
        let talk = talk(Socks5::new(None), &bytes, &[]);
        assert_eq!(talk.end, Ok(request(Command::Connect, target, None)));
        assert_eq!(talk.sent, [5, 0]);
        assert_eq!(talk.left, b"");
    }
}

#[test]
fn a_user_is_asked_and_known() {
    let bytes = [GREETING, ALICE, TO_NAME, b"early data"].concat();
    let talk = talk(with_users(), &bytes, &[]);
    assert_eq!(talk.end, Ok(request(Command::Connect, "example.org:443", Some("alice"))));
    assert_eq!(talk.sent, [5, 2, 1, 0]);
    assert_eq!(talk.left, b"early data");
}

#[test]
fn a_user_who_is_not_known_is_refused() {
    for wrong in [&b"\x01\x05alice\x05wrong"[..], b"\x01\x03bob\x06secret", b"\x01\x00\x00"] {
        assert_refused(with_users(), &[GREETING, wrong].concat(), &[5, 2, 1, 1], "known here");
    }
    // Whoever checks them says yes to all, but a name has to be text.
    let all = Socks5::new(Some(Arc::new(|_: &[u8], _: &[u8]| true)));
    assert_refused(all, &[GREETING, b"\x01\x01\xff\x00"].concat(), &[5, 2, 1, 1], "known here");
    assert_refused(with_users(), b"\x05\x01\x00", &[5, 0xff], "known here");
    assert_refused(with_users(), b"\x05\x00", &[5, 0xff], "known here");
    assert_refused(Socks5::new(None), b"\x05\x01\x02", &[5, 0xff], "no users here");
    assert_refused(with_users(), &[GREETING, TO_NAME].concat(), &[5, 2, 1, 1], "version 1");
}

#[test]
fn where_datagrams_come_from_may_be_unknown() {
    let talk = talk(Socks5::new(None), &[GREETING, b"\x05\x03\x00\x01\0\0\0\0\0\0"].concat(), &[]);
    let target = SocketAddr::from(([0, 0, 0, 0], 0)).into();
    assert_eq!(talk.end, Ok(Request { command: Command::Associate, target, user: None }));
}

#[test]
fn what_is_not_done_is_refused_with_its_code() {
    for (wrong, code, words) in [
        (&b"\x05\x02\x00\x01\xc0\x00\x02\x01\x00\x50"[..], 7, "CONNECT and UDP ASSOCIATE"),
        (b"\x05\x01\x00\x02", 8, "type of address"),
        (b"\x05\x01\x00\x03\x03a b\x00\x50", 4, "neither a name"),
        (b"\x05\x01\x00\x03\x00\x00\x50", 4, "neither a name"),
        (b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x00", 1, "port 0"),
        (b"\x04\x01\x00\x01\xc0\x00\x02\x01\x00\x50", 1, "version 5"),
    ] {
        let answer = [&[5, 0, 5, code, 0, 1][..], &[0; 6]].concat();
        assert_refused(Socks5::new(None), &[GREETING, wrong].concat(), &answer, words);
    }
}

#[test]
fn what_is_not_socks_5_is_refused_at_its_first_octet() {
    assert_refused(Socks5::new(None), b"\x04", &SOCKS4_REJECTED, "version 4");
    assert_refused(Socks5::new(None), b"GET / HTTP/1.1\r\n\r\n", b"", "HTTP");
    assert_refused(Socks5::new(None), b"\x16\x03\x01", b"", "no SOCKS");
}

#[test]
fn each_failure_has_its_code() {
    use ConnectFailure::*;
    for (failure, code) in [
        (NotAllowed, 2),
        (Overloaded, 1),
        (NameUnknown, 4),
        (NameLookupFailed, 1),
        (Refused, 5),
        (Reset, 1),
        (NetworkUnreachable, 3),
        (HostUnreachable, 4),
        (TimedOut, 6),
        (Local, 1),
    ] {
        assert_eq!(*Socks5::new(None).handle_failed(failure), [5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn the_reply_has_the_address_that_is_used() {
    let mut socks = Socks5::new(None);
    assert_eq!(
        *socks.handle_connected("192.0.2.7:4660".parse().unwrap()),
        *b"\x05\0\0\x01\xc0\x00\x02\x07\x12\x34"
    );
    assert_eq!(
        *socks.handle_connected("[2001:db8::7]:4660".parse().unwrap()),
        *b"\x05\0\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x07\x12\x34"
    );
}

#[test]
fn nothing_is_asked_before_the_request_is_whole() {
    let bytes = [GREETING, ALICE, TO_NAME].concat();
    for end in 0..bytes.len() {
        assert_eq!(talk(with_users(), &bytes[..end], &[]).end, Err(None), "{end} octets");
    }
    let whole = talk(with_users(), &bytes, &[]);
    assert_eq!(talk(with_users(), &bytes, &vec![1; bytes.len()]), whole);
    assert!(whole.end.is_ok());
}

proptest! {
    #[test]
    fn what_a_client_says_may_come_in_any_pieces(
        begin in prop::sample::select(vec![0, GREETING.len(), GREETING.len() + ALICE.len(), GREETING.len() + ALICE.len() + TO_NAME.len()]),
        tail in prop::collection::vec(any::<u8>(), 0..600),
        pieces in prop::collection::vec(0usize..40, 0..60),
    ) {
        let bytes = [&[GREETING, ALICE, TO_NAME].concat()[..begin], &tail].concat();
        let at_once = talk(with_users(), &bytes, &[]);
        let in_pieces = talk(with_users(), &bytes, &pieces);
        prop_assert_eq!(in_pieces, at_once);
    }
}
