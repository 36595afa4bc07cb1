//! Impairments: what happens to packets on a line besides its rate and delay. One file per model.
//!
//! The usual ones have a place of their own in [`LinkConfig`](crate::LinkConfig). Any other, from here or from a crate of somebody
//! else, is a [`Policy`] in [`LinkConfig::impairments`](crate::LinkConfig::impairments):
//!
//! ```
//! # mod polypath { pub use polypath_link as link; }
//! use polypath::link::impairment::{Fate, Impairment, Policy, Passing, Random};
//! use polypath::link::LinkConfig;
//!
//! /// Loses every packet of a certain size and more.
//! const NO_LARGE_ONES: Policy = Policy::new("no-large-ones", |_| Box::new(NoLargeOnes));
//!
//! #[derive(Debug)]
//! struct NoLargeOnes;
//!
//! impl Impairment for NoLargeOnes {
//!     fn handle_packet(&mut self, packet: Passing, fate: &mut Fate, _: &mut Random) {
//!         if packet.size_bytes >= 1400 {
//!             fate.lose();
//!         }
//!     }
//! }
//!
//! let config = LinkConfig { impairments: vec![NO_LARGE_ONES], ..LinkConfig::default() };
//! ```

mod duplication;
mod gilbert_elliott;
mod jitter;
mod numbers;
mod random_loss;
mod registry;
mod reordering;

use core::fmt;

use polypath_units::{Duration, Instant};

pub use crate::random::Random;
pub use duplication::Duplication;
pub use gilbert_elliott::GilbertElliott;
pub use jitter::{Jitter, JitterKind};
pub use numbers::Numbers;
pub use random_loss::RandomLoss;
pub use registry::{Impairments, Policy, UnknownPolicy};
pub use reordering::Reordering;

/// Something that happens to packets on a line: loss, late arrival, duplication. One instance for a direction of a link.
pub trait Impairment: fmt::Debug + Send {
    /// What becomes of the next packet, whose transmission starts. Not asked for a packet that is lost already.
    ///
    /// What is random comes from `random`, which is the link's: the seed decides.
    fn handle_packet(&mut self, packet: Passing, fate: &mut Fate, random: &mut Random);

    /// Goes back to where a new one is, as the link's generator does
    /// ([`Change::RestartRandom`](crate::Change::RestartRandom)). For those that remember something.
    fn restart(&mut self) {}
}

/// A packet that is sent over a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// When its last bit leaves the transmitter.
    pub sent_at: Instant,
    /// Its length, IP header included.
    pub size_bytes: u32,
}

/// What becomes of a packet on a line. At first it arrives once, after the line's delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    delay: Duration,
    is_lost: bool,
    overtakes: bool,
    is_held_back: bool,
    copies: u8,
}

impl Fate {
    /// The packet arrives so long after its transmission.
    #[must_use]
    pub const fn new(delay: Duration) -> Self {
        Self { delay, is_lost: false, overtakes: false, is_held_back: false, copies: 0 }
    }

    /// The packet does not arrive.
    pub const fn lose(&mut self) {
        self.is_lost = true;
    }

    /// How long after its transmission it arrives.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        self.delay
    }

    /// It arrives so long after its transmission instead; behind those ahead of it, as long as nothing lets it overtake.
    pub const fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// It may overtake others, and they may overtake it.
    pub const fn let_overtake(&mut self) {
        self.overtakes = true;
    }

    /// It arrives so much later, and others overtake it.
    pub fn hold_back(&mut self, by: Duration) {
        self.delay += by;
        self.overtakes = true;
        self.is_held_back = true;
    }

    /// It arrives once more, with itself. The copy uses no capacity.
    pub const fn duplicate(&mut self) {
        self.copies = self.copies.saturating_add(1);
    }

    /// It does not arrive.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Others may overtake it, and it may overtake them.
    #[must_use]
    pub const fn overtakes(&self) -> bool {
        self.overtakes
    }

    /// It was held back for others to overtake.
    #[must_use]
    pub const fn is_held_back(&self) -> bool {
        self.is_held_back
    }

    /// How often it arrives besides.
    #[must_use]
    pub const fn copies(&self) -> u8 {
        self.copies
    }
}
