//! Downloads over several paths: connections, answers, and where the bytes go. What is asked for when, and over which path, is
//! [`crate::schedule`]'s.

mod error;
mod output;
mod part_file;
mod path;
#[cfg(test)]
mod tests;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use url::Url;

pub use self::error::DownloadError;
pub use self::output::Target;
pub use self::path::{Dial, Dialing, Wire};

use self::transfer::{Ended, Transfer};
use crate::answer::Digest;
use crate::playback::History;
use crate::schedule::Sizing;

/// More redirections are a circle.
const MAX_REDIRECTS: usize = 20;

/// How a file is fetched.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fields of every request, such as `Authorization`; that one, and cookies, only for the host of the first URL.
    pub fields: Vec<(String, String)>,
    /// How much is asked for at once. None is the best for the target.
    pub sizing: Option<Sizing>,
    /// What the file has to be.
    pub digests: Vec<Digest>,
    /// Compare with the digests that the server tells.
    pub verifies: bool,
    /// How often a server that can't be reached, or says that it can't answer now, is asked again before anything came.
    pub retries: u32,
    /// Give up when nothing came for so long.
    pub silence: Option<Duration>,
    /// Give up after so long.
    pub most_time: Option<Duration>,
    /// Bytes a second, of all paths together.
    pub most_rate: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            sizing: None,
            digests: Vec::new(),
            verifies: true,
            retries: 0,
            silence: Some(Duration::from_secs(60)),
            most_time: None,
            most_rate: None,
        }
    }
}

/// What happens while a file is fetched.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// The server answered: how much is there, and how much there will be, if that is known.
    Begun {
        /// Bytes of an earlier attempt.
        present_bytes: u64,
        /// Bytes of the whole file.
        total_bytes: Option<u64>,
    },
    /// Bytes came over a path, by its number.
    Bytes {
        /// In the order in which the paths were given.
        path: usize,
        /// That were not there yet.
        bytes: u64,
    },
    /// A path has a connection.
    Connected {
        /// In the order in which the paths were given.
        path: usize,
    },
    /// A path lost its connection, or can't get one.
    Lost {
        /// In the order in which the paths were given.
        path: usize,
        /// Why, if it is not the usual end of one.
        cause: String,
    },
    /// Something that a person may want to know.
    Notice(String),
}

/// What became of a download.
#[derive(Clone, Debug)]
pub struct Done {
    /// Of the whole file.
    pub total_bytes: u64,
    /// Came this time, over each path.
    pub path_bytes: Vec<u64>,
    /// Where it came from in the end.
    pub url: Url,
    /// The digests with which it was compared.
    pub compared: Vec<Digest>,
    /// When which bytes came.
    pub history: History,
}

/// Fetches a file over the ways that come by `ways`, until `stop` is over.
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
            Ended::Redirected(url) => transfer = transfer.redirected(url)?,
        }
    }
    let url = transfer.url().clone();
    Err(DownloadError::Redirect { url, problem: format!("more than {MAX_REDIRECTS} redirections") })
}
