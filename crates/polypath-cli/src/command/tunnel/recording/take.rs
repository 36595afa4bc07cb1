//! The side of who wants to know.

use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;

use super::super::super::Failure;
use super::super::super::control_socket::MISTAKE;
use super::super::control::{Question, TUNNELS};
use super::{Batch, Begun, PathLine, read};
use crate::reorder::Live;

/// The tunnel says something each tenth of a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was sent within the time may still come for so long.
const UNDER_WAY: Duration = Duration::from_millis(500);

/// What was taken besides packets.
#[derive(Debug, Default)]
pub(in crate::command) struct Taken {
    /// What the peer is called.
    pub(in crate::command) peer: String,
    pub(in crate::command) seconds: f64,
    /// There was no room for so many records.
    pub(in crate::command) missed: u64,
    pub(in crate::command) without_number: u64,
    /// As they were at the end.
    pub(in crate::command) paths: Vec<PathLine>,
    /// Why it ended before its time.
    pub(in crate::command) broken: Option<String>,
}

/// Takes what comes to a tunnel from a peer, for so long, or until SIGINT.
pub(in crate::command) async fn take(
    tunnel: &str,
    peer: Option<&str>,
    duration: Duration,
    live: &mut Live,
) -> Result<Taken, Failure> {
    let stream = TUNNELS.connect(tunnel).map_err(Failure::run)?;
    let stream = stream.ok_or_else(|| TUNNELS.missing(tunnel))?;
    stream.set_nonblocking(true).map_err(Failure::run)?;
    let (read, mut write) = UnixStream::from_std(stream).map_err(Failure::run)?.into_split();
    let mut lines = BufReader::new(read).lines();
    let question = format!("{} {}\n", Question::Record.word(), peer.unwrap_or_default());
    write.write_all(question.as_bytes()).await.map_err(Failure::run)?;
    let first = next_line(tunnel, &mut lines).await.map_err(Failure::Run)?;
    if let Some(mistake) = first.strip_prefix(MISTAKE) {
        return Err(Failure::Input(format!("{tunnel}: {mistake}")));
    }
    let Begun { peer } = serde_json::from_str(&first).map_err(Failure::run)?;
    let begin = Instant::now();
    let mut taken = Taken { peer, ..Taken::default() };
    let over = async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = tokio::time::sleep(duration) => {}
        }
    };
    taken.take_until(over, tunnel, &mut lines, live).await?;
    taken.seconds = begin.elapsed().as_secs_f64();
    live.close();
    if taken.broken.is_none() {
        taken.take_until(tokio::time::sleep(UNDER_WAY), tunnel, &mut lines, live).await?;
    }
    Ok(taken)
}

async fn next_line(tunnel: &str, lines: &mut Lines<BufReader<OwnedReadHalf>>) -> Result<String, String> {
    match tokio::time::timeout(PATIENCE, lines.next_line()).await {
        Err(_) => Err(format!("{tunnel} says nothing for {} s", PATIENCE.as_secs())),
        Ok(Err(error)) => Err(format!("{tunnel}: {error}")),
        Ok(Ok(None)) => Err(format!("{tunnel} says no more: it, or its peer, is gone")),
        Ok(Ok(Some(line))) => Ok(line),
    }
}

impl Taken {
    async fn take_until(
        &mut self,
        over: impl Future<Output = ()>,
        tunnel: &str,
        lines: &mut Lines<BufReader<OwnedReadHalf>>,
        live: &mut Live,
    ) -> Result<(), Failure> {
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = &mut over => return Ok(()),
                line = next_line(tunnel, lines) => match line {
                    Ok(line) => self.add(serde_json::from_str(&line).map_err(Failure::run)?, live),
                    Err(broken) => {
                        self.broken = Some(broken);
                        return Ok(());
                    }
                },
            }
        }
    }

    fn add(&mut self, batch: Batch, live: &mut Live) {
        for (flow, line) in &batch.flows {
            live.name(super::numbered_flow(*flow), line.id());
        }
        batch.shared.into_iter().for_each(|flow| live.share(super::numbered_flow(flow)));
        batch.records.into_iter().filter_map(read).for_each(|record| live.handle(&record));
        self.missed += batch.missed;
        self.without_number += batch.without_number;
        self.paths = batch.paths;
    }
}
