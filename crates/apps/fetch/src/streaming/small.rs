//! Small files that come in one piece: manifests, indexes, initialization segments.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use url::Url;

use super::error::StreamError;
use crate::answer::is_of_pages;
use crate::answer::{Answer, AskedRange, Extent};
use crate::cookies::Noted;
use crate::download::Dial;
use crate::download::asking::RequestFields;
use crate::download::link::Link;
use crate::download::redirection;
use crate::http1;
use crate::manifest::Resource;

/// No manifest may have more, and nothing else that is small.
const MOST_BYTES: usize = 8 << 20;
/// After so long, the next path is tried beside the one that has not answered.
const STAGGER: Duration = Duration::from_millis(500);
/// How long one path has, at most.
const LIMIT: Duration = Duration::from_secs(20);
/// What a server says in place of the file counts after so long, if no other path says better.
const PATIENCE: Duration = Duration::from_secs(5);
/// More redirections are a circle.
pub(super) const MOST_REDIRECTS: usize = 10;

/// A small file, and where it was in the end.
#[derive(Clone, Debug)]
pub(super) struct Small {
    pub(super) url: Url,
    pub(super) content_type: Option<String>,
    pub(super) bytes: Bytes,
    /// Which way brought it.
    pub(super) way: usize,
}

impl Small {
    /// Whether it may be what a player needs before segments: that is no text.
    pub(super) fn check_media(&self) -> Result<(), StreamError> {
        let is_text = self.bytes.trim_ascii_start().starts_with(b"<");
        if !is_text
            && !self.content_type.as_ref().is_some_and(|content_type| is_of_pages(content_type.as_bytes()))
        {
            return Ok(());
        }
        let cause = "a page comes in place of an initialization segment".to_owned();
        Err(StreamError::Fetch { url: Box::new(self.url.clone()), cause })
    }
}

/// How small files are fetched.
#[derive(Clone)]
pub(super) struct Fetcher {
    pub(super) fields: RequestFields,
    pub(super) ways: Vec<Arc<dyn Dial>>,
    limit: Duration,
}

impl Fetcher {
    /// `silence`: after so long without anything, whoever waits gives up.
    pub(super) fn new(fields: RequestFields, ways: Vec<Arc<dyn Dial>>, silence: Option<Duration>) -> Self {
        // What hangs is left out before that.
        let limit = silence.map_or(LIMIT, |silence| (silence * 3 / 4).min(LIMIT));
        Self { fields, ways, limit }
    }

    /// Fetches a small file over whichever way first brings one that can be read; the later ones are tried when an earlier one is slow, or
    /// brings something else.
    pub(super) async fn fetch<T>(
        &self,
        url: &Url,
        range: Option<AskedRange>,
        read: impl Fn(&Small) -> Result<T, StreamError>,
    ) -> Result<(Small, T), StreamError> {
        let mut attempts = JoinSet::new();
        let mut waiting = self.ways.iter().enumerate();
        let mut errors: Vec<(String, StreamError)> = Vec::new();
        let mut due: Option<Instant> = None;
        loop {
            if let Some((number, way)) = waiting.next() {
                let (way, fields, url, limit) = (way.clone(), self.fields.clone(), url.clone(), self.limit);
                attempts.spawn(async move {
                    let got = timeout(limit, over(&*way, number, fields.apart(), url.clone(), range)).await;
                    got.unwrap_or_else(|_| {
                        let cause = format!("{}: no answer within {} s", way.name(), limit.as_secs().max(1));
                        Err(Failed { has_answered: false, error: fetch_error(&url, cause) })
                    })
                });
            }
            let has_more = waiting.len() > 0;
            tokio::select! {
                Some(ended) = attempts.join_next() => {
                    let has_answered = match ended {
                        Ok(Ok((file, noted))) => match read(&file) {
                            Ok(value) => {
                                self.fields.note_all_cookies(&noted);
                                return Ok((file, value));
                            }
                            Err(error) => {
                                note(&mut errors, error);
                                true
                            }
                        },
                        Ok(Err(Failed { has_answered, error })) => {
                            note(&mut errors, error);
                            has_answered
                        }
                        Err(error) => {
                            note(&mut errors, fetch_error(url, error.to_string()));
                            false
                        }
                    };
                    if has_answered {
                        due.get_or_insert(Instant::now() + PATIENCE);
                    }
                    if !attempts.is_empty() || has_more {
                        continue;
                    }
                }
                () = sleep(STAGGER), if has_more => continue,
                () = wait_until(due), if due.is_some() && !has_more => {}
            }
            return Err(one(url, errors));
        }
    }

    /// A part of a manifest's resource.
    pub(super) async fn fetch_resource(
        &self,
        resource: &Resource,
        read: impl Fn(&Small) -> Result<(), StreamError>,
    ) -> Result<Small, StreamError> {
        let range =
            resource.range().map(|range| AskedRange { first: range.first(), last: Some(range.last()) });
        self.fetch(resource.url(), range, read).await.map(|(file, ())| file)
    }
}

/// Two ways often fail for one reason.
fn note(errors: &mut Vec<(String, StreamError)>, error: StreamError) {
    let text = error.to_string();
    if errors.iter().all(|(known, _)| *known != text) {
        errors.push((text, error));
    }
}

/// One error, or what several say.
fn one(url: &Url, mut errors: Vec<(String, StreamError)>) -> StreamError {
    if errors.len() == 1
        && let Some((_, error)) = errors.pop()
    {
        return error;
    }
    let causes = errors.into_iter().map(|(text, error)| match error {
        StreamError::Fetch { url: of, cause } if *of == *url => cause,
        _ => text,
    });
    fetch_error(url, causes.collect::<Vec<_>>().join("; "))
}

fn fetch_error(url: &Url, cause: String) -> StreamError {
    StreamError::Fetch { url: Box::new(url.clone()), cause }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

struct Failed {
    /// It was the server, or what answers in its place.
    has_answered: bool,
    error: StreamError,
}

enum Got {
    File(Small),
    Elsewhere(Url),
}

/// What comes over one way, and the answers whose cookies count if it is used. `fields`: of nobody else.
async fn over(
    way: &dyn Dial,
    number: usize,
    fields: RequestFields,
    url: Url,
    range: Option<AskedRange>,
) -> Result<(Small, Noted), Failed> {
    let (mut at, mut noted) = (url.clone(), Noted::new());
    for _ in 0..MOST_REDIRECTS {
        let (got, head) = once(way, number, &fields, &at, range).await?;
        fields.note_cookies(&at, &head);
        noted.push((at, head));
        match got {
            Got::File(file) => return Ok((file, noted)),
            Got::Elsewhere(next) => at = next,
        }
    }
    let cause = format!("{}: more than {MOST_REDIRECTS} redirections", way.name());
    Err(Failed { has_answered: true, error: fetch_error(&url, cause) })
}

async fn once(
    way: &dyn Dial,
    number: usize,
    fields: &RequestFields,
    url: &Url,
    range: Option<AskedRange>,
) -> Result<(Got, http1::Head), Failed> {
    let failed = |has_answered, cause: String| Failed { has_answered, error: fetch_error(url, cause) };
    // That says over which way.
    let wire = way.dial(url).await.map_err(|error| failed(false, error.to_string()))?;
    let named = |cause: &str| failed(true, format!("{}: {cause}", way.name()));
    let (asking, field) = (fields.asking(url), range.map(AskedRange::to_field));
    let request = asking.request(way, None, field.as_deref()).map_err(|error| named(&error.to_string()))?;
    let mut link = Link::begin(wire).await;
    link.ask((), request).await;
    let mut file: Option<(http1::Head, BytesMut)> = None;
    while let Some(event) = link.next().await {
        match event {
            http1::Event::Head { head, .. } => {
                if redirection::is_one(&head) {
                    let to = redirection::to(&head, url).map_err(|cause| named(&cause))?;
                    return Ok((Got::Elsewhere(to), head));
                }
                let answer = Answer::read(&head, range).map_err(|error| named(&error.to_string()))?;
                if range.is_some_and(|range| range.first > 0) && answer.extent == Extent::Whole {
                    return Err(named("the server has no ranges, and what is needed is a part of a file"));
                }
                file = Some((head, BytesMut::new()));
            }
            http1::Event::Data { bytes, .. } => {
                let Some((_, there)) = &mut file else { continue };
                if there.len() + bytes.len() > MOST_BYTES {
                    return Err(named(&format!("more than {MOST_BYTES} bytes come; expected a manifest")));
                }
                there.extend_from_slice(&bytes);
            }
            http1::Event::End { .. } => {
                let Some((head, mut bytes)) = file else { break };
                let content_type = head.fields.only("content-type").map(lossy);
                // A server without ranges sends what is behind it, too.
                if let Some(AskedRange { first: 0, last: Some(last) }) = range {
                    bytes.truncate(usize::try_from(last).map_or(usize::MAX, |last| last.saturating_add(1)));
                }
                let (url, bytes) = (url.clone(), bytes.freeze());
                return Ok((Got::File(Small { url, content_type, bytes, way: number }), head));
            }
            http1::Event::Truncated { .. } | http1::Event::Unanswered { .. } => break,
        }
    }
    Err(named(link.cause().unwrap_or("the server closed the connection in the middle")))
}

fn lossy(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}
