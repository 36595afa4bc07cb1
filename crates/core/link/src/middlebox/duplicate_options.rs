use polypath_units::Instant;
use polypath_wire::{MAX_OPTIONS_BYTES, MptcpOption, Packet, TcpOption};

use super::flows::segment_mut;
use super::{Direction, Middlebox, Outputs};

/// Writes each Multipath TCP option twice, as far as there is space.
#[derive(Debug, Default)]
pub struct DuplicateOptions {
    _private: (),
}

impl DuplicateOptions {
    /// The box; it has no settings.
    pub const fn new() -> Self {
        Self { _private: () }
    }
}

impl Middlebox for DuplicateOptions {
    fn name(&self) -> &'static str {
        "duplicate-options"
    }

    fn handle_packet(&mut self, _now: Instant, direction: Direction, mut packet: Packet, out: &mut Outputs) {
        if let Some(segment) = segment_mut(&mut packet) {
            let options = &mut segment.options;
            let mut space = MAX_OPTIONS_BYTES.saturating_sub(options.unpadded_len_bytes());
            let mut fits = |len: usize| {
                let fits = len <= space;
                space -= if fits { len } else { 0 };
                fits
            };
            if let Some(dss) = options.dss
                && fits(dss.len_bytes())
            {
                options.rest.insert(0, TcpOption::Mptcp(MptcpOption::Dss(dss)));
            }
            let mut index = usize::from(options.dss.is_some());
            while let Some(option) = options.rest.get(index) {
                if matches!(option, TcpOption::Mptcp(_)) && fits(option.len_bytes()) {
                    let copy = option.clone();
                    options.rest.insert(index + 1, copy);
                    index += 1;
                }
                index += 1;
            }
        }
        out.push(direction, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::testing::segment_of;

    #[test]
    fn what_has_space_is_there_twice() {
        let mut path = Path::new(DuplicateOptions::new());
        let passed = path.client(syn(100));
        let copies: alloc::vec::Vec<_> = segment_of(&passed[0]).options.mptcp().collect();
        assert!(matches!(copies[..], [first, second] if first == second));

        // A DSS of 18 bytes fits twice, one of 22 does not.
        let with_ack = |packet| {
            let mut packet = with_dss(packet, 1, 10);
            let segment = segment_mut(&mut packet).unwrap();
            segment.options.dss.as_mut().unwrap().data_ack = Some(polypath_wire::WireDataSeq::Low(7));
            packet
        };
        let copies = |passed: &[Packet]| segment_of(&passed[0]).options.mptcp().count();
        assert_eq!(copies(&path.client(with_ack(seg(101, 501, 10)))), 1);
        let mut long = with_ack(seg(101, 501, 10));
        segment_mut(&mut long).unwrap().options.timestamps = Some(Default::default());
        let passed = path.client(long);
        assert_eq!(copies(&passed), 0);
        assert!(segment_of(&passed[0]).options.dss.is_some());
    }
}
