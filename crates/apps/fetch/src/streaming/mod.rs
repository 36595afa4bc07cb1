//! Adaptive streams over several paths, from their manifest to their last segment: connections, answers, and what is handed on in order.
//! Which part of which segment comes over which path, in which quality, is [`crate::stream`]'s.

mod error;
mod inits;
mod line;
mod options;
mod paths;
mod session;
mod small;
mod source;
mod trust;
mod units;

use std::sync::Arc;

use tokio::sync::mpsc;
use url::Url;

pub use self::error::StreamError;
pub use self::options::{Fetched, Now, Options, Summary, Told};

use self::session::Session;
use self::source::Source;
use crate::download::Dial;

/// Fetches a stream over the ways that come by `ways`, until its end or until `stop` is over, and tells what happens. Segments are told
/// in order; each is complete.
///
/// # Errors
/// Each says why the stream does not go on.
pub async fn stream(
    url: Url,
    options: &Options,
    mut ways: mpsc::Receiver<Arc<dyn Dial>>,
    stop: impl Future<Output = ()>,
    mut told: impl FnMut(Told),
) -> Result<Summary, StreamError> {
    let mut stop = std::pin::pin!(stop);
    let first = tokio::select! {
        first = ways.recv() => first.ok_or(StreamError::NoWay)?,
        () = &mut stop => return Err(StreamError::Interrupted),
    };
    let mut known = vec![first];
    while let Ok(way) = ways.try_recv() {
        known.push(way);
    }
    let source = tokio::select! {
        source = Source::fetch(url, options, &known) => source?,
        () = &mut stop => return Err(StreamError::Interrupted),
    };
    let (mut session, inits) = Session::new(source, options, known)?;
    session.run(inits, &mut ways, stop, &mut told).await?;
    Ok(session.summary())
}

#[cfg(test)]
mod tests;
