//! Requests become answers.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCEPT_RANGES, ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST,
    HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, ORIGIN, RANGE, VARY, WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};

use super::blocking::blocking;
use super::blocks::Memory;
use super::conditions::{Validators, Verdict, allows_range, check, text};
use super::credentials::{Token, is_of_this_machine, is_sent_to_us};
use super::digest::{Digest, REPR_DIGEST, WANT_REPR_DIGEST};
use super::digest_cache::{DigestCache, READ_BEFORE_BYTES, Wait};
use super::inbound::Inbound;
use super::listing::{Entry, EntryKind, encoded, page};
use super::range::{Wanted, wanted};
use super::root::{Root, is_hidden, names};
use super::{Body, empty, full};

/// Nobody waits longer for a digest. Whoever asks again finds what was read until then.
const MOST_WAITED: Duration = Duration::from_secs(20);
/// Who waits less gets no turn of reading.
const LEAST_WAITED: Duration = Duration::from_secs(1);
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Answers requests for the files in a directory.
#[derive(Clone, Debug)]
pub(crate) struct FileServer {
    pub(super) root: Arc<Root>,
    is_writable: bool,
    token: Option<Token>,
    /// By which clients without a token may call this server when they store files.
    names: Vec<String>,
    shows_hidden: bool,
    /// Of URLs that lead here.
    scheme: &'static str,
    /// Those who call it otherwise than by an address, `localhost` or one of its names get nothing.
    is_for_callers_of_us: bool,
    digests: DigestCache,
    pub(super) memory: Memory,
}

/// What a client may do besides reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Write,
    /// It may once it has shown the token.
    ShowToken,
    /// It may if it calls the server by a name of its own.
    NameUs,
    None,
}

/// The name of an upload under way.
#[must_use]
pub(crate) fn part_name(name: &str) -> String {
    format!(".{name}.part")
}

impl FileServer {
    /// For a directory. If it `is_writable`, clients may put files there.
    pub(crate) fn new(directory: &Path, is_writable: bool) -> io::Result<Self> {
        let root = Arc::new(Root::new(directory)?);
        Ok(Self {
            root,
            is_writable,
            token: None,
            names: Vec::new(),
            shows_hidden: false,
            scheme: "http",
            is_for_callers_of_us: false,
            digests: DigestCache::default(),
            memory: Memory::default(),
        })
    }

    /// The same, where only clients that show this token may store files. Without one everybody may who reaches a writable
    /// server.
    #[must_use]
    pub(crate) fn with_token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// The same, where clients without a token may call this server by these names when they store files, and not only by an
    /// address or `localhost`.
    #[must_use]
    pub(crate) fn with_names(mut self, names: Vec<String>) -> Self {
        self.names = names;
        self
    }

    /// The same, where only those may read who call this server by an address, by `localhost` or by one of its names. A page of somebody
    /// else's that had our address looked up under its own name (DNS rebinding) would read it all.
    #[must_use]
    pub(crate) fn only_called_by_name(mut self) -> Self {
        self.is_for_callers_of_us = true;
        self
    }

    /// The same, reached by HTTPS.
    #[must_use]
    pub(super) fn by_https(mut self) -> Self {
        self.scheme = "https";
        self
    }

    /// The same with files whose names begin with a dot.
    #[must_use]
    pub(crate) fn with_hidden_files(mut self) -> Self {
        self.shows_hidden = true;
        self
    }

    /// Bytes of answers that clients have not taken.
    pub(super) fn held_bytes(&self) -> usize {
        self.memory.held_bytes()
    }

    /// Bytes that were read for digests so far, and whether any are being read.
    pub(super) fn digest_activity(&self) -> (u64, bool) {
        self.digests.activity()
    }

    /// What the sender of a request may do.
    fn right(&self, request: &Request<()>) -> Right {
        let headers = request.headers();
        match &self.token {
            _ if !self.is_writable => Right::None,
            Some(token) if token.is_in(headers) => Right::Write,
            Some(_) => Right::ShowToken,
            // Whoever relies on an address that strangers can't reach must not be tricked by a browser.
            None if !self.is_from_here(headers) => Right::None,
            None if !hosts(request).all(|host| self.is_ours(host)) => Right::NameUs,
            None => Right::Write,
        }
    }

    /// Whether this is a name of ours, as whoever can't be tricked calls us.
    fn is_ours(&self, host: &[u8]) -> bool {
        std::str::from_utf8(host).is_ok_and(|host| is_sent_to_us(host, &self.names))
    }

    /// Whether no page of somebody else's made a browser send this.
    fn is_from_here(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(ORIGIN) else { return true };
        origin.to_str().is_ok_and(|origin| is_of_this_machine(origin, self.scheme, text(headers, HOST)))
    }

    /// Uploads under way are hidden from all but those who may go on with them.
    fn may_see(&self, names: &[String], right: Right) -> bool {
        let is_upload = |name: &String| name.len() > ".part".len() + 1 && name.ends_with(".part");
        let parents = names.split_last().map_or(names, |(name, parents)| {
            if right == Right::Write && is_upload(name) { parents } else { names }
        });
        self.shows_hidden || !is_hidden(parents)
    }

    /// Answers a request.
    pub(crate) async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let (fields, body) = request.into_parts();
        let request = Request::from_parts(fields, ());
        let mut body = Inbound::new(body, request.headers());
        let response = self.answer(&request, &mut body).await;
        body.finish();
        response
    }

    async fn answer(&self, request: &Request<()>, body: &mut Inbound) -> Response<Body> {
        if self.is_for_callers_of_us && !hosts(request).all(|host| self.is_ours(host)) {
            let expected = "this server has another name; expected its address or localhost in the URL";
            return plain(StatusCode::MISDIRECTED_REQUEST, expected);
        }
        let Some(names) = names(request.uri().path()) else {
            return plain(StatusCode::BAD_REQUEST, "this path makes no sense");
        };
        let right = self.right(request);
        let is_visible = self.may_see(&names, right);
        let result = match *request.method() {
            Method::GET | Method::HEAD if !is_visible => Err(io::ErrorKind::NotFound.into()),
            Method::GET | Method::HEAD => self.read(request, names).await,
            Method::PUT if right == Right::ShowToken => Ok(unauthorized(request.headers())),
            Method::PUT if right == Right::NameUs => Ok(plain(
                StatusCode::MISDIRECTED_REQUEST,
                "without a token, storing needs an address or localhost in the URL; expected that, or polypath serve --name",
            )),
            Method::PUT if right == Right::None => Ok(plain(
                StatusCode::FORBIDDEN,
                "nothing can be stored here; expected polypath serve --writable",
            )),
            Method::PUT if !self.shows_hidden && is_hidden(&names) => Ok(plain(
                StatusCode::FORBIDDEN,
                "hidden files can't be stored here; expected polypath serve --hidden",
            )),
            Method::PUT => self.put(request, body, names).await,
            ref other => Ok(options(right, other == Method::OPTIONS)),
        };
        result.unwrap_or_else(|error| failure(&error))
    }

    async fn read(&self, request: &Request<()>, mut names: Vec<String>) -> io::Result<Response<Body>> {
        let has_slash = names.last().is_some_and(String::is_empty);
        if has_slash {
            names.pop();
        }
        let (file, metadata) = self.open(names.clone()).await?;
        if !metadata.is_dir() {
            let name = names.last().map_or("", String::as_str);
            return if has_slash {
                Err(io::ErrorKind::NotFound.into())
            } else {
                self.send_file(request, file, &metadata, name).await
            };
        }
        if !has_slash && !names.is_empty() {
            return Ok(redirect(&names));
        }
        let wants_json =
            text(request.headers(), ACCEPT).is_some_and(|types| types.contains("application/json"));
        if !wants_json {
            let index: Vec<String> = names.iter().cloned().chain(["index.html".into()]).collect();
            match self.open(index).await {
                Ok((index, metadata)) if metadata.is_file() => {
                    return self.send_file(request, index, &metadata, "index.html").await;
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.list(request, file, names, wants_json).await
    }

    async fn send_file(
        &self,
        request: &Request<()>,
        file: File,
        metadata: &Metadata,
        name: &str,
    ) -> io::Result<Response<Body>> {
        let headers = request.headers();
        let validators = validators(metadata)?;
        let mut response = Response::new(empty());
        let fields = response.headers_mut();
        fields.insert(ETAG, value(&validators.etag));
        fields.insert(LAST_MODIFIED, value(&httpdate::fmt_http_date(validators.modified)));
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        match check(headers, &validators) {
            Verdict::NotModified => {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return Ok(response);
            }
            Verdict::Failed => {
                return Ok(plain(StatusCode::PRECONDITION_FAILED, "the file is another one now"));
            }
            Verdict::Proceed => {}
        }
        let mime = mime_guess::from_path(name).first_or_octet_stream();
        let mime = if mime.type_() == "text" { format!("{mime}; charset=utf-8") } else { mime.to_string() };
        fields.insert(CONTENT_TYPE, value(&mime));
        let length = metadata.len();
        let mut under_way = None;
        match self.digest(request, &file, metadata).await? {
            DigestAnswer::Told(digest) => {
                response.headers_mut().insert(REPR_DIGEST, value(&digest.to_field()));
            }
            DigestAnswer::Later => {
                *response.status_mut() = StatusCode::ACCEPTED;
                response.headers_mut().insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
                return Ok(response);
            }
            DigestAnswer::UnderWay(wait) => under_way = Some(wait),
            DigestAnswer::Untold => {}
        }
        let range = text(headers, RANGE).filter(|_| request.method() == Method::GET);
        let range = range.filter(|_| allows_range(headers, &validators));
        let (first, count) = match wanted(range, length) {
            Wanted::All => (0, length),
            Wanted::Part(first, count) => {
                let last = first + count - 1;
                let part = value(&format!("bytes {first}-{last}/{length}"));
                response.headers_mut().insert(CONTENT_RANGE, part);
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                (first, count)
            }
            Wanted::Unsatisfiable => {
                let mut refusal = plain(StatusCode::RANGE_NOT_SATISFIABLE, "the file ends before that");
                refusal.headers_mut().insert(CONTENT_RANGE, value(&format!("bytes */{length}")));
                return Ok(refusal);
            }
        };
        response.headers_mut().insert(CONTENT_LENGTH, count.into());
        if request.method() == Method::GET {
            *response.body_mut() = self.memory.watched_body(file, metadata, first, count, under_way)?;
        }
        Ok(response)
    }

    /// The digest, if it is wanted. Small files are read before the answer, large ones only if the answer has no body; then
    /// whoever asks again later, as RFC 7240 lets a client say, holds no connection meanwhile. Nobody waits without bound.
    async fn digest(
        &self,
        request: &Request<()>,
        file: &File,
        metadata: &Metadata,
    ) -> io::Result<DigestAnswer> {
        let headers = request.headers();
        let wish = text(headers, HeaderName::from_static(WANT_REPR_DIGEST));
        if !wish.is_some_and(|wish| wish.contains("sha-256")) {
            return Ok(DigestAnswer::Untold);
        }
        let is_head = request.method() == Method::HEAD;
        let wait = text(headers, HeaderName::from_static("prefer")).and_then(wait_of_prefer);
        let wait = wait.filter(|_| is_head);
        let is_small = metadata.len() < READ_BEFORE_BYTES;
        let most = if is_head || is_small { MOST_WAITED } else { Duration::ZERO };
        let mut pending = self.digests.digest(file, metadata)?;
        let digest = tokio::time::timeout(wait.unwrap_or(most), pending.digest()).await;
        Ok(match digest {
            Ok(Some(digest)) => DigestAnswer::Told(digest),
            Ok(None) => DigestAnswer::Untold,
            Err(_) if wait.is_some() => DigestAnswer::Later,
            Err(_) => DigestAnswer::UnderWay(pending),
        })
    }

    async fn open(&self, names: Vec<String>) -> io::Result<(File, Metadata)> {
        let root = self.root.clone();
        blocking(move || {
            let file = root.open(&names)?;
            let metadata = file.metadata()?;
            if metadata.is_file() || metadata.is_dir() {
                Ok((file, metadata))
            } else {
                Err(io::ErrorKind::PermissionDenied.into())
            }
        })
        .await
    }

    async fn list(
        &self,
        request: &Request<()>,
        directory: File,
        names: Vec<String>,
        as_json: bool,
    ) -> io::Result<Response<Body>> {
        let mime = if as_json { "application/json" } else { "text/html; charset=utf-8" };
        let path =
            percent_encoding::percent_decode_str(request.uri().path()).decode_utf8_lossy().into_owned();
        let (root, with_hidden) = (self.root.clone(), self.shows_hidden);
        let make = move || {
            let entry = |(name, is_directory, size, modified)| {
                let kind = if is_directory { EntryKind::Directory } else { EntryKind::File };
                Entry { name, kind, size, modified }
            };
            let entries: Vec<Entry> =
                root.list(&names, &directory, with_hidden)?.into_iter().map(entry).collect();
            if as_json { Ok(serde_json::to_string(&entries)?) } else { Ok(page(&path, &entries)) }
        };
        let Some(content) = self.memory.make_list(make).await? else {
            return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, "too many lists are on their way; try again"));
        };
        let mut response = Response::new(empty());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
        response.headers_mut().insert(CONTENT_LENGTH, content.len().into());
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        if request.method() == Method::GET {
            *response.body_mut() = full(content);
        }
        Ok(response)
    }
}

/// How a request names the server it is for: in its target, or in each `Host` field (RFC 9112 §3.2.2).
fn hosts(request: &Request<()>) -> impl Iterator<Item = &[u8]> {
    let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    target.into_iter().chain(request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes))
}

/// What is said of a file's digest.
enum DigestAnswer {
    Told(Digest),
    /// Who asks again may find it.
    Later,
    /// It is read while the body is sent.
    UnderWay(Wait),
    Untold,
}

/// The time that a client wants to wait, if it would rather ask again than wait longer (RFC 7240 §4.1, §4.3).
fn wait_of_prefer(field: &str) -> Option<Duration> {
    let mut preferences = field.split([',', ';']).map(str::trim);
    preferences.clone().find(|preference| *preference == "respond-async")?;
    let seconds = preferences.find_map(|preference| preference.strip_prefix("wait=")?.parse().ok());
    Some(Duration::from_secs(seconds.unwrap_or(0)).clamp(LEAST_WAITED, MOST_WAITED))
}

/// A directory's own links work only below its name with a slash.
fn redirect(names: &[String]) -> Response<Body> {
    let path: String = names.iter().map(|name| format!("/{}", encoded(name))).collect();
    let mut response = plain(StatusCode::MOVED_PERMANENTLY, "a directory");
    response.headers_mut().insert(LOCATION, value(&format!("{path}/")));
    response
}

/// By what clients tell this state of a file from others.
pub(super) fn validators(metadata: &Metadata) -> io::Result<Validators> {
    Ok(Validators { etag: etag(metadata), modified: metadata.modified()? })
}

/// Changes whenever the content does: the file system counts nanoseconds, and of the time of a change nobody can lie.
fn etag(metadata: &Metadata) -> String {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let modified = nanos(metadata.mtime(), metadata.mtime_nsec());
    let changed = nanos(metadata.ctime(), metadata.ctime_nsec());
    format!("\"{modified:x}-{changed:x}-{:x}\"", metadata.len())
}

fn options(right: Right, is_asked: bool) -> Response<Body> {
    let allowed = if right == Right::None { "GET, HEAD, OPTIONS" } else { "GET, HEAD, OPTIONS, PUT" };
    let mut answer = if is_asked {
        plain(StatusCode::OK, allowed)
    } else {
        plain(StatusCode::METHOD_NOT_ALLOWED, "this method is not offered")
    };
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    if right == Right::ShowToken {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    }
    answer
}

/// How a token can be shown.
const CHALLENGE: &str = "Bearer realm=\"polypath\", Basic realm=\"polypath\"";

fn unauthorized(headers: &HeaderMap) -> Response<Body> {
    let message = if headers.contains_key(AUTHORIZATION) {
        "this is not the token of polypath serve; expected the one that it printed or has in --token-file"
    } else {
        "storing needs the token of polypath serve"
    };
    let mut answer = plain(StatusCode::UNAUTHORIZED, message);
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    answer
}

pub(super) fn plain(status: StatusCode, message: &str) -> Response<Body> {
    let content = Bytes::from(format!("{message}\n"));
    let mut response = Response::new(full(content));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// What the file system refuses, in HTTP's words and without saying more than a stranger should know.
fn failure(error: &io::Error) -> Response<Body> {
    if Root::is_escape(error) {
        return plain(StatusCode::FORBIDDEN, "this leads out of what is served");
    }
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            plain(StatusCode::NOT_FOUND, "there is no such file")
        }
        io::ErrorKind::PermissionDenied => plain(StatusCode::FORBIDDEN, "this file is not for you"),
        io::ErrorKind::IsADirectory => plain(StatusCode::CONFLICT, "a directory has that name"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            plain(StatusCode::INSUFFICIENT_STORAGE, "there is no room left")
        }
        io::ErrorKind::TimedOut => plain(StatusCode::REQUEST_TIMEOUT, "the body comes too slowly"),
        io::ErrorKind::WouldBlock => {
            plain(StatusCode::CONFLICT, "another upload still holds this file; try again in a minute")
        }
        _ => plain(StatusCode::INTERNAL_SERVER_ERROR, "the server could not do that"),
    }
}

/// Text of ours as a field. What no field can hold becomes nothing.
pub(super) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
