use polypath_units::named::{Kind, Named};

use crate::split::round_robin::RoundRobin;
use crate::split::send_vector::{SendVectorSplitter, is_sensible};
use crate::split::smooth_weighted::SmoothWeightedRoundRobin;
use crate::split::splitter::Splitter;

/// A splitter by name.
pub type Split = Named<Splitters>;

/// What makes splitters.
#[derive(Clone, Copy, Debug)]
pub struct Splitters;

impl Kind for Splitters {
    type Instance = dyn Splitter;
    type Given = ();
    /// Slots of a send vector.
    type Parameter = usize;
    const WHAT: &'static str = "splitter";
    const ALL: &'static [Split] = &[
        // Kaspar 2011, 4.2.2 limits it to 64 slots.
        Split::with_parameter("send-vector", ("slots", 64), ("1 to 65536", is_sensible), |(), slots| {
            Box::new(SendVectorSplitter::new(slots))
        }),
        Split::new("smooth-weighted-round-robin", |()| Box::<SmoothWeightedRoundRobin>::default()),
        Split::new("round-robin", |()| Box::<RoundRobin>::default()),
    ];
}

#[cfg(test)]
mod tests {
    use polypath_units::{BitRate, Duration};

    use super::*;
    use crate::split::splitter::PathView;

    #[test]
    fn each_has_its_name_and_keeps_off_paths_without_a_rate() {
        let view = |rate| PathView { rate: BitRate::from_kbps(rate), delay: Duration::ZERO };
        for policy in Split::ALL {
            let mut splitter = policy.build();
            assert_eq!(splitter.name(), policy.name());
            assert_eq!(splitter.choose(&[]), None, "{policy}");
            assert_eq!(splitter.choose(&[view(0), view(0)]), None, "{policy}");
            for _ in 0..10 {
                assert_eq!(splitter.choose(&[view(0), view(1), view(0)]), Some(1), "{policy}");
            }
            // Two paths of the same rate, after one was away.
            let paths = [view(1), view(0), view(1)];
            let first = (0..100).filter(|_| splitter.choose(&paths) == Some(0)).count();
            assert!((49..=51).contains(&first), "{policy}: {first}");
        }
    }

    #[test]
    fn a_vector_without_slots_is_refused() {
        let error = "send-vector:0".parse::<Split>().unwrap_err().to_string();
        let expected = "expected send-vector[:slots, 1 to 65536, 64 by default]";
        assert_eq!(error, format!("the splitter of \"send-vector:0\" has a wrong parameter; {expected}"));
    }
}
