//! Aggregators by name.
//!
//! ```
//! # mod polypath { pub use polypath_tunnel as tunnel; pub use polypath_units as units; }
//! use polypath::tunnel::aggregators::Aggregation;
//! use polypath::tunnel::split::PathView;
//! use polypath::units::{BitRate, Duration, Instant};
//!
//! let path = |mbps| PathView { rate: BitRate::from_mbps(mbps), delay: Duration::ZERO };
//! let paths = [path(1), path(3)];
//! let mut sender = "send-vector:4".parse::<Aggregation>()?.build_for(&paths);
//! let now = Instant::ZERO;
//! let mut taken = Vec::new();
//! for _ in 0..4 {
//!     sender.handle_packet(now, vec![0x45; 1480].into());
//!     taken.extend(sender.poll_transmit(now).map(|leaving| leaving.path));
//! }
//! taken.sort_unstable();
//! assert_eq!(taken, [0, 1, 1, 1]);
//! # Ok::<(), polypath::units::named::UnknownPolicy<polypath::tunnel::aggregators::Aggregations>>(())
//! ```

use polypath_units::Duration;
use polypath_units::named::{Kind, Named};

use crate::aggregator::Aggregator;
use crate::nama::{Equalizing, Nama, NamaSettings};
use crate::rules::FlowPolicy;
use crate::split::{PathView, Split};
use crate::united::United;

/// Longest packets inside: the laboratory's paths carry longer datagrams than 1500 bytes.
const MOST_MTU_BYTES: u16 = 1_500;
/// Every host of IPv4 takes such a packet (RFC 791).
const LEAST_MTU_BYTES: u16 = 576;

/// An aggregator by name. Both ends are made by the same.
pub type Aggregation = Named<Aggregations>;

/// What makes aggregators, from what is known of the paths beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Aggregations;

impl Kind for Aggregations {
    type Instance = dyn Aggregator;
    type Given = [PathView];
    type Parameter = u16;
    const WHAT: &'static str = "aggregator";
    const ALL: &'static [Aggregation] = &[
        // Kaspar 2011, 4.2.2 limits the vector to 64 slots.
        Aggregation::with_parameter(
            "nama",
            ("slots", 64),
            ("1 to 65535", |slots| slots > 0),
            |paths, slots| {
                Box::new(Nama::new(NamaSettings { split: vector(slots), ..NamaSettings::default() }, paths))
            },
        ),
        // What the document does not have: rounding errors of one vector are made up for in the next ones.
        Aggregation::with_parameter(
            "nama-dithered",
            ("slots", 64),
            ("1 to 65535", |slots| slots > 0),
            |paths, slots| {
                let dithered_slots = Some(slots);
                let settings =
                    NamaSettings { split: vector(slots), dithered_slots, ..NamaSettings::default() };
                Box::new(Nama::new(settings, paths))
            },
        ),
        // The delay equalizer alone: Kaspar 2011, Fig. 4.7.
        Aggregation::new("equalized-round-robin", |paths| {
            let settings =
                NamaSettings { split: by_turns(), follows_rates: false, ..NamaSettings::default() };
            Box::new(Nama::new(settings, paths))
        }),
        // Kaspar 2011, 4.1.2: whatever the delays are, their difference is said to be this.
        Aggregation::with_parameter(
            "delayed-round-robin",
            ("milliseconds", 40),
            ("0 to 65535", |_| true),
            |paths, millis| {
                let difference = Duration::from_millis(u64::from(millis));
                Box::new(Nama::new(fixed(by_turns(), Equalizing::Assumed(difference)), paths))
            },
        ),
        Aggregation::with_parameter(
            "send-vector",
            ("slots", 64),
            ("1 to 65535", |slots| slots > 0),
            |paths, slots| Box::new(Nama::new(fixed(vector(slots), Equalizing::Off), paths)),
        ),
        // Ours: encrypted, with congestion control for each path, and order at the receiver.
        Aggregation::with_parameter(
            "tunnel",
            ("mtu", MOST_MTU_BYTES),
            ("576 to 1500", |mtu| (LEAST_MTU_BYTES..=MOST_MTU_BYTES).contains(&mtu)),
            |paths, mtu| Box::new(United::new(paths.len(), usize::from(mtu), FlowPolicy::Aggregate)),
        ),
        // The same, whose two ends carry TCP by Multipath TCP.
        Aggregation::with_parameter(
            "tunnel-split",
            ("mtu", MOST_MTU_BYTES),
            ("576 to 1500", |mtu| (LEAST_MTU_BYTES..=MOST_MTU_BYTES).contains(&mtu)),
            |paths, mtu| Box::new(United::new(paths.len(), usize::from(mtu), FlowPolicy::SplitTcp)),
        ),
        Aggregation::new("round-robin", |paths| {
            Box::new(Nama::new(fixed(by_turns(), Equalizing::Off), paths))
        }),
    ];
}

/// Measures nothing.
fn fixed(split: Split, equalizing: Equalizing) -> NamaSettings {
    NamaSettings { split, follows_rates: false, equalizing, ..NamaSettings::default() }
}

fn vector(slots: u16) -> Split {
    split(&format!("send-vector:{slots}"))
}

fn by_turns() -> Split {
    split("round-robin")
}

fn split(name: &str) -> Split {
    name.parse().expect("a splitter of ours")
}
