//! Both sides against each other, and against any bytes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::connect::Connect;
use super::message::Message;
use super::*;
use crate::{Command, ConnectFailure, Negotiation, Step};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const DAY: Duration = Duration::from_secs(86_400);

fn day(number: u32) -> CookiePeriod {
    CookiePeriod::of(DAY * number, DAY)
}

fn remote() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 7], 443))
}

fn config() -> ServerConfig {
    ServerConfig::new(SupportedExtensions::new([OptionKind::MULTIPATH_TCP, OptionKind::FAST_OPEN]))
}

fn server(config: &ServerConfig) -> Server {
    Server::new(Arc::new(config.clone()), ADDRESS, day(20_000))
}

fn client() -> Client {
    Client::connect(remote()).expect("a server")
}

fn multipath() -> TcpOptions {
    TcpOptions::default().with(OptionKind::MULTIPATH_TCP, &[]).expect("room")
}

/// What a client makes of an answer, and what it leaves.
fn outcome(client: &mut Client, answer: &[u8]) -> (Result<Option<Outcome>, AnswerError>, BytesMut) {
    let mut input = BytesMut::from(answer);
    (client.poll_outcome(&mut input), input)
}

/// The server is asked for a connection, with what follows left for it.
fn ask(client: &Client, server: &mut Server) {
    let mut input = BytesMut::from(&[&client.first_bytes()[..], b"GET /"].concat()[..]);
    let Step::Ask(request) = server.poll_step(&mut input) else { panic!("nothing is asked") };
    assert_eq!((request.command, request.user), (Command::Connect, None));
    assert_eq!(request.target, remote().into());
    assert_eq!(input[..], b"GET /"[..]);
    assert_eq!(server.poll_step(&mut input), Step::Wait);
}

/// What the client makes of the server's refusal.
fn refusal(client: &mut Client, server: &mut Server) -> Outcome {
    let mut input = BytesMut::from(&client.first_bytes()[..]);
    let Step::Refuse(answer, _) = server.poll_step(&mut input) else { panic!("no refusal") };
    assert_eq!(server.poll_step(&mut input), Step::Wait, "it is over");
    let (outcome, _) = outcome(client, &answer);
    outcome.expect("an answer").expect("all of it")
}

#[test]
fn a_client_is_connected() {
    let (mut client, mut server) = (client(), server(&config()));
    ask(&client, &mut server);
    let answer = server.handle_connected(SocketAddr::from(([203, 0, 113, 1], 40_000)));
    assert_eq!(answer[..], [1, 1, 0x22, 0x63], "no option is known, nor asked for");
    let (found, left) = outcome(&mut client, &[&answer[..], b"HTTP/1.1"].concat());
    assert_eq!(found, Ok(Some(Outcome::Connected { server_options: None, supported: None })));
    assert_eq!(left[..], b"HTTP/1.1"[..]);
    assert_eq!(client.poll_outcome(&mut left.clone()), Ok(None), "payload is left alone");
}

#[test]
fn options_of_the_server_are_told() {
    for (asked, known) in [(false, true), (true, true), (true, false)] {
        let (mut client, mut server) = (client(), server(&config()));
        if asked {
            client = client.with_options(multipath());
        }
        ask(&client, &mut server);
        assert_eq!(server.asked_options().count(), usize::from(asked));
        if known {
            server.handle_multipath();
        }
        let (found, _) = outcome(&mut client, &server.handle_connected(remote()));
        let Ok(Some(Outcome::Connected { server_options: Some(options), supported: None })) = found else {
            panic!("{found:?}");
        };
        assert_eq!(options.has(OptionKind::MULTIPATH_TCP), known);
    }
}

#[test]
fn what_is_converted_is_told_alone_or_with_a_connection() {
    let kinds = SupportedExtensions::new([OptionKind(34), OptionKind(30)]);
    let (mut asking, mut converter) = (Client::ask_extensions(), server(&config()));
    let mut input = BytesMut::from(&asking.first_bytes()[..]);
    let Step::Send(answer) = converter.poll_step(&mut input) else { panic!("no answer") };
    let Step::Refuse(nothing, _) = converter.poll_step(&mut input) else { panic!("it is not over") };
    assert!(nothing.is_empty());
    assert_eq!(outcome(&mut asking, &answer).0, Ok(Some(Outcome::Informed(kinds.clone()))));

    let (mut asking, mut converter) = (client().with_info(), server(&config()));
    ask(&asking, &mut converter);
    let (found, _) = outcome(&mut asking, &converter.handle_connected(remote()));
    assert_eq!(found, Ok(Some(Outcome::Connected { server_options: None, supported: Some(kinds) })));
}

#[test]
fn a_cookie_is_given_and_shown() {
    let config = config().with_cookies(CookieKey::new([3; 16]));
    let Outcome::CookieGiven(cookie) = refusal(&mut client(), &mut server(&config)) else {
        panic!("no cookie");
    };
    let mut with_cookie = client().with_cookie(cookie);
    ask(&with_cookie, &mut server(&config));

    let config = Arc::new(config);
    let elsewhere = IpAddr::from([198, 51, 100, 2]);
    let mut other_client = Server::new(Arc::clone(&config), elsewhere, day(20_000));
    let refused = Outcome::Refused(ErrorTlv::NotAuthorized);
    assert_eq!(refusal(&mut with_cookie.clone(), &mut other_client), refused);
    ask(&with_cookie, &mut Server::new(Arc::clone(&config), ADDRESS, day(20_001)));
    let mut too_late = Server::new(config, ADDRESS, day(20_002));
    assert_eq!(refusal(&mut with_cookie, &mut too_late), refused);
    assert!(with_cookie.has_cookie(), "so it tries once more without");
}

#[test]
fn a_cookie_is_wanted_of_who_asks_what_is_converted_too() {
    let config = config().with_cookies(CookieKey::new([3; 16]));
    let given = refusal(&mut Client::ask_extensions(), &mut server(&config));
    assert!(matches!(given, Outcome::CookieGiven(_)));
}

#[test]
fn a_cookie_that_nobody_wants_is_borne() {
    let cookie = Cookie::new(&[1; 16]).expect("short");
    ask(&client().with_cookie(cookie.clone()), &mut server(&config()));
    // One that is given in place of one that was shown would be given for ever.
    let missing = Message::refusal(ErrorTlv::MissingCookie(Some(cookie.clone()))).to_bytes();
    let found = outcome(&mut client().with_cookie(cookie.clone()), &missing).0;
    assert_eq!(found, Ok(Some(Outcome::Refused(ErrorTlv::MissingCookie(Some(cookie))))));
}

#[test]
fn options_that_can_t_be_sent_are_named() {
    let options =
        TcpOptions::new(&[2, 4, 5, 180, 3, 3, 7, 253, 2, 8, 2, 29, 4, 0, 0, 1, 5, 2, 30, 3, 1, 34, 3, 9])
            .expect("options");
    let mut client = client().with_options(options);
    let refused = refusal(&mut client, &mut server(&config()));
    let kinds = [8, 29, 30, 253].map(OptionKind).into_iter().collect();
    assert_eq!(refused, Outcome::Refused(ErrorTlv::UnsupportedTcpOption(kinds)));
}

#[test]
fn options_that_belong_to_one_end_are_ignored() {
    let options = TcpOptions::new(&[2, 4, 5, 180, 3, 3, 7, 1, 5, 2, 34, 3, 9]).expect("options");
    let mut server = server(&config());
    ask(&client().with_options(options), &mut server);
    let asked: Vec<_> = server.asked_options().collect();
    assert_eq!(asked, [TcpOption { kind: OptionKind::FAST_OPEN, value: &[9] }]);
}

#[test]
fn each_failure_has_its_error() {
    use ConnectFailure as Failure;
    let v6 = SocketAddr::from((std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 80));
    for (failure, code, first) in [
        (Failure::NotAllowed, 32, 0),
        (Failure::Overloaded, 64, 0),
        (Failure::Local, 64, 0),
        (Failure::NameLookupFailed, 65, 0),
        (Failure::Refused, 96, 0),
        (Failure::Reset, 96, 0),
        (Failure::Garbled, 96, 0),
        (Failure::NetworkUnreachable, 97, 0),
        (Failure::HostUnreachable, 97, 1),
        (Failure::TimedOut, 97, 1),
        (Failure::NameUnknown, 97, 1),
    ] {
        let (mut client, mut server) = (client(), server(&config()));
        ask(&client, &mut server);
        let answer = server.handle_failed(failure);
        assert_eq!(answer[..], [1, 2, 0x22, 0x63, 30, 1, code, first], "{failure}");
        let (found, _) = outcome(&mut client, &answer);
        assert!(matches!(found, Ok(Some(Outcome::Refused(error))) if error.code() == code));
    }
    let mut server = server(&config());
    let client = Client::connect(v6).expect("a server");
    assert!(matches!(server.poll_step(&mut (&client.first_bytes()[..]).into()), Step::Ask(_)));
    assert_eq!(server.handle_failed(Failure::HostUnreachable)[6..], [97, 3]);
}

#[test]
fn messages_that_can_t_be_are_answered() {
    const LOOPBACK: &[u8] = &[1, 6, 0x22, 0x63, 10, 5, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    for (octets, answer) in [
        (&[2, 1, 0x22, 0x63][..], &[1, 2, 0x22, 0x63, 30, 1, 0, 1][..]),
        (&[1, 1, 0, 0], &[1, 3, 0x22, 0x63, 30, 2, 1, 0, 1, 1, 0, 0]),
        (&[1, 0, 0x22, 0x63], &[]),
        // Nothing is asked.
        (&[1, 1, 0x22, 0x63], &[1, 3, 0x22, 0x63, 30, 2, 1, 0, 1, 1, 0x22, 0x63]),
        // A type that is reserved, one that is not known, and three that are the converter's.
        (&[1, 2, 0x22, 0x63, 0, 1, 0, 0], &[1, 4, 0x22, 0x63, 30, 3, 2, 0, 1, 2, 0x22, 0x63, 0, 1, 0, 0]),
        (&[1, 2, 0x22, 0x63, 9, 1, 0, 0], &[1, 4, 0x22, 0x63, 30, 3, 2, 0, 1, 2, 0x22, 0x63, 9, 1, 0, 0]),
        (&[1, 2, 0x22, 0x63, 20, 1, 0, 0], &[1, 4, 0x22, 0x63, 30, 3, 2, 0, 1, 2, 0x22, 0x63, 20, 1, 0, 0]),
        (&[1, 2, 0x22, 0x63, 21, 1, 0, 0], &[1, 4, 0x22, 0x63, 30, 3, 2, 0, 1, 2, 0x22, 0x63, 21, 1, 0, 0]),
        (&[1, 2, 0x22, 0x63, 30, 1, 32, 0], &[1, 4, 0x22, 0x63, 30, 3, 2, 0, 1, 2, 0x22, 0x63, 30, 1, 32, 0]),
        (&[1, 2, 0x22, 0x63, 1, 2, 0, 0], &[1, 4, 0x22, 0x63, 30, 3, 1, 0, 1, 2, 0x22, 0x63, 1, 2, 0, 0]),
        (LOOPBACK, &[&[1, 8, 0x22, 0x63, 30, 7, 1, 0], LOOPBACK].concat()),
    ] {
        let mut server = server(&config());
        let mut input = BytesMut::from(octets);
        let Step::Refuse(said, _) = server.poll_step(&mut input) else { panic!("{octets:?}") };
        assert_eq!(said[..], *answer, "{octets:?}");
        assert!(input.is_empty());
    }
    let mut short = server(&config().with_longest_message(20));
    let refused = refusal(&mut client(), &mut short);
    let header = Bytes::from_static(&[1, 6, 0x22, 0x63]);
    assert_eq!(refused, Outcome::Refused(ErrorTlv::MalformedMessage(header)));
}

#[test]
fn answers_that_are_none_are_errors() {
    let connect = client().first_bytes();
    let extensions = [1, 2, 0x22, 0x63, 20, 1, 0, 0];
    for (mut client, answer, error) in [
        (client(), &b"HTTP/1.1 400"[..], MessageError::Version(b'H').into()),
        (client(), &[1, 0, 0x22, 0x63], MessageError::NoLength.into()),
        (client(), &[1, 2, 0x22, 0x63, 0, 1, 0, 0], MessageError::UnknownTlv(0).into()),
        (client(), &connect, AnswerError::Unexpected),
        (client(), &[1, 2, 0x22, 0x63, 1, 1, 0, 0], AnswerError::Unexpected),
        (client(), &[1, 2, 0x22, 0x63, 22, 1, 0, 0], AnswerError::Unexpected),
        (Client::ask_extensions(), &extensions, AnswerError::Unexpected),
        (Client::ask_extensions(), &[1, 1, 0x22, 0x63], AnswerError::NothingSaid),
    ] {
        assert_eq!(outcome(&mut client, answer).0, Err(error));
    }
}

/// What is said when bytes come one by one: the steps that are no waiting.
fn steps_one_by_one(server: &mut Server, octets: &[u8]) -> (Vec<Step>, BytesMut) {
    let (mut input, mut steps) = (BytesMut::new(), Vec::new());
    for octet in octets {
        input.extend_from_slice(&[*octet]);
        steps.extend(steps_at_once(server, &mut input));
    }
    (steps, input)
}

fn steps_at_once(server: &mut Server, input: &mut BytesMut) -> Vec<Step> {
    let mut steps = Vec::new();
    loop {
        match server.poll_step(input) {
            Step::Wait => return steps,
            step => steps.push(step),
        }
    }
}

#[test]
fn a_message_that_is_cut_anywhere_is_awaited() {
    let cookie = Cookie::new(&[1; 16]).expect("short");
    let request = client().with_options(multipath()).with_info().with_cookie(cookie).first_bytes();
    let mut connected = server(&config());
    ask(&client().with_info(), &mut connected);
    connected.handle_multipath();
    let answer = connected.handle_connected(remote());
    for octets in 0..request.len() {
        let mut server = server(&config());
        assert_eq!(server.poll_step(&mut request[..octets].into()), Step::Wait);
    }
    for octets in 0..answer.len() {
        assert_eq!(client().poll_outcome(&mut answer[..octets].into()), Ok(None));
    }
}

fn kinds() -> impl Strategy<Value = OptionKinds> {
    vec(any::<u8>(), 0..300).prop_map(|kinds| kinds.into_iter().map(OptionKind).collect())
}

fn options() -> impl Strategy<Value = TcpOptions> {
    vec((any::<u8>(), vec(any::<u8>(), 0..12)), 0..8).prop_map(|options| {
        let add = |list: TcpOptions, (kind, value): (u8, Vec<u8>)| {
            list.clone().with(OptionKind(kind.max(2)), &value).unwrap_or(list)
        };
        options.into_iter().fold(TcpOptions::default(), add)
    })
}

fn connect() -> impl Strategy<Value = Connect> {
    let addresses =
        prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
    (addresses, any::<u16>(), options()).prop_filter_map("a server", |(address, port, options)| {
        Connect::new(SocketAddr::new(address, port)).map(|connect| connect.with_options(options)).ok()
    })
}

fn cookie() -> impl Strategy<Value = Cookie> {
    vec(any::<u8>(), 0..=Cookie::MOST_OCTETS).prop_map(|octets| Cookie::new(&octets).expect("short"))
}

fn error() -> impl Strategy<Value = ErrorTlv> {
    let echo = || vec(any::<[u8; 4]>(), 0..60).prop_map(|words| Bytes::from(words.concat()));
    prop_oneof![
        vec(1..=u8::MAX, 0..255).prop_map(ErrorTlv::UnsupportedVersion),
        echo().prop_map(ErrorTlv::MalformedMessage),
        echo().prop_map(ErrorTlv::UnsupportedMessage),
        of(cookie().prop_filter("it is there", |cookie| !cookie.as_octets().is_empty()))
            .prop_map(ErrorTlv::MissingCookie),
        Just(ErrorTlv::NotAuthorized),
        kinds().prop_map(ErrorTlv::UnsupportedTcpOption),
        any::<u8>().prop_map(|delay_s| ErrorTlv::ResourceExceeded { delay_s }),
        any::<u8>().prop_map(|delay_s| ErrorTlv::NetworkFailure { delay_s }),
        Just(ErrorTlv::ConnectionReset),
        any::<u8>().prop_map(|icmp_code| ErrorTlv::DestinationUnreachable { icmp_code }),
        (98..=u8::MAX, any::<u8>(), echo()).prop_map(|(code, first, echo)| {
            ErrorTlv::Other { code, value: [&[first], &echo[..]].concat().into() }
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let supported = kinds().prop_map(|kinds| SupportedExtensions::new(kinds.iter()));
    (any::<bool>(), of(connect()), of(options()), of(supported), of(cookie()), of(error())).prop_map(
        |(info, connect, extended_tcp_header, supported_extensions, cookie, error)| Message {
            info,
            connect,
            extended_tcp_header,
            supported_extensions,
            cookie,
            error,
        },
    )
}

/// Any bytes, often behind a header that fits them.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let small = vec(prop_oneof![0..4_u8, Just(10_u8), 20..23_u8, Just(30_u8), any::<u8>()], 0..200);
    (small, any::<bool>()).prop_map(|(mut octets, has_header)| {
        if has_header && octets.len() >= 4 {
            let words = u8::try_from(octets.len() / 4).unwrap_or(u8::MAX);
            octets[..4].copy_from_slice(&[1, words, 0x22, 0x63]);
        }
        octets
    })
}

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_written(message in message()) {
        let octets = message.to_bytes();
        prop_assert!(octets.len() <= LONGEST_MESSAGE);
        prop_assert_eq!(Message::parse(&octets), Ok(message));
    }

    #[test]
    fn any_bytes_are_borne(octets in bytes()) {
        if let Ok(message) = Message::parse(&octets) {
            prop_assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }
        let mut input = BytesMut::from(&octets[..]);
        let _ = client().poll_outcome(&mut input);
        prop_assert!(octets.ends_with(&input));
    }

    #[test]
    fn bytes_one_by_one_are_as_all_at_once(octets in bytes(), message in message(), has_message in any::<bool>(), wants_cookie in any::<bool>()) {
        let octets = if has_message { [&message.to_bytes()[..], &octets].concat() } else { octets };
        let config = if wants_cookie { config().with_cookies(CookieKey::new([1; 16])) } else { config() };
        let mut input = BytesMut::from(&octets[..]);
        let at_once = steps_at_once(&mut server(&config), &mut input);
        prop_assert_eq!(steps_one_by_one(&mut server(&config), &octets), (at_once, input));

        let mut input = BytesMut::new();
        let mut slow = client();
        let mut found = Ok(None);
        for octet in &octets {
            input.extend_from_slice(&[*octet]);
            if found == Ok(None) {
                found = slow.poll_outcome(&mut input);
            }
        }
        prop_assert_eq!((found, input), outcome(&mut client(), &octets));
    }
}
