//! One file, over all ways.

use std::sync::Arc;

use tokio::sync::mpsc;
use url::Url;

use super::error::DownloadError;
use super::options::{Done, Options, Progress};
use super::output::Target;
use super::redirection::MAX_REDIRECTS;
use super::transfer::{Ended, Transfer};
use super::way::Dial;

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
    let mut redirects = 0;
    loop {
        let failed = match transfer.run(&mut ways, stop.as_mut(), &mut progress).await {
            Ok(Ended::Complete) => match transfer.compare().await {
                Ok(()) => {
                    progress(Progress::Over(Box::new(transfer.history().clone())));
                    return transfer.finish();
                }
                Err(error) => error,
            },
            Ok(Ended::Redirected(url)) if redirects < MAX_REDIRECTS => {
                redirects += 1;
                transfer = transfer.redirected(url);
                continue;
            }
            Ok(Ended::Redirected(_)) => DownloadError::Redirect {
                url: transfer.shown_url(),
                problem: format!("more than {MAX_REDIRECTS} redirections"),
            },
            Err(error) => error,
        };
        redirects = 0;
        transfer = transfer.elsewhere(failed, &mut progress)?;
    }
}
