use alloc::boxed::Box;
use core::fmt;

use super::*;

/// A box that can be chosen: its name, what it does, and how to build one with the settings that show its
/// behavior.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The name, in lower case.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    build: fn(u64) -> Box<dyn Middlebox>,
}

/// The names of all boxes, in the order of [`Kind::ALL`].
pub const ALL: &[&str] = &{
    let mut names = [""; Kind::ALL.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = Kind::ALL[index].name;
        index += 1;
    }
    names
};

/// A box of that name, or `None`; case does not matter.
pub fn by_name(name: &str, seed: u64) -> Option<Box<dyn Middlebox>> {
    Kind::by_name(name).map(|kind| kind.build(seed))
}

impl Kind {
    /// Every box. A new one is one line here.
    pub const ALL: &'static [Self] = &[
        Self::new("nat", "translates addresses and ports, drops what nobody asked for", |seed| {
            Box::new(Nat::new(NatConfig::default(), seed))
        }),
        Self::new("strip-mptcp-syn", "removes Multipath TCP options from SYN", |_| {
            Box::new(StripMptcp::new(StripFrom::Syn))
        }),
        Self::new("strip-mptcp-synack", "removes Multipath TCP options from SYN/ACK", |_| {
            Box::new(StripMptcp::new(StripFrom::SynAck))
        }),
        Self::new("strip-mptcp-data", "removes Multipath TCP options from all but SYNs", |_| {
            Box::new(StripMptcp::new(StripFrom::Data))
        }),
        Self::new("drop-unknown-syn", "drops SYNs with a Multipath TCP option", |_| {
            Box::new(DropUnknownSyn::new())
        }),
        Self::new("randomize-isn", "shifts the sequence numbers of each flow", |seed| {
            Box::new(RandomizeIsn::new(seed))
        }),
        Self::new("split", "cuts segments in two", |_| Box::new(Split::default())),
        Self::new("coalesce", "merges segments and keeps the options of the first", |_| {
            Box::new(Coalesce::new(CoalesceConfig::default()))
        }),
        Self::new("ack-proxy", "acknowledges data itself and retransmits it", |_| {
            Box::new(AckProxy::new(AckProxyConfig::default()))
        }),
        Self::new("shrink-window", "makes receive windows smaller", |_| {
            Box::new(ShrinkWindow::new(ShrinkWindowConfig::default()))
        }),
        Self::new("rewrite-payload", "changes data, once", |_| {
            Box::new(RewritePayload::new(RewritePayloadConfig::default()))
        }),
        Self::new("rewrite-length", "changes data and its length, once", |_| {
            Box::new(RewriteLength::new(RewriteLengthConfig::default()))
        }),
        Self::new("mirror-synack", "puts the client's Multipath TCP options into the SYN/ACK", |_| {
            Box::new(MirrorSynAck::new())
        }),
        Self::new("duplicate-options", "writes Multipath TCP options twice", |_| {
            Box::new(DuplicateOptions::new())
        }),
        Self::new("reorder", "holds some packets back", |seed| {
            Box::new(Reorder::new(ReorderConfig::default(), seed))
        }),
        Self::new("duplicate", "sends some packets twice", |seed| {
            Box::new(Duplicate::new(DuplicateConfig::default(), seed))
        }),
    ];

    /// A box from outside this crate: `build` makes one from a seed.
    pub const fn new(name: &'static str, about: &'static str, build: fn(u64) -> Box<dyn Middlebox>) -> Self {
        Self { name, about, build }
    }

    /// The box of that name, or `None`; case does not matter.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name.eq_ignore_ascii_case(name))
    }

    /// One instance. What is random about it follows from `seed`.
    pub fn build(self, seed: u64) -> Box<dyn Middlebox> {
        (self.build)(seed)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

#[cfg(test)]
mod tests;
