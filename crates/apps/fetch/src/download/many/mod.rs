//! Many files at once. A small one comes by one request over one way, on a connection that the next file uses again; a larger one
//! over all ways, as any download.

mod shared;
mod shares;
mod small;
mod wanted;
mod worker;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use self::wanted::{Ended, Event, Wanted};

use self::shared::Shared;
use super::options::Options;
use super::way::Dial;

/// Fetches files over the ways that come by `ways`, so many at a time, until `stop` is over. All that were begun end with an event.
/// The ways are to keep connections ([`super::Pool`]), or else each file has its own. A rate that is not to be passed would be that of
/// each file.
pub async fn download_many(
    files: Vec<Wanted>,
    most_at_once: usize,
    options: Options,
    mut ways: mpsc::Receiver<Arc<dyn Dial>>,
    stop: impl Future<Output = ()>,
    mut tell: impl FnMut(Event),
) {
    let mut stop = std::pin::pin!(stop);
    let (events, mut told) = mpsc::unbounded_channel();
    let stopping = watch::Sender::new(false);
    let workers = most_at_once.clamp(1, files.len().max(1));
    let shared = Arc::new(Shared::new(files, options, events, stopping.subscribe()));
    // Of the first one it is known at once whether there is another.
    tokio::select! {
        biased;
        () = &mut stop => return,
        way = ways.recv() => match way {
            Some(way) => shared.add_way(way),
            None => shared.unreached("no interface leads there"),
        },
    }
    while let Ok(way) = ways.try_recv() {
        shared.add_way(way);
    }
    let mut running = JoinSet::new();
    for _ in 0..if shared.has_ways() { workers } else { 0 } {
        running.spawn(worker::work(shared.clone()));
    }
    let (mut has_more_ways, mut is_stopped) = (true, false);
    loop {
        tokio::select! {
            biased;
            () = &mut stop, if !is_stopped => {
                is_stopped = true;
                stopping.send_replace(true);
            }
            Some(event) = told.recv() => tell(event),
            way = ways.recv(), if has_more_ways => match way {
                Some(way) => shared.add_way(way),
                None => has_more_ways = false,
            },
            ended = running.join_next() => if ended.is_none() {
                break;
            },
        }
    }
    while let Ok(event) = told.try_recv() {
        tell(event);
    }
}
