//! Rules of nftables: what set-up says of packets, in nft's words for people and as JSON for the library.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use serde_json::{Value, json};

/// What a packet has to be.
#[derive(Clone, Debug)]
pub(super) enum Match<'a> {
    /// It came by this interface.
    In(&'a str),
    /// It came by one of these interfaces.
    InOneOf(Vec<&'a str>),
    /// It came by another one.
    NotIn(&'a str),
    /// It leaves by this interface.
    Out(&'a str),
    /// It leaves by another one.
    NotOut(&'a str),
    /// Its source.
    From(IpAddr),
    /// Its source is in one of these networks, of one family: an address of each, and the length of its prefix.
    FromNetworks(Vec<(IpAddr, u8)>),
    /// Its destination is one of these, of one family.
    To(Vec<IpAddr>),
    /// Its destination is in this network: an address of it, and the length of its prefix.
    ToNetwork((IpAddr, u8)),
    /// Its destination is this host.
    ToThisHost,
    /// It is of TCP.
    Tcp,
    /// Its TCP destination port.
    Port(u16),
    /// Its TCP destination port is one of these.
    Ports(&'a [RangeInclusive<u16>]),
    /// It is for a connection whose socket here has an address that need not be of this host.
    OfTransparent,
    /// It is for a socket here that is bound to no address.
    OfAnyAddress,
    /// It answers something, or belongs to what does.
    Answering,
    /// It is of whoever began the connection.
    Original,
    /// Its connection's destination was translated.
    Translated,
    /// Its connection's mark.
    Marked(u32),
    /// It is IPv4, or else IPv6.
    OfV4(bool),
    /// It begins a TCP connection, at either end.
    Syn,
    /// It is a client's, and begins a TCP connection.
    Opening,
}

/// What happens to it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Accept,
    Drop,
    /// Its sender gets a reset.
    Reset,
    /// No more rules of the chain are asked.
    Return,
    /// It gets another source. A masquerade would do the same until the interface goes down: then the kernel forgets the
    /// connection, and answers with a reset what comes for it when the interface is back.
    From(IpAddr),
    /// It gets the address of the interface by which it leaves as source.
    Masquerade,
    /// The longest TCP segment that it asks for becomes so long, if it was longer.
    MostSegment(u16),
    /// It gets another destination.
    Redirect(SocketAddr),
    /// It goes to this port of this host.
    RedirectHere(u16),
    /// It goes to the socket that listens there, and keeps its destination. The mark keeps it on this host.
    Hand(SocketAddr, u32),
    /// It gets a mark that keeps it on this host.
    Keep(u32),
    /// Its connection gets a mark.
    MarkConnection(u32),
    /// It gets a mark.
    Mark(u32),
}

/// A rule of a chain.
#[derive(Clone, Debug)]
pub(super) struct Rule<'a> {
    pub(super) chain: &'static str,
    pub(super) matches: Vec<Match<'a>>,
    pub(super) then: Then,
}

impl Rule<'_> {
    /// As the nftables library wants it.
    pub(super) fn expr(&self) -> Value {
        self.matches.iter().map(Match::json).chain(self.then.json()).collect()
    }
}

/// What nft calls the family of an address.
pub(super) fn family(addr: IpAddr) -> &'static str {
    if addr.is_ipv4() { "ip" } else { "ip6" }
}

/// The family of addresses that have the same one.
fn family_of(addresses: &[IpAddr]) -> &'static str {
    addresses.first().map_or("ip", |addr| family(*addr))
}

impl Match<'_> {
    fn json(&self) -> Value {
        let matches =
            |op: &str, left: Value, right: Value| json!({"match": {"op": op, "left": left, "right": right}});
        let meta = |key: &str| json!({"meta": {"key": key}});
        let payload =
            |protocol: &str, field: &str| json!({"payload": {"protocol": protocol, "field": field}});
        let ct = |key: &str| json!({"ct": {"key": key}});
        match self {
            Self::In(link) => matches("==", meta("iifname"), json!(link)),
            Self::InOneOf(links) => matches("==", meta("iifname"), json!({"set": links})),
            Self::NotIn(link) => matches("!=", meta("iifname"), json!(link)),
            Self::Out(link) => matches("==", meta("oifname"), json!(link)),
            Self::NotOut(link) => matches("!=", meta("oifname"), json!(link)),
            Self::From(addr) => matches("==", payload(family(*addr), "saddr"), json!(addr)),
            Self::FromNetworks(networks) => {
                let family = networks.first().map_or("ip", |(addr, _)| family(*addr));
                let prefix = |(addr, length): &(IpAddr, u8)| json!({"prefix": {"addr": addr, "len": length}});
                let networks: Vec<Value> = networks.iter().map(prefix).collect();
                matches("==", payload(family, "saddr"), json!({"set": networks}))
            }
            Self::To(addresses) => {
                matches("==", payload(family_of(addresses), "daddr"), json!({"set": addresses}))
            }
            Self::ToNetwork((addr, length)) => matches(
                "==",
                payload(family(*addr), "daddr"),
                json!({"prefix": {"addr": addr, "len": length}}),
            ),
            Self::ToThisHost => {
                matches("==", json!({"fib": {"result": "type", "flags": ["daddr"]}}), json!("local"))
            }
            Self::Tcp => matches("==", meta("l4proto"), json!("tcp")),
            Self::Port(port) => matches("==", payload("tcp", "dport"), json!(port)),
            Self::Ports(ports) => {
                let ports: Vec<Value> = ports.iter().map(json_of).collect();
                matches("==", payload("tcp", "dport"), json!({"set": ports}))
            }
            Self::OfTransparent => matches("==", json!({"socket": {"key": "transparent"}}), json!(1)),
            Self::OfAnyAddress => matches("==", json!({"socket": {"key": "wildcard"}}), json!(1)),
            Self::Answering => matches("in", ct("state"), json!(["established", "related"])),
            Self::Original => matches("==", ct("direction"), json!("original")),
            Self::Translated => matches("in", ct("status"), json!("dnat")),
            Self::Marked(mark) => matches("==", ct("mark"), json!(mark)),
            Self::Syn => matches("in", payload("tcp", "flags"), json!("syn")),
            Self::Opening => {
                let which = json!({"|": ["syn", "ack"]});
                matches("==", json!({"&": [payload("tcp", "flags"), which]}), json!("syn"))
            }
            Self::OfV4(is_v4) => matches("==", meta("nfproto"), json!(if *is_v4 { "ipv4" } else { "ipv6" })),
        }
    }
}

impl Then {
    /// What is done, one after the other.
    fn json(self) -> Vec<Value> {
        let set = |key: Value, mark: u32| json!({"mangle": {"key": key, "value": mark}});
        let mark = |mark| set(json!({"meta": {"key": "mark"}}), mark);
        let accept = || json!({"accept": null});
        vec![match self {
            Self::Accept => accept(),
            Self::Drop => json!({"drop": null}),
            Self::Reset => json!({"reject": {"type": "tcp reset"}}),
            Self::Return => json!({"return": null}),
            Self::Masquerade => json!({"masquerade": null}),
            Self::MostSegment(bytes) => {
                let key = json!({"tcp option": {"name": "maxseg", "field": "size"}});
                set(key, bytes.into())
            }
            Self::From(addr) => json!({"snat": {"family": family(addr), "addr": addr}}),
            Self::Redirect(to) => {
                json!({"dnat": {"family": family(to.ip()), "addr": to.ip(), "port": to.port()}})
            }
            Self::RedirectHere(port) => json!({"redirect": {"port": port}}),
            Self::Hand(to, number) => {
                let to = json!({"family": family(to.ip()), "addr": to.ip(), "port": to.port()});
                return vec![json!({"tproxy": to}), mark(number), accept()];
            }
            Self::Keep(number) => return vec![mark(number), accept()],
            Self::MarkConnection(mark) => set(json!({"ct": {"key": "mark"}}), mark),
            Self::Mark(number) => mark(number),
        }]
    }
}

fn json_of(ports: &RangeInclusive<u16>) -> Value {
    match (ports.start(), ports.end()) {
        (first, last) if first == last => json!(first),
        (first, last) => json!({"range": [first, last]}),
    }
}

fn listed(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Match<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(link) => write!(f, "iifname \"{link}\""),
            Self::NotIn(link) => write!(f, "iifname != \"{link}\""),
            Self::Out(link) => write!(f, "oifname \"{link}\""),
            Self::NotOut(link) => write!(f, "oifname != \"{link}\""),
            Self::From(addr) => write!(f, "{} saddr {addr}", family(*addr)),
            Self::InOneOf(links) => {
                write!(f, "iifname {{ {} }}", listed(links.iter().map(|link| format!("\"{link}\""))))
            }
            Self::FromNetworks(networks) => {
                let family = networks.first().map_or("ip", |(addr, _)| family(*addr));
                let listed = listed(networks.iter().map(|(addr, length)| format!("{addr}/{length}")));
                write!(f, "{family} saddr {{ {listed} }}")
            }
            Self::To(addresses) => {
                let listed = listed(addresses.iter().map(ToString::to_string));
                write!(f, "{} daddr {{ {listed} }}", family_of(addresses))
            }
            Self::ToThisHost => f.write_str("fib daddr type local"),
            Self::Tcp => f.write_str("meta l4proto tcp"),
            Self::Ports(ports) => {
                let range = |ports: &RangeInclusive<u16>| match (ports.start(), ports.end()) {
                    (first, last) if first == last => first.to_string(),
                    (first, last) => format!("{first}-{last}"),
                };
                write!(f, "tcp dport {{ {} }}", listed(ports.iter().map(range)))
            }
            Self::OfTransparent => f.write_str("socket transparent 1"),
            Self::OfAnyAddress => f.write_str("socket wildcard 1"),
            Self::Opening => f.write_str("tcp flags & (syn | ack) == syn"),
            Self::ToNetwork((addr, length)) => write!(f, "{} daddr {addr}/{length}", family(*addr)),
            Self::Port(port) => write!(f, "tcp dport {port}"),
            Self::Answering => f.write_str("ct state established,related"),
            Self::Original => f.write_str("ct direction original"),
            Self::Translated => f.write_str("ct status dnat"),
            Self::Marked(mark) => write!(f, "ct mark {mark:#x}"),
            Self::Syn => f.write_str("tcp flags syn"),
            Self::OfV4(is_v4) => write!(f, "meta nfproto {}", if *is_v4 { "ipv4" } else { "ipv6" }),
        }
    }
}

impl fmt::Display for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Reset => f.write_str("reject with tcp reset"),
            Self::Return => f.write_str("return"),
            Self::RedirectHere(port) => write!(f, "redirect to :{port}"),
            Self::Hand(to, mark) => {
                write!(f, "tproxy {} to {to} meta mark set {mark:#x} accept", family(to.ip()))
            }
            Self::Keep(mark) => write!(f, "meta mark set {mark:#x} accept"),
            Self::Masquerade => f.write_str("masquerade"),
            Self::MostSegment(bytes) => write!(f, "tcp option maxseg size set {bytes}"),
            Self::From(addr) => write!(f, "snat {} to {addr}", family(*addr)),
            Self::Redirect(to) => write!(f, "dnat {} to {to}", family(to.ip())),
            Self::MarkConnection(mark) => write!(f, "ct mark set {mark:#x}"),
            Self::Mark(mark) => write!(f, "meta mark set {mark:#x}"),
        }
    }
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.matches.iter().try_for_each(|matched| write!(f, "{matched} "))?;
        self.then.fmt(f)
    }
}
