//! Keys, tokens, HMACs and checksums from the text of RFC 8684 and RFC 6824, not from the code under test.

use std::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Token and initial data sequence number of a key (RFC 8684 §3.2, §3.1; RFC 6824 the same with SHA-1).
pub(crate) fn derive(version: u8, key: u64) -> (u32, u64) {
    let key = key.to_be_bytes();
    let hash: Vec<u8> = if version == 0 { Sha1::digest(key).to_vec() } else { Sha256::digest(key).to_vec() };
    let token = hash[..4].try_into().map(u32::from_be_bytes).expect("four bytes");
    let idsn = hash[hash.len() - 8..].try_into().map(u64::from_be_bytes).expect("eight bytes");
    (token, idsn)
}

fn hmac(version: u8, sender: u64, receiver: u64, message: &[u8]) -> Vec<u8> {
    let key = [sender.to_be_bytes(), receiver.to_be_bytes()].concat();
    if version == 0 {
        let mut mac = Hmac::<Sha1>::new_from_slice(&key).expect("any length");
        mac.update(message);
        mac.finalize().into_bytes().to_vec()
    } else {
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length");
        mac.update(message);
        mac.finalize().into_bytes().to_vec()
    }
}

/// The leftmost 160 bits that the sender puts in MP_JOIN (RFC 8684 §3.2, figures 7 and 8).
pub(crate) fn join(version: u8, keys: (u64, u64), nonces: (u32, u32)) -> [u8; 20] {
    let message = [nonces.0.to_be_bytes(), nonces.1.to_be_bytes()].concat();
    hmac(version, keys.0, keys.1, &message)[..20].try_into().expect("twenty bytes")
}

/// The rightmost 64 bits that the sender puts in ADD_ADDR (RFC 8684 §3.4.1).
pub(crate) fn add_addr(keys: (u64, u64), id: u8, addr: IpAddr, port: Option<u16>) -> u64 {
    let mut message = vec![id];
    match addr {
        IpAddr::V4(addr) => message.extend(addr.octets()),
        IpAddr::V6(addr) => message.extend(addr.octets()),
    }
    message.extend(port.unwrap_or(0).to_be_bytes());
    let hash = hmac(1, keys.0, keys.1, &message);
    hash[hash.len() - 8..].try_into().map(u64::from_be_bytes).expect("eight bytes")
}

/// The DSS checksum (RFC 8684 §3.3, figures 9 and 10): data sequence number, subflow sequence number, length, zeros, data.
pub(crate) fn checksum(data_seq: u64, at: u32, len: u16, data: &[u8]) -> u16 {
    let mut bytes = data_seq.to_be_bytes().to_vec();
    bytes.extend(at.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(data);
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The byte at this place of either stream.
pub(crate) fn stream_byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A piece of either stream.
pub(crate) fn stream(from: u64, len: usize) -> Vec<u8> {
    (from..).take(len).map(stream_byte).collect()
}
