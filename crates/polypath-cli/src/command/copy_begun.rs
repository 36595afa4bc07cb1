//! What an earlier copy has left at the other end.

use std::fs;
use std::path::{Path, PathBuf};

use hyper::Method;
use url::Url;

use super::Failure;
use super::transfer::{failure, is_plain_name, refused};
use crate::web::{Client, Digest, Entry, EntryKind, digest_of, encoded, part_name};

/// Directories within directories.
pub(super) const MAX_DEPTH: usize = 64;
/// A list of a directory's content.
const MAX_LIST_BYTES: usize = 64 << 20;

/// What is in a directory of the server's.
pub(super) async fn list(client: &Client, url: &Url) -> Result<Vec<Entry>, Failure> {
    let accept = [("accept", "application/json".to_string())];
    let fetched = client.get(Method::GET, url, &accept).await.map_err(failure)?;
    if !fetched.response.status().is_success() {
        return Err(refused(url, fetched, client.has_token()).await);
    }
    let is_json =
        fetched.response.headers().get("content-type").is_some_and(|kind| kind == "application/json");
    if !is_json {
        return Err(Failure::Run(format!(
            "{url}: the server gives no list; expected `polypath serve` there"
        )));
    }
    let content = fetched.content(MAX_LIST_BYTES).await.map_err(failure)?;
    serde_json::from_slice(&content)
        .map_err(|error| Failure::Run(format!("{url}: the server's list makes no sense: {error}")))
}

/// The SHA-256 of a file here and one there, if that is one file.
pub(super) async fn common(client: &Client, here: &Path, there: &Url) -> Result<Option<Digest>, Failure> {
    let Ok(metadata) = fs::metadata(here) else { return Ok(None) };
    let known = client.describe(there).await.map_err(failure)?;
    let is_file = known.response.status().is_success() && !known.url.path().ends_with('/');
    if !metadata.is_file() || !is_file || known.content_length() != Some(metadata.len()) {
        return Ok(None);
    }
    let own = digest_of(here, None).await.map_err(|error| unread(here, &error))?;
    Ok(known.digest().filter(|told| *told == own))
}

/// An earlier upload made the directory `target` of `source`, rather than one in it: it has the file that goes first, or a part of it.
pub(super) async fn is_uploaded(client: &Client, source: &Path, target: &Url) -> Result<bool, Failure> {
    let Some(first) = first_here(source, 0) else { return Ok(false) };
    let mut there = target.clone();
    let mut part = target.clone();
    let mut names = first.iter().map(|name| name.to_string_lossy()).peekable();
    while let Some(name) = names.next() {
        let slash = if names.peek().is_some() { "/" } else { "" };
        let last = if slash.is_empty() { part_name(&name) } else { name.to_string() };
        part = there.join(&format!("./{}{slash}", encoded(&last))).map_err(Failure::run)?;
        there = there.join(&format!("./{}{slash}", encoded(&name))).map_err(Failure::run)?;
    }
    let known = client.get(Method::HEAD, &part, &[]).await.map_err(failure)?;
    Ok(known.response.status().is_success() || common(client, &source.join(first), &there).await?.is_some())
}

/// The same of a download.
pub(super) async fn is_downloaded(
    client: &Client,
    source: &Url,
    target: &Path,
    takes_hidden: bool,
) -> Result<bool, Failure> {
    let Some((url, path)) = first_there(client, source, target, takes_hidden, 0).await? else {
        return Ok(false);
    };
    let part =
        path.file_name().and_then(|name| name.to_str()).map(|name| path.with_file_name(part_name(name)));
    Ok(part.is_some_and(|part| part.exists()) || common(client, &path, &url).await?.is_some())
}

/// The entries of a directory in the order in which they are copied.
pub(super) fn entries(directory: &Path) -> Result<Vec<fs::DirEntry>, Failure> {
    let read = fs::read_dir(directory).and_then(Iterator::collect);
    let mut entries: Vec<fs::DirEntry> = read.map_err(|error| unread(directory, &error))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}

pub(super) fn unread(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Input(format!("{}: can't be read: {error}", path.display()))
}

/// The file that a copy of a directory begins with, hidden ones aside; as a path from there.
fn first_here(directory: &Path, depth: usize) -> Option<PathBuf> {
    if depth > MAX_DEPTH {
        return None;
    }
    entries(directory).ok()?.into_iter().find_map(|entry| {
        let name = entry.file_name();
        let kind = entry.file_type().ok()?;
        if name.to_str()?.starts_with('.') {
            return None;
        }
        match kind.is_dir() {
            true => Some(Path::new(&name).join(first_here(&entry.path(), depth + 1)?)),
            false => kind.is_file().then(|| name.into()),
        }
    })
}

async fn first_there(
    client: &Client,
    directory: &Url,
    place: &Path,
    takes_hidden: bool,
    depth: usize,
) -> Result<Option<(Url, PathBuf)>, Failure> {
    if depth > MAX_DEPTH {
        return Ok(None);
    }
    for entry in list(client, directory).await? {
        if !is_plain_name(&entry.name) || entry.name.starts_with('.') && !takes_hidden {
            continue;
        }
        let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
        let next = directory.join(&format!("./{}{slash}", encoded(&entry.name))).map_err(Failure::run)?;
        let place = place.join(&entry.name);
        if entry.kind == EntryKind::File {
            return Ok(Some((next, place)));
        }
        let found = Box::pin(first_there(client, &next, &place, takes_hidden, depth + 1)).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
