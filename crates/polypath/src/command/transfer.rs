//! What `polypath get` and `polypath cp` have in common.

use std::io;
use std::path::Path;
use std::time::Instant;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::{Response, StatusCode};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use polypath::web::{Error, Fetched};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use url::Url;

use super::Failure;

pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Url { .. } => Failure::input(error),
        _ => Failure::run(error),
    }
}

/// What a server refuses, in one line.
pub(super) fn refused(url: &Url, status: StatusCode) -> Failure {
    Failure::Run(format!("{url}: the server says {status}"))
}

/// A bar on standard error, if that is a terminal.
pub(super) fn bar(name: &str, total: Option<u64>, done: u64, is_quiet: bool) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    if is_quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let template = if total.is_some() {
        "{prefix}  {bar:30.cyan/238} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left"
    } else {
        "{prefix}  {bytes}  {bytes_per_sec}"
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("━╸─"));
    bar.set_prefix(name.to_string());
    bar.set_position(done);
    bar.reset_eta();
    bar
}

/// Says how it went, as a line on standard error.
pub(super) fn summary(name: &str, bytes: u64, started: Instant, is_quiet: bool) {
    if !is_quiet {
        let seconds = started.elapsed().as_secs_f64();
        let rate = bytes as f64 * 8.0 / 1e6 / seconds.max(1e-6);
        eprintln!("{name}: {bytes} bytes in {seconds:.2} s ({rate:.1} Mbit/s)");
    }
}

/// Length of the body that follows, if it was told.
pub(super) fn length(response: &Response<Incoming>) -> Option<u64> {
    response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Writes the body. How many bytes it had; all that were promised, or it is an error.
pub(super) async fn store(
    fetched: Fetched,
    into: &mut (impl AsyncWrite + Unpin),
    place: &Path,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let url = fetched.url.clone();
    let promised = length(&fetched.response);
    let mut body = fetched.response.into_body();
    let mut stored = 0;
    let unwritten =
        |error: io::Error| Failure::Run(format!("{}: can't be written: {error}", place.display()));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let of = promised.map_or(String::new(), |promised| format!(" of {promised}"));
            let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
            Failure::Run(format!(
                "{url}: broke off after {stored}{of} bytes: {why}; --resume goes on from there"
            ))
        });
        let frame = match frame {
            Ok(frame) => frame,
            Err(failure) => {
                // What came is worth keeping.
                into.flush().await.map_err(unwritten)?;
                return Err(failure);
            }
        };
        if let Ok(block) = frame.into_data() {
            into.write_all(&block).await.map_err(unwritten)?;
            stored += block.len() as u64;
            bar.inc(block.len() as u64);
        }
    }
    into.flush().await.map_err(unwritten)?;
    match promised {
        Some(promised) if promised != stored => Err(Failure::Run(format!(
            "{url}: {stored} bytes came of {promised}; --resume goes on from there"
        ))),
        _ => Ok(stored),
    }
}

/// The last name in a URL's path.
pub(super) fn file_name(url: &Url) -> Option<String> {
    let last = url.path_segments()?.rfind(|segment| !segment.is_empty())?;
    let name = percent_encoding::percent_decode_str(last).decode_utf8().ok()?.into_owned();
    is_plain_name(&name).then_some(name)
}

/// A name that can't lead anywhere else.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}
