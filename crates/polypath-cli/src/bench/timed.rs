//! The ends of a connection whose every arrival is noted, so that what arrived in any stretch of time can be told.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use polypath_config::Policies;
use polypath_mptcp::{ConnectionConfig, LiaOnSharedAccess};
use polypath_stack::engine::{ConnectOptions, Listener, Stream};
use polypath_stack::{Engine, stack};
use polypath_tcp::Config as TcpConfig;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::outcome::{Outcome, monotonic_s};

/// Bytes that a bulk transfer hands over and asks for at a time: iperf3's choice.
pub(super) const BLOCK_BYTES: usize = 128 << 10;

/// Arrivals that are nearer to each other count as one, at the time of the first.
const RESOLUTION_S: f64 = 1e-3;

/// What a variant of the laboratory asks of our stack, in words that another process understands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    mptcp: bool,
    pub(super) congestion: String,
    is_congestion_named: bool,
    scheduler: String,
    path_manager: String,
    receive_buffer_bytes: u64,
    send_buffer_bytes: u64,
    race: bool,
    receive_autotuning: bool,
}

impl Settings {
    pub(super) fn of(connection: &ConnectionConfig) -> Self {
        Self {
            mptcp: connection.mptcp,
            congestion: connection.congestion.to_string(),
            is_congestion_named: connection.lia_on_shared_access == LiaOnSharedAccess::Never,
            scheduler: connection.scheduler.to_string(),
            path_manager: connection.path_manager.to_string(),
            receive_buffer_bytes: connection.tcp.receive_buffer_bytes,
            send_buffer_bytes: connection.tcp.send_buffer_bytes,
            race: connection.race,
            receive_autotuning: connection.receive_autotuning,
        }
    }

    /// As a stack behind a driver has it by default, with these settings.
    pub(super) fn connection(&self, policies: &Policies) -> io::Result<ConnectionConfig> {
        let defaults = stack::default_connection();
        Ok(ConnectionConfig {
            mptcp: self.mptcp,
            congestion: policies.find(&self.congestion).map_err(io::Error::other)?,
            lia_on_shared_access: match self.is_congestion_named {
                true => LiaOnSharedAccess::Never,
                false => LiaOnSharedAccess::default(),
            },
            scheduler: policies.find(&self.scheduler).map_err(io::Error::other)?,
            path_manager: policies.find(&self.path_manager).map_err(io::Error::other)?,
            tcp: Arc::new(TcpConfig {
                receive_buffer_bytes: self.receive_buffer_bytes,
                send_buffer_bytes: self.send_buffer_bytes,
                ..(*defaults.tcp).clone()
            }),
            race: self.race,
            receive_autotuning: self.receive_autotuning,
            ..defaults
        })
    }
}

/// Takes one connection and notes what arrives, until it or standard input ends.
pub(super) async fn collect(engine: &Engine, listener: Listener, ended: &Notify) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut stream = tokio::select! {
        accepted = listener.accept() => accepted?.0,
        () = ended.notified() => return Ok(outcome),
    };
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let bytes = tokio::select! {
            read = stream.read(&mut block) => read,
            () = ended.notified() => return Ok(outcome),
        };
        let bytes = match bytes {
            // How the other end ends when its time is over, with much still to be sent.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                outcome.reset_s = Some(monotonic_s());
                return Ok(outcome);
            }
            bytes => bytes?,
        };
        if bytes == 0 {
            break;
        }
        outcome.bytes += bytes as u64;
        let now_s = monotonic_s();
        match outcome.arrivals.last_mut() {
            Some((at_s, total)) if now_s - *at_s < RESOLUTION_S => *total = outcome.bytes,
            _ => outcome.arrivals.push((now_s, outcome.bytes)),
        }
    }
    drop(stream);
    engine.drain(Duration::from_millis(500)).await;
    Ok(outcome)
}

/// Connects, and writes until so many bytes are written and have arrived, or the time is over.
pub(super) async fn carry(
    engine: &Engine,
    server: std::net::SocketAddr,
    local: Option<std::net::SocketAddr>,
    kernel_congestion: Option<&str>,
    bytes: Option<u64>,
    seconds: f64,
) -> io::Result<Outcome> {
    let mut outcome = Outcome { started_s: monotonic_s(), ..Outcome::default() };
    let options = ConnectOptions { local, ..ConnectOptions::default() };
    let block = vec![0; BLOCK_BYTES];
    let sent = &mut outcome.bytes;
    let work = async {
        let mut stream = engine.connect(server, &options).await?;
        if let (Stream::Kernel(stream), Some(name)) = (&stream, kernel_congestion) {
            stream.set_congestion(name)?;
        }
        let bytes = bytes.unwrap_or(u64::MAX);
        while *sent < bytes {
            let next = (bytes - *sent).min(block.len() as u64) as usize;
            *sent += stream.write(&block[..next]).await? as u64;
        }
        stream.shutdown().await?;
        // Its end says that everything has arrived.
        stream.read(&mut [0; 1]).await
    };
    // That the time is over is how bulk transfers end, and no failure of others: what arrived says enough.
    match timeout(Duration::from_secs_f64(seconds), work).await {
        Ok(Err(error)) => Err(error),
        Ok(Ok(_)) | Err(_) => Ok(outcome),
    }
}
