use polypath::link::impairment::{Fate, Impairment, Numbers, Passing, Policy, Random};

/// A link impairment: losses come in bursts of so many packets, which begin with this probability at each packet.
pub const BURSTS: Policy = Policy::with_parameter(
    "bursts",
    ("packets,share", Numbers::new([3.0, 0.01])),
    ("a number of packets, then a share of 0 to 1 such as 1%", is_sensible),
    |_, numbers| {
        Box::new(Bursts { packets: numbers.get(0, 3.0) as u32, probability: numbers.get(1, 0.01), left: 0 })
    },
);

/// What a user writes is checked here, before anything is built.
fn is_sensible(numbers: Numbers) -> bool {
    numbers.as_slice().len() <= 2 && (0.0..=1.0).contains(&numbers.get(1, 0.01))
}

#[derive(Debug)]
struct Bursts {
    packets: u32,
    probability: f64,
    /// Packets that are still to be lost.
    left: u32,
}

impl Impairment for Bursts {
    fn handle_packet(&mut self, _: Passing, fate: &mut Fate, random: &mut Random) {
        if self.left == 0 && random.chance(self.probability) {
            self.left = self.packets;
        }
        if self.left > 0 {
            self.left -= 1;
            fate.lose();
        }
    }

    fn restart(&mut self) {
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use polypath::units::{Duration, Instant};

    use super::*;

    #[test]
    fn a_share_above_one_is_refused() {
        let policies = polypath::Policies::default().with(BURSTS);
        assert!(policies.find::<polypath::link::impairment::Impairments>("bursts:3,100%").is_ok());
        let error = policies.find::<polypath::link::impairment::Impairments>("bursts:3,2").unwrap_err();
        let expected = "bursts[:packets,share, a number of packets, then a share of 0 to 1 such as 1%, 3,0.01 by default]";
        assert_eq!(error.expected(), expected);
    }

    #[test]
    fn losses_stand_in_rows_of_their_length() {
        let (mut bursts, mut random) = (BURSTS.build(), Random::new(1));
        let packet = Passing { sent_at: Instant::ZERO, size_bytes: 1500 };
        let mut is_lost = |_| {
            let mut fate = Fate::new(Duration::ZERO);
            bursts.handle_packet(packet, &mut fate, &mut random);
            fate.is_lost()
        };
        let lost: Vec<bool> = (0..10_000).map(&mut is_lost).collect();
        let rows: Vec<usize> =
            lost.split(|lost| !lost).map(<[bool]>::len).filter(|length| *length > 0).collect();
        // Two bursts may meet.
        assert!((60..140).contains(&rows.len()) && rows.iter().all(|length| length % 3 == 0), "{rows:?}");
    }
}
