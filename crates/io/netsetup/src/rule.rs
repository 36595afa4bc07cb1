//! Rules of nftables: what set-up says of packets, in nft's words for people and as JSON for the library.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

/// What a packet has to be.
#[derive(Clone, Debug)]
pub(super) enum Match<'a> {
    /// It came by this interface.
    In(&'a str),
    /// It leaves by this interface.
    Out(&'a str),
    /// It leaves by another one.
    NotOut(&'a str),
    /// Its source.
    From(IpAddr),
    /// Its destination is one of these, of one family.
    To(Vec<IpAddr>),
    /// Its destination is in this network: an address of it, and the length of its prefix.
    ToNetwork((IpAddr, u8)),
    /// Its TCP destination port.
    Port(u16),
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
}

/// What happens to it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Accept,
    Drop,
    /// It gets another source. A masquerade would do the same until the interface goes down: then the kernel forgets the
    /// connection, and answers with a reset what comes for it when the interface is back.
    From(IpAddr),
    /// It gets the address of the interface by which it leaves as source.
    Masquerade,
    /// The longest TCP segment that it asks for becomes so long, if it was longer.
    MostSegment(u16),
    /// It gets another destination.
    Redirect(SocketAddr),
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
        self.matches.iter().map(Match::json).chain([self.then.json()]).collect()
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
            Self::Out(link) => matches("==", meta("oifname"), json!(link)),
            Self::NotOut(link) => matches("!=", meta("oifname"), json!(link)),
            Self::From(addr) => matches("==", payload(family(*addr), "saddr"), json!(addr)),
            Self::To(addresses) => {
                matches("==", payload(family_of(addresses), "daddr"), json!({"set": addresses}))
            }
            Self::ToNetwork((addr, length)) => matches(
                "==",
                payload(family(*addr), "daddr"),
                json!({"prefix": {"addr": addr, "len": length}}),
            ),
            Self::Port(port) => matches("==", payload("tcp", "dport"), json!(port)),
            Self::Answering => matches("in", ct("state"), json!(["established", "related"])),
            Self::Original => matches("==", ct("direction"), json!("original")),
            Self::Translated => matches("in", ct("status"), json!("dnat")),
            Self::Marked(mark) => matches("==", ct("mark"), json!(mark)),
            Self::Syn => matches("in", payload("tcp", "flags"), json!("syn")),
            Self::OfV4(is_v4) => matches("==", meta("nfproto"), json!(if *is_v4 { "ipv4" } else { "ipv6" })),
        }
    }
}

impl Then {
    fn json(self) -> Value {
        let set = |key: Value, mark: u32| json!({"mangle": {"key": key, "value": mark}});
        match self {
            Self::Accept => json!({"accept": null}),
            Self::Drop => json!({"drop": null}),
            Self::Masquerade => json!({"masquerade": null}),
            Self::MostSegment(bytes) => {
                let key = json!({"tcp option": {"name": "maxseg", "field": "size"}});
                set(key, bytes.into())
            }
            Self::From(addr) => json!({"snat": {"family": family(addr), "addr": addr}}),
            Self::Redirect(to) => {
                json!({"dnat": {"family": family(to.ip()), "addr": to.ip(), "port": to.port()}})
            }
            Self::MarkConnection(mark) => set(json!({"ct": {"key": "mark"}}), mark),
            Self::Mark(mark) => set(json!({"meta": {"key": "mark"}}), mark),
        }
    }
}

impl fmt::Display for Match<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(link) => write!(f, "iifname \"{link}\""),
            Self::Out(link) => write!(f, "oifname \"{link}\""),
            Self::NotOut(link) => write!(f, "oifname != \"{link}\""),
            Self::From(addr) => write!(f, "{} saddr {addr}", family(*addr)),
            Self::To(addresses) => {
                let listed = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                write!(f, "{} daddr {{ {listed} }}", family_of(addresses))
            }
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
