use alloc::boxed::Box;

use polypath_units::named::{self, NoParameter};

use super::*;

/// A kind of box by name, with the settings that show its behaviour. What is random about a box follows from the seed that it is built for.
///
/// A new one is one file and one line in [`Policy::ALL`].
pub type Policy = named::Named<Middleboxes>;

/// A name that is no box's.
pub type UnknownPolicy = named::UnknownPolicy<Middleboxes>;

/// The kind of policy that a middlebox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Middleboxes;

impl named::Kind for Middleboxes {
    type Instance = dyn Middlebox;
    /// A seed.
    type Given = u64;
    type Parameter = NoParameter;

    const WHAT: &'static str = "middlebox";
    const ALL: &'static [Policy] = &[
        Policy::new("nat", |seed| Box::new(Nat::new(NatConfig::default(), *seed))),
        Policy::new("strip-mptcp-syn", |_| Box::new(StripMptcp::new(StripFrom::Syn))),
        Policy::new("strip-mptcp-synack", |_| Box::new(StripMptcp::new(StripFrom::SynAck))),
        Policy::new("strip-mptcp-data", |_| Box::new(StripMptcp::new(StripFrom::Data))),
        Policy::new("drop-unknown-syn", |_| Box::new(DropUnknownSyn::new())),
        Policy::new("randomize-isn", |seed| Box::new(RandomizeIsn::new(*seed))),
        Policy::new("split", |_| Box::new(Split::default())),
        Policy::new("coalesce", |_| Box::new(Coalesce::new(CoalesceConfig::default()))),
        Policy::new("ack-proxy", |_| Box::new(AckProxy::new(AckProxyConfig::default()))),
        Policy::new("shrink-window", |_| Box::new(ShrinkWindow::new(ShrinkWindowConfig::default()))),
        Policy::new("rewrite-payload", |_| Box::new(RewritePayload::new(RewritePayloadConfig::default()))),
        Policy::new("rewrite-length", |_| Box::new(RewriteLength::new(RewriteLengthConfig::default()))),
        Policy::new("mirror-synack", |_| Box::new(MirrorSynAck::new())),
        Policy::new("duplicate-options", |_| Box::new(DuplicateOptions::new())),
        Policy::new("reorder", |seed| Box::new(Reorder::new(ReorderConfig::default(), *seed))),
        Policy::new("duplicate", |seed| Box::new(Duplicate::new(DuplicateConfig::default(), *seed))),
    ];
}

#[cfg(test)]
mod tests;
