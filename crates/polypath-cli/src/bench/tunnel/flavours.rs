//! One TCP of the kernel through our tunnel over WLAN and HSPA, by how it finds and repairs losses (Kaspar 2011, chapter 5).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use std::{fs, io, thread};

use serde::Serialize;

use super::scenes::{CONGESTION, TwoPaths};
use super::system::{Given, System};
use crate::bench::beside_kernel::scene::AccessLink;
use crate::bench::outcome::monotonic_s;
use crate::bench::{BenchError, Spread};
use crate::demo::aggregation_benefit;

/// 600 KB/s; its queue and the next one's are 200 full packets (K Fig. 5.11).
const WLAN: AccessLink = AccessLink { mbit_per_s: 4.8, rtt_ms: 10.0, queue_ms: 500.0 };
/// 400 KB/s.
const HSPA: AccessLink = AccessLink { mbit_per_s: 3.2, rtt_ms: 100.0, queue_ms: 750.0 };
/// What each flavour has to cross, side by side. Where a tunnel has two paths, the one that its file names first leads.
const SCENES: [&[AccessLink]; 4] = [&[WLAN], &[HSPA], &[WLAN, HSPA], &[HSPA, WLAN]];

/// Of each namespace, and what Linux has: a machine may have others.
const VARIABLES: [(&str, &str); 5] = [
    ("tcp_sack", "1"),
    ("tcp_dsack", "1"),
    ("tcp_frto", "2"),
    ("tcp_timestamps", "1"),
    ("tcp_reordering", "3"),
];
const FOLDER: &str = "net/ipv4";

type Changes = &'static [(&'static str, &'static str)];

/// By variables, beside each congestion control.
const CHANGES: [(&str, Option<&str>, Changes); 6] = [
    ("no-sack", None, &[("tcp_sack", "0")]),
    ("no-dsack", None, &[("tcp_dsack", "0")]),
    ("no-f-rto", None, &[("tcp_frto", "0")]),
    ("no-timestamps", None, &[("tcp_timestamps", "0")]),
    ("reordering-127", None, &[("tcp_reordering", "127")]),
    // As in experiments, where it has none of these.
    (
        "newreno",
        Some("reno"),
        &[("tcp_sack", "0"), ("tcp_dsack", "0"), ("tcp_frto", "0"), ("tcp_timestamps", "0")],
    ),
];
/// CUBIC again, but that the tunnel carries TCP by Multipath TCP.
const SPLIT: &str = "split";
const SPLIT_RULE: &str = "\n[[rules]]\ntcp = \"split\"\n";

/// One TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Flavour {
    pub(crate) name: String,
    pub(crate) congestion: String,
    /// Variables of `net/ipv4` that differ from what Linux has.
    pub(crate) variables: BTreeMap<&'static str, &'static str>,
    /// With `tcp = "split"`.
    pub(crate) is_split: bool,
}

/// What a kernel can do.
#[derive(Clone, Debug, Default)]
struct Kernel {
    congestion: Vec<String>,
    variables: BTreeSet<&'static str>,
}

impl Kernel {
    fn read() -> io::Result<Self> {
        let folder = Path::new("/proc/sys").join(FOLDER);
        let congestion = fs::read_to_string(folder.join("tcp_available_congestion_control"))?;
        let has = |name: &&'static str| folder.join(name).exists();
        Ok(Self {
            congestion: congestion.split_whitespace().map(str::to_owned).collect(),
            variables: VARIABLES.iter().map(|(name, _)| *name).filter(has).collect(),
        })
    }
}

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) flavours: Vec<Flavour>,
    /// Why, by name.
    pub(crate) skipped: BTreeMap<String, String>,
    /// Variables that are as this kernel has them.
    is_set: Vec<(&'static str, &'static str)>,
}

impl Plan {
    /// Of this machine's kernel: flavours whose name contains a text.
    pub(crate) fn read(only: &str) -> io::Result<Self> {
        Ok(Self::of(&Kernel::read()?, only))
    }

    fn of(kernel: &Kernel, only: &str) -> Self {
        let flavour = |name: &str, congestion: &str, changes: Changes| Flavour {
            name: name.into(),
            congestion: congestion.into(),
            variables: changes.iter().copied().collect(),
            is_split: name == SPLIT,
        };
        let others = kernel.congestion.iter().map(String::as_str).filter(|name| *name != CONGESTION);
        let by_congestion = [CONGESTION].into_iter().chain(others).map(|name| flavour(name, name, &[]));
        let by_changes = CHANGES
            .iter()
            .map(|(name, congestion, changes)| flavour(name, congestion.unwrap_or(CONGESTION), changes));
        let all = by_congestion.chain(by_changes).chain([flavour(SPLIT, CONGESTION, &[])]);
        let mut plan = Self {
            flavours: Vec::new(),
            skipped: BTreeMap::new(),
            is_set: VARIABLES.into_iter().filter(|(name, _)| kernel.variables.contains(name)).collect(),
        };
        for flavour in all.filter(|flavour| flavour.name.contains(only)) {
            match kernel.lacks(&flavour) {
                None => plan.flavours.push(flavour),
                Some(lacks) => drop(plan.skipped.insert(flavour.name, lacks)),
            }
        }
        plan
    }

    /// What a flavour's namespaces have, all of it said.
    fn variables<'a>(
        &'a self,
        flavour: &'a Flavour,
    ) -> impl Iterator<Item = (String, &'static str)> + use<'a> {
        self.is_set.iter().map(|(name, usual)| {
            (format!("{FOLDER}/{name}"), flavour.variables.get(name).copied().unwrap_or(usual))
        })
    }
}

impl Kernel {
    fn lacks(&self, flavour: &Flavour) -> Option<String> {
        if !self.congestion.contains(&flavour.congestion) {
            return Some(format!("this kernel has no congestion control {}", flavour.congestion));
        }
        let missing = flavour.variables.keys().find(|name| !self.variables.contains(**name));
        missing.map(|name| format!("this kernel has no {FOLDER}/{name}"))
    }
}

/// Over both paths.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Both {
    pub(crate) mbit_per_s: Spread,
    /// Aggregation benefit over the medians of the same TCP through a tunnel over each path alone.
    pub(crate) benefit_over_tcp: Spread,
}

/// What one flavour had.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FlavourRow {
    #[serde(flatten)]
    pub(crate) flavour: Flavour,
    /// Through a tunnel over one path.
    pub(crate) wlan_mbit_per_s: Spread,
    pub(crate) hspa_mbit_per_s: Spread,
    /// By the path that leads.
    pub(crate) wlan_first: Both,
    pub(crate) hspa_first: Both,
}

impl FlavourRow {
    /// From what each scene gave in each round; nothing without a round.
    fn of(flavour: Flavour, rounds: &[[f64; SCENES.len()]]) -> Option<Self> {
        let goodput = |scene: usize| Spread::of(rounds.iter().map(|round| round[scene]));
        let (wlan_mbit_per_s, hspa_mbit_per_s) = (goodput(0)?, goodput(1)?);
        let alone = [wlan_mbit_per_s.median, hspa_mbit_per_s.median];
        let both = |scene: usize| {
            let benefits = rounds.iter().map(|round| aggregation_benefit(round[scene], &alone));
            Some(Both { mbit_per_s: goodput(scene)?, benefit_over_tcp: Spread::of(benefits)? })
        };
        Some(Self { flavour, wlan_mbit_per_s, hspa_mbit_per_s, wlan_first: both(2)?, hspa_first: both(3)? })
    }
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FlavoursResult {
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    pub(crate) wlan: AccessLink,
    pub(crate) hspa: AccessLink,
    pub(crate) rows: Vec<FlavourRow>,
    pub(crate) skipped: BTreeMap<String, String>,
}

/// Measurements of a run, for a bar.
pub(crate) fn steps(plan: &Plan, rounds: u32) -> u64 {
    plan.flavours.len() as u64 * u64::from(rounds)
}

/// Lets each flavour send for so long, by turns; `on_step` is told what each measurement gave.
pub(crate) fn run(
    plan: Plan,
    rounds: u32,
    length: Duration,
    mut on_step: impl FnMut(String),
) -> Result<FlavoursResult, BenchError> {
    let program = System::Polypath.find(None).map_err(io::Error::other)?;
    let folder = tempfile::tempdir()?;
    let mut goodputs = vec![Vec::new(); plan.flavours.len()];
    for _ in 0..rounds {
        for (flavour, goodputs) in plan.flavours.iter().zip(&mut goodputs) {
            let measured = measure(&plan, flavour, &program, folder.path(), length)?;
            let [wlan, hspa, wlan_first, hspa_first] = measured;
            on_step(format!(
                "{} {wlan:.1}, {hspa:.1}; both {wlan_first:.1}, {hspa_first:.1} Mbit/s",
                flavour.name
            ));
            goodputs.push(measured);
        }
    }
    let rows = plan.flavours.into_iter().zip(goodputs);
    Ok(FlavoursResult {
        rounds,
        seconds: length.as_secs_f64(),
        wlan: WLAN,
        hspa: HSPA,
        rows: rows.filter_map(|(flavour, goodputs)| FlavourRow::of(flavour, &goodputs)).collect(),
        skipped: plan.skipped,
    })
}

/// Mbit/s of each scene, from the first SYN on, so that slow start counts. They run side by side, in namespaces of their own: the rates are far below what a machine can carry.
fn measure(
    plan: &Plan,
    flavour: &Flavour,
    program: &Path,
    folder: &Path,
    length: Duration,
) -> Result<[f64; SCENES.len()], BenchError> {
    let rules = if flavour.is_split { SPLIT_RULE } else { "" };
    let mut scenes = Vec::new();
    for (number, lines) in (0..).zip(SCENES) {
        let scene = TwoPaths::start(System::Polypath, program, Given { folder, number, rules }, lines)?;
        plan.variables(flavour).try_for_each(|(name, value)| scene.set_variable(&name, value))?;
        scenes.push(scene);
    }
    let mut flows = Vec::new();
    for scene in &scenes {
        let from_s = monotonic_s();
        flows.push((from_s, scene.flow(&flavour.congestion)?));
    }
    thread::sleep(length);
    let mut goodputs = [0.0; SCENES.len()];
    for (goodput, (from_s, flow)) in goodputs.iter_mut().zip(flows) {
        let bytes = flow.finish()?.bytes_between(from_s, from_s + length.as_secs_f64());
        *goodput = bytes as f64 * 8.0 / length.as_secs_f64() / 1e6;
    }
    Ok(goodputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            congestion: ["reno", "bbr", "cubic"].map(str::to_owned).to_vec(),
            variables: VARIABLES.iter().map(|(name, _)| *name).collect(),
        }
    }

    fn names(plan: &Plan) -> Vec<&str> {
        plan.flavours.iter().map(|flavour| flavour.name.as_str()).collect()
    }

    #[test]
    fn each_congestion_control_and_each_change_is_a_flavour() {
        let plan = Plan::of(&kernel(), "");
        let expected = [
            "cubic",
            "reno",
            "bbr",
            "no-sack",
            "no-dsack",
            "no-f-rto",
            "no-timestamps",
            "reordering-127",
            "newreno",
            "split",
        ];
        assert_eq!(names(&plan), expected);
        assert_eq!(steps(&plan, 3), 30);
        assert!(plan.skipped.is_empty());
        let split: Vec<&str> =
            plan.flavours.iter().filter(|flavour| flavour.is_split).map(|flavour| &*flavour.name).collect();
        assert_eq!(split, ["split"]);
        assert_eq!(names(&Plan::of(&kernel(), "reno")), ["reno", "newreno"]);
    }

    /// So that nothing of the machine's own settings is left.
    #[test]
    fn all_variables_are_set_for_each_flavour() {
        let plan = Plan::of(&kernel(), "");
        let set = |name: &str| {
            let flavour = plan.flavours.iter().find(|flavour| flavour.name == name).expect("a flavour");
            plan.variables(flavour).map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(set("cubic"), ["1", "1", "2", "1", "3"]);
        assert_eq!(set("reordering-127"), ["1", "1", "2", "1", "127"]);
        assert_eq!(set("newreno"), ["0", "0", "0", "0", "3"]);
        let first = plan.variables(&plan.flavours[0]).next();
        assert_eq!(first, Some(("net/ipv4/tcp_sack".into(), "1")));
    }

    #[test]
    fn what_a_kernel_lacks_is_said_and_left_out() {
        let mut kernel = kernel();
        kernel.congestion.retain(|name| name != "reno");
        kernel.variables.remove("tcp_dsack");
        let plan = Plan::of(&kernel, "");
        assert_eq!(plan.skipped["newreno"], "this kernel has no congestion control reno");
        assert_eq!(plan.skipped["no-dsack"], "this kernel has no net/ipv4/tcp_dsack");
        assert_eq!(plan.skipped.len(), 2);
        // Of the others it is not set.
        assert!(plan.variables(&plan.flavours[0]).all(|(name, _)| !name.ends_with("tcp_dsack")));
    }

    #[test]
    fn benefit_is_over_the_medians_of_each_path_alone() {
        let flavour = Plan::of(&kernel(), "split").flavours.remove(0);
        let rounds = [[4.0, 2.0, 6.0, 2.0], [3.0, 1.0, 4.0, 4.0], [5.0, 3.0, 5.0, 5.0]];
        assert_eq!(FlavourRow::of(flavour.clone(), &[]), None);
        let row = FlavourRow::of(flavour, &rounds).expect("a row");
        assert_eq!((row.wlan_mbit_per_s.median, row.hspa_mbit_per_s.median), (4.0, 2.0));
        assert_eq!(row.wlan_first.benefit_over_tcp, Spread { median: 0.5, min: 0.0, max: 1.0 });
        assert_eq!(row.hspa_first.benefit_over_tcp, Spread { median: 0.0, min: -0.5, max: 0.5 });
    }
}
