use std::fmt;

use polypath_units::{BitRate, Duration};

/// A policy that gives packets to paths, one instance a stream of packets.
pub trait Splitter: fmt::Debug + Send {
    /// The name by which users choose it.
    fn name(&self) -> &'static str;

    /// The place in `paths` of the path that the next packet takes. None if no path has a rate.
    ///
    /// Paths keep their places from call to call; one that is out of use for a while has the rate zero.
    fn choose(&mut self, paths: &[PathView]) -> Option<usize>;
}

/// A path as a splitter sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// What it carries. Zero if it takes no packets.
    pub rate: BitRate,
    /// One way, from the sender to the receiver.
    pub delay: Duration,
}

impl PathView {
    /// It takes packets.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.rate > BitRate::ZERO
    }
}
