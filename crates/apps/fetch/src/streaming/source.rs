//! Where a stream's segments are: its manifest, read again as long as it changes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use url::Url;

use super::error::StreamError;
use super::options::Options;
use super::small::{Fetcher, Small};
use crate::download::Dial;
use crate::download::asking::RequestFields;
use crate::manifest::{Manifest, Presentation, Resource};

/// A manifest is not read again sooner.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// How long one reading may take before the next is tried.
const READING: Duration = Duration::from_secs(20);
/// So much of what belongs to a manifest is fetched at a time.
const AT_ONCE: usize = 8;

/// A stream's manifest.
#[derive(Debug)]
pub(super) struct Source {
    url: Url,
    pub(super) fields: RequestFields,
    manifest: Manifest,
    presentation: Arc<Presentation>,
    silence: Option<Duration>,
    /// Which way brought it first.
    pub(super) witness: usize,
    read_at: Instant,
    pub(super) began: Instant,
}

impl Source {
    /// Reads it for the first time.
    pub(super) async fn fetch(
        url: Url,
        options: &Options,
        ways: &[Arc<dyn Dial>],
    ) -> Result<Self, StreamError> {
        let began = Instant::now();
        let fields = RequestFields::new(url.clone(), options.fields.clone(), options.cookies.clone());
        let silence = options.silence;
        let fetcher = Fetcher::new(fields.clone(), ways.to_vec(), silence);
        let wrong = |url: &Url| {
            let url = Box::new(url.clone());
            move |cause| StreamError::Manifest { url, cause }
        };
        let read = |file: &Small| {
            Manifest::parse(&file.bytes, &file.url, file.content_type.as_deref()).map_err(wrong(&file.url))
        };
        let (file, mut manifest) = fetcher.fetch(&url, None, read).await?;
        read_rest(&mut manifest, &file.url, &fetcher, silence).await?;
        let presentation = manifest.presentation(SystemTime::now()).map_err(wrong(&file.url))?;
        let (presentation, read_at) = (Arc::new(presentation), Instant::now());
        let witness = file.way;
        Ok(Self { url: file.url, fields, manifest, presentation, silence, witness, read_at, began })
    }

    pub(super) const fn presentation(&self) -> &Arc<Presentation> {
        &self.presentation
    }

    /// When it is to be read again.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let after = self.presentation.refresh_after().filter(|_| self.presentation.is_live())?;
        Some(self.read_at + Duration::from_nanos(after.as_nanos()).max(LEAST_PAUSE))
    }

    /// Reads it again. What can't be read now may be readable the next time.
    pub(super) async fn refresh(&mut self, ways: &[Arc<dyn Dial>]) -> Result<(), StreamError> {
        self.read_at = Instant::now();
        self.manifest.refresh(None);
        let fetcher = Fetcher::new(self.fields.clone(), ways.to_vec(), self.silence);
        let reading = read_rest(&mut self.manifest, &self.url, &fetcher, None);
        timeout(READING, reading).await.unwrap_or_else(|_| {
            let cause = format!("no answer within {} s", READING.as_secs());
            Err(StreamError::Fetch { url: Box::new(self.url.clone()), cause })
        })?;
        let wrong = |cause| StreamError::Manifest { url: Box::new(self.url.clone()), cause };
        self.presentation = Arc::new(self.manifest.presentation(SystemTime::now()).map_err(wrong)?);
        Ok(())
    }
}

/// What belongs to the manifest. It has to go on within `silence`.
async fn read_rest(
    manifest: &mut Manifest,
    url: &Url,
    fetcher: &Fetcher,
    silence: Option<Duration>,
) -> Result<(), StreamError> {
    let wrong = |cause| StreamError::Manifest { url: Box::new(url.clone()), cause };
    let mut fetching: JoinSet<(Resource, Result<Small, StreamError>)> = JoinSet::new();
    let mut last_progress = Instant::now();
    loop {
        while fetching.len() < AT_ONCE
            && let Some(resource) = manifest.poll_fetch()
        {
            let (fetcher, check) = (fetcher.clone(), manifest.check_of(&resource));
            fetching.spawn(async move {
                let read = |file: &Small| {
                    let wrong = |cause| StreamError::Manifest { url: Box::new(file.url.clone()), cause };
                    check.check(&file.bytes).map_err(wrong)
                };
                let fetched = fetcher.fetch_resource(&resource, read).await;
                (resource, fetched)
            });
        }
        let ended = tokio::select! {
            ended = fetching.join_next() => ended,
            () = wait_until(silence.map(|silence| last_progress + silence)) => {
                return Err(StreamError::Stalled { silent_for: silence.unwrap_or_default(), causes: Vec::new() });
            }
        };
        match ended {
            None => return Ok(()),
            Some(Ok((resource, Ok(file)))) => {
                last_progress = Instant::now();
                manifest.handle_fetched(&resource, &file.url, &file.bytes).map_err(wrong)?;
            }
            // There may be others.
            Some(Ok((resource, Err(error)))) => manifest.handle_unavailable(&resource).map_err(|_| error)?,
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
