//! Files that clients put.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_RANGE, HeaderName};
use hyper::{Request, Response, StatusCode};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

use super::Body;
use super::conditions::text;
use super::digest::{Digest, REPR_DIGEST, hash};
use super::files::{FileServer, blocking, part_name, plain, value};
use super::range::content_range;

impl FileServer {
    pub(super) async fn put(
        &self,
        request: Request<Incoming>,
        names: Vec<String>,
    ) -> io::Result<Response<Body>> {
        let Some(name) = names.last().filter(|name| !name.is_empty()) else {
            return Ok(plain(StatusCode::BAD_REQUEST, "a file needs a name"));
        };
        let mut part = names.clone();
        part.pop();
        part.push(part_name(name));
        let range = match text(request.headers(), CONTENT_RANGE) {
            None => None,
            Some(field) => match content_range(field) {
                Some((first, last, total)) if last + 1 == total => Some((first, total)),
                _ => {
                    return Ok(plain(
                        StatusCode::BAD_REQUEST,
                        "expected the rest of a file in Content-Range",
                    ));
                }
            },
        };
        let first = range.map_or(0, |(first, _)| first);
        let announced = request.body().size_hint().exact();
        let root = self.root.clone();
        let (opened, parts) = (part.clone(), names.clone());
        let opened = blocking(move || {
            // A directory in the way is found before anything is sent.
            if root.open(&parts).is_ok_and(|found| found.metadata().is_ok_and(|found| found.is_dir())) {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            root.make_parents(&opened)?;
            open_part(root.create(&opened)?, first)
        })
        .await?;
        let Some((file, hasher)) = opened else {
            return Ok(plain(StatusCode::CONFLICT, "the upload that goes on has another length here"));
        };
        let (stored, digest) = receive(request.into_body(), file, hasher).await?;
        let total = first + stored;
        if announced.is_some_and(|bytes| bytes != stored) || range.is_some_and(|(_, wanted)| wanted != total)
        {
            return Ok(plain(StatusCode::BAD_REQUEST, "the upload has another length than it said"));
        }
        let root = self.root.clone();
        let is_new = blocking(move || {
            let is_new = root.open(&names).is_err();
            root.rename(&part, &names)?;
            Ok(is_new)
        })
        .await?;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let mut response = plain(status, "stored");
        response.headers_mut().insert(HeaderName::from_static(REPR_DIGEST), value(&digest.to_field()));
        Ok(response)
    }
}

/// Makes a part ready to be written from `first` on; none if it ends elsewhere.
fn open_part(mut file: File, first: u64) -> io::Result<Option<(File, Sha256)>> {
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    if first == 0 {
        file.set_len(0)?;
    } else if file.metadata()?.len() != first {
        return Ok(None);
    }
    let hasher = hash(&mut file, Some(first))?;
    file.seek(SeekFrom::Start(first))?;
    Ok(Some((file, hasher)))
}

/// Stores a body; how many bytes it had, and the digest of the whole file.
async fn receive(mut body: Incoming, mut file: File, mut hasher: Sha256) -> io::Result<(u64, Digest)> {
    let mut stored = 0;
    while let Some(frame) = body.frame().await {
        let Ok(block) = frame.map_err(io::Error::other)?.into_data() else { continue };
        stored += block.len() as u64;
        (file, hasher) = blocking(move || {
            file.write_all(&block)?;
            hasher.update(&block);
            Ok((file, hasher))
        })
        .await?;
    }
    Ok((stored, Digest::of(hasher)))
}
