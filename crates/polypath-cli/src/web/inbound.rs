//! What a client sends, and what is made of the rest of it when the answer is known before its end.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::EXPECT;

/// Of a body that is not wanted, this much is read before the connection ends: a client that writes before it reads finds
/// the answer, and no broken connection.
const MOST_UNWANTED_BYTES: u64 = 64 << 20;
/// The same in time.
const MOST_UNWANTED: Duration = Duration::from_secs(5);

/// A body that is received.
#[derive(Debug)]
pub(super) struct Inbound {
    body: Incoming,
    /// The client sends nothing before it is asked for it (RFC 9110 §10.1.1), which the first look at the body does.
    waits: bool,
    /// What came behind the body.
    trailers: HeaderMap,
}

/// A body ended too early, or makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokenOff;

impl Inbound {
    pub(super) fn new(body: Incoming, fields: &HeaderMap) -> Self {
        let is_asked = |field: &str| field.eq_ignore_ascii_case("100-continue");
        let waits = fields.get(EXPECT).and_then(|field| field.to_str().ok()).is_some_and(is_asked);
        Self { body, waits, trailers: HeaderMap::new() }
    }

    /// Its length, if the client told.
    pub(super) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The next bytes of it; none at its end.
    pub(super) async fn block(&mut self) -> Result<Option<Bytes>, BrokenOff> {
        self.waits = false;
        while let Some(frame) = self.body.frame().await {
            match frame.map_err(|_| BrokenOff)?.into_data() {
                Ok(block) => return Ok(Some(block)),
                Err(frame) => self.trailers = frame.into_trailers().unwrap_or_default(),
            }
        }
        Ok(None)
    }

    /// The fields behind the body, once it has ended.
    pub(super) fn trailers(&self) -> &HeaderMap {
        &self.trailers
    }

    /// Nobody wants the rest.
    pub(super) fn finish(mut self) {
        if self.waits || self.body.is_end_stream() {
            return;
        }
        // Beside the answer, which goes out meanwhile. It ends with the connection.
        tokio::spawn(tokio::time::timeout(MOST_UNWANTED, async move {
            let mut left = MOST_UNWANTED_BYTES;
            while let Ok(Some(block)) = self.block().await {
                let Some(less) = left.checked_sub(block.len() as u64) else { break };
                left = less;
            }
        }));
    }
}
