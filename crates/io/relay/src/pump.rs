//! Moves bytes between a program's socket and a connection of the stack, both ways, with half-close. What is under way is
//! limited by the sockets' and the stack's own buffers.

use std::io;
use std::pin::pin;
use std::time::Duration;

use polypath_stack::stack::{OwnedReadHalf, OwnedWriteHalf, StackStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, tcp};
use tokio::sync::watch;

use super::carried::CarriedConnection;
use super::join::reset;

/// Memory for each direction of each connection.
const BUFFER_BYTES: usize = 128 * 1024;

/// How long the network may take what a program wrote before it let go. Its kernel would have sent a part of it, and then
/// the reset; much of it is still here.
const LET_GO_WAIT: Duration = Duration::from_millis(500);

/// Which side broke a connection.
#[derive(Debug)]
enum Broken {
    /// The program let go without waiting for the end.
    Program,
    /// The stack's connection failed.
    Network(io::Error),
    /// The stack ends, and the peer had more to say.
    Stopped,
}

/// Moves bytes until both halves have ended, or, once `stopping` says so, until all that the program has written is on its
/// way. If the network fails, `carried` is told, and the program's socket reset.
pub(super) async fn pump(
    carried: &CarriedConnection,
    stream: StackStream,
    ours: TcpStream,
    stopping: watch::Receiver<bool>,
) {
    let (mut from_network, mut to_network) = stream.into_split();
    let (from_program, mut to_program) = ours.into_split();
    let result = {
        let up = upload(&from_program, &mut to_network, stopping.clone());
        let down = download(&mut from_network, &mut to_program);
        tokio::select! {
            result = both(carried, up, down, stopping) => result,
            () = let_go(&from_program) => Err(Broken::Program),
        }
    };
    match result {
        Ok(()) => carried.ended(),
        Err(Broken::Program) => {
            to_network.abort();
            carried.ended();
        }
        // Who still reads must not take it for the end.
        Err(Broken::Stopped) => {
            carried.ended();
            if let Ok(ours) = from_program.reunite(to_program) {
                reset(ours);
            }
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

async fn both(
    carried: &CarriedConnection,
    up: impl Future<Output = Result<(), Broken>>,
    down: impl Future<Output = Result<(), Broken>>,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), Broken> {
    let (mut up, mut down) = (pin!(up), pin!(down));
    tokio::select! {
        ended = &mut up => match ended {
            Ok(()) => {
                carried.finished();
                tokio::select! {
                    biased;
                    ended = down => ended,
                    _ = stopping.wait_for(|stops| *stops) => Err(Broken::Stopped),
                }
            }
            // What arrived before is still delivered.
            Err(Broken::Network(error)) => down.await.and(Err(Broken::Network(error))),
            Err(broken) => Err(broken),
        },
        ended = &mut down => match ended {
            Ok(()) => up.await,
            Err(broken) => Err(broken),
        },
    }
}

/// Returns some time after the program has reset its socket, as its kernel does when it lets go of one with unread data.
async fn let_go(from_program: &tcp::OwnedReadHalf) {
    // Whatever else is wrong with a socket shows in reading it.
    if from_program.ready(Interest::ERROR).await.is_ok() {
        tokio::time::sleep(LET_GO_WAIT).await;
    } else {
        std::future::pending::<()>().await;
    }
}

async fn upload(
    from: &tcp::OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        tokio::select! {
            biased;
            readable = from.readable() => readable.map_err(|_| Broken::Program)?,
            _ = stopping.wait_for(|stops| *stops) => break,
        }
        match from.try_read(&mut buffer) {
            Ok(0) => return to.shutdown().await.map_err(Broken::Network),
            Ok(read) => to.write_all(&buffer[..read]).await.map_err(Broken::Network)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Broken::Program),
        }
    }
    // What the program wrote last may not have been noticed yet, so the socket is asked directly.
    while let Ok(read @ 1..) = rustix::io::read(AsRef::<TcpStream>::as_ref(from), &mut buffer[..]) {
        to.write_all(&buffer[..read]).await.map_err(Broken::Network)?;
    }
    to.shutdown().await.map_err(Broken::Network)
}

async fn download(from: &mut OwnedReadHalf, to: &mut tcp::OwnedWriteHalf) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await.map_err(Broken::Network)?;
        if read == 0 {
            return to.shutdown().await.map_err(|_| Broken::Program);
        }
        to.write_all(&buffer[..read]).await.map_err(|_| Broken::Program)?;
    }
}
