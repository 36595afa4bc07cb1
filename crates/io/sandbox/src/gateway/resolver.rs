//! The host's DNS resolver on its loopback interface, under the same address in the program's namespace.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;

/// Queries and connections under way at a time.
const MAX_PENDING: usize = 512;
/// How long the resolver may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The largest DNS message.
const MAX_MESSAGE_BYTES: usize = 65_535;

/// Relays what comes to two sockets in the namespace to `resolver`.
pub(super) fn start(resolver: SocketAddr, datagrams: OwnedFd, listener: OwnedFd) -> io::Result<()> {
    let datagrams = UdpSocket::from_std(datagrams.into())?;
    let listener = TcpListener::from_std(listener.into())?;
    spawn_local(relay_datagrams(resolver, datagrams));
    spawn_local(relay_connections(resolver, listener));
    Ok(())
}

async fn relay_datagrams(resolver: SocketAddr, inside: UdpSocket) {
    let inside = Rc::new(inside);
    let free = Arc::new(Semaphore::new(MAX_PENDING));
    let mut query = vec![0; MAX_MESSAGE_BYTES];
    loop {
        let Ok((length, client)) = inside.recv_from(&mut query).await else { continue };
        // A query too many is lost, as any datagram may be.
        let Ok(permit) = free.clone().try_acquire_owned() else { continue };
        let (inside, query) = (inside.clone(), query[..length].to_vec());
        spawn_local(async move {
            let answer = tokio::time::timeout(ANSWER_LIMIT, ask(resolver, &query)).await;
            if let Ok(Ok(answer)) = answer {
                let _ = inside.send_to(&answer, client).await;
            }
            drop(permit);
        });
    }
}

async fn ask(resolver: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind(SocketAddr::new(resolver.ip(), 0)).await?;
    socket.connect(resolver).await?;
    socket.send(query).await?;
    let mut answer = vec![0; MAX_MESSAGE_BYTES];
    let length = socket.recv(&mut answer).await?;
    answer.truncate(length);
    Ok(answer)
}

async fn relay_connections(resolver: SocketAddr, listener: TcpListener) {
    let free = Arc::new(Semaphore::new(MAX_PENDING));
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        let Ok((mut inside, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        spawn_local(async move {
            if let Ok(mut outside) = TcpStream::connect(resolver).await {
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
            }
            drop(permit);
        });
    }
}
