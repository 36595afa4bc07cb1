//! `polypath metrics`, and what commands with `--metrics` have in common with it.

mod collect;
mod offer;
mod proxies;
mod scrape;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use polypath_metrics::Format;
use polypath_metrics::history::{History, Recorder, Resolution};

use super::history::{default_directory, failure, now_s};
use super::network::block_on_interruptibly;
use super::{Failure, complain, print_line};
use collect::{Collector, Host};
pub(super) use offer::{LinkFigures, MetricsArguments};
use offer::{bind, parse_listen};
pub(super) use proxies::OwnProxy;

/// How often stacks are asked, whether or not anybody wants to know: of one that is killed, what it has counted since is lost.
const ASK_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Where Prometheus finds the figures; a port alone stands for 127.0.0.1
    #[arg(long, value_name = "[ADDRESS:]PORT", default_value = "127.0.0.1:9400", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Where history is recorded [default: /var/lib/polypath for root, else polypath in XDG_STATE_HOME]
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,
    /// Record no history
    #[arg(long, conflicts_with = "history")]
    no_history: bool,
    /// Print the figures once, and end; nothing is recorded
    #[arg(long, conflicts_with_all = ["listen", "history"])]
    once: bool,
}

const EXAMPLES: &str = "\
History is kept in steps of ten seconds for two days and of five minutes for a year; `polypath history` shows it.\n\n\
Examples:\n  \
polypath metrics\n  \
polypath metrics --listen 127.0.0.1:9500 --no-history";

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Whose stacks nobody can find, nobody can show.
    polypath_system::runtime_directory().map_err(Failure::run)?;
    block_on_interruptibly(async {
        let host = Host::default();
        let collector = Collector::new(host.clone());
        if arguments.once {
            return print_line(collector.text(Format::Prometheus).await.trim_end());
        }
        // Whoever has the port already has no use for a history either.
        let listener = bind("--listen", arguments.listen)?;
        let history = open_history(arguments)?;
        complain(&format!("figures at http://{}/metrics", listener.local_addr().map_err(Failure::run)?));
        tokio::select! {
            () = scrape::serve(listener, collector.clone()) => Ok(()),
            ended = ask(&collector, history) => ended,
            failed = host.hear_the_end() => failed,
        }
    })
}

fn open_history(arguments: &Arguments) -> Result<Option<History>, Failure> {
    if arguments.no_history {
        return Ok(None);
    }
    let directory = arguments.history.clone().map_or_else(default_directory, Ok)?;
    let history = History::open(&directory).map_err(failure)?;
    complain(&format!("history in {}", directory.display()));
    Ok(Some(history))
}

/// Asks again and again, and records.
async fn ask(collector: &Collector<Host>, mut history: Option<History>) -> Result<(), Failure> {
    let mut recorder = Recorder::default();
    let mut recorded_at = 0;
    let mut has_failed = false;
    let mut tick = tokio::time::interval(ASK_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        collector.refreshed(|totals| recorder.observe(totals)).await;
        let Some(history) = &mut history else { continue };
        let now = now_s();
        let step = |at_s: u64| at_s / Resolution::Fine.step_s();
        if step(now) != step(recorded_at) {
            // What was added came before now.
            let at = if recorded_at == 0 { now } else { recorded_at };
            let rows = collector.refreshed(|totals| recorder.rows(at, totals)).await;
            recorded_at = now;
            if rows.is_empty() {
                continue;
            }
            // A disk that is full keeps nobody from the figures; that is said once, and when there is room again.
            let recorded = history.record(now, &rows);
            match &recorded {
                Err(error) if !has_failed => {
                    complain(&format!("history: {error}; it is tried again with each step"));
                }
                Ok(()) if has_failed => complain("history: it is recorded again"),
                _ => {}
            }
            has_failed = recorded.is_err();
        }
    }
}
