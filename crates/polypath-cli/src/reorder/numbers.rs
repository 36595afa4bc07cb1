//! Where a capture has the numbers in whose order packets were sent.

use std::fmt;
use std::str::FromStr;

use super::ip::{IpPacket, TCP, UDP};

/// So far inside a packet its sender's counter may be.
const MOST_OFFSET: usize = 9_000;
const UDP_HEADER_BYTES: usize = 8;

/// What says in which order packets were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// The sequence numbers of TCP: each flow is a stream.
    Tcp,
    /// The data sequence numbers of Multipath TCP: all subflows of a connection are one stream.
    Mptcp,
    /// The identification of IPv4.
    IpId,
    /// The sequence numbers of RTP (RFC 3550 §5.1).
    Rtp,
    /// A number of so many bits in UDP packets, behind so many bytes of payload.
    Payload { bits: u32, offset: usize },
}

impl Numbers {
    /// In how many bits it is counted; none of those that count bytes.
    pub(super) const fn bits(self) -> Option<u32> {
        match self {
            Self::Tcp | Self::Mptcp => None,
            Self::IpId | Self::Rtp => Some(16),
            Self::Payload { bits, .. } => Some(bits),
        }
    }

    /// The number of a packet, or why it has none.
    pub(super) fn read(self, packet: &IpPacket<'_>) -> Result<u64, &'static str> {
        match self {
            Self::Tcp | Self::Mptcp => Err("not TCP"),
            // A TCP socket counts for itself, whatever its host sends besides.
            Self::IpId if packet.protocol == TCP => Err("TCP, whose identifications each connection counts"),
            Self::IpId => packet.identification.map(u64::from).ok_or("IPv6, which has no identification"),
            Self::Rtp => {
                let &[first, kind, high, low] =
                    payload(packet)?.first_chunk::<4>().ok_or("cut before their numbers")?;
                // The version is two; and reports are no data (RFC 3550 §12.1).
                if first >> 6 != 2 || matches!(kind & 0x7f, 72..=76) {
                    return Err("not RTP");
                }
                Ok(u64::from(u16::from_be_bytes([high, low])))
            }
            Self::Payload { bits, offset } => {
                let end = offset + bits as usize / 8;
                let number = payload(packet)?.get(offset..end).ok_or("cut before their numbers")?;
                Ok(number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
            }
        }
    }
}

fn payload<'a>(packet: &IpPacket<'a>) -> Result<&'a [u8], &'static str> {
    if packet.protocol != UDP {
        return Err("not UDP");
    }
    packet.transport.get(UDP_HEADER_BYTES..).ok_or("cut within their headers")
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not known; expected tcp, mptcp, ip-id, rtp or payload-u32@BYTES (also u16, u64)"
            )
        };
        match text {
            "tcp" => Ok(Self::Tcp),
            "mptcp" => Ok(Self::Mptcp),
            "ip-id" => Ok(Self::IpId),
            "rtp" => Ok(Self::Rtp),
            _ => {
                let (kind, offset) = text.split_once('@').ok_or_else(wrong)?;
                let bits = match kind {
                    "payload-u16" => 16,
                    "payload-u32" => 32,
                    "payload-u64" => 64,
                    _ => return Err(wrong()),
                };
                let offset = offset.parse().ok().filter(|offset| *offset <= MOST_OFFSET);
                let offset = offset.ok_or_else(|| {
                    format!("\"{text}\": expected a number of bytes behind @, up to {MOST_OFFSET}")
                })?;
                Ok(Self::Payload { bits, offset })
            }
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Mptcp => f.write_str("mptcp"),
            Self::IpId => f.write_str("ip-id"),
            Self::Rtp => f.write_str("rtp"),
            Self::Payload { bits, offset } => write!(f, "payload-u{bits}@{offset}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_numbers_are_read_and_said() {
        for text in ["tcp", "mptcp", "ip-id", "rtp", "payload-u16@0", "payload-u32@8", "payload-u64@12"] {
            assert_eq!(text.parse::<Numbers>().map(|numbers| numbers.to_string()), Ok(text.to_string()));
        }
        for wrong in ["", "udp", "payload-u32", "payload-u8@0", "payload-u32@-1", "payload-u32@9001"] {
            assert!(wrong.parse::<Numbers>().is_err(), "{wrong}");
        }
    }
}
