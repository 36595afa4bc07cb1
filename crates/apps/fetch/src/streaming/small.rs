//! Small files that come in one piece: manifests, indexes, initialization segments.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use url::Url;

use super::error::StreamError;
use crate::answer::{Answer, AskedRange, Extent};
use crate::download::Dial;
use crate::download::asking::{Asking, RequestFields};
use crate::download::link::Link;
use crate::download::redirection;
use crate::http1;
use crate::manifest::Resource;

/// No manifest may have more, and nothing else that is small.
const MOST_BYTES: usize = 8 << 20;
/// After so long, the next path is tried beside the one that has not answered.
const STAGGER: Duration = Duration::from_millis(500);
/// How long one path has.
const LIMIT: Duration = Duration::from_secs(20);
/// More redirections are a circle.
const MOST_REDIRECTS: usize = 10;

/// A small file, and where it was in the end.
#[derive(Clone, Debug)]
pub(super) struct Small {
    pub(super) url: Url,
    pub(super) content_type: Option<String>,
    pub(super) bytes: Bytes,
}

enum Got {
    File(Small),
    Elsewhere(Url),
}

/// Fetches a small file over whichever way brings it first; the later ones are tried when an earlier one is slow, or fails.
pub(super) async fn fetch(
    url: Url,
    range: Option<AskedRange>,
    fields: &RequestFields,
    ways: &[Arc<dyn Dial>],
) -> Result<Small, StreamError> {
    let mut url = url;
    for _ in 0..MOST_REDIRECTS {
        let asking = Arc::new(fields.asking(&url));
        match over_any(&asking, range, ways).await {
            Ok(Got::File(file)) => return Ok(file),
            Ok(Got::Elsewhere(next)) => url = next,
            Err(cause) => return Err(StreamError::Fetch { url: Box::new(url), cause }),
        }
    }
    Err(StreamError::Fetch { url: Box::new(url), cause: format!("more than {MOST_REDIRECTS} redirections") })
}

/// A part of a manifest's resource.
pub(super) async fn fetch_resource(
    resource: &Resource,
    fields: &RequestFields,
    ways: &[Arc<dyn Dial>],
) -> Result<Small, StreamError> {
    let range = resource.range().map(|range| AskedRange { first: range.first(), last: Some(range.last()) });
    fetch(resource.url().clone(), range, fields, ways).await
}

async fn over_any(
    asking: &Arc<Asking>,
    range: Option<AskedRange>,
    ways: &[Arc<dyn Dial>],
) -> Result<Got, String> {
    let mut attempts = JoinSet::new();
    let mut waiting = ways.iter();
    let mut causes = Vec::new();
    loop {
        if let Some(way) = waiting.next() {
            let (way, asking) = (way.clone(), asking.clone());
            attempts.spawn(async move {
                let got = timeout(LIMIT, over(&*way, &asking, range)).await;
                let late = || Err(format!("{}: no answer within {} s", way.name(), LIMIT.as_secs()));
                got.unwrap_or_else(|_| late())
            });
        }
        let has_more = waiting.len() > 0;
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(got) => return Ok(got),
                Err(cause) => causes.push(cause),
            },
            () = sleep(STAGGER), if has_more => {}
        }
        if attempts.is_empty() && !has_more {
            // Two ways often fail for one reason.
            causes.dedup();
            return Err(causes.join("; "));
        }
    }
}

async fn over(way: &dyn Dial, asking: &Asking, range: Option<AskedRange>) -> Result<Got, String> {
    let wire = way.dial(&asking.url).await.map_err(|error| error.to_string())?;
    let name = way.name();
    let failed = |cause: String| format!("{name}: {cause}");
    let field = range.map(AskedRange::to_field);
    let request = asking.request(way, None, field.as_deref()).map_err(|error| failed(error.to_string()))?;
    let mut link = Link::begin(wire).await;
    link.ask((), request).await;
    let mut file: Option<(Option<String>, BytesMut)> = None;
    while let Some(event) = link.next().await {
        match event {
            http1::Event::Head { head, .. } => {
                if matches!(head.status, 301 | 302 | 303 | 307 | 308) {
                    return redirection::to(&head, &asking.url).map(Got::Elsewhere).map_err(failed);
                }
                let answer = Answer::read(&head, range).map_err(|error| failed(error.to_string()))?;
                if range.is_some_and(|range| range.first > 0) && answer.extent == Extent::Whole {
                    return Err(failed("the server has no ranges, and the index is a part of a file".into()));
                }
                let content_type = head.fields.only("content-type").map(lossy);
                file = Some((content_type, BytesMut::new()));
            }
            http1::Event::Data { bytes, .. } => {
                let Some((_, there)) = &mut file else { continue };
                if there.len() + bytes.len() > MOST_BYTES {
                    return Err(failed(format!("more than {MOST_BYTES} bytes come; expected a manifest")));
                }
                there.extend_from_slice(&bytes);
            }
            http1::Event::End { .. } => {
                let (content_type, bytes) = file.unwrap_or_default();
                let url = asking.url.clone();
                return Ok(Got::File(Small { url, content_type, bytes: bytes.freeze() }));
            }
            http1::Event::Truncated { .. } | http1::Event::Unanswered { .. } => break,
        }
    }
    Err(failed(link.cause().unwrap_or("the server closed the connection in the middle").into()))
}

fn lossy(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}
