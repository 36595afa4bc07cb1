//! Policies by name.

use polypath_units::named::{Kind, Named, NoParameter};

use super::bola::Bola;
use super::measured_speed::MeasuredSpeed;
use super::robust_mpc::RobustMpc;
use super::view::Adaptation;

/// The kind of policy that chooses qualities.
#[derive(Debug)]
pub struct Adaptations;

/// A way to choose qualities, by name.
pub type AdaptationPolicy = Named<Adaptations>;

impl Kind for Adaptations {
    type Instance = dyn Adaptation;
    type Given = ();
    type Parameter = NoParameter;
    const WHAT: &'static str = "adaptation";
    const ALL: &'static [AdaptationPolicy] = &[
        AdaptationPolicy::new("robust-mpc", |()| Box::<RobustMpc>::default()),
        AdaptationPolicy::new("bola", |()| Box::new(Bola)),
        AdaptationPolicy::new("measured-speed", |()| Box::new(MeasuredSpeed)),
    ];
}

#[cfg(test)]
mod tests {
    use polypath_units::{BitRate, Duration};

    use super::super::view::View;
    use super::*;

    const RATES: [BitRate; 4] = [
        BitRate::from_kbps(746),
        BitRate::from_kbps(1300),
        BitRate::from_kbps(2142),
        BitRate::from_kbps(3010),
    ];

    fn view(kbps: Option<u64>, buffered_ms: u64, last: Option<usize>) -> View<'static> {
        View {
            rates: &RATES,
            sizes: &[],
            segment: Duration::from_secs(2),
            throughput: kbps.map(BitRate::from_kbps),
            buffered: Duration::from_millis(buffered_ms),
            capacity: Duration::from_secs(30),
            last,
        }
    }

    #[test]
    fn every_policy_begins_with_the_lowest_and_ends_with_the_highest() {
        for policy in AdaptationPolicy::ALL {
            let mut adaptation = policy.build();
            let name = policy.name();
            assert_eq!(adaptation.choose(&view(None, 0, None)), 0, "{name}");
            // Much faster than the highest, and a full buffer.
            let mut last = 0;
            for _ in 0..8 {
                last = adaptation.choose(&view(Some(12_000), 29_000, Some(last)));
            }
            assert_eq!(last, 3, "{name}");
            // Slower than the lowest, and nothing to play.
            for _ in 0..8 {
                last = adaptation.choose(&view(Some(400), 0, Some(last)));
            }
            assert_eq!(last, 0, "{name}");
        }
    }

    #[test]
    fn sizes_count_where_they_are_known() {
        let sizes: [&[u64]; 1] = [&[100_000, 200_000, 300_000, 700_000]];
        let known = View { sizes: &sizes, ..view(Some(1300), 0, None) };
        assert_eq!(known.highest_within(1_300_000.0), 2);
        assert_eq!(view(None, 0, None).highest_within(1_300_000.0), 1);
    }
}
