//! Forward error correction: packets that are lost are rebuilt from repair packets, without the round trip that sending them again takes.
//!
//! The code is the sliding-window random linear code of RFC 8681 over GF(2^8), by `cu-fec`: a repair packet is a combination of the last
//! source packets, and each one that arrives makes up for any one of them. As long as nothing is lost, nothing is encoded. A symbol is
//! the frame of a packet without time and ESI; symbols are of one length, so shorter ones end in zeros, which repair packets leave out.

mod receiver;
mod sender;

use cu_fec::{Error, Field, RlcConfig};

pub(crate) use receiver::{FecOutcome, FecReceiver};
pub(crate) use sender::FecSender;

use crate::frame::DATA_HEADER_BYTES;

/// Longer packets are not protected.
const MOST_PACKET_BYTES: usize = 1_500;
const SYMBOL_BYTES: usize = DATA_HEADER_BYTES + MOST_PACKET_BYTES;
/// So many source packets are in one repair packet. With more of them fewer repair packets are enough, and each costs more.
const ENCODING_WINDOW: usize = 24;

const fn config(window: usize) -> Result<RlcConfig, Error> {
    RlcConfig::new(SYMBOL_BYTES, window, Field::Gf256)
}

/// A frame as a symbol. `None` if it is too long.
fn fill(symbol: &mut [u8; SYMBOL_BYTES], header: &[u8], packet: &[u8]) -> Option<()> {
    let len = header.len() + packet.len();
    let (used, rest) = symbol.split_at_mut_checked(len)?;
    used[..header.len()].copy_from_slice(header);
    used[header.len()..].copy_from_slice(packet);
    rest.fill(0);
    Some(())
}
