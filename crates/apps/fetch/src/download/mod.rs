//! Downloads over several paths: connections, answers, and where the bytes go. What is asked for when, and over which path, is
//! [`crate::schedule`]'s.

pub(crate) mod asking;
mod error;
pub(crate) mod link;
mod options;
mod output;
mod part_file;
pub(crate) mod path;
pub(crate) mod redirection;
#[cfg(test)]
mod tests;
mod transfer;
mod verdicts;
mod way;

use std::sync::Arc;

use tokio::sync::mpsc;
use url::Url;

pub use self::error::{DownloadError, Kept};
pub use self::options::{Done, Options, Progress};
pub use self::output::Target;
pub use self::way::{Dial, Dialing, Losing, Wire};

use self::transfer::{Ended, Transfer};

/// More redirections are a circle.
const MAX_REDIRECTS: usize = 20;

/// Fetches a file over the ways that come by `ways`, until `stop` is over. Of a server that gives the file in one answer, it comes over the
/// first of them that brings it.
///
/// # Errors
/// Each says why there is no file. What came is kept for another attempt, if the target is a file and the server tells versions apart.
pub async fn download(
    url: Url,
    options: &Options,
    mut ways: mpsc::Receiver<Arc<dyn Dial>>,
    target: Target,
    stop: impl Future<Output = ()>,
    mut progress: impl FnMut(Progress),
) -> Result<Done, DownloadError> {
    let mut stop = std::pin::pin!(stop);
    let mut transfer = Transfer::new(url, options, target)?;
    let mut known: Vec<Arc<dyn Dial>> = Vec::new();
    for _ in 0..MAX_REDIRECTS {
        match transfer.run(&mut known, &mut ways, stop.as_mut(), &mut progress).await? {
            Ended::Complete => return transfer.finish().await,
            Ended::Redirected(url) => transfer = transfer.redirected(url),
        }
    }
    let url = transfer.shown_url();
    transfer.discard_empty();
    Err(DownloadError::Redirect { url, problem: format!("more than {MAX_REDIRECTS} redirections") })
}
