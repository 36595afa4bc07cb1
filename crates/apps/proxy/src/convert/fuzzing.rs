//! What fuzz targets do with both sides of Convert.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;

use super::message::Message;
use super::tlv;
use super::{
    Client, CookieKey, CookiePeriod, OptionKind, Outcome, Server, ServerConfig, SupportedExtensions,
};
use crate::{ConnectFailure, Negotiation, Step};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 443);

/// A message of TLVs that the bytes name, one after another: its type, its length in words, and what it holds. Few inputs would come further than
/// the magic number, or the first length, without that.
fn message(mut bytes: &[u8]) -> BytesMut {
    const KINDS: [u8; 7] = [
        tlv::INFO,
        tlv::CONNECT,
        tlv::EXTENDED_TCP_HEADER,
        tlv::SUPPORTED_TCP_EXTENSIONS,
        tlv::COOKIE,
        tlv::ERROR,
        0,
    ];
    let mut message = BytesMut::from(&[1, 0, 0x22, 0x63][..]);
    while let [kind, words, rest @ ..] = bytes {
        let kind = if *kind < 128 { &KINDS[usize::from(*kind) % KINDS.len()] } else { kind };
        let (value, rest) =
            rest.split_at(rest.len().min((usize::from(*words) * tlv::WORD).saturating_sub(2)));
        if message.len() + tlv::padded(2 + value.len()) > super::LONGEST_MESSAGE {
            break;
        }
        tlv::write(&mut message, *kind, &[value]);
        bytes = rest;
    }
    message[1] = u8::try_from(message.len() / tlv::WORD).unwrap_or(u8::MAX);
    message
}

/// Any bytes as a message, and as the TLVs of one: what was read is read again when it is written.
pub fn convert_message(bytes: &[u8]) {
    for octets in [bytes.into(), message(bytes)] {
        if let Ok(message) = Message::parse(&octets) {
            let written = message.to_bytes();
            assert!(written.len() <= super::LONGEST_MESSAGE);
            assert_eq!(Message::parse(&written), Ok(message));
        }
    }
}

/// The first byte says what the converter wants, the others come from a client: in pieces they lead to what they lead to at once, and a client
/// understands every answer.
pub fn convert_server(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let config =
        ServerConfig::new(SupportedExtensions::new([OptionKind::MULTIPATH_TCP, OptionKind::FAST_OPEN]));
    let config = if choice & 1 == 0 { config } else { config.with_cookies(CookieKey::new([7; 16])) };
    let config = Arc::new(if choice & 2 == 0 { config } else { config.with_longest_message(100) });
    let period = CookiePeriod::of(Duration::from_secs(20), Duration::from_secs(10));
    let input = if choice & 4 == 0 { message(bytes) } else { bytes.into() };

    let at_once = run_server(Server::new(Arc::clone(&config), CLIENT, period), &input, input.len().max(1));
    let piece = usize::from(choice >> 3) + 1;
    let in_pieces = run_server(Server::new(config, CLIENT, period), &input, piece);
    assert_eq!(at_once, in_pieces);
    for answer in at_once.0 {
        let mut client = Client::connect(SERVER).expect("an address of a server");
        let outcome = client.poll_outcome(&mut answer[..].into());
        assert!(matches!(outcome, Ok(Some(_))), "{outcome:?} of {answer:?}");
    }
}

/// What a server says, and what it leaves.
fn run_server(mut server: Server, bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, BytesMut) {
    let (mut input, mut answers) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match server.poll_step(&mut input) {
                Step::Wait => break,
                Step::Send(answer) => answers.push(answer.to_vec()),
                Step::Ask(_) => {
                    assert!(server.asked_options().all(|option| option.kind.0 > 1));
                    answers.push(server.handle_failed(ConnectFailure::Refused).to_vec());
                    answers.push(server.handle_connected(SERVER).to_vec());
                }
                Step::Refuse(answer, _) if answer.is_empty() => {}
                Step::Refuse(answer, _) => answers.push(answer.to_vec()),
            }
        }
    }
    (answers, input)
}

/// Any bytes as a converter's answer, and as the TLVs of one: what the client does not take is left as it was.
pub fn convert_client(bytes: &[u8]) {
    for octets in [bytes.into(), message(bytes)] {
        let mut input: BytesMut = octets.clone();
        let mut client = Client::connect(SERVER).expect("an address of a server");
        let outcome = client.poll_outcome(&mut input);
        assert!(octets.ends_with(&input));
        if let Ok(Some(Outcome::Connected { .. })) = outcome {
            let left = input.clone();
            assert_eq!((client.poll_outcome(&mut input), input), (Ok(None), left));
        }
    }
}
