//! What local addresses have carried, over subflows that live and those that are gone.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use crate::subflow::{Stage, Subflow};

/// Addresses that are counted for themselves. Those that come later are counted together.
const MOST_ADDRESSES: usize = 16;

/// What went over subflows: each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Payload sent, retransmissions included.
    pub sent_bytes: u64,
    /// Payload received in order.
    pub received_bytes: u64,
    /// Payload that the peer has acknowledged.
    pub acknowledged_bytes: u64,
    /// Payload sent again.
    pub retransmitted_bytes: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Subflows that became ready for data.
    pub subflows: u64,
}

impl Carried {
    /// By a subflow, as of now.
    pub(crate) fn by(subflow: &Subflow) -> Self {
        let info = subflow.tcp.info();
        Self {
            sent_bytes: info.bytes_sent,
            received_bytes: info.bytes_received,
            acknowledged_bytes: info.bytes_acked,
            retransmitted_bytes: info.bytes_retrans,
            retransmitted_segments: info.retransmits,
            subflows: matches!(subflow.state.stage(), Stage::Established | Stage::Plain).into(),
        }
    }

    /// Adds what was carried besides.
    pub fn add(&mut self, more: Self) {
        self.sent_bytes += more.sent_bytes;
        self.received_bytes += more.received_bytes;
        self.acknowledged_bytes += more.acknowledged_bytes;
        self.retransmitted_bytes += more.retransmitted_bytes;
        self.retransmitted_segments += more.retransmitted_segments;
        self.subflows += more.subflows;
    }
}

/// What each local address has carried. A place in it is kept for ever, so that no sum goes back.
#[derive(Clone, Debug, Default)]
pub(crate) struct CarriedByAddress(Vec<(IpAddr, Carried)>);

impl CarriedByAddress {
    /// Adds to the place of an address; to the last one, of the unspecified address, once all others are taken.
    pub(crate) fn add(&mut self, addr: IpAddr, more: Carried) {
        let own = self.0.iter().position(|(known, _)| *known == addr);
        let at = own.unwrap_or_else(|| {
            let has_room = self.0.len() < MOST_ADDRESSES;
            if has_room || self.0.len() == MOST_ADDRESSES {
                let addr = if has_room { addr } else { Ipv4Addr::UNSPECIFIED.into() };
                self.0.push((addr, Carried::default()));
            }
            self.0.len() - 1
        });
        if let Some((_, carried)) = self.0.get_mut(at) {
            carried.add(more);
        }
    }

    /// Of all addresses.
    pub(crate) fn acknowledged_bytes(&self) -> u64 {
        self.0.iter().map(|(_, carried)| carried.acknowledged_bytes).sum()
    }

    pub(crate) fn into_list(self) -> Vec<(IpAddr, Carried)> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_places_and_those_beyond_share_one() {
        let mut sums = CarriedByAddress::default();
        let one = Carried { sent_bytes: 1, ..Carried::default() };
        for _ in 0..2 {
            (0..20).for_each(|last| sums.add(Ipv4Addr::new(10, 0, 0, last).into(), one));
        }
        let list = sums.into_list();
        assert_eq!(list.len(), MOST_ADDRESSES + 1);
        assert_eq!(list[0], (Ipv4Addr::new(10, 0, 0, 0).into(), Carried { sent_bytes: 2, ..one }));
        assert_eq!(list[16], (Ipv4Addr::UNSPECIFIED.into(), Carried { sent_bytes: 8, ..one }));
    }
}
