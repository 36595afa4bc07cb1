//! The bytes side of the crate: against vectors written by hand from the standards, against itself over
//! random values, and against hostile bytes.

mod hostile;
mod mptcp_vectors;
mod packet_vectors;
mod round_trip;
mod seeds;
mod strategies;
mod tcp_vectors;

/// Bytes from hexadecimal digits; spaces and line ends are ignored.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    assert!(digits.len().is_multiple_of(2));
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
