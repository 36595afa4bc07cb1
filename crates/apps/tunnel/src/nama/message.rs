use bytes::{BufMut, Bytes, BytesMut};

/// What no IP packet begins with: those have their version, 4 or 6, in the upper half of the first byte.
const PROBE: u8 = 0xf0;
const ANSWER: u8 = 0xf1;
const TRAIN: u8 = 0xf2;

/// What both ends tell each other besides packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// To be answered at once, over the same path.
    Probe { number: u32 },
    /// What the receiver has seen until now.
    Answer(Answer),
    /// One packet of several that leave back to back.
    Train(TrainPacket),
}

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The number of the probe.
    pub(super) number: u32,
    /// When it leaves, by the receiver's clock.
    pub(super) at_micros: u64,
    pub(super) paths: Vec<Seen>,
}

/// What the receiver has seen on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes of packets.
    pub(super) received_bytes: u64,
    /// The last train whose end came, and the path's rate by its dispersion.
    pub(super) train: u32,
    pub(super) train_bps: u64,
}

/// A packet of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrainPacket {
    /// The number of the train, from one.
    pub(super) train: u32,
    /// Which of its packets, from zero.
    pub(super) place: u8,
    /// How many it has.
    pub(super) count: u8,
}

impl Message {
    /// As it goes over a path; a packet of a train is padded to so many bytes.
    pub(super) fn encode(&self, train_bytes: usize) -> Bytes {
        let mut bytes = BytesMut::new();
        match self {
            Self::Probe { number } => {
                bytes.put_u8(PROBE);
                bytes.put_u32(*number);
            }
            Self::Answer(Answer { number, at_micros, paths }) => {
                bytes.put_u8(ANSWER);
                bytes.put_u32(*number);
                bytes.put_u64(*at_micros);
                for Seen { received_bytes, train, train_bps } in paths {
                    bytes.put_u64(*received_bytes);
                    bytes.put_u32(*train);
                    bytes.put_u64(*train_bps);
                }
            }
            Self::Train(TrainPacket { train, place, count }) => {
                bytes.put_u8(TRAIN);
                bytes.put_u32(*train);
                bytes.put_u8(*place);
                bytes.put_u8(*count);
                bytes.resize(train_bytes.max(bytes.len()), 0);
            }
        }
        bytes.freeze()
    }

    /// None of what is an IP packet, or nothing at all.
    pub(super) fn decode(datagram: &[u8]) -> Option<Self> {
        let (kind, rest) = datagram.split_first()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let number = u32::from_be_bytes(*number);
        match *kind {
            PROBE if rest.is_empty() => Some(Self::Probe { number }),
            ANSWER => {
                let (at, mut rest) = rest.split_first_chunk::<8>()?;
                let mut paths = Vec::new();
                while let Some((received, after)) = rest.split_first_chunk::<8>() {
                    let (train, after) = after.split_first_chunk::<4>()?;
                    let (rate, after) = after.split_first_chunk::<8>()?;
                    paths.push(Seen {
                        received_bytes: u64::from_be_bytes(*received),
                        train: u32::from_be_bytes(*train),
                        train_bps: u64::from_be_bytes(*rate),
                    });
                    rest = after;
                }
                rest.is_empty().then_some(Self::Answer(Answer {
                    number,
                    at_micros: u64::from_be_bytes(*at),
                    paths,
                }))
            }
            TRAIN => {
                let [place, count, ..] = *rest else { return None };
                (place < count).then_some(Self::Train(TrainPacket { train: number, place, count }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let seen = |n| Seen { received_bytes: n, train: 7, train_bps: n << 40 };
        for message in [
            Message::Probe { number: 1 },
            Message::Answer(Answer { number: u32::MAX, at_micros: 5, paths: vec![] }),
            Message::Answer(Answer { number: 2, at_micros: u64::MAX, paths: vec![seen(1), seen(9)] }),
            Message::Train(TrainPacket { train: 3, place: 1, count: 2 }),
        ] {
            let bytes = message.encode(100);
            assert_eq!(Message::decode(&bytes), Some(message.clone()));
            assert!(!matches!(bytes[0] >> 4, 4 | 6), "{message:?} looks like an IP packet");
            // The padding of a train's packet has no end that could be missed.
            let is_train = matches!(message, Message::Train(_));
            let least = if is_train { 7 } else { bytes.len() };
            for cut in 0..least {
                // An answer may end behind any path.
                let is_whole = bytes.len() - cut;
                if !matches!(message, Message::Answer(_)) || is_whole % 20 != 0 {
                    assert_eq!(Message::decode(&bytes[..cut]), None, "{message:?} {cut}");
                }
            }
        }
        assert_eq!(Message::Train(TrainPacket { train: 3, place: 0, count: 2 }).encode(1440).len(), 1440);
    }

    #[test]
    fn ip_packets_are_no_messages() {
        for first in [0x45, 0x60, 0x00, 0xff] {
            assert_eq!(Message::decode(&[first, 0, 0, 0, 0, 0, 0, 0]), None);
        }
        assert_eq!(Message::decode(&[]), None);
        assert_eq!(Message::decode(&[TRAIN, 0, 0, 0, 1, 2, 2]), None, "the third packet of two");
    }
}
