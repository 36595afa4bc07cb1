use alloc::boxed::Box;

use polypath_units::named::{self, NoParameter};

use super::*;

/// A kind of box by name, with the settings that show its behaviour. What is random about a box follows from the seed that it is built for.
///
/// A new one is one file and one line in [`Kind::ALL`].
pub type Kind = named::Named<Middleboxes>;

/// A name that is no box's.
pub type UnknownKind = named::UnknownPolicy<Middleboxes>;

/// The kind of policy that a middlebox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Middleboxes;

impl named::Kind for Middleboxes {
    type Instance = dyn Middlebox;
    /// A seed.
    type Given = u64;
    type Parameter = NoParameter;

    const WHAT: &'static str = "middlebox";
    const ALL: &'static [Kind] = &[
        Kind::new("nat", |seed| Box::new(Nat::new(NatConfig::default(), *seed))),
        Kind::new("strip-mptcp-syn", |_| Box::new(StripMptcp::new(StripFrom::Syn))),
        Kind::new("strip-mptcp-synack", |_| Box::new(StripMptcp::new(StripFrom::SynAck))),
        Kind::new("strip-mptcp-data", |_| Box::new(StripMptcp::new(StripFrom::Data))),
        Kind::new("drop-unknown-syn", |_| Box::new(DropUnknownSyn::new())),
        Kind::new("randomize-isn", |seed| Box::new(RandomizeIsn::new(*seed))),
        Kind::new("split", |_| Box::new(Split::default())),
        Kind::new("coalesce", |_| Box::new(Coalesce::new(CoalesceConfig::default()))),
        Kind::new("ack-proxy", |_| Box::new(AckProxy::new(AckProxyConfig::default()))),
        Kind::new("shrink-window", |_| Box::new(ShrinkWindow::new(ShrinkWindowConfig::default()))),
        Kind::new("rewrite-payload", |_| Box::new(RewritePayload::new(RewritePayloadConfig::default()))),
        Kind::new("rewrite-length", |_| Box::new(RewriteLength::new(RewriteLengthConfig::default()))),
        Kind::new("mirror-synack", |_| Box::new(MirrorSynAck::new())),
        Kind::new("duplicate-options", |_| Box::new(DuplicateOptions::new())),
        Kind::new("reorder", |seed| Box::new(Reorder::new(ReorderConfig::default(), *seed))),
        Kind::new("duplicate", |seed| Box::new(Duplicate::new(DuplicateConfig::default(), *seed))),
    ];
}

#[cfg(test)]
mod tests;
