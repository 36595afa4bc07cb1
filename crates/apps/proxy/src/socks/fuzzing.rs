//! What fuzz targets do with what a client of SOCKS sends.

use std::sync::Arc;

use bytes::BytesMut;

use super::{DatagramHeader, Datagrams, Socks5};
use crate::{ConnectFailure, Negotiation, Step};

/// The first byte says whether users are known here, the others come from a client: in pieces they lead to what they lead to at once, and as one
/// datagram they are opened or counted.
pub fn socks(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let piece = usize::from(choice >> 1) + 1;
    assert_eq!(negotiate(choice, bytes, bytes.len().max(1)), negotiate(choice, bytes, piece));

    let mut datagrams = Datagrams::default();
    match datagrams.open(bytes) {
        None => assert_eq!(datagrams.fragments() + datagrams.malformed(), 1),
        Some(datagram) => {
            let Some(address) = datagram.target.address() else { return };
            let again = [DatagramHeader::new(address).as_bytes(), datagram.payload].concat();
            assert_eq!(datagrams.open(&again), Some(datagram));
        }
    }
}

/// What is said to the client, what it asks for or why it is refused, and what it leaves.
fn negotiate(choice: u8, bytes: &[u8], piece: usize) -> (Vec<u8>, Option<Step>, BytesMut) {
    // Some of the passwords are right, so that there is something behind.
    let knows = |name: &[u8], password: &[u8]| name.len() == password.len();
    let mut socks = Socks5::new(if choice & 1 == 0 { None } else { Some(Arc::new(knows)) });
    let mut input = BytesMut::new();
    let (mut sent, mut end) = (Vec::new(), None);
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match socks.poll_step(&mut input) {
                Step::Wait => break,
                Step::Send(answer) => sent.extend_from_slice(&answer),
                Step::Refuse(answer, refusal) => {
                    sent.extend_from_slice(&answer);
                    input.clear();
                    return (sent, Some(Step::Refuse(answer, refusal)), input);
                }
                Step::Ask(request) => {
                    sent.extend_from_slice(&socks.handle_failed(ConnectFailure::Refused));
                    assert!(end.replace(Step::Ask(request)).is_none(), "it asks twice");
                }
            }
        }
        assert!(end.is_some() || input.len() < 600, "it waits for more than a message");
    }
    (sent, end, input)
}
