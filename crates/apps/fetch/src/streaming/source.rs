//! Where a stream's segments are: its manifest, read again as long as it changes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout};
use url::Url;

use super::error::StreamError;
use super::options::Options;
use super::small;
use crate::download::Dial;
use crate::download::asking::RequestFields;
use crate::manifest::{Manifest, Presentation};

/// A manifest is not read again sooner.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// How long one reading may take before the next is tried.
const READING: Duration = Duration::from_secs(20);

/// A stream's manifest.
#[derive(Debug)]
pub(super) struct Source {
    url: Url,
    pub(super) fields: RequestFields,
    manifest: Manifest,
    presentation: Arc<Presentation>,
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
        let fields = RequestFields::new(url.clone(), options.fields.clone());
        let file = small::fetch(url, None, &fields, ways).await?;
        let wrong = |url: &Url| {
            let url = Box::new(url.clone());
            move |cause| StreamError::Manifest { url, cause }
        };
        let mut manifest = Manifest::parse(&file.bytes, &file.url, file.content_type.as_deref())
            .map_err(wrong(&file.url))?;
        read_rest(&mut manifest, &file.url, &fields, ways).await?;
        let presentation = manifest.presentation(SystemTime::now()).map_err(wrong(&file.url))?;
        let (presentation, read_at) = (Arc::new(presentation), Instant::now());
        Ok(Self { url: file.url, fields, manifest, presentation, read_at, began })
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
        let reading = read_rest(&mut self.manifest, &self.url, &self.fields, ways);
        timeout(READING, reading).await.unwrap_or_else(|_| {
            let cause = format!("no answer within {} s", READING.as_secs());
            Err(StreamError::Fetch { url: Box::new(self.url.clone()), cause })
        })?;
        let wrong = |cause| StreamError::Manifest { url: Box::new(self.url.clone()), cause };
        self.presentation = Arc::new(self.manifest.presentation(SystemTime::now()).map_err(wrong)?);
        Ok(())
    }
}

/// What belongs to the manifest.
async fn read_rest(
    manifest: &mut Manifest,
    url: &Url,
    fields: &RequestFields,
    ways: &[Arc<dyn Dial>],
) -> Result<(), StreamError> {
    let wrong = |cause| StreamError::Manifest { url: Box::new(url.clone()), cause };
    while let Some(resource) = manifest.poll_fetch() {
        match small::fetch_resource(&resource, fields, ways).await {
            Ok(file) => manifest.handle_fetched(&resource, &file.url, &file.bytes).map_err(wrong)?,
            // There may be others.
            Err(error) => manifest.handle_unavailable(&resource).map_err(|_| error)?,
        }
    }
    Ok(())
}
