//! Requests become answers.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    LAST_MODIFIED, LOCATION, RANGE, VARY,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::io::AsyncReadExt;

use super::conditions::{Validators, Verdict, allows_range, check, text};
use super::digest::{Digest, REPR_DIGEST, WANT_REPR_DIGEST, hash};
use super::listing::{Entry, EntryKind, encoded, page};
use super::range::{Wanted, wanted};
use super::root::{Root, names, read_directory};
use super::{Body, empty, full};

/// Read from a file at once.
const BLOCK_BYTES: usize = 256 << 10;

/// Answers requests for the files in a directory.
#[derive(Clone, Debug)]
pub struct FileServer {
    pub(super) root: Arc<Root>,
    pub(super) is_writable: bool,
}

/// The name of an upload under way.
#[must_use]
pub fn part_name(name: &str) -> String {
    format!(".{name}.part")
}

impl FileServer {
    /// For a directory. If it `is_writable`, clients may put files there.
    pub fn new(directory: &Path, is_writable: bool) -> io::Result<Self> {
        Ok(Self { root: Arc::new(Root::new(directory)?), is_writable })
    }

    /// Answers a request.
    pub async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let Some(names) = names(request.uri().path()) else {
            return plain(StatusCode::BAD_REQUEST, "this path makes no sense");
        };
        let result = match *request.method() {
            Method::GET | Method::HEAD => self.read(&request, names).await,
            Method::PUT if self.is_writable => self.put(request, names).await,
            Method::PUT => Ok(plain(
                StatusCode::FORBIDDEN,
                "nothing can be stored here; expected polypath serve --writable",
            )),
            ref other => {
                let allowed = if self.is_writable { "GET, HEAD, OPTIONS, PUT" } else { "GET, HEAD, OPTIONS" };
                let mut answer = if other == Method::OPTIONS {
                    plain(StatusCode::OK, allowed)
                } else {
                    plain(StatusCode::METHOD_NOT_ALLOWED, "this method is not offered")
                };
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
                Ok(answer)
            }
        };
        result.unwrap_or_else(|error| failure(&error))
    }

    async fn read(&self, request: &Request<Incoming>, mut names: Vec<String>) -> io::Result<Response<Body>> {
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
                send_file(request, file, &metadata, name).await
            };
        }
        if !has_slash && !names.is_empty() {
            return Ok(redirect(&names));
        }
        let wants_json =
            text(request.headers(), ACCEPT).is_some_and(|types| types.contains("application/json"));
        if !wants_json {
            names.push("index.html".into());
            match self.open(names).await {
                Ok((index, metadata)) if metadata.is_file() => {
                    return send_file(request, index, &metadata, "index.html").await;
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        list(request, file, wants_json).await
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
}

async fn send_file(
    request: &Request<Incoming>,
    file: File,
    metadata: &Metadata,
    name: &str,
) -> io::Result<Response<Body>> {
    let headers = request.headers();
    let validators = Validators { etag: etag(metadata), modified: metadata.modified()? };
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
        Verdict::Failed => return Ok(plain(StatusCode::PRECONDITION_FAILED, "the file is another one now")),
        Verdict::Proceed => {}
    }
    let mime = mime_guess::from_path(name).first_or_octet_stream();
    let mime = if mime.type_() == "text" { format!("{mime}; charset=utf-8") } else { mime.to_string() };
    fields.insert(CONTENT_TYPE, value(&mime));
    let mut file = file;
    if text(headers, HeaderName::from_static(WANT_REPR_DIGEST)).is_some_and(|wish| wish.contains("sha-256")) {
        let digest;
        (file, digest) = blocking(move || {
            let digest = Digest::of(hash(&mut file, None)?);
            file.rewind()?;
            Ok((file, digest))
        })
        .await?;
        fields.insert(HeaderName::from_static(REPR_DIGEST), value(&digest.to_field()));
    }
    let length = metadata.len();
    let range = text(headers, RANGE).filter(|_| request.method() == Method::GET);
    let range = range.filter(|_| allows_range(headers, &validators));
    let (first, count) = match wanted(range, length) {
        Wanted::All => (0, length),
        Wanted::Part(first, count) => {
            let last = first + count - 1;
            fields.insert(CONTENT_RANGE, value(&format!("bytes {first}-{last}/{length}")));
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
        *response.body_mut() = file_body(file, first, count, |_| ())?;
    }
    Ok(response)
}

/// A part of a file, block by block; `progress` is told the bytes of each. If the file shrinks meanwhile, the body ends
/// with an error.
pub fn file_body(
    mut file: File,
    first: u64,
    count: u64,
    progress: impl Fn(u64) + Send + Sync + 'static,
) -> io::Result<Body> {
    file.seek(SeekFrom::Start(first))?;
    let mut file = tokio::fs::File::from_std(file);
    file.set_max_buf_size(BLOCK_BYTES);
    let blocks = stream::try_unfold((file, count, progress), |(mut file, left, progress)| async move {
        if left == 0 {
            return Ok(None);
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        let mut block = BytesMut::with_capacity(most);
        // The capacity may be more than was asked for.
        let read = (&mut file).take(most as u64).read_buf(&mut block).await?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
        }
        progress(read as u64);
        Ok(Some((Frame::data(block.freeze()), (file, left - read as u64, progress))))
    });
    Ok(BodyExt::boxed(StreamBody::new(blocks)))
}

async fn list(request: &Request<Incoming>, directory: File, as_json: bool) -> io::Result<Response<Body>> {
    let found = blocking(move || read_directory(&directory)).await?;
    let entry = |(name, is_directory, size, modified)| {
        let kind = if is_directory { EntryKind::Directory } else { EntryKind::File };
        Entry { name, kind, size, modified }
    };
    let entries: Vec<Entry> = found.into_iter().map(entry).collect();
    let (mime, content) = if as_json {
        ("application/json", serde_json::to_string(&entries)?)
    } else {
        let path = percent_encoding::percent_decode_str(request.uri().path()).decode_utf8_lossy();
        ("text/html; charset=utf-8", page(&path, &entries))
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

/// A directory's own links work only below its name with a slash.
fn redirect(names: &[String]) -> Response<Body> {
    let path: String = names.iter().map(|name| format!("/{}", encoded(name))).collect();
    let mut response = plain(StatusCode::MOVED_PERMANENTLY, "a directory");
    response.headers_mut().insert(LOCATION, value(&format!("{path}/")));
    response
}

/// Changes whenever the content does: the file system counts nanoseconds.
fn etag(metadata: &Metadata) -> String {
    let nanos = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    format!("\"{nanos:x}-{:x}\"", metadata.len())
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
        io::ErrorKind::WouldBlock => plain(StatusCode::CONFLICT, "somebody else uploads this file now"),
        _ => plain(StatusCode::INTERNAL_SERVER_ERROR, "the server could not do that"),
    }
}

/// Text of ours as a field. What no field can hold becomes nothing.
pub(super) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Runs what waits for a disk on a thread that may wait.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
