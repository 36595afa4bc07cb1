//! Every metric, and what it is made of.

use crate::exposition::{Exposition, Format, Kind, Metric};
use crate::links::LinkSample;
use crate::proxies::{LimitSample, MemorySample};
use crate::sample::{Counted, PathNow};
use crate::totals::{PathKey, Totals};

const fn counter(name: &'static str, unit: Option<&'static str>, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit, help }
}

const fn gauge(name: &'static str, unit: Option<&'static str>, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help }
}

const BUILD: Metric = Metric {
    name: "polypath_build_info",
    kind: Kind::Info,
    unit: None,
    help: "The version of Polypath that answers.",
};

/// A metric, and where its number comes from.
type Of<From, To> = (Metric, fn(&From) -> To);

const COUNTED: [Of<Counted, u64>; 5] = [
    (counter("polypath_sent_bytes_total", Some("bytes"), "Payload sent, retransmissions included."), |it| {
        it.sent_bytes
    }),
    (counter("polypath_received_bytes_total", Some("bytes"), "Payload received in order."), |it| {
        it.received_bytes
    }),
    (counter("polypath_retransmitted_bytes_total", Some("bytes"), "Payload sent again."), |it| {
        it.retransmitted_bytes
    }),
    (counter("polypath_retransmitted_segments_total", None, "Segments sent again."), |it| {
        it.retransmitted_segments
    }),
    (counter("polypath_subflows_established_total", None, "Subflows that became ready for data."), |it| {
        it.subflows
    }),
];

const NOW: [Of<PathNow, Option<f64>>; 4] = [
    (gauge("polypath_subflows", None, "Subflows that are ready for data."), |it| Some(it.subflows as f64)),
    (
        gauge(
            "polypath_smoothed_round_trip_time_seconds",
            Some("seconds"),
            "Smoothed round-trip time, the mean over the subflows of the path.",
        ),
        |it| it.round_trip_s,
    ),
    (
        gauge(
            "polypath_congestion_window_bytes",
            Some("bytes"),
            "Congestion window, the sum over the subflows of the path.",
        ),
        |it| Some(it.window_bytes as f64),
    ),
    (
        gauge(
            "polypath_delivery_rate_bytes_per_second",
            None,
            "Payload that arrived at the peer lately, the sum over the subflows of the path.",
        ),
        |it| Some(it.delivered_bytes_per_s),
    ),
];

const STACKS: Metric = gauge("polypath_stacks", None, "Processes whose stack answers.");
const CONNECTIONS: Metric = gauge("polypath_connections", None, "Connections that programs hold.");
const FALLBACKS: Metric =
    counter("polypath_fallbacks_total", None, "Connections that fell back to TCP, by cause.");
const MIB: Metric = counter("polypath_mib_total", None, "Counters by the name that the kernel gives them.");
const LINK_RECEIVED: Metric =
    counter("polypath_link_received_bytes_total", Some("bytes"), "Bytes that entered an emulated link.");
const LINK_DELIVERED: Metric =
    counter("polypath_link_delivered_bytes_total", Some("bytes"), "Bytes that an emulated link delivered.");
const LINK_DROPPED: Metric =
    counter("polypath_link_dropped_packets_total", None, "Packets that an emulated link dropped, by cause.");
const PROXY_SESSIONS: Metric =
    gauge("polypath_proxy_sessions", None, "Clients' connections within a proxy, by protocol.");
const PROXY_ENDED: Metric = counter(
    "polypath_proxy_sessions_ended_total",
    None,
    "Sessions of a proxy that have ended, of HTTP each request, by protocol and ending.",
);
const PROXY_CARRIED: Metric = counter(
    "polypath_proxy_carried_bytes_total",
    Some("bytes"),
    "Payload that a proxy carried up to servers and down to clients.",
);
const PROXY_MEMORY: Metric =
    gauge("polypath_proxy_memory_bytes", Some("bytes"), "Memory of a proxy's process, where it has a limit.");
const PROXY_MEMORY_LIMIT: Metric = gauge(
    "polypath_proxy_memory_limit_bytes",
    Some("bytes"),
    "What a proxy's process may have of memory before no further client comes in.",
);
const PROXY_LIMIT_FLOWS: Metric =
    gauge("polypath_proxy_limit_flows", None, "Directions of connections that a limit of a proxy is of.");
const PROXY_LIMIT_WAITING: Metric = gauge(
    "polypath_proxy_limit_waiting_flows",
    None,
    "Directions of connections that wait for a limit of a proxy.",
);

/// The name of every metric.
pub fn metric_names() -> impl Iterator<Item = &'static str> {
    let single = [BUILD, STACKS, CONNECTIONS, FALLBACKS, MIB, LINK_RECEIVED, LINK_DELIVERED, LINK_DROPPED];
    let of_proxies = [
        PROXY_SESSIONS,
        PROXY_ENDED,
        PROXY_CARRIED,
        PROXY_MEMORY,
        PROXY_MEMORY_LIMIT,
        PROXY_LIMIT_FLOWS,
        PROXY_LIMIT_WAITING,
    ];
    let of_path = COUNTED.map(|(metric, _)| metric).into_iter().chain(NOW.map(|(metric, _)| metric));
    single.into_iter().chain(of_proxies).chain(of_path).map(|metric| metric.name)
}

fn of_path(key: &PathKey) -> Vec<(&'static str, String)> {
    vec![("stack", key.stack.clone()), ("interface", key.interface.clone()), ("path", key.path.to_string())]
}

/// Figures of stacks, and of emulated links, as text.
#[must_use]
pub fn expose(totals: &Totals, links: &[LinkSample], format: Format) -> String {
    let mut text = Exposition::new(format);
    text.add(&BUILD, [(vec![("version", env!("CARGO_PKG_VERSION").to_string())], 1)]);
    add_stacks(&mut text, totals);
    add_proxies(&mut text, totals);
    add_links(&mut text, links);
    text.finish()
}

fn add_stacks(text: &mut Exposition, totals: &Totals) {
    let stack = |name: &String| ("stack", name.clone());
    let programs = totals.programs();
    text.add(&STACKS, programs.iter().map(|(name, (stacks, _))| (vec![stack(name)], stacks)));
    text.add(&CONNECTIONS, programs.iter().map(|(name, (_, count))| (vec![stack(name)], count)));
    let sums = totals.sums();
    for (metric, of) in &COUNTED {
        text.add(metric, sums.paths.iter().map(|(key, counted)| (of_path(key), of(counted))));
    }
    let now = totals.now();
    for (metric, of) in &NOW {
        text.add(metric, now.iter().filter_map(|(key, now)| Some((of_path(key), of(now)?))));
    }
    let causes = sums.fallbacks.iter();
    text.add(
        &FALLBACKS,
        causes.map(|((name, cause), count)| (vec![stack(name), ("cause", cause.clone())], count)),
    );
    let counters = sums.counters.iter();
    text.add(&MIB, counters.map(|((name, mib), count)| (vec![stack(name), ("name", mib.clone())], count)));
}

fn add_proxies(text: &mut Exposition, totals: &Totals) {
    let proxy = |name: &String| ("proxy", name.clone());
    let (now, counts) = (totals.proxies().now(), totals.proxies().counts());
    let sessions = now.iter().flat_map(|(name, now)| {
        let of_proxy = now.sessions.iter();
        of_proxy.map(move |(protocol, count)| (vec![proxy(name), ("protocol", protocol.clone())], *count))
    });
    text.add(&PROXY_SESSIONS, sessions);
    let ended = counts.iter().flat_map(|(name, counts)| {
        counts.ended.iter().map(move |((protocol, ending), count)| {
            let labels = vec![proxy(name), ("protocol", protocol.clone()), ("ending", ending.clone())];
            (labels, *count)
        })
    });
    text.add(&PROXY_ENDED, ended);
    let carried = counts.iter().flat_map(|(name, counts)| {
        [("up", counts.up_bytes), ("down", counts.down_bytes)]
            .map(|(direction, bytes)| (vec![proxy(name), ("direction", direction.to_string())], bytes))
    });
    text.add(&PROXY_CARRIED, carried);
    let memory: [Of<MemorySample, u64>; 2] =
        [(PROXY_MEMORY, |memory| memory.bytes), (PROXY_MEMORY_LIMIT, |memory| memory.limit_bytes)];
    for (metric, of) in memory {
        let states = now.iter().filter_map(|(name, now)| Some((vec![proxy(name)], of(now.memory.as_ref()?))));
        text.add(&metric, states);
    }
    let limits: [Of<LimitSample, u64>; 2] =
        [(PROXY_LIMIT_FLOWS, |limit| limit.flows), (PROXY_LIMIT_WAITING, |limit| limit.waiting_flows)];
    for (metric, of) in limits {
        let states = now.iter().flat_map(|(name, now)| {
            let of_proxy = now.limits.iter();
            of_proxy.map(move |(limit, state)| (vec![proxy(name), ("limit", limit.clone())], of(state)))
        });
        text.add(&metric, states);
    }
}

fn add_links(text: &mut Exposition, links: &[LinkSample]) {
    let at = |link: &LinkSample| vec![("interface", link.interface.clone())];
    text.add(&LINK_RECEIVED, links.iter().map(|link| (at(link), link.received_bytes)));
    text.add(&LINK_DELIVERED, links.iter().map(|link| (at(link), link.delivered_bytes)));
    let drops = links.iter().flat_map(|link| {
        let of_link = link.dropped_packets.iter();
        of_link.map(move |(cause, count)| {
            (vec![("interface", link.interface.clone()), ("cause", (*cause).to_string())], *count)
        })
    });
    text.add(&LINK_DROPPED, drops);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{MemorySample, PathSample, ProxySample, StackSample};

    fn totals() -> Totals {
        let now = PathNow {
            subflows: 2,
            round_trip_s: Some(0.0235),
            window_bytes: 14_600,
            delivered_bytes_per_s: 1.5e6,
        };
        let path = |name: &str| PathSample { interface: Some(name.into()), counted: Counted::default(), now };
        let stack = StackSample {
            source: "1.sock".into(),
            program: "curl".into(),
            connections: 1,
            paths: vec![path("wifi"), path("lte")],
            fallbacks: vec![("dss_missing".into(), 1)],
            counters: vec![("MPJoinSynRx".into(), 2)],
        };
        let mut totals = Totals::default();
        totals.update(vec![stack], &[]);
        let proxy = ProxySample {
            source: "proxy-a.sock".into(),
            name: "a".into(),
            sessions: [("socks".into(), 3)].into(),
            ended: [(("http".into(), "complete".into()), 4)].into(),
            up_bytes: 5,
            down_bytes: 6,
            memory: Some(MemorySample { bytes: 7, limit_bytes: 8 }),
            limits: [("guests".into(), LimitSample { flows: 2, waiting_flows: 1 })].into(),
        };
        totals.update_proxies(vec![proxy], &[]);
        totals
    }

    #[test]
    fn names_end_as_they_should_and_each_is_exposed() {
        let link = LinkSample { dropped_packets: vec![("queue", 1)], ..LinkSample::default() };
        let text = expose(&totals(), &[link], Format::Prometheus);
        let exposed: BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split(['{', ' ']).next())
            .collect();
        assert_eq!(exposed, metric_names().collect(), "{text}");
        let is_counter = |name: &str| text.contains(&format!("# TYPE {name} counter"));
        assert!(metric_names().all(|name| is_counter(name) == name.ends_with("_total")));
        for line in [
            "sessions{proxy=\"a\",protocol=\"socks\"} 3",
            "sessions_ended_total{proxy=\"a\",protocol=\"http\",ending=\"complete\"} 4",
            "carried_bytes_total{proxy=\"a\",direction=\"down\"} 6",
            "limit_waiting_flows{proxy=\"a\",limit=\"guests\"} 1",
            "memory_bytes{proxy=\"a\"} 7",
            "memory_limit_bytes{proxy=\"a\"} 8",
        ] {
            assert!(text.contains(&format!("\npolypath_proxy_{line}\n")), "{line}: {text}");
        }
        let path = "{stack=\"curl\",interface=\"lte\",path=\"1\"}";
        assert!(
            text.contains(&format!("polypath_smoothed_round_trip_time_seconds{path} 0.0235\n")),
            "{text}"
        );
    }

    #[test]
    fn labels_are_few_and_say_nothing_of_peers() {
        let text = expose(&totals(), &[], Format::OpenMetrics);
        let labels = text.split('{').skip(1).flat_map(|rest| {
            let inside = rest.split('}').next().unwrap_or_default();
            inside.split(',').filter_map(|pair| pair.split('=').next())
        });
        let labels: BTreeSet<&str> = labels.collect();
        let of_stacks = ["cause", "interface", "name", "path", "stack", "version"];
        let of_proxies = ["direction", "ending", "limit", "protocol", "proxy"];
        assert_eq!(labels, of_stacks.into_iter().chain(of_proxies).collect());
        assert!(text.ends_with("# EOF\n"));
    }
}
