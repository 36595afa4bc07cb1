use polypath_wire::{Segment, SeqNumber, TcpFlags};

/// The reset that answers a segment for which there is no connection (RFC 9293 §3.5.2, group 1); none for a
/// reset, so that two hosts can't reset each other for ever.
#[must_use]
pub fn reset_in_reply(segment: &Segment) -> Option<Segment> {
    if segment.flags.rst() {
        return None;
    }
    Some(if segment.flags.ack() {
        Segment { seq: segment.ack, flags: TcpFlags::RST, ..Segment::default() }
    } else {
        Segment {
            seq: SeqNumber(0),
            ack: segment.seq_end(),
            flags: TcpFlags::RST.with(TcpFlags::ACK),
            ..Segment::default()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_its_numbers_from_the_segment() {
        let data = Segment { ack: SeqNumber(77), flags: TcpFlags::ACK, ..Segment::default() };
        let reset = reset_in_reply(&data).unwrap();
        assert_eq!((reset.seq, reset.flags), (SeqNumber(77), TcpFlags::RST));

        let syn = Segment { seq: SeqNumber(41), flags: TcpFlags::SYN, ..Segment::default() };
        let reset = reset_in_reply(&syn).unwrap();
        assert_eq!((reset.seq, reset.ack, reset.flags), (SeqNumber(0), SeqNumber(42), TcpFlags(0x14)));
        assert_eq!(reset_in_reply(&reset), None);
    }
}
