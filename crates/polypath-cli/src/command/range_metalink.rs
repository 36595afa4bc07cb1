//! Metalinks: files that say where other files are, and what they have to be.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use polypath_fetch::download::{self, DownloadError, Options, Target};
use polypath_fetch::metalink::{self, File, MAX_BYTES, Metalink};
use tokio::io::AsyncWrite;
use url::Url;

use super::Failure;
use super::network::Interruption;
use super::range_ways::{Offer, Ways};
use crate::web::without_user;

/// Names of files that are left out, in a line.
const SHOWN_NAMES: usize = 5;

/// Whether a URL is that of a Metalink, by its name.
pub(super) fn is_one(url: &Url) -> bool {
    let name = url.path().to_ascii_lowercase();
    url.scheme() == "file" || name.ends_with(".meta4") || name.ends_with(".metalink")
}

/// The URL of a file here that is one by its name, if a text is that of no URL.
pub(super) fn here(text: &str) -> Option<Result<Url, Failure>> {
    let name = text.to_ascii_lowercase();
    if text.contains("://") || !(name.ends_with(".meta4") || name.ends_with(".metalink")) {
        return None;
    }
    let place = std::fs::canonicalize(text).map_err(|error| Failure::Input(format!("{text}: {error}")));
    let no_url = || Failure::Input(format!("{text}: it has no place in the file system"));
    Some(place.and_then(|place| Url::from_file_path(place).map_err(|()| no_url())))
}

/// The files that the Metalink of a URL tells of.
pub(super) async fn read(
    url: &Url,
    options: &Options,
    offer: &Offer,
    interruption: &Interruption,
) -> Result<Metalink, Failure> {
    let name = without_user(url.as_str()).to_string();
    let bytes = match url.to_file_path() {
        Ok(place) if url.scheme() == "file" => {
            read_here(&place).map_err(|error| Failure::Input(format!("{}: {error}", place.display())))?
        }
        _ => fetch(url, options, offer, interruption).await?,
    };
    let text = String::from_utf8(bytes).map_err(|_| Failure::Run(format!("{name}: it is no UTF-8")))?;
    metalink::parse(&text).map_err(|error| Failure::Run(format!("{name}: {error}")))
}

/// What of a Metalink nobody can fetch, in a line.
pub(super) fn left_out(metalink: &Metalink, url: &Url) -> Option<String> {
    let mut parts = Vec::new();
    let (placeless, beyond) = (&metalink.placeless, metalink.beyond);
    if !placeless.is_empty() {
        let mut names: Vec<String> =
            placeless.iter().take(SHOWN_NAMES).map(|name| format!("{name:?}")).collect();
        if placeless.len() > SHOWN_NAMES {
            names.push(format!("{} more", placeless.len() - SHOWN_NAMES));
        }
        parts.push(format!("{}, without a place by http or https", names.join(", ")));
    }
    if beyond > 0 {
        parts.push(format!("{beyond} behind the first {} files", metalink.files.len()));
    }
    let name = without_user(url.as_str());
    (!parts.is_empty()).then(|| format!("{name}: left out {}", parts.join("; ")))
}

/// What a file of a Metalink is fetched by: the best of its places, and the rest.
pub(super) fn options_of(file: &File, metalink: &Url, options: &Options) -> (Url, Options) {
    let mut options = options.clone();
    options.mirrors = file.urls[1..].to_vec();
    options.size_bytes = file.size_bytes;
    options.pieces.clone_from(&file.pieces);
    for digest in &file.digests {
        if options.digests.iter().all(|known| known.algorithm != digest.algorithm) {
            options.digests.push(digest.clone());
        }
    }
    // What is for one host goes to that of the Metalink alone; a file here has none.
    options.home = Some(metalink.clone());
    (file.urls[0].clone(), options)
}

/// Whether another host's Metalink says what is fetched, and how it is called.
pub(super) fn is_from_elsewhere(options: &Options) -> bool {
    options.home.as_ref().is_some_and(|home| home.scheme() != "file")
}

fn read_here(place: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // A pipe would make us wait.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(place)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

async fn fetch(
    url: &Url,
    options: &Options,
    offer: &Offer,
    interruption: &Interruption,
) -> Result<Vec<u8>, Failure> {
    let (ways, coming) = Ways::to(url, offer).await;
    let gathered = Gathered::default();
    // What the files have to be, it does not.
    let options = Options { digests: Vec::new(), mirrors: Vec::new(), ..options.clone() };
    let fetched = interruption.hold(async |signal| {
        let target = Target::Stream(Box::new(gathered.clone()));
        download::download(url.clone(), &options, coming, target, signal.wait(), |_| {}).await
    });
    let fetched = fetched.await;
    drop(ways);
    match fetched {
        Ok(_) => Ok(std::mem::take(&mut gathered.0.lock().unwrap_or_else(PoisonError::into_inner))),
        Err(DownloadError::Interrupted { .. }) => Err(interruption.exit()),
        Err(DownloadError::Output(error)) => {
            Err(Failure::Run(format!("{}: {error}", without_user(url.as_str()))))
        }
        Err(error) => Err(Failure::run(error)),
    }
}

/// Bytes in memory, as many as a Metalink may have.
#[derive(Clone, Default)]
struct Gathered(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Gathered {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gathered.len() + bytes.len() > MAX_BYTES {
            let problem = format!("a Metalink has {MAX_BYTES} bytes at most");
            return Poll::Ready(Err(io::Error::other(problem)));
        }
        gathered.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
