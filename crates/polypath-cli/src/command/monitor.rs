//! `polypath monitor`.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use polypath_control::{ANSWER_LIMIT, EventReport, Peer};
use tokio::sync::mpsc;

use super::network::block_on;
use super::ss::{peers, silence};
use super::{Failure, complain, print_line};

/// How often new stacks are looked for.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Print a JSON object for each event
    #[arg(short = 'J', long)]
    json: bool,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(monitor(arguments))
}

async fn monitor(arguments: &Arguments) -> Result<(), Failure> {
    let (sender, mut events) = mpsc::channel(64);
    let (ended, mut gone) = mpsc::channel(64);
    let mut known = HashSet::new();
    let mut search = tokio::time::interval(SEARCH_INTERVAL);
    let mut shown = 0;
    while arguments.count.is_none_or(|count| shown < count) {
        tokio::select! {
            _ = search.tick() => {
                for peer in peers()? {
                    if known.insert(peer.clone()) {
                        tokio::spawn(follow(peer, sender.clone(), ended.clone()));
                    }
                }
            }
            Some(peer) = gone.recv() => {
                known.remove(&peer);
            }
            Some(event) = events.recv() => {
                shown += 1;
                show(arguments, &event)?;
            }
            stopped = tokio::signal::ctrl_c() => return stopped.map_err(Failure::run),
        }
    }
    Ok(())
}

fn show(arguments: &Arguments, event: &EventReport) -> Result<(), Failure> {
    if arguments.json {
        print_line(&serde_json::to_string(event).map_err(Failure::run)?)
    } else {
        print_line(&event.to_string())
    }
}

/// Passes a stack's events on until it ends.
async fn follow(peer: Peer, events: mpsc::Sender<EventReport>, ended: mpsc::Sender<Peer>) {
    let asked = peer.clone();
    let mut opening = pin!(asked.monitor());
    let opened = match tokio::time::timeout(ANSWER_LIMIT, &mut opening).await {
        Ok(opened) => opened,
        // It may go on later.
        Err(_) => {
            complain(&silence(&peer));
            opening.await
        }
    };
    if let Ok(mut monitor) = opened {
        while let Ok(Some(event)) = monitor.next().await {
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
    // Without a receiver, the command is over.
    let _ = ended.send(peer).await;
}
