use polypath_units::{BitRate, Instant};

use crate::nama::message::{Answer, Seen, TrainPacket};

/// What the receiver tells of each path: how much came, and what trains of packets say of its capacity.
#[derive(Clone, Debug)]
pub(super) struct Reception {
    paths: Vec<Path>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    seen: Seen,
    train: Option<Arriving>,
}

/// A train of which some packets came.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    number: u32,
    first: Instant,
    /// The place of the last one.
    last: u8,
    /// Bytes behind the first one.
    bytes: u64,
}

impl Reception {
    pub(super) fn new(paths: usize) -> Self {
        Self { paths: vec![Path::default(); paths] }
    }

    /// A packet came.
    pub(super) fn handle_packet(&mut self, path: usize, bytes: u64) {
        if let Some(path) = self.paths.get_mut(path) {
            path.seen.received_bytes += bytes;
        }
    }

    /// A packet of a train came, which has so many bytes on the way. The dispersion of the packets is that of the narrowest link.
    pub(super) fn handle_train(&mut self, now: Instant, path: usize, packet: TrainPacket, bytes: u64) {
        let Some(path) = self.paths.get_mut(path) else { return };
        match &mut path.train {
            Some(train) if train.number == packet.train && packet.place > train.last => {
                train.last = packet.place;
                train.bytes += bytes;
                let span = now.since(train.first);
                if packet.place + 1 == packet.count && !span.is_zero() {
                    let rate = BitRate::from_bytes_over(train.bytes, span);
                    (path.seen.train, path.seen.train_bps) = (packet.train, rate.as_bps());
                }
            }
            Some(train) if train.number == packet.train => {}
            _ => {
                let (number, last) = (packet.train, packet.place);
                path.train = Some(Arriving { number, first: now, last, bytes: 0 });
            }
        }
    }

    /// The answer to a probe of this number.
    pub(super) fn answer(&self, now: Instant, number: u32) -> Answer {
        let paths = self.paths.iter().map(|path| path.seen).collect();
        Answer { number, at_micros: now.as_micros(), paths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    const fn packet(train: u32, place: u8) -> TrainPacket {
        TrainPacket { train, place, count: 4 }
    }

    #[test]
    fn the_dispersion_of_a_train_is_the_rate_of_the_path() {
        let mut reception = Reception::new(2);
        // 1500 bytes each 12 ms: 1 Mbit/s.
        for place in 0..4 {
            assert_eq!(reception.answer(at(0), 1).paths[1].train, 0);
            reception.handle_train(at(100 + 12 * u64::from(place)), 1, packet(1, place), 1500);
        }
        let seen = reception.answer(at(200), 1).paths;
        assert_eq!((seen[1].train, seen[1].train_bps, seen[0]), (1, 1_000_000, Seen::default()));
    }

    #[test]
    fn a_train_that_lost_packets_says_what_the_others_do() {
        let mut reception = Reception::new(1);
        // The second one is lost: two thirds of the bytes in the whole time.
        for (millis, place) in [(0, 0), (24, 2), (36, 3)] {
            reception.handle_train(at(millis), 0, packet(1, place), 1500);
        }
        assert_eq!(reception.answer(at(50), 1).paths[0].train_bps, 666_666);
        // Without its end it says nothing, and what comes twice or late counts once.
        for (millis, place) in [(100, 0), (112, 1), (112, 1), (113, 0), (124, 2)] {
            reception.handle_train(at(millis), 0, packet(2, place), 1500);
        }
        assert_eq!(reception.answer(at(200), 2).paths[0].train, 1);
        // All at the same time: no rate at all.
        for place in 0..4 {
            reception.handle_train(at(300), 0, packet(3, place), 1500);
        }
        assert_eq!(reception.answer(at(300), 3).paths[0].train, 1);
    }

    #[test]
    fn bytes_add_up_and_paths_that_do_not_exist_do_no_harm() {
        let mut reception = Reception::new(1);
        reception.handle_packet(0, 1480);
        reception.handle_packet(0, 20);
        reception.handle_packet(4, 1480);
        reception.handle_train(at(0), 4, packet(1, 0), 1480);
        let answer = reception.answer(Instant::from_micros(77), 5);
        assert_eq!((answer.number, answer.at_micros, answer.paths[0].received_bytes), (5, 77, 1500));
    }
}
