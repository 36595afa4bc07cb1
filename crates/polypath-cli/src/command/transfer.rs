//! What `polypath get` and `polypath cp` have in common.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::web::{DownloadError, Error, Fetched, Progress, Token};
use clap::Args;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, WeakProgressBar};
use polypath_fetch::playback::History;
use polypath_fetch::schedule::Ranges;
use polypath_stack::Engine;
use polypath_system::console;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

use super::network::{Interruption, is_given};
use super::{Failure, complain, does_harm, harmless};

/// Where a server is reached, as `HOST:PORT`.
pub(super) fn place(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Url { .. } => Failure::input(error),
        _ => Failure::run(error),
    }
}

pub(super) fn download_failure(error: DownloadError, interruption: &Interruption) -> Failure {
    match error {
        DownloadError::Interrupted { kept_bytes, .. } => {
            if kept_bytes > 0 {
                complain(&error.to_string());
            }
            interruption.exit()
        }
        DownloadError::Request(error) => failure(error),
        DownloadError::Open { .. } => Failure::input(error),
        _ => Failure::run(error),
    }
}

/// Most bytes of what a server says that are shown.
const MOST_SAID_BYTES: usize = 200;

/// What a server refuses, in one line: the status, and what it says in plain text, if that is short.
pub(super) async fn refused(url: &Url, answer: Fetched, has_token: bool) -> Failure {
    let status = answer.response.status();
    if status == StatusCode::UNAUTHORIZED {
        return wants_token(url, has_token);
    }
    let kind = answer.response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_plain = kind.is_some_and(|kind| kind.starts_with("text/plain"));
    let mut said = String::new();
    if is_plain && let Ok(content) = answer.content(MOST_SAID_BYTES).await {
        said = first_line(&content);
    }
    let colon = if said.is_empty() { "" } else { ": " };
    Failure::Run(format!("{url}: the server says {status}{colon}{said}"))
}

fn first_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).lines().next().unwrap_or_default().trim().to_string()
}

pub(super) fn wants_token(url: &Url, has_token: bool) -> Failure {
    let problem = if has_token { "the server has another token" } else { "the server wants a token" };
    Failure::Run(format!("{url}: {problem}; expected its own in --token-file or POLYPATH_TOKEN"))
}

/// Between two looks at whether the terminal is free.
const LOOK: Duration = Duration::from_millis(200);

/// A bar on standard error, if that is a terminal.
pub(super) fn bar(name: &str, total: Option<u64>, done: u64, is_quiet: bool) -> ProgressBar {
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    if is_quiet || console::is_held_back() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if !is_quiet && console::is_held_back() {
        tokio::spawn(show_afterwards(bar.downgrade()));
    }
    let template = if total.is_some() {
        "{prefix}  {bar:30.cyan/238} {decimal_bytes} of {decimal_total_bytes}  {rate}  {eta} left"
    } else {
        "{prefix}  {decimal_bytes}  {rate}"
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // As the line at the end has it.
    let style = style.with_key("rate", |state: &ProgressState, to: &mut dyn std::fmt::Write| {
        let _ = write!(to, "{:.1} Mbit/s", state.per_sec() * 8.0 / 1e6);
    });
    bar.set_style(style.progress_chars("━╸─"));
    bar.set_prefix(harmless(name));
    bar.set_position(done);
    bar.reset_eta();
    bar
}

/// Shows a bar, if it is still there, once what is drawn on the terminal has been closed.
async fn show_afterwards(bar: WeakProgressBar) {
    while console::is_held_back() {
        tokio::time::sleep(LOOK).await;
        if bar.upgrade().is_none_or(|bar| bar.is_finished()) {
            return;
        }
    }
    if let Some(bar) = bar.upgrade() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
}

/// Where a download goes.
pub(super) enum Place {
    /// Only a file can have another name while it is incomplete.
    File(PathBuf),
    Stream(File),
}

/// What stands under a name, `-` for standard output.
pub(super) fn place_of(place: PathBuf) -> io::Result<Place> {
    if place == Path::new("-") {
        return Ok(Place::Stream(console::output()?.into()));
    }
    Ok(match std::fs::metadata(&place) {
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => Place::Stream(File::options().write(true).open(&place)?),
        // A link stays one; what it leads to is replaced.
        Ok(_) => Place::File(place.canonicalize()?),
        Err(_) => Place::File(place),
    })
}

/// Says how it went, as a line on standard error.
pub(super) fn summary(engine: &Engine, name: &str, bytes: u64, started: Instant, is_quiet: bool) {
    if !is_quiet {
        let aside = match engine.paths_set_aside().join(", ") {
            names if names.is_empty() => names,
            names => format!("; {names} set aside: it held up the rest, or would have"),
        };
        console::tell(format_args!("{}{aside}", bytes_in_time(name, bytes, started)));
    }
}

/// How much went in which time.
pub(super) fn bytes_in_time(name: &str, bytes: u64, started: Instant) -> String {
    let seconds = started.elapsed().as_secs_f64();
    let rate = bytes as f64 * 8.0 / 1e6 / seconds.max(1e-6);
    format!("{}: {bytes} bytes in {seconds:.2} s ({rate:.1} Mbit/s)", harmless(name))
}

/// Shows a download while it lasts.
pub(super) struct Shown {
    name: String,
    is_quiet: bool,
    bar: Option<ProgressBar>,
    bytes: u64,
    begun: Instant,
    history: History,
    /// Bytes that are there, from the first on.
    there_bytes: u64,
}

impl Shown {
    pub(super) fn new(name: &str, is_quiet: bool) -> Self {
        Self {
            name: name.into(),
            is_quiet,
            bar: None,
            bytes: 0,
            begun: Instant::now(),
            history: History::new(polypath_units::Instant::ZERO),
            there_bytes: 0,
        }
    }

    /// Bytes that came so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When which bytes came; none if nothing did.
    pub(super) fn history(&self) -> Option<Box<History>> {
        self.history.end().map(|_| Box::new(self.history.clone()))
    }

    pub(super) fn show(&mut self, progress: Progress) {
        match progress {
            Progress::Bytes(bytes) => {
                self.bytes += bytes;
                let end = self.there_bytes + bytes;
                let now = polypath_units::Instant::ZERO + self.begun.elapsed().into();
                self.history.note(now, self.there_bytes..end);
                self.there_bytes = end;
            }
            Progress::Begun { present, .. } => {
                let mut there = Ranges::new();
                there.insert(0..present);
                self.history = History::resumed(polypath_units::Instant::ZERO, there);
                self.there_bytes = present;
            }
        }
        match (progress, &self.bar) {
            (Progress::Begun { present, total }, _) => {
                self.bar = Some(bar(&self.name, total, present, self.is_quiet));
            }
            (Progress::Bytes(bytes), Some(bar)) => bar.inc(bytes),
            (Progress::Bytes(_), None) => {}
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A file that may not grow any more is an error of `write` then, as a full disk is, and not the end of the process.
pub(super) fn survive_file_size_limit() -> io::Result<tokio::signal::unix::Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// What servers want to see.
#[derive(Clone, Debug, Args)]
pub(super) struct Credentials {
    /// The token that a server wants [default: what the environment variable POLYPATH_TOKEN says]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Credentials {
    pub(super) fn token(&self) -> Result<Option<Token>, Failure> {
        match (&self.token_file, std::env::var("POLYPATH_TOKEN")) {
            (Some(file), _) => token_in(file).map(Some),
            (None, Ok(text)) => {
                let wrong = |error| Failure::Input(format!("POLYPATH_TOKEN: {error}"));
                Token::new(text.trim()).map(Some).map_err(wrong)
            }
            (None, Err(_)) => Ok(None),
        }
    }
}

/// Enough for the longest token, and for space around it.
const MAX_TOKEN_FILE_BYTES: u64 = 64 << 10;

/// The token in a file, whatever space is around it. Nobody else may read the file, nor put another token there.
pub(super) fn token_in(place: &Path) -> Result<Token, Failure> {
    let wrong = |error: String| Failure::Input(format!("{}: {error}", place.display()));
    let unread = |error: io::Error| wrong(format!("can't be read: {error}"));
    let file = File::open(place).map_err(unread)?;
    let found = file.metadata().map_err(unread)?;
    let me = rustix::process::geteuid().as_raw();
    let mode = found.mode() & 0o7777;
    // Root can read and write everything anyway.
    if ![0, me].contains(&found.uid()) || found.is_file() && mode & 0o077 != 0 {
        return Err(wrong(format!(
            "belongs to user {} and has mode {mode:04o}; expected user {me}, and that nobody else may read or write it (chmod 600)",
            found.uid()
        )));
    }
    let mut text = String::new();
    // What is longer is refused as a token.
    file.take(MAX_TOKEN_FILE_BYTES).read_to_string(&mut text).map_err(unread)?;
    Token::new(text.trim()).map_err(|error| wrong(error.to_string()))
}

/// How long clients wait.
#[derive(Clone, Debug, Args)]
pub(super) struct Patience {
    /// Give up when nothing has moved for so long, when a server has not begun to send what was asked for that long after it
    /// was asked, or when it needs that long and a second for each 10 MB to tell a SHA-256; 0 to wait for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    stall_timeout: Duration,
}

impl Patience {
    /// None waits for ever.
    pub(super) fn limit(&self) -> Option<Duration> {
        Some(self.stall_timeout).filter(is_given)
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|value| Duration::try_from_secs_f64(value).ok())
        .ok_or_else(|| "expected seconds, such as 10 or 0.5".into())
}

/// Where clients say what they wait for.
pub(super) fn notices(is_quiet: bool) -> Option<fn(&str)> {
    (!is_quiet).then_some(super::complain)
}

/// The last name in a URL's path.
pub(super) fn file_name(url: &Url) -> Option<String> {
    let last = url.path_segments()?.rfind(|segment| !segment.is_empty())?;
    let name = percent_encoding::percent_decode_str(last).decode_utf8().ok()?.into_owned();
    is_plain_name(&name).then_some(name)
}

/// A name that can't lead anywhere else, and that does nothing to the terminal of whoever lists it, nor to how it reads.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && !name.contains(|letter: char| letter == '/' || does_harm(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_and_do_nothing_to_a_terminal() {
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/",
            "a\0",
            "\u{1b}[2J",
            "a\nb",
            "\u{9b}31m",
            "\u{7f}",
            "a\u{202e}gpj.exe",
            "\u{2066}",
        ] {
            assert!(!is_plain_name(name), "{name:?}");
        }
        for name in ["a", "...", ".a", "a b\u{e9}\u{1f600}", "\u{5d0}\u{200f}"] {
            assert!(is_plain_name(name), "{name:?}");
        }
    }
}
