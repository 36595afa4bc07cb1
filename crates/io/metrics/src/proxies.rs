//! Sums over proxies that come and go.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{bounded, plain};
use crate::sample::Counted;

/// Proxies that are counted for themselves; those beyond are counted together.
const MOST_PROXIES: usize = 32;
/// Limits, likewise.
const MOST_LIMITS: usize = 64;
/// Protocols and endings, whatever proxies say.
const MOST_WORDS: usize = 16;

/// A proxy at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxySample {
    /// What tells it from all others while it runs, such as the path of its socket.
    pub source: String,
    /// What it is called.
    pub name: String,
    /// Those within, by protocol.
    pub sessions: BTreeMap<String, u64>,
    /// Those that have ended since its start, by protocol and ending.
    pub ended: BTreeMap<(String, String), u64>,
    /// What it carried to servers since its start.
    pub up_bytes: u64,
    /// What it carried to clients since its start.
    pub down_bytes: u64,
    /// Memory of its process, if that is limited.
    pub memory: Option<MemorySample>,
    /// Limits by their names.
    pub limits: BTreeMap<String, LimitSample>,
}

/// Memory of a proxy's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySample {
    /// What it has.
    pub bytes: u64,
    /// While it has more than this, no client comes in.
    pub limit_bytes: u64,
}

/// A limit of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitSample {
    /// Directions of connections that it is of.
    pub flows: u64,
    /// Those of them that wait for it.
    pub waiting_flows: u64,
}

/// What a proxy has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProxyCounts {
    pub(crate) ended: BTreeMap<(String, String), u64>,
    pub(crate) up_bytes: u64,
    pub(crate) down_bytes: u64,
}

impl ProxyCounts {
    /// As interfaces are counted: what went to servers was sent, and who ended was a subflow.
    pub(crate) fn counted(&self) -> Counted {
        let subflows = self.ended.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let (sent_bytes, received_bytes) = (self.up_bytes, self.down_bytes);
        Counted { sent_bytes, received_bytes, subflows, ..Counted::default() }
    }

    fn add(&mut self, sample: &ProxySample) {
        self.up_bytes = self.up_bytes.saturating_add(sample.up_bytes);
        self.down_bytes = self.down_bytes.saturating_add(sample.down_bytes);
        for (key, count) in &sample.ended {
            let sum = self.ended.entry(key.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
}

/// What proxies are like now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProxyNow {
    pub(crate) sessions: BTreeMap<String, u64>,
    pub(crate) memory: Option<MemorySample>,
    pub(crate) limits: BTreeMap<String, LimitSample>,
}

/// The figures of all proxies, those that have ended too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies {
    live: BTreeMap<String, ProxySample>,
    ended: BTreeMap<String, ProxyCounts>,
    names: BTreeSet<String>,
    limits: BTreeSet<String>,
    words: BTreeSet<String>,
}

impl Proxies {
    /// All as they are now. Those that are `silent` are there and did not answer; whoever is in neither has ended.
    pub(crate) fn update(&mut self, samples: Vec<ProxySample>, silent: &[String]) {
        let samples: Vec<ProxySample> =
            samples.into_iter().map(|sample| self.within_bounds(sample)).collect();
        let mut before = std::mem::take(&mut self.live);
        for sample in samples {
            if let Some(old) = before.remove(&sample.source)
                && is_another(&sample, &old)
            {
                self.ended.entry(old.name.clone()).or_default().add(&old);
            }
            self.live.insert(sample.source.clone(), sample);
        }
        for (source, old) in before {
            if silent.contains(&source) {
                self.live.insert(source, old);
            } else {
                self.ended.entry(old.name.clone()).or_default().add(&old);
            }
        }
    }

    fn within_bounds(&mut self, sample: ProxySample) -> ProxySample {
        let name = bounded(&mut self.names, &plain(&sample.name), MOST_PROXIES);
        let mut kept = ProxySample { name, ..ProxySample::default() };
        let mut word = |word: &str| bounded(&mut self.words, &plain(word), MOST_WORDS);
        for (protocol, count) in &sample.sessions {
            let sum = kept.sessions.entry(word(protocol)).or_default();
            *sum = sum.saturating_add(*count);
        }
        for ((protocol, ending), count) in &sample.ended {
            let sum = kept.ended.entry((word(protocol), word(ending))).or_default();
            *sum = sum.saturating_add(*count);
        }
        for (limit, state) in &sample.limits {
            let limit = bounded(&mut self.limits, &plain(limit), MOST_LIMITS);
            add_limit(kept.limits.entry(limit).or_default(), state);
        }
        ProxySample {
            source: sample.source,
            up_bytes: sample.up_bytes,
            down_bytes: sample.down_bytes,
            memory: sample.memory,
            ..kept
        }
    }

    /// Counts by the name of the proxy.
    pub(crate) fn counts(&self) -> BTreeMap<String, ProxyCounts> {
        let mut counts = self.ended.clone();
        self.live.values().for_each(|sample| counts.entry(sample.name.clone()).or_default().add(sample));
        counts
    }

    /// What they are like, by the name of the proxy.
    pub(crate) fn now(&self) -> BTreeMap<String, ProxyNow> {
        let mut all: BTreeMap<String, ProxyNow> = BTreeMap::new();
        for sample in self.live.values() {
            let now = all.entry(sample.name.clone()).or_default();
            for (protocol, count) in &sample.sessions {
                let sum = now.sessions.entry(protocol.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
            if let Some(memory) = sample.memory {
                let sum = now.memory.get_or_insert_default();
                sum.bytes = sum.bytes.saturating_add(memory.bytes);
                sum.limit_bytes = sum.limit_bytes.saturating_add(memory.limit_bytes);
            }
            for (limit, state) in &sample.limits {
                add_limit(now.limits.entry(limit.clone()).or_default(), state);
            }
        }
        all
    }
}

fn add_limit(sum: &mut LimitSample, state: &LimitSample) {
    sum.flows = sum.flows.saturating_add(state.flows);
    sum.waiting_flows = sum.waiting_flows.saturating_add(state.waiting_flows);
}

/// A process at the place of one that has ended.
fn is_another(new: &ProxySample, old: &ProxySample) -> bool {
    new.name != old.name
        || new.up_bytes < old.up_bytes
        || new.down_bytes < old.down_bytes
        || old.ended.iter().any(|(key, count)| new.ended.get(key).is_none_or(|now| now < count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::OTHER;

    fn proxy(source: &str, up_bytes: u64) -> ProxySample {
        ProxySample {
            source: source.into(),
            name: "proxy".into(),
            sessions: [("socks".into(), 2)].into(),
            ended: [(("socks".into(), "complete".into()), up_bytes / 10)].into(),
            up_bytes,
            down_bytes: 5,
            memory: Some(MemorySample { bytes: 10, limit_bytes: 100 }),
            limits: [("guests".into(), LimitSample { flows: 4, waiting_flows: 1 })].into(),
        }
    }

    #[test]
    fn counts_outlive_the_proxies_that_counted_them() {
        let mut proxies = Proxies::default();
        let up = |proxies: &Proxies| proxies.counts()["proxy"].up_bytes;
        proxies.update(vec![proxy("a", 100), proxy("b", 20)], &[]);
        assert_eq!(up(&proxies), 120);
        assert_eq!(proxies.now()["proxy"].limits["guests"], LimitSample { flows: 8, waiting_flows: 2 });
        assert_eq!(proxies.now()["proxy"].memory, Some(MemorySample { bytes: 20, limit_bytes: 200 }));
        // One is silent; one was started anew.
        proxies.update(vec![proxy("b", 10)], &["a".into()]);
        assert_eq!((up(&proxies), proxies.now()["proxy"].sessions["socks"]), (130, 4));
        proxies.update(Vec::new(), &[]);
        let counts = &proxies.counts()["proxy"];
        assert_eq!((counts.up_bytes, counts.ended[&("socks".into(), "complete".into())]), (130, 13));
        assert!(proxies.now().is_empty());
    }

    #[test]
    fn what_proxies_say_of_themselves_is_bounded_and_harmless() {
        let mut proxies = Proxies::default();
        let many = (0..300).map(|number| {
            let word = |kind: &str| format!("{kind}{number}\n\"");
            ProxySample {
                source: word("s"),
                name: word("n"),
                sessions: [(word("p"), u64::MAX)].into(),
                ended: [((word("p"), word("e")), u64::MAX)].into(),
                up_bytes: u64::MAX,
                down_bytes: u64::MAX,
                memory: Some(MemorySample { bytes: u64::MAX, limit_bytes: u64::MAX }),
                limits: [(word("l"), LimitSample { flows: u64::MAX, waiting_flows: u64::MAX })].into(),
            }
        });
        proxies.update(many.collect(), &[]);
        assert!(proxies.now().len() <= MOST_PROXIES + 1 && proxies.counts()[OTHER].up_bytes == u64::MAX);
        let limits: BTreeSet<String> =
            proxies.now().into_values().flat_map(|now| now.limits.into_keys()).collect();
        assert!(limits.len() <= MOST_LIMITS + 1);
        assert!(limits.iter().flat_map(|name| name.chars()).all(|letter| letter.is_ascii_graphic()));
    }
}
