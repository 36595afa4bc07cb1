//! Moves bytes between a program's socket and a connection of the stack, both ways, with half-close. What is under way is
//! limited by the sockets' and the stack's own buffers.

use std::io;
use std::pin::pin;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp;
use tokio::sync::{oneshot, watch};

use super::carried::Carried;
use super::join::reset;
use crate::stack::{OwnedReadHalf, OwnedWriteHalf, StackStream};

/// Memory for each direction of each connection.
const BUFFER_BYTES: usize = 128 * 1024;

/// Which side broke a connection.
#[derive(Debug)]
enum Broken {
    /// The program let go without waiting for the end.
    Program,
    /// The stack's connection failed.
    Network(io::Error),
}

/// Why no more comes from the program.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// It ended its half.
    Finished,
    /// The program itself ends.
    Stopped,
}

/// Moves bytes until both halves have ended, or, once `stopping` says so, until all that the program has written is on its
/// way. If the network fails, `carried` is told, and the program's socket reset.
pub(super) async fn pump(
    carried: &Carried,
    stream: StackStream,
    ours: TcpStream,
    mut stopping: watch::Receiver<bool>,
) {
    let (mut from_network, mut to_network) = stream.into_split();
    let (mut from_program, mut to_program) = ours.into_split();
    let (stopped, is_stopped) = oneshot::channel();
    let result = {
        let mut up = pin!(upload(&mut from_program, &mut to_network, &mut stopping));
        let mut down = pin!(download(&mut from_network, &mut to_program, is_stopped));
        tokio::select! {
            ended = &mut up => match ended {
                Ok(ended) => {
                    if ended == Ended::Stopped {
                        // It waits for nothing else.
                        let _ = stopped.send(());
                    }
                    down.await
                }
                // What arrived before is still delivered.
                Err(Broken::Network(error)) => down.await.and(Err(Broken::Network(error))),
                Err(Broken::Program) => Err(Broken::Program),
            },
            ended = &mut down => match ended {
                Ok(()) => up.await.map(drop),
                Err(broken) => Err(broken),
            },
        }
    };
    match result {
        Ok(()) => carried.ended(),
        Err(Broken::Program) => {
            to_network.abort();
            carried.ended();
        }
        Err(Broken::Network(error)) => {
            // Before the program can see that something has happened.
            carried.failed(&error);
            if let Ok(ours) = from_program.reunite(to_program) {
                reset(ours);
            }
        }
    }
}

async fn upload(
    from: &mut tcp::OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    stopping: &mut watch::Receiver<bool>,
) -> Result<Ended, Broken> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = tokio::select! {
            biased;
            read = from.read(&mut buffer) => read.map_err(|_| Broken::Program)?,
            _ = stopping.wait_for(|stops| *stops) => break,
        };
        if read == 0 {
            to.shutdown().await.map_err(Broken::Network)?;
            return Ok(Ended::Finished);
        }
        to.write_all(&buffer[..read]).await.map_err(Broken::Network)?;
    }
    // What the program wrote last may not have been noticed yet, so the socket is asked directly.
    while let Ok(read @ 1..) = rustix::io::read(AsRef::<TcpStream>::as_ref(from), &mut buffer[..]) {
        to.write_all(&buffer[..read]).await.map_err(Broken::Network)?;
    }
    to.shutdown().await.map_err(Broken::Network)?;
    Ok(Ended::Stopped)
}

async fn download(
    from: &mut OwnedReadHalf,
    to: &mut tcp::OwnedWriteHalf,
    mut is_stopped: oneshot::Receiver<()>,
) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER_BYTES];
    // The other direction may end in order, and say nothing.
    let mut may_stop = true;
    loop {
        let read = tokio::select! {
            stopped = &mut is_stopped, if may_stop => {
                if stopped.is_ok() {
                    return Ok(());
                }
                may_stop = false;
                continue;
            }
            read = from.read(&mut buffer) => read.map_err(Broken::Network)?,
        };
        if read == 0 {
            return to.shutdown().await.map_err(|_| Broken::Program);
        }
        to.write_all(&buffer[..read]).await.map_err(|_| Broken::Program)?;
    }
}
