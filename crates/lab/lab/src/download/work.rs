//! What a client fetches: a file, or a stream.

use std::fmt;

use bytes::Bytes;
use polypath_fetch::answer::{Answer, AskedRange, Unusable};
use polypath_fetch::schedule::{PathId, RequestId, Rest};
use polypath_units::{Duration, Instant};

/// What a path is to be asked for.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) id: RequestId,
    pub(super) target: String,
    pub(super) range: AskedRange,
}

/// What is fetched over the connections of a client.
pub(super) trait Work: fmt::Debug + 'static {
    /// A path that is closed.
    fn add_path(&mut self) -> PathId;
    fn handle_opened(&mut self, now: Instant, path: PathId, round_trip: Duration);
    fn handle_closed(&mut self, now: Instant, path: PathId);
    fn poll_request(&mut self, now: Instant, path: PathId) -> Option<Asking>;
    /// False if the connection is of no use any more.
    fn handle_head(
        &mut self,
        now: Instant,
        path: PathId,
        request: RequestId,
        answer: &Result<Answer, Unusable>,
    ) -> bool;
    fn handle_bytes(
        &mut self,
        now: Instant,
        path: PathId,
        request: RequestId,
        first: u64,
        bytes: &Bytes,
    ) -> Option<Rest>;
    fn handle_end(&mut self, now: Instant, path: PathId, request: RequestId);
    fn handle_timeout(&mut self, now: Instant);
    fn poll_gone(&mut self, now: Instant) -> Option<PathId>;
    fn poll_timeout(&self) -> Option<Instant>;
    fn is_complete(&self) -> bool;
}
