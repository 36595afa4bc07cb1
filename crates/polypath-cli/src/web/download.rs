//! One file, from a server to its name here: not under that name before it is known to be right.

use std::fs::File;
use std::future::{Future, pending};
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::header::ACCEPT_RANGES;
use hyper::{Method, StatusCode};
use tokio::time::{Instant, sleep_until};
use url::Url;

use super::Digest;
use super::blocking::blocking;
use super::client::{Client, Error, Fetched, innermost};
use super::coding;
use super::digest::WANT_REPR_DIGEST;
use super::digest_cache::READ_BEFORE_BYTES;
use super::download_error::DownloadError;
use super::identity::Identity;
use super::names::{Files, Origin};
use super::part::{Found, Sink, Writer};

/// How long is read on when the end is asked for: what waits in buffers is had.
const LAST_MOMENTS: Duration = Duration::from_millis(100);

/// How much a digest matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verify {
    /// A server that tells none is an error.
    Required,
    /// What the server tells must be right.
    #[default]
    IfTold,
    /// None is asked for.
    Never,
}

/// Where a download goes.
#[derive(Debug)]
pub(crate) enum Target {
    /// To a file, which has its name when it is right, and another one until then.
    File {
        /// Its final name.
        place: PathBuf,
        /// Its name until then, in the same directory.
        part: PathBuf,
        /// Goes on with what is there of it, under either name.
        resume: bool,
    },
    /// To a pipe, terminal or device. What is wrong is said, and can't be taken back.
    Stream(File),
}

/// What happens during a download.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    /// The body begins.
    Begun {
        /// Bytes that are here already.
        present: u64,
        /// Bytes of the whole, if the server told.
        total: Option<u64>,
    },
    /// More bytes came.
    Bytes(u64),
}

/// What came of a download.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Bytes that came; zero if the whole file was there.
    pub(crate) bytes: u64,
    /// The whole file was there.
    pub(crate) was_there: bool,
    /// The SHA-256 that both ends have; none if none was compared.
    pub(crate) compared: Option<Digest>,
}

/// One file to download.
#[derive(Debug)]
pub(crate) struct Download<'a> {
    /// Makes the requests.
    pub client: &'a Client,
    /// Where the file is.
    pub url: &'a Url,
    /// How much a digest matters.
    pub verify: Verify,
    /// A directory's list is no file.
    pub refuses_directories: bool,
}

/// A part that has more to come, and what is known of the whole.
struct Begun {
    sink: Sink,
    fetched: Fetched,
    file: Identity,
    /// Bytes before the body that were there.
    present: u64,
    origin: Origin,
    /// The server sends no parts of it, so that nobody can go on.
    lacks_ranges: bool,
}

/// Whether there is anything to receive.
enum Started {
    Begun(Box<Begun>),
    /// The whole was there, and this is what was compared.
    Whole(Option<Digest>),
}

/// What is to be done about what is there.
enum Start {
    Anew,
    From {
        sink: Box<Sink>,
        file: Box<Identity>,
        origin: Origin,
    },
    /// Nothing, and what was compared.
    Whole(Option<Digest>),
}

impl Download<'_> {
    /// Downloads the file, unless the whole was there, and right. If `stop` is over before, what is
    /// here by now is written to the part, and it ends with [`DownloadError::Interrupted`].
    pub(crate) async fn run_until(
        &self,
        target: Target,
        stop: impl Future<Output = ()>,
        mut progress: impl FnMut(Progress),
    ) -> Result<Received, DownloadError> {
        let mut stop = pin!(stop);
        let (place, part, resume) = match target {
            Target::File { place, part, resume } => (place, part, resume),
            Target::Stream(file) => {
                let nothing = || Files::of_stream().interrupted(0, false);
                return unless(stop, nothing, self.to_stream(file, progress)).await;
            }
        };
        let files = Files { place, part };
        let begun = unless(stop.as_mut(), || files.interrupted(0, false), self.start(&files, resume)).await?;
        match begun {
            Started::Begun(begun) => self.receive(&files, *begun, stop, &mut progress).await,
            Started::Whole(compared) => Ok(Received { bytes: 0, was_there: true, compared }),
        }
    }

    async fn start(&self, files: &Files, resume: bool) -> Result<Started, DownloadError> {
        let start = if resume { self.look(files).await? } else { Start::Anew };
        let begun = match start {
            Start::Whole(compared) => return Ok(Started::Whole(compared)),
            Start::Anew => self.begin(files, None).await?,
            Start::From { sink, file, origin } => self.go_on(files, *sink, *file, origin).await?,
        };
        Ok(Started::Begun(Box::new(begun)))
    }

    fn boxed_url(&self) -> Box<Url> {
        Box::new(self.url.clone())
    }

    async fn to_stream(
        &self,
        file: File,
        mut progress: impl FnMut(Progress),
    ) -> Result<Received, DownloadError> {
        let (sink, files) = (Sink::stream(file), Files::of_stream());
        let fetched = self.get_whole(&files).await?;
        let identity = Identity::of(&fetched)?;
        let stop = pin!(pending());
        let (sink, received) =
            transfer(fetched, sink, identity.length, &files, false, stop, &mut progress).await?;
        let told = self.told(&identity).await;
        match told.map_err(|error| unasked(error, &files, sink.bytes(), None))? {
            Some(told) if told != sink.digest() => Err(DownloadError::Differs { url: self.boxed_url() }),
            compared => Ok(Received { bytes: received, was_there: false, compared }),
        }
    }

    /// What is there, and whether it can be gone on with.
    async fn look(&self, files: &Files) -> Result<Start, DownloadError> {
        let part = files.part.clone();
        let found = blocking(move || Sink::find(&part)).await.map_err(|error| files.unopened(error))?;
        match found {
            Found::Damaged => Err(files.damaged(self.url, None)),
            Found::Ours(sink, file, adopted) if file.length == Some(sink.bytes()) => {
                self.complete(files, sink, &file, Origin::of_part(adopted)).await
            }
            Found::Ours(sink, file, adopted) if sink.bytes() > 0 && file.strong_validator().is_some() => {
                let origin = Origin::of_part(adopted);
                Ok(Start::From { sink: sink.into(), file: file.into(), origin })
            }
            Found::Ours(sink, _, adopted) if sink.bytes() > 0 => {
                self.compare_beginning(files, sink, Origin::of_part(adopted)).await
            }
            Found::Unknown(sink) if sink.bytes() > 0 => {
                self.compare_beginning(files, sink, Origin::Part).await
            }
            Found::Ours(..) | Found::Unknown(_) | Found::Nothing => {
                // As curl and wget do, what has the final name may be a part.
                let place = files.place.clone();
                match blocking(move || Sink::read(&place)).await {
                    Ok(sink) if sink.bytes() > 0 => self.compare_beginning(files, sink, Origin::Final).await,
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files.unopened(error)),
                    _ => Ok(Start::Anew),
                }
            }
        }
    }

    /// All bytes came once, and were not compared: the server was gone, or we were.
    async fn complete(
        &self,
        files: &Files,
        sink: Sink,
        file: &Identity,
        origin: Origin,
    ) -> Result<Start, DownloadError> {
        let Some(now) = self.ask().await? else { return Ok(Start::Anew) };
        if !now.agrees_with(file) {
            return Ok(Start::Anew);
        }
        match now.digest.or(file.digest).filter(|_| self.verify != Verify::Never) {
            Some(told) if told != sink.digest() && origin != Origin::Part => {
                Err(files.reject(origin, self.url))
            }
            Some(told) if told != sink.digest() => {
                files.discard()?;
                Err(DownloadError::Differs { url: self.boxed_url() })
            }
            None if self.verify == Verify::Required => Err(DownloadError::NoDigest(self.boxed_url())),
            compared => {
                files.finish(sink).await?;
                Ok(Start::Whole(compared))
            }
        }
    }

    /// Bytes of which nothing is known are worth something only to whoever can compare the whole in the end.
    async fn compare_beginning(
        &self,
        files: &Files,
        sink: Sink,
        origin: Origin,
    ) -> Result<Start, DownloadError> {
        let Some(file) = self.ask().await? else { return Ok(Start::Anew) };
        let (Some(told), Some(length)) = (file.digest, file.length) else { return Ok(Start::Anew) };
        if sink.bytes() < length {
            return Ok(Start::From { sink: sink.into(), file: file.into(), origin });
        }
        if sink.bytes() == length && sink.digest() == told {
            if origin != Origin::Final {
                files.finish(sink).await?;
            }
            return Ok(Start::Whole(Some(told)));
        }
        Err(files.reject(origin, self.url))
    }

    /// The whole file; into `sink` if it is open already.
    async fn begin(&self, files: &Files, sink: Option<Sink>) -> Result<Begun, DownloadError> {
        let fetched = self.get_whole(files).await?;
        self.begin_with(files, sink, fetched)
    }

    fn begin_with(
        &self,
        files: &Files,
        sink: Option<Sink>,
        fetched: Fetched,
    ) -> Result<Begun, DownloadError> {
        let file = Identity::of(&fetched)?;
        let sink = match sink {
            Some(sink) => sink.emptied(&files.part),
            None => files.give_back().and_then(|_| Sink::create(&files.part)),
        };
        let sink = sink.map_err(|error| files.unopened(error))?;
        let ranges = fetched.response.headers().get(ACCEPT_RANGES);
        let lacks_ranges = ranges.is_some_and(|ranges| ranges == "none");
        Ok(Begun { sink, fetched, file, present: 0, origin: Origin::Part, lacks_ranges })
    }

    /// The rest of a file; the whole of it if it is another one now.
    async fn go_on(
        &self,
        files: &Files,
        mut sink: Sink,
        file: Identity,
        mut origin: Origin,
    ) -> Result<Begun, DownloadError> {
        let present = sink.bytes();
        let fetched = self.get(files, Some((present, &file))).await?;
        // What somebody else made stays until the whole is there.
        let to_empty = origin == Origin::Part;
        match fetched.response.status() {
            StatusCode::PARTIAL_CONTENT => {
                if fetched.range().is_none_or(|(first, ..)| first != present) {
                    return Err(DownloadError::AnotherPart(self.boxed_url()));
                }
                let mut now = Identity::of(&fetched)?;
                if !now.agrees_with(&file) {
                    // The part is of no use to anybody.
                    files.discard()?;
                    return Err(DownloadError::Changed(self.boxed_url()));
                }
                now.digest = now.digest.or(file.digest);
                if origin == Origin::Final {
                    origin = Origin::Adopted(present);
                    files.adopt(&mut sink, &now)?;
                }
                Ok(Begun { sink, fetched, file: now, present, origin, lacks_ranges: false })
            }
            StatusCode::RANGE_NOT_SATISFIABLE => self.begin(files, to_empty.then_some(sink)).await,
            _ => {
                let begun = self.begin_with(files, to_empty.then_some(sink), fetched)?;
                // It was asked for the rest of this file.
                let lacks_ranges = begun.lacks_ranges || begun.file.agrees_with(&file);
                Ok(Begun { lacks_ranges, ..begun })
            }
        }
    }

    async fn receive(
        &self,
        files: &Files,
        begun: Begun,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Received, DownloadError> {
        let Begun { mut sink, fetched, file, present, origin, lacks_ranges } = begun;
        let is_known = file.strong_validator().is_some();
        if is_known || origin != Origin::Part {
            sink.keep_record(&files.part, file.clone(), origin.adopted_bytes());
        }
        let is_resumable = (is_known || file.digest.is_some()) && !lacks_ranges;
        let result = transfer(fetched, sink, file.length, files, is_resumable, stop.as_mut(), progress).await;
        let (sink, received) = match result {
            Ok(result) => result,
            Err(failure) => {
                files.remove_if_empty();
                return Err(failure);
            }
        };
        let interrupted = || files.interrupted(sink.bytes(), is_resumable);
        let told = match unless(stop, interrupted, self.told(&file)).await {
            Err(DownloadError::Changed(url)) => {
                files.discard()?;
                return Err(DownloadError::Changed(url));
            }
            told => told.map_err(|error| unasked(error, files, sink.bytes(), Some(files.part.clone())))?,
        };
        match told {
            Some(told) if told != sink.digest() && present > 0 => Err(files.reject(origin, self.url)),
            Some(told) if told != sink.digest() => {
                files.discard()?;
                Err(DownloadError::Differs { url: self.boxed_url() })
            }
            compared => {
                files.finish(sink).await?;
                Ok(Received { bytes: received, was_there: false, compared })
            }
        }
    }

    /// The digest of the whole, which a server may tell only when it has read the file.
    async fn told(&self, file: &Identity) -> Result<Option<Digest>, DownloadError> {
        let is_worth_a_question = match self.verify {
            Verify::Never => return Ok(None),
            Verify::Required => true,
            Verify::IfTold => file.length.is_some_and(|length| length >= READ_BEFORE_BYTES),
        };
        if file.digest.is_some() || !is_worth_a_question {
            return Ok(file.digest);
        }
        match self.ask().await? {
            Some(now) if !now.agrees_with(file) => Err(DownloadError::Changed(self.boxed_url())),
            now => match now.and_then(|now| now.digest) {
                None if self.verify == Verify::Required => Err(DownloadError::NoDigest(self.boxed_url())),
                digest => Ok(digest),
            },
        }
    }

    /// What the server says of the file; none if it does not answer such questions.
    async fn ask(&self) -> Result<Option<Identity>, DownloadError> {
        let fetched = match self.verify {
            Verify::Never => self.client.get(Method::HEAD, self.url, &[]).await?,
            Verify::Required | Verify::IfTold => self.client.describe(self.url).await?,
        };
        match fetched.response.status() {
            StatusCode::OK => Ok(Some(Identity::of(&fetched)?)),
            _ => Ok(None),
        }
    }

    /// The whole, which nobody may send a part of who was not asked for one.
    async fn get_whole(&self, files: &Files) -> Result<Fetched, DownloadError> {
        let fetched = self.get(files, None).await?;
        match fetched.response.status() {
            StatusCode::PARTIAL_CONTENT => Err(DownloadError::AnotherPart(self.boxed_url())),
            _ => Ok(fetched),
        }
    }

    /// The whole, or the rest of this file.
    async fn get(&self, files: &Files, rest: Option<(u64, &Identity)>) -> Result<Fetched, DownloadError> {
        let mut fields = Vec::new();
        if self.verify != Verify::Never {
            fields.push((WANT_REPR_DIGEST, "sha-256=1".into()));
        }
        if let Some((present, file)) = rest {
            fields.push(("range", format!("bytes={present}-")));
            fields.extend(file.strong_validator().map(|validator| ("if-range", validator.to_string())));
        }
        let fetched = self.client.get(Method::GET, self.url, &fields).await?;
        let status = fetched.response.status();
        if self.refuses_directories && fetched.url.path().ends_with('/') {
            return Err(DownloadError::Directory(self.boxed_url()));
        }
        match status {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION | StatusCode::PARTIAL_CONTENT => {
                self.as_it_is(files, fetched)
            }
            StatusCode::RANGE_NOT_SATISFIABLE if rest.is_some() => Ok(fetched),
            // What else is a success has no file in it (RFC 9110 §15.3).
            _ => Err(DownloadError::Refused { url: Box::new(fetched.url), status }),
        }
    }

    /// Nobody may send other bytes than those of the file.
    fn as_it_is(&self, files: &Files, fetched: Fetched) -> Result<Fetched, DownloadError> {
        let place = files.place.to_str().unwrap_or_default();
        let names = [place, self.url.path(), fetched.url.path()];
        match coding::unwanted(fetched.response.headers(), &names) {
            None => Ok(fetched),
            Some(coding::Unwanted { coding, ending }) => {
                Err(DownloadError::Encoded { url: Box::new(fetched.url), coding, ending })
            }
        }
    }
}

/// What it means that the server can't be asked once all bytes are here.
fn unasked(error: DownloadError, files: &Files, bytes: u64, part: Option<PathBuf>) -> DownloadError {
    match error {
        DownloadError::Request(error @ (Error::Name { .. } | Error::Connect { .. } | Error::Http { .. })) => {
            files.uncompared(bytes, part, error)
        }
        error => error,
    }
}

/// Does something, unless `stop` is over before.
async fn unless<T>(
    stop: Pin<&mut impl Future<Output = ()>>,
    interrupted: impl FnOnce() -> DownloadError,
    work: impl Future<Output = Result<T, DownloadError>>,
) -> Result<T, DownloadError> {
    tokio::select! {
        biased;
        () = stop => Err(interrupted()),
        result = work => result,
    }
}

/// Writes a body to a sink, to the end of a file that has `length` bytes: all of them, and no more, or it is an error. A
/// server may send less than the rest that it was asked for (RFC 9110 §15.3.7).
async fn transfer(
    fetched: Fetched,
    sink: Sink,
    length: Option<u64>,
    files: &Files,
    is_resumable: bool,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    progress: &mut impl FnMut(Progress),
) -> Result<(Sink, u64), DownloadError> {
    let unwritten = |source| DownloadError::Write { place: files.part.clone(), source };
    let present = sink.bytes();
    let rest = length.map(|length| length.saturating_sub(present));
    let promised = rest.or(fetched.content_length());
    progress(Progress::Begun { present, total: promised.map(|promised| present.saturating_add(promised)) });
    let Fetched { url, response } = fetched;
    let mut body = response.into_body();
    let writer = Writer::start(sink).map_err(unwritten)?;
    let mut received = 0;
    let mut problem = None;
    let mut last_moment = None;
    loop {
        let frame = tokio::select! {
            biased;
            () = stop.as_mut(), if last_moment.is_none() => {
                last_moment = Some(Instant::now() + LAST_MOMENTS);
                continue;
            }
            () = sleep_until(last_moment.unwrap_or_else(Instant::now)), if last_moment.is_some() => break,
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else { break };
        match frame {
            Ok(frame) => {
                let Ok(block) = frame.into_data() else { continue };
                let bytes = block.len() as u64;
                if promised.is_some_and(|promised| received + bytes > promised) {
                    problem = Some("the server sends more than it said".into());
                    break;
                }
                if !writer.write(block).await {
                    break;
                }
                received += bytes;
                progress(Progress::Bytes(bytes));
            }
            Err(error) => {
                problem = Some(innermost(&error).to_string());
                break;
            }
        }
    }
    let (sink, written) = writer.finish().await;
    written.map_err(unwritten)?;
    let sink = sink.ok_or_else(|| unwritten(io::ErrorKind::Other.into()))?;
    if promised.is_some_and(|promised| promised != received) {
        problem = problem.or_else(|| Some("the server ended it".into()));
    }
    if last_moment.is_some() {
        return Err(files.interrupted(sink.bytes(), is_resumable));
    }
    match problem {
        Some(problem) => {
            let url = Box::new(url);
            Err(DownloadError::BrokeOff { url, received, promised, problem, is_resumable })
        }
        None => Ok((sink, received)),
    }
}
