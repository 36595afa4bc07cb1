//! Packets of a capture that can be looked at, and how many can't.

use std::collections::BTreeMap;
use std::net::IpAddr;

use polypath_units::Instant;

use super::capture::{Capture, CaptureError, Ended};
use super::ip::{IpPacket, NoPacket};
use super::link_layer::{Carried, carried};

/// No link carries larger packets, unless the network card cuts them or puts them together.
const LARGEST_ON_LINKS: usize = 9_216;

/// Packets that are not looked at, by cause.
pub(crate) type LeftOut = BTreeMap<&'static str, u64>;

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) at: Instant,
    pub(super) is_outbound: bool,
    pub(super) packet: IpPacket<'a>,
}

/// What a capture has besides packets that are looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) left_out: LeftOut,
    /// Larger than any link carries.
    pub(super) aggregates: u64,
}

impl Look {
    pub(super) fn leave_out(&mut self, cause: &'static str) {
        *self.left_out.entry(cause).or_default() += 1;
    }

    /// What is to be known of a capture, in words.
    pub(super) fn notes(&self, name: &str, capture: &Capture) -> Vec<String> {
        let mut notes = Vec::new();
        if self.aggregates > 0 {
            notes.push(format!(
                "{} packets of {name} are larger than links carry: the host puts packets together for its programs, or has its \
                 network card cut them. Each counts as one. ethtool -K INTERFACE gro off lro off tso off gso off, before \
                 the capture, keeps them apart.",
                self.aggregates
            ));
        }
        if capture.without_time() > 0 {
            notes.push(format!(
                "{} packets of {name} have no time: late times are too short by what passed.",
                capture.without_time()
            ));
        }
        if capture.obsolete() > 0 {
            notes.push(format!(
                "{} packets of {name} are in an obsolete form and were not read; editcap writes them anew.",
                capture.obsolete()
            ));
        }
        notes
    }

    /// Looks at all packets that have an IP header, optionally at those to one address only.
    pub(super) fn each(
        &mut self,
        capture: &mut Capture,
        to: Option<IpAddr>,
        mut take: impl FnMut(&mut Self, Seen<'_>),
    ) -> Result<Ended, CaptureError> {
        loop {
            let read = capture.read(|frame| {
                let (offset, is_outbound) = match carried(frame.link, frame.bytes) {
                    Carried::Ip { offset, is_outbound } => (offset, is_outbound),
                    Carried::Other => return self.leave_out("not IP"),
                    Carried::UnknownLink => return self.leave_out("of a link layer that is not known"),
                };
                let bytes = frame.bytes.get(offset..).unwrap_or_default();
                let packet = match IpPacket::parse(bytes, frame.whole_len.saturating_sub(offset)) {
                    Ok(packet) => packet,
                    Err(NoPacket::NotIp) => return self.leave_out("not IP"),
                    Err(NoPacket::Fragment) => return self.leave_out("fragments"),
                    Err(NoPacket::Cut) => return self.leave_out("cut within their headers"),
                };
                if to.is_some_and(|to| to != packet.dst) {
                    return self.leave_out("to other addresses");
                }
                self.aggregates += u64::from(packet.transport_len > LARGEST_ON_LINKS);
                let is_outbound = is_outbound || frame.is_outbound;
                take(self, Seen { at: frame.at, is_outbound, packet });
            })?;
            if let Err(ended) = read {
                return Ok(ended);
            }
        }
    }
}
