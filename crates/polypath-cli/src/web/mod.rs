//! Files over HTTP/1.1 and HTTP/2, on any engine: a server, and a client that resumes and verifies.
//!
//! # What the server understands
//!
//! - `GET` and `HEAD` with one range (RFC 9110 §14), `If-Match`, `If-None-Match`, `If-Modified-Since`,
//!   `If-Unmodified-Since` and `If-Range`; a directory is its `index.html` or a list, in JSON if `Accept` says
//!   `application/json`.
//! - `Want-Repr-Digest: sha-256=1` (RFC 9530): the answer has the file's SHA-256 in `Repr-Digest`.
//! - If it is writable: `PUT`, with `Content-Range` to go on with an upload that broke off. Until it is complete, an upload is
//!   `.NAME.part` in the same directory, so that a client can ask how far it came. The answer has the digest of what was
//!   stored. What differs from the `Repr-Digest` of its request, before or behind the body, is refused with 400 and
//!   removed.
//!
//! - `Authorization`, as `Bearer TOKEN` or `Basic` with the token as anybody's password, where storing needs it.
//!
//! # What one client may cost the others
//!
//! TLS has to begin, and the fields of a request have to come, within [`HEADER_LIMIT`], and bodies, in either direction, at
//! [`LEAST_BODY_BYTES`] in each [`BODY_LIMIT`]. At most [`MAX_CONNECTIONS`] are served at once, or as many as there are file
//! descriptors for; when they are taken, those that wait for a request make room, then those of the client that has the
//! most. Digests are computed once for each state of a file, while somebody waits for them: small files first, large ones
//! by turns, and nobody waits longer than 20 seconds at a time.
//!
//! What is sent is in memory block by block: twice 16 KiB for each connection, and 32 MiB in larger blocks for all of them
//! together; so are lists of directories, in 64 MiB. The fields of a request may have 32 KiB, and 128 KiB of a connection are
//! read at once: while the disk is busy, an upload has up to three such pieces in memory besides its blocks. Over HTTP/2, what is said of
//! a connection holds for each request that is answered. A connection has room for one of them, and all together for some
//! more; others wait.
//!
//! Files whose names begin with a dot are not there, unless [`FileServer::with_hidden_files`] says so.
//!
//! Nothing outside of the directory is reachable, whatever `..` and symbolic links say: the kernel resolves every path
//! beneath it (`openat2` with `RESOLVE_BENEATH`). Where that call is refused, as in a service with `DynamicUser=yes`, no symbolic
//! link is followed.

pub(crate) mod attacks;
mod blocking;
mod blocks;
mod certificate;
mod client;
mod coding;
mod conditions;
mod connection;
mod credentials;
mod digest;
mod digest_cache;
mod download;
mod download_error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod http2;
#[cfg(test)]
mod http2_tests;
mod identity;
mod inbound;
mod limits;
mod listing;
mod names;
mod part;
mod progress;
mod range;
mod root;
mod server;
mod throttle;
mod throttled;
mod tls;
mod upload;
mod url_text;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;

pub(crate) use blocks::file_body;
pub(crate) use certificate::{Certificate, CertificateError, authorities_in};
pub(crate) use client::{Client, Error, Fetched};
pub(crate) use connection::Access;
pub(crate) use credentials::Token;
pub(crate) use digest::{Digest, digest_of};
pub(crate) use download::{Download, Progress, Target, Verify};
pub(crate) use download_error::DownloadError;
pub(crate) use files::{FileServer, part_name};
pub(crate) use listing::{Entry, EntryKind, encoded};
pub(crate) use server::{ServeOptions, serve};
pub(crate) use throttle::ByteRate;
pub(crate) use throttled::Rates;
pub(crate) use tls::Tls;
pub(crate) use url_text::without_user;

/// Where `polypath serve` listens and `polypath://` leads without a port.
pub(crate) const DEFAULT_PORT: u16 = 8077;

/// The body of a request or an answer.
pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

fn empty() -> Body {
    full(Bytes::new())
}

fn full(content: impl Into<Bytes>) -> Body {
    use http_body_util::BodyExt;
    http_body_util::Full::new(content.into()).map_err(|never| match never {}).boxed()
}
