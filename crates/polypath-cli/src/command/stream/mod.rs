//! `polypath stream`: an adaptive stream over all interfaces at once, offered to any player.

mod events;
mod folder;
mod record;
mod report;
mod serving;
mod shown;
mod state;
mod temporary;

use std::cell::RefCell;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use polypath_config::Policies;
use polypath_fetch::download::Pool;
use polypath_fetch::stream::Buffering;
use polypath_fetch::stream::adaptation::AdaptationPolicy;
use polypath_fetch::streaming::{self, Options, StreamError, Told};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use url::Url;

use self::events::Events;
use self::folder::Folder;
use self::serving::Serving;
use self::shown::Shown;
use super::engine::EngineArguments;
use super::http_arguments::HttpArguments;
use super::network::{Interruption, block_on_saving};
use super::range_ways::{Offer, Ways};
use super::ranges::look_at_interfaces;
use super::watch::Telling;
use super::{Failure, check_writable, complain, harmless, write_file};
use crate::web::without_user;

/// How often the page's figures are written.
const INTERVAL: Duration = Duration::from_secs(1);
/// What a player has before it begins.
const STARTUP: Duration = Duration::from_secs(2);

#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// The stream's manifest: an MPD of DASH, or a playlist of HLS
    #[arg(value_name = "URL")]
    url: String,
    /// Keep what comes in this folder, with playlists that players read later [default: a folder that goes at the end]
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Where players find the stream; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([127, 0, 0, 1], 0)))]
    listen: SocketAddr,
    /// Run this player with the stream's local address, and end when it does
    #[arg(long, value_name = "PROGRAM", conflicts_with = "linger")]
    player: Option<OsString>,
    /// Who chooses qualities: robust-mpc, bola or measured-speed
    #[arg(long, value_name = "NAME", default_value = "robust-mpc", value_parser = adaptation)]
    adaptation: AdaptationPolicy,
    /// Fetch so much in advance of what is played
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    hold: f64,
    /// End so long after the last request of a player, once everything is there
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    linger: f64,
    /// Give up when nothing comes for so long; 0 is never
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    stall_timeout: f64,
    /// Print what happens as JSON, a line for each event
    #[arg(long)]
    json: bool,
    /// Write a page to FILE: qualities, what was held, stalls, and rates over each interface; also when something fails
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show nothing but failures
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten, next_help_heading = "HTTP")]
    http: HttpArguments,
    #[command(flatten)]
    engine: EngineArguments,
}

fn adaptation(name: &str) -> Result<AdaptationPolicy, String> {
    name.parse().map_err(|error: polypath_units::named::UnknownPolicy<_>| error.to_string())
}

pub(super) fn run(given: &Arguments, policies: &Policies) -> Result<(), Failure> {
    given.engine.refuse_choices("streams")?;
    let arguments = &Arguments { engine: given.engine.configured(None, policies)?, ..given.clone() };
    let url = parse(&arguments.url)?;
    let asked = arguments.engine.asked();
    look_at_interfaces(&asked, "streams")?;
    let offer =
        Offer { tls: arguments.http.tls()?, proxy: arguments.http.proxy()?, asked, pool: Pool::default() };
    let cookies = arguments.http.cookies()?;
    let options = Options { cookies: cookies.cookies(), ..arguments.options()? };
    let linger = seconds("--linger", arguments.linger)?;
    arguments.report.as_deref().map_or(Ok(()), check_writable)?;
    cookies.end(block_on_saving(async |interruption| {
        arguments.stream(url, &options, &offer, linger, interruption).await
    }))
}

fn parse(text: &str) -> Result<Url, Failure> {
    let expected = "expected http:// or https:// and a manifest, such as https://example.org/film.mpd";
    let url = Url::parse(text)
        .map_err(|error| Failure::Input(format!("\"{}\": {error}; {expected}", without_user(text))))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        // It may have a password.
        scheme => Err(Failure::Input(format!("{scheme}:// is not offered; {expected}"))),
    }
}

fn seconds(option: &str, value: f64) -> Result<Duration, Failure> {
    let time = Duration::try_from_secs_f64(value);
    time.map_err(|_| Failure::Input(format!("{option}: {value} is no time; expected seconds, such as 30")))
}

impl Arguments {
    fn options(&self) -> Result<Options, Failure> {
        let capacity = seconds("--hold", self.hold)?.max(STARTUP);
        let silence = Some(seconds("--stall-timeout", self.stall_timeout)?).filter(|time| !time.is_zero());
        Ok(Options {
            fields: self.http.fields()?,
            adaptation: self.adaptation.clone(),
            buffering: Buffering {
                capacity: capacity.into(),
                startup: STARTUP.into(),
                after_stall: STARTUP.into(),
            },
            silence,
            ..Options::default()
        })
    }

    async fn stream(
        &self,
        url: Url,
        options: &Options,
        offer: &Offer,
        linger: Duration,
        interruption: &Interruption,
    ) -> Result<(), Failure> {
        let (name, shown_url) = (name(&url), without_user(url.as_str()));
        let is_silent = self.quiet || self.json;
        let folder = Folder::create(self.output.as_deref())?;
        let serving = Serving::start(self.listen, &folder).await?;
        let events = Events::new(self.json);
        let (page, playlist) = (serving.page(), serving.playlist());
        events.write("offered", &serde_json::json!({ "page": page, "playlist": playlist }))?;
        let plays = format!("{} plays at {page}; other players: {playlist}", harmless(&name));
        let plays = Some(plays).filter(|_| !is_silent);
        let mut player = self.player.as_ref().map(|program| start(program, &playlist)).transpose()?;
        let (ways, coming) = Ways::to(&url, offer).await;
        let telling = if is_silent { Telling::Silent } else { Telling::Line };
        let shown = RefCell::new(Shown::new(&name, folder, ways, events, telling).offering(plays));
        let (failed, mut is_stopped) = (Notify::new(), false);
        let outcome = interruption.hold(async |signal| {
            let stop = async {
                tokio::select! {
                    () = signal.wait() => {}
                    () = ended(&mut player) => {}
                    () = failed.notified() => {}
                }
                is_stopped = true;
            };
            let told = |told: Told| shown.borrow_mut().tell(&told, &failed);
            tokio::select! {
                outcome = streaming::stream(url, options, coming, stop, told) => Ok(outcome),
                failure = every_second(&shown) => Err(failure),
            }
        });
        let outcome = outcome.await;
        let cause = match &outcome {
            Ok(Ok(_)) if !is_stopped => None,
            Ok(Ok(_) | Err(StreamError::Interrupted)) => Some("interrupted".to_string()),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("what came can't be written".into()),
        };
        let written = self.report.as_ref().map_or(Ok(()), |file| {
            let page = report::page(&shown_url, &name, shown.borrow().record(), cause.as_deref());
            write_file(file, page)
        });
        // What became of the stream is told all the same.
        if let Err(Failure::Input(message) | Failure::Run(message)) = &written {
            complain(message);
        }
        let summary = match outcome? {
            Ok(summary) => Some(summary),
            Err(StreamError::Interrupted) => None,
            Err(error @ StreamError::Request(_)) => return Err(Failure::input(error)),
            Err(error) => {
                shown.borrow_mut().end(None)?;
                return Err(Failure::Run(format!("{name}: {error}")));
            }
        };
        shown.borrow_mut().end(summary.as_ref())?;
        if let Some(summary) = summary.filter(|_| !is_silent) {
            shown.borrow().tell_summary(&name, &summary);
        }
        if is_stopped {
            return written.map_err(|_| Failure::Exit(1));
        }
        // Somebody still plays what came.
        interruption
            .hold(async |signal| {
                tokio::select! {
                    () = signal.wait() => Ok(()),
                    () = ended(&mut player) => Ok(()),
                    () = serving.idle(linger), if self.player.is_none() => Ok(()),
                    failure = every_second(&shown) => Err(failure),
                }
            })
            .await
            .and(written.map_err(|_| Failure::Exit(1)))
    }
}

/// What people call a stream.
fn name(url: &Url) -> String {
    let last = url.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
    if last.is_empty() { url.host_str().unwrap_or("stream").into() } else { last.into() }
}

/// Writes the figures until that fails.
async fn every_second(shown: &RefCell<Shown>) -> Failure {
    let mut seconds = tokio::time::interval(INTERVAL);
    loop {
        seconds.tick().await;
        if let Err(failure) = shown.borrow_mut().note_second() {
            return failure;
        }
    }
}

fn start(program: &OsString, playlist: &str) -> Result<Child, Failure> {
    let mut command = Command::new(program);
    command.arg(playlist).kill_on_drop(true);
    command.spawn().map_err(|error| {
        Failure::Input(format!("--player: {}: {error}; expected a program", program.display()))
    })
}

/// A player that was started has ended.
async fn ended(player: &mut Option<Child>) {
    match player {
        Some(child) => drop(child.wait().await),
        None => std::future::pending().await,
    }
}
