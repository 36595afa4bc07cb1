//! One file, over all ways.

use std::sync::Arc;

use tokio::sync::mpsc;
use url::Url;

use super::error::DownloadError;
use super::options::{Done, Options, Progress};
use super::output::Target;
use super::transfer::{Ended, Transfer};
use super::way::Dial;

/// More redirections are a circle.
pub(super) const MAX_REDIRECTS: usize = 20;

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
