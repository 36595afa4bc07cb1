//! One after another, as long as there are files.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::shared::{Chosen, Shared};
use super::small::{self, Broken, Small};
use super::wanted::{Ended, Wanted};
use crate::answer::{Answer, Digest, Extent, collect, is_temporary};
use crate::download::asking::RequestFields;
use crate::download::error::DownloadError;
use crate::download::options::{Options, Progress};
use crate::download::output::{Target, check};
use crate::download::part_file::{PartFile, place_whole};
use crate::download::redirection::{self, MAX_REDIRECTS};
use crate::download::single::download;
use crate::net::Protocol;
use crate::playback::History;
use crate::schedule::Ranges;
use crate::shown::without_user;

/// Where there is another way, nothing may come for so many times what a file takes.
const MOST_TIMES: u32 = 8;
/// And at least for so long.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// Fetches files until there are no more.
pub(super) async fn work(shared: Arc<Shared>) {
    while let Some((number, file)) = shared.next() {
        let begun = Instant::now();
        let too_late = shared.options().most_time.map(|most| begun + most);
        let small = async {
            tokio::select! {
                biased;
                ended = fetch_small(&shared, file) => ended,
                () = shared.stopped() => Ok(Err(DownloadError::Interrupted { kept: None }).into()),
            }
        };
        let ended = match too_late {
            Some(at) => timeout_at(at, small).await.unwrap_or_else(|_| {
                let most = shared.options().most_time.unwrap_or_default();
                Ok(Err(DownloadError::TooLong(most)).into())
            }),
            None => small.await,
        };
        let Fetched { bytes, history, result } = match ended {
            Ok(fetched) => fetched,
            // It has its own way to end early, and keeps what came.
            Err(Rest { came_bytes, resume }) => {
                let earlier = begun.elapsed().into();
                let fetched = fetch_any(&shared, file, resume).await;
                let preceded = |history: Box<History>| match came_bytes {
                    0 => history,
                    _ => Box::new(history.preceded(earlier)),
                };
                let history = fetched.history.map(preceded);
                Fetched { bytes: came_bytes + fetched.bytes, history, ..fetched }
            }
        };
        // One answer brought it.
        let history = history.or_else(|| (bytes > 0).then(|| Box::new(at_once(begun, bytes))));
        shared.tell_end(Ended { number, bytes, took: begun.elapsed(), history, result });
    }
}

/// All of a small file comes when its answer has.
fn at_once(begun: Instant, bytes: u64) -> History {
    let mut history = History::new(polypath_units::Instant::ZERO);
    history.note(polypath_units::Instant::ZERO + begun.elapsed().into(), 0..bytes);
    history
}

/// How much came, and what of it.
struct Fetched {
    bytes: u64,
    /// Of what did not come at once.
    history: Option<Box<History>>,
    result: Result<Vec<Digest>, DownloadError>,
}

impl From<Result<Vec<Digest>, DownloadError>> for Fetched {
    fn from(result: Result<Vec<Digest>, DownloadError>) -> Self {
        Self { bytes: 0, history: None, result }
    }
}

/// What is to come as any download does.
struct Rest {
    /// Is there already.
    came_bytes: u64,
    resume: bool,
}

/// What came over one way, or why nobody brings it; or else that it is not so simple.
async fn fetch_small(shared: &Shared, file: &Wanted) -> Result<Fetched, Rest> {
    let all = Rest { came_bytes: 0, resume: file.resume };
    // What is left of it may be all but its end.
    if shared.are_few() || file.resume && PartFile::is_left(&file.place) {
        return Err(all);
    }
    let mut url = file.url.clone();
    for _ in 0..MAX_REDIRECTS {
        match ask(shared, file, &url).await {
            Asked::Ended(fetched) => return Ok(fetched),
            Asked::Elsewhere(to) => url = to,
            Asked::Begun(came_bytes) => return Err(Rest { came_bytes, resume: true }),
            Asked::NotSimple => return Err(all),
        }
    }
    Err(all)
}

/// What one request brought.
enum Asked {
    Ended(Fetched),
    Elsewhere(Url),
    /// So much of a larger file is written down.
    Begun(u64),
    NotSimple,
}

async fn ask(shared: &Shared, file: &Wanted, url: &Url) -> Asked {
    if let Some(error) = shared.unreachable(url) {
        return Asked::Ended(Err(error).into());
    }
    let options = shared.options();
    let fields = RequestFields::new(file.url.clone(), options.fields.clone(), options.cookies.clone());
    let asking = fields.asking(url);
    let (mut tried, mut causes) = (Vec::new(), Vec::new());
    let mut was_reached = false;
    while let Some(chosen) = shared.choose(&tried) {
        let range = small::ASKED.to_field();
        let request = match asking.request(&*chosen.way, None, Some(&range)) {
            Ok(request) => request,
            Err(error) => {
                shared.note_left(chosen.at);
                return Asked::Ended(Err(error.into()).into());
            }
        };
        let under_way = UnderWay { shared, at: chosen.at };
        let attempted = attempt(shared, &chosen, url, request).await;
        // How it ended is told below.
        std::mem::forget(under_way);
        match attempted {
            Ok((answer, took)) => return settle(shared, (file, &fields), url, &chosen, answer, took).await,
            Err(Failed::Connecting(cause)) => {
                shared.note_failed(chosen.at, cause.clone());
                causes.push(cause);
            }
            Err(Failed::Answering(cause)) => {
                was_reached = true;
                shared.note_failed(chosen.at, format!("{}: {cause}", chosen.way.name()));
            }
        }
        tried.push(chosen.at);
    }
    if was_reached || options.retries > 0 || causes.is_empty() {
        return Asked::NotSimple;
    }
    shared.note_unreachable(url, &causes);
    Asked::Ended(Err(DownloadError::Unreachable(causes)).into())
}

/// A file on a way. Whoever has waited long enough leaves it there.
struct UnderWay<'a> {
    shared: &'a Shared,
    at: usize,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.shared.note_left(self.at);
    }
}

enum Failed {
    Connecting(String),
    Answering(String),
}

/// Asks over one way. A connection that was kept, and ended meanwhile, is replaced.
async fn attempt(
    shared: &Shared,
    chosen: &Chosen,
    url: &Url,
    request: crate::http1::Request,
) -> Result<(Small, Duration), Failed> {
    let mut losses = chosen.losses.clone();
    losses.mark_unchanged();
    let most = chosen.takes.map_or(LEAST_PATIENCE, |takes| (takes * MOST_TIMES).max(LEAST_PATIENCE));
    let silence = shared.options().silence;
    let patience =
        if chosen.has_others { Some(silence.map_or(most, |silence| most.min(silence))) } else { silence };
    let work = async {
        loop {
            let mut wire = match chosen.way.dial(url).await {
                Ok(wire) => wire,
                Err(error) => return Err(Failed::Connecting(error.to_string())),
            };
            if !wire.was_used() {
                shared.note_connected(chosen.at, url);
            }
            // Each of its connections would want all requests, and not one at a time.
            if wire.protocol() == Protocol::Http2 {
                return Ok((Small::Unusable, Duration::ZERO));
            }
            let asked = Instant::now();
            match small::ask(&mut *wire, request.clone(), patience).await {
                Ok(answer) => return Ok((answer, asked.elapsed())),
                Err(Broken::Unanswered(_)) if wire.was_used() => {}
                Err(Broken::Silent) => return Err(Failed::Answering("nothing comes".into())),
                Err(Broken::Unanswered(cause) | Broken::Cut(cause)) => return Err(Failed::Answering(cause)),
            }
        }
    };
    tokio::select! {
        biased;
        answer = work => answer,
        _ = losses.changed() => Err(Failed::Answering("the interface is lost".into())),
    }
}

/// What becomes of an answer.
async fn settle(
    shared: &Shared,
    (file, fields): (&Wanted, &RequestFields),
    url: &Url,
    chosen: &Chosen,
    answer: Small,
    took: Duration,
) -> Asked {
    let options = shared.options();
    match answer {
        // Something on one network may answer so in the server's place.
        Small::File { answer, .. } if answer.extent == Extent::Whole && chosen.has_others => {
            shared.note_left(chosen.at);
            Asked::NotSimple
        }
        Small::File { head, answer, bytes, is_whole } if answer.version.encoding().is_none() => {
            fields.note_cookies(url, &head);
            let count: u64 = bytes.iter().map(|bytes| bytes.len() as u64).sum();
            shared.note_brought(chosen.at, took, count);
            match is_whole {
                true => Asked::Ended(Fetched {
                    bytes: count,
                    history: None,
                    result: keep(file, &answer, &bytes, options),
                }),
                false if count > 0 && begin(file, &answer, &bytes) => Asked::Begun(count),
                false => Asked::NotSimple,
            }
        }
        Small::Empty if chosen.has_others => {
            shared.note_left(chosen.at);
            Asked::NotSimple
        }
        Small::Empty => {
            shared.note_brought(chosen.at, took, 0);
            let kept = check(&[], &options.digests).and_then(|()| place(file, &[]));
            Asked::Ended(kept.map(|()| options.digests.clone()).into())
        }
        Small::Other(head) => {
            shared.note_left(chosen.at);
            // On one network something else may answer.
            if !shared.is_proven(chosen.at) || is_temporary(head.status) && options.retries > 0 {
                return Asked::NotSimple;
            }
            let shown = without_user(url);
            if !redirection::is_one(&head) {
                fields.note_cookies_if_sure(url, &head);
                return Asked::Ended(Err(DownloadError::Refused { url: shown, status: head.status }).into());
            }
            match redirection::to(&head, url) {
                Ok(to) => {
                    fields.note_cookies(url, &head);
                    Asked::Elsewhere(to)
                }
                Err(problem) => Asked::Ended(Err(DownloadError::Redirect { url: shown, problem }).into()),
            }
        }
        Small::File { .. } | Small::Unusable => {
            shared.note_left(chosen.at);
            Asked::NotSimple
        }
    }
}

/// Compares a file that is all there, and writes it.
fn keep(
    file: &Wanted,
    answer: &Answer,
    bytes: &[Bytes],
    options: &Options,
) -> Result<Vec<Digest>, DownloadError> {
    let mut digests = options.digests.clone();
    if options.verifies {
        let differs = |algorithm| DownloadError::TwoDigests { url: without_user(&file.url), algorithm };
        collect(&mut digests, &answer.digests).map_err(differs)?;
    }
    check(bytes, &digests)?;
    place(file, bytes)?;
    Ok(digests)
}

fn place(file: &Wanted, bytes: &[Bytes]) -> Result<(), DownloadError> {
    place_whole(&file.place, bytes).map_err(|cause| DownloadError::Write { place: file.place.clone(), cause })
}

/// Leaves the beginning of a larger file as an earlier attempt would. False if nobody could go on with it.
fn begin(file: &Wanted, answer: &Answer, bytes: &[Bytes]) -> bool {
    if answer.version.validator().is_none() || answer.version.total().is_none() {
        return false;
    }
    let url = without_user(&file.url);
    let write = || {
        let (parts, _) = PartFile::open(&file.place, &[], false)?;
        let (mut at, mut ranges) = (0, Ranges::new());
        for bytes in bytes {
            parts.write(at, bytes)?;
            at += bytes.len() as u64;
        }
        ranges.insert(0..at);
        parts.save(url.as_str(), &answer.version, &ranges, &[])
    };
    // What is wrong with the place, the download itself will say.
    std::io::Result::is_ok(&write())
}

/// As any download, over all ways.
async fn fetch_any(shared: &Shared, file: &Wanted, resume: bool) -> Fetched {
    let target = Target::File { place: file.place.clone(), resume };
    let (mut count, mut history) = (0, None);
    let tell = |progress| match progress {
        Progress::Begun { .. } => {}
        Progress::Over(over) => history = Some(over).filter(|over| over.end().is_some()),
        progress => {
            if let Progress::Bytes { bytes, .. } = progress {
                count += bytes;
            }
            shared.tell(progress);
        }
    };
    let (options, ways) = (shared.options(), shared.all_ways());
    let done = Box::pin(download(file.url.clone(), options, ways, target, shared.stopped(), tell)).await;
    Fetched { bytes: count, history, result: done.map(|done| done.compared) }
}
