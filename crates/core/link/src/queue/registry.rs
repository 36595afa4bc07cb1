use alloc::boxed::Box;

use polypath_units::BitRate;
use polypath_units::named::{self, Kind, Named, NoParameter};

use super::drop_tail::DropTailQueue;
use super::{Queue, QueueLimit};

/// A queueing discipline by name. The default is [`DROP_TAIL`].
///
/// A new one is one file and one line in [`Policy::ALL`].
pub type Policy = Named<Disciplines>;

/// A name that is no discipline's.
pub type UnknownPolicy = named::UnknownPolicy<Disciplines>;

/// The kind of policy that a queueing discipline is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disciplines;

/// What a queue is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// How much may wait.
    pub limit: QueueLimit,
    /// The link's rate; `None` is a link without.
    pub rate: Option<BitRate>,
    /// Of everything random.
    pub seed: u64,
}

/// First in, first out; what finds the queue full is dropped.
pub const DROP_TAIL: Policy = Policy::new("drop-tail", |settings| {
    let QueueSettings { limit, rate, .. } = *settings;
    Box::new(DropTailQueue::new(limit, rate))
});

impl Kind for Disciplines {
    type Instance = dyn Queue;
    type Given = QueueSettings;
    type Parameter = NoParameter;

    const WHAT: &'static str = "queue discipline";
    const ALL: &'static [Policy] = &[DROP_TAIL];
}
