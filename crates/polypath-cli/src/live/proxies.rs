//! What the live view knows of proxies: samples go in, rates of clients and their paths come out. It has no clock and no terminal.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

use super::history::remember;
use super::order::Order;

/// What a proxy told at one time, and its socket, by which it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxySample {
    pub(crate) socket: String,
    pub(crate) name: String,
    pub(crate) pid: u32,
    /// What it carried since its start, by those that have left, too.
    pub(crate) carried: Carried,
    /// What it has of memory, as it is shown, if that is limited.
    pub(crate) memory: Option<String>,
    pub(crate) limits: Vec<LimitNow>,
    pub(crate) clients: Vec<ClientSample>,
}

/// Bytes to servers and to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) up_bytes: u64,
    pub(crate) down_bytes: u64,
}

/// A limit, and whom it holds back.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LimitNow {
    pub(crate) name: String,
    /// How much it lets pass, and where.
    pub(crate) what: String,
    pub(crate) flows: usize,
    pub(crate) waiting_flows: usize,
    pub(crate) used_bytes: u64,
    /// As it is shown.
    #[serde(skip)]
    pub(crate) line: String,
}

/// A client's connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSample {
    /// Which one of the proxy's, since its start.
    pub(crate) number: u64,
    pub(crate) told: Told,
    pub(crate) carried: Carried,
    pub(crate) paths: Vec<PathSample>,
}

/// What a client is, and wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Told {
    pub(crate) protocol: String,
    pub(crate) client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
}

/// A path of one of its two connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathSample {
    pub(crate) key: PathKey,
    pub(crate) carried: Carried,
    pub(crate) now: PathNow,
}

/// Which path: the side, and both of its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct PathKey {
    /// `client` or `server`.
    pub(crate) side: &'static str,
    pub(crate) local: String,
    pub(crate) remote: String,
}

/// What a path is like.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PathNow {
    /// Its interface, or its own address where that has no name.
    pub(crate) interface: String,
    /// `tcp`, `mptcp` or `backup`.
    pub(crate) state: &'static str,
    pub(crate) rtt_ms: f64,
    pub(crate) retransmitted_share: Option<f64>,
    pub(crate) cwnd_packets: u64,
}

/// A proxy as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Proxy {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) down_bps: f64,
    pub(crate) up_bps: f64,
    #[serde(skip)]
    memory: Option<String>,
    pub(crate) limits: Vec<LimitNow>,
    pub(crate) clients: Vec<Client>,
    /// Both directions together, the latest last.
    #[serde(skip)]
    pub(crate) history: VecDeque<u64>,
}

/// A client's connection as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Client {
    #[serde(skip)]
    number: u64,
    #[serde(flatten)]
    pub(crate) told: Told,
    pub(crate) down_bps: f64,
    pub(crate) up_bps: f64,
    pub(crate) paths: Vec<ClientPath>,
}

/// A path as it is shown. Down is to the client on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ClientPath {
    #[serde(flatten)]
    pub(crate) key: PathKey,
    #[serde(flatten)]
    pub(crate) now: PathNow,
    pub(crate) down_bps: f64,
    pub(crate) up_bps: f64,
    #[serde(skip)]
    pub(crate) history: VecDeque<u64>,
}

impl Client {
    fn rate(&self) -> f64 {
        self.down_bps + self.up_bps
    }

    /// Such as `10.0.0.5:40000 socks to example.org:443 by ann`.
    pub(crate) fn heading(&self) -> String {
        let Told { protocol, client, user, target } = &self.told;
        let mut text = format!("{client} {protocol}");
        for (word, said) in [("to", target), ("by", user)] {
            if let Some(said) = said {
                text += &format!(" {word} {said}");
            }
        }
        text
    }
}

impl Proxy {
    /// Such as `proxy gateway[77]  3 clients`.
    pub(crate) fn heading(&self) -> String {
        let count = self.clients.len();
        format!("proxy {}[{}]  {count} client{}", self.name, self.pid, if count == 1 { "" } else { "s" })
    }
}

impl Proxy {
    /// Its limits, a line each.
    pub(crate) fn limit_lines(&self) -> impl Iterator<Item = &String> {
        self.memory.iter().chain(self.limits.iter().map(|limit| &limit.line))
    }
}

impl ClientPath {
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.key.side, self.now.interface)
    }
}

/// What was seen of a proxy.
#[derive(Debug)]
struct Known {
    proxy: Proxy,
    carried: Carried,
    clients: BTreeMap<u64, KnownClient>,
}

#[derive(Debug, Default)]
struct KnownClient {
    carried: Carried,
    paths: BTreeMap<PathKey, (Carried, VecDeque<u64>)>,
}

/// All proxies.
#[derive(Debug, Default)]
pub(super) struct Proxies {
    known: BTreeMap<String, Known>,
    sampled_at: Option<Duration>,
}

impl Proxies {
    /// What proxies told at a time. Between two samples, rates are known.
    pub(super) fn handle_samples(&mut self, now: Duration, samples: &[ProxySample]) {
        let elapsed = self.sampled_at.map(|before| now.saturating_sub(before).as_secs_f64());
        let since = Since(elapsed.filter(|elapsed| *elapsed > 0.0));
        self.sampled_at = Some(now);
        let mut before = std::mem::take(&mut self.known);
        for sample in samples {
            // One at the place of one that has ended begins anew.
            let before = before.remove(&sample.socket).filter(|before| before.proxy.pid == sample.pid);
            self.known.insert(sample.socket.clone(), follow(before, sample, since));
        }
    }

    /// As they are shown.
    pub(super) fn report(&self, order: Order) -> Vec<Proxy> {
        let mut proxies: Vec<Proxy> = self.known.values().map(|known| known.proxy.clone()).collect();
        for proxy in &mut proxies {
            match order {
                // Those that are equal stay in the order in which they came.
                Order::Rate => proxy.clients.sort_by(|a, b| b.rate().total_cmp(&a.rate())),
                Order::Process => proxy.clients.sort_by_key(|client| client.number),
                Order::Peer => proxy.clients.sort_by(|a, b| a.told.target.cmp(&b.told.target)),
            }
        }
        proxies
    }

    pub(super) fn clients(&self) -> usize {
        self.known.values().map(|known| known.proxy.clients.len()).sum()
    }
}

/// The seconds since the sample before, if there was one.
#[derive(Clone, Copy)]
struct Since(Option<f64>);

impl Since {
    /// Bits in a second, down and up; of what is new since then, all is new.
    fn rates(self, now: Carried, before: Carried) -> (f64, f64) {
        let rate = |bytes: u64, before: u64| {
            self.0.map_or(0.0, |elapsed| bytes.saturating_sub(before) as f64 * 8.0 / elapsed)
        };
        (rate(now.down_bytes, before.down_bytes), rate(now.up_bytes, before.up_bytes))
    }
}

fn follow(before: Option<Known>, sample: &ProxySample, since: Since) -> Known {
    let is_new = before.is_none();
    let (mut history, carried, mut clients) = match before {
        Some(before) => (before.proxy.history, before.carried, before.clients),
        None => (VecDeque::new(), Carried::default(), BTreeMap::new()),
    };
    // What it carried before it was seen is none of what it carries now.
    let (down_bps, up_bps) = since.rates(sample.carried, if is_new { sample.carried } else { carried });
    remember(&mut history, down_bps + up_bps);
    let followed = sample.clients.iter().map(|client| {
        let before = clients.remove(&client.number);
        let before =
            before.unwrap_or_else(|| if is_new { KnownClient::of(client) } else { KnownClient::default() });
        (client.number, follow_client(before, client, since))
    });
    let (mut known, mut shown) = (BTreeMap::new(), Vec::new());
    for (number, (client, seen)) in followed {
        shown.push(client);
        known.insert(number, seen);
    }
    let proxy = Proxy {
        name: sample.name.clone(),
        pid: sample.pid,
        down_bps,
        up_bps,
        memory: sample.memory.clone(),
        limits: sample.limits.clone(),
        clients: shown,
        history,
    };
    Known { proxy, carried: sample.carried, clients: known }
}

impl KnownClient {
    /// One that has carried nothing since.
    fn of(client: &ClientSample) -> Self {
        let paths = client.paths.iter().map(|path| (path.key.clone(), (path.carried, VecDeque::new())));
        Self { carried: client.carried, paths: paths.collect() }
    }
}

fn follow_client(mut before: KnownClient, sample: &ClientSample, since: Since) -> (Client, KnownClient) {
    let (down_bps, up_bps) = since.rates(sample.carried, before.carried);
    let (mut known, mut shown) = (BTreeMap::new(), Vec::new());
    for path in &sample.paths {
        let (carried, mut history) = before.paths.remove(&path.key).unwrap_or_default();
        let (down_bps, up_bps) = since.rates(path.carried, carried);
        remember(&mut history, down_bps + up_bps);
        let (key, now) = (path.key.clone(), path.now.clone());
        shown.push(ClientPath { key, now, down_bps, up_bps, history: history.clone() });
        known.insert(path.key.clone(), (path.carried, history));
    }
    let client = Client { number: sample.number, told: sample.told.clone(), down_bps, up_bps, paths: shown };
    (client, KnownClient { carried: sample.carried, paths: known })
}
