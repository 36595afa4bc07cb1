//! Sums over stacks that come and go.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{OTHER, UNKNOWN, bounded, plain};
use crate::proxies::{Proxies, ProxySample};
use crate::sample::{Counted, PathNow, PathSample, StackSample};

/// Programs that are counted for themselves; those beyond are counted together, as [`OTHER`].
const MOST_PROGRAMS: usize = 32;
/// Interfaces, likewise.
const MOST_INTERFACES: usize = 32;
/// Names of counters; those beyond are left out.
const MOST_COUNTERS: usize = 192;
/// Paths of a stack; those beyond count as the last one.
const MOST_PATHS: usize = 17;
/// Causes of a fallback, whatever stacks say.
const MOST_CAUSES: usize = 16;
/// Counters of the kernel's that are no counts of events.
const CURRENT: [&str; 2] = ["MPCurrEstab", "CurrEstab"];

/// Which path of which program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathKey {
    /// Name of the program.
    pub(crate) stack: String,
    /// Name of the interface.
    pub(crate) interface: String,
    /// Number of the path.
    pub(crate) path: usize,
}

/// The figures of all stacks, those that have ended too. No count ever goes back.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    live: BTreeMap<String, StackSample>,
    ended: Sums,
    programs: BTreeSet<String>,
    interfaces: BTreeSet<String>,
    counter_names: BTreeSet<String>,
    causes: BTreeSet<String>,
    proxies: Proxies,
}

/// Sums of counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) paths: BTreeMap<PathKey, Counted>,
    pub(crate) fallbacks: BTreeMap<(String, String), u64>,
    pub(crate) counters: BTreeMap<(String, String), u64>,
}

impl Sums {
    fn add(&mut self, stack: &StackSample) {
        for (key, path) in keyed(stack) {
            let sum = self.paths.entry(key).or_default();
            *sum = sum.plus(path.counted);
        }
        let lists = [(&mut self.fallbacks, &stack.fallbacks), (&mut self.counters, &stack.counters)];
        for (sums, list) in lists {
            for (name, count) in list {
                let sum = sums.entry((stack.program.clone(), name.clone())).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
    }
}

fn keyed(stack: &StackSample) -> impl Iterator<Item = (PathKey, &PathSample)> {
    stack.paths.iter().enumerate().map(|(path, sample)| {
        let interface = sample.interface.clone().unwrap_or_else(|| UNKNOWN.into());
        (PathKey { stack: stack.program.clone(), interface, path }, sample)
    })
}

impl Totals {
    /// All stacks as they are now. Those that are `silent` are there and did not answer; whoever is in neither has ended.
    pub fn update(&mut self, samples: Vec<StackSample>, silent: &[String]) {
        let samples: Vec<StackSample> =
            samples.into_iter().map(|sample| self.within_bounds(sample)).collect();
        let mut before = std::mem::take(&mut self.live);
        for sample in samples {
            if let Some(old) = before.remove(&sample.source)
                && is_another(&sample, &old)
            {
                self.ended.add(&old);
            }
            self.live.insert(sample.source.clone(), sample);
        }
        for (source, old) in before {
            if silent.contains(&source) {
                self.live.insert(source, old);
            } else {
                self.ended.add(&old);
            }
        }
    }

    /// What a stack said when it ended, which [`Totals::update`] may have seen running.
    pub fn end(&mut self, last: StackSample) {
        let last = self.within_bounds(last);
        if let Some(old) = self.live.remove(&last.source)
            && is_another(&last, &old)
        {
            self.ended.add(&old);
        }
        self.ended.add(&last);
    }

    /// All proxies as they are now, as [`Totals::update`] has stacks.
    pub fn update_proxies(&mut self, samples: Vec<ProxySample>, silent: &[String]) {
        self.proxies.update(samples, silent);
    }

    pub(crate) fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    fn within_bounds(&mut self, mut sample: StackSample) -> StackSample {
        sample.program = bounded(&mut self.programs, &plain(&sample.program), MOST_PROGRAMS);
        sample.paths.truncate(MOST_PATHS);
        for path in &mut sample.paths {
            let name = path.interface.as_deref().map_or_else(|| UNKNOWN.into(), plain);
            path.interface = Some(bounded(&mut self.interfaces, &name, MOST_INTERFACES));
        }
        for (cause, _) in &mut sample.fallbacks {
            *cause = bounded(&mut self.causes, &plain(cause), MOST_CAUSES);
        }
        sample.counters.retain_mut(|(name, _)| {
            *name = bounded(&mut self.counter_names, &plain(name), MOST_COUNTERS);
            !CURRENT.contains(&name.as_str()) && name != OTHER
        });
        sample
    }

    /// Counts over stacks that run and those that have ended.
    pub(crate) fn sums(&self) -> Sums {
        let mut sums = self.ended.clone();
        self.live.values().for_each(|stack| sums.add(stack));
        sums
    }

    /// What paths are like now.
    pub(crate) fn now(&self) -> BTreeMap<PathKey, PathNow> {
        let mut now: BTreeMap<PathKey, PathNow> = BTreeMap::new();
        for (key, path) in self.live.values().flat_map(keyed) {
            let sum = now.entry(key).or_default();
            *sum = sum.plus(path.now);
        }
        now
    }

    /// Stacks that run and their connections, by program.
    pub(crate) fn programs(&self) -> BTreeMap<String, (u64, u64)> {
        let mut programs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for stack in self.live.values() {
            let (stacks, connections) = programs.entry(stack.program.clone()).or_default();
            (*stacks, *connections) = (*stacks + 1, connections.saturating_add(stack.connections));
        }
        programs
    }

    /// Counts and state by interface, over all programs.
    #[must_use]
    pub fn interfaces(&self) -> BTreeMap<String, (Counted, PathNow)> {
        let mut interfaces: BTreeMap<String, (Counted, PathNow)> = BTreeMap::new();
        for (key, counted) in self.sums().paths {
            let (sum, _) = interfaces.entry(key.interface).or_default();
            *sum = sum.plus(counted);
        }
        for (key, now) in self.now() {
            let (_, sum) = interfaces.entry(key.interface).or_default();
            *sum = sum.plus(now);
        }
        interfaces
    }
}

/// A process that has the number of one that has ended.
fn is_another(new: &StackSample, old: &StackSample) -> bool {
    let shrank = |new: &[(String, u64)], old: &[(String, u64)]| {
        old.iter().any(|(name, count)| !new.iter().any(|(other, now)| other == name && now >= count))
    };
    let mut pairs = new.paths.iter().zip(&old.paths);
    new.program != old.program
        || new.paths.len() < old.paths.len()
        || pairs.any(|(new, old)| new.counted.went_back(old.counted))
        || shrank(&new.fallbacks, &old.fallbacks)
        || shrank(&new.counters, &old.counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(source: &str, sent_bytes: u64) -> StackSample {
        let counted = Counted { sent_bytes, subflows: 1, ..Counted::default() };
        let now = PathNow { subflows: 1, round_trip_s: Some(0.5), ..PathNow::default() };
        StackSample {
            source: source.into(),
            program: "curl".into(),
            connections: 1,
            paths: vec![PathSample { interface: Some("wifi".into()), counted, now }],
            fallbacks: vec![("syn_dropped".into(), 1)],
            counters: vec![("MPJoinSynRx".into(), sent_bytes / 2), ("MPCurrEstab".into(), 5)],
        }
    }

    fn sent(totals: &Totals) -> u64 {
        totals.interfaces()["wifi"].0.sent_bytes
    }

    #[test]
    fn counts_outlive_the_stacks_that_counted_them() {
        let mut totals = Totals::default();
        totals.update(vec![stack("1.sock", 100), stack("2.sock", 10)], &[]);
        assert_eq!((sent(&totals), totals.programs()["curl"]), (110, (2, 2)));
        // One answers no more and is there; then it goes.
        totals.update(vec![stack("2.sock", 20)], &["1.sock".into()]);
        assert_eq!((sent(&totals), totals.programs()["curl"]), (120, (2, 2)));
        totals.update(vec![stack("2.sock", 30)], &[]);
        assert_eq!((sent(&totals), totals.programs()["curl"]), (130, (1, 1)));
        // Another process has its number.
        totals.update(vec![stack("2.sock", 7)], &[]);
        assert_eq!(sent(&totals), 137);
        totals.update(Vec::new(), &[]);
        assert_eq!((sent(&totals), totals.programs().len(), totals.now().len()), (137, 0, 0));
        let sums = totals.sums();
        assert_eq!(sums.counters.len(), 1, "what is no count of events is left out: {sums:?}");
        assert_eq!(sums.fallbacks[&("curl".into(), "syn_dropped".into())], 3);
    }

    #[test]
    fn last_words_count_once_whether_or_not_the_stack_was_seen() {
        let mut totals = Totals::default();
        totals.end(stack("1.sock", 100));
        assert_eq!((sent(&totals), totals.programs().len()), (100, 0));
        totals.update(vec![stack("2.sock", 10)], &[]);
        totals.end(stack("2.sock", 50));
        assert_eq!((sent(&totals), totals.programs().len()), (150, 0));
        // Another process had its number when it was asked last.
        totals.update(vec![stack("3.sock", 9)], &[]);
        totals.end(stack("3.sock", 1));
        totals.update(Vec::new(), &[]);
        assert_eq!(sent(&totals), 160);
    }

    #[test]
    fn what_stacks_say_of_themselves_is_bounded_and_harmless() {
        let mut totals = Totals::default();
        let many = (0..500).map(|number| {
            let name = |kind: &str| format!("{kind}{number}\u{1b}[2J\n");
            let path = PathSample { interface: Some(name("if")), ..PathSample::default() };
            StackSample {
                source: name("s"),
                program: name("p"),
                connections: u64::MAX,
                paths: vec![path; 100],
                fallbacks: vec![(name("f"), u64::MAX)],
                counters: vec![(name("c"), u64::MAX)],
            }
        });
        totals.update(many.collect(), &[]);
        totals.update(Vec::new(), &[]);
        let sums = totals.sums();
        assert!(sums.paths.len() <= (MOST_PROGRAMS + 1) * MOST_PATHS * 2, "{}", sums.paths.len());
        assert!(sums.counters.len() <= MOST_COUNTERS && sums.fallbacks.len() <= MOST_PROGRAMS + MOST_CAUSES);
        let names = sums.paths.keys().flat_map(|key| [&key.stack, &key.interface]);
        assert!(names.flat_map(|name| name.chars()).all(|letter| letter.is_ascii_graphic()));
    }

    #[test]
    fn round_trip_times_are_a_mean() {
        let of = |subflows, round_trip_s| PathNow { subflows, round_trip_s, ..PathNow::default() };
        assert_eq!(of(1, Some(0.1)).plus(of(3, Some(0.5))).round_trip_s, Some(0.4));
        assert_eq!(of(1, None).plus(of(3, Some(0.5))).round_trip_s, Some(0.5));
    }
}
