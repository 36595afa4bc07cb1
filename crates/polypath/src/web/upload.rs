//! Files that clients put.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_RANGE, HeaderName};
use hyper::{Request, Response, StatusCode};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::Body;
use super::conditions::text;
use super::digest::{Digest, REPR_DIGEST, hash};
use super::files::{FileServer, blocking, part_name, plain, value};
use super::range::content_range;
use super::server::{BODY_LIMIT, LEAST_BODY_BYTES};

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

/// A sender has to bring at least so many bytes in each period of waiting for it. What the disk takes does not count.
#[derive(Debug)]
struct LeastRate {
    period: Duration,
    least_bytes: u64,
    left: Duration,
    bytes: u64,
}

impl LeastRate {
    fn new(period: Duration, least_bytes: u64) -> Self {
        Self { period, least_bytes, left: period, bytes: 0 }
    }

    fn came(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Waits as long as the sender has time.
    async fn wait_for<T>(&mut self, next: impl Future<Output = T>) -> io::Result<T> {
        if self.bytes >= self.least_bytes {
            (self.left, self.bytes) = (self.period, 0);
        }
        let began = Instant::now();
        let result = tokio::time::timeout(self.left, next).await;
        self.left = self.left.saturating_sub(began.elapsed());
        result.map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

/// Stores a body; how many bytes it had, and the digest of the whole file.
async fn receive(mut body: Incoming, mut file: File, mut hasher: Sha256) -> io::Result<(u64, Digest)> {
    let mut stored = 0;
    let mut rate = LeastRate::new(BODY_LIMIT, LEAST_BODY_BYTES);
    while let Some(frame) = rate.wait_for(body.frame()).await? {
        let Ok(block) = frame.map_err(io::Error::other)?.into_data() else { continue };
        stored += block.len() as u64;
        rate.came(block.len() as u64);
        (file, hasher) = blocking(move || {
            file.write_all(&block)?;
            hasher.update(&block);
            Ok((file, hasher))
        })
        .await?;
    }
    Ok((stored, Digest::of(hasher)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_brings_too_little_is_given_up() {
        for (pause, bytes, is_served) in [(29, 1, false), (29, 1000, true), (1, 20, false), (1, 40, true)] {
            let mut rate = LeastRate::new(Duration::from_secs(30), 1000);
            let mut result = Ok(());
            let began = Instant::now();
            for _ in 0..200 {
                result = rate.wait_for(tokio::time::sleep(Duration::from_secs(pause))).await;
                if result.is_err() {
                    break;
                }
                rate.came(bytes);
                // Time that the disk takes.
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            assert_eq!(result.is_ok(), is_served, "{bytes} bytes each {pause} s");
            assert!(is_served || began.elapsed() < Duration::from_secs(300));
        }
    }
}
