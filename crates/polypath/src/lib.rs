//! Multipath TCP in user space: one connection, many paths.
//!
//! This crate has all of the others that a program needs, each as a module. A compiler names items by their own crates: of
//! `polypath_mptcp::Host` it means [`polypath::mptcp::Host`](mptcp::Host).
//!
//! | here | what |
//! |---|---|
//! | [`mptcp`] | the protocol, schedulers, path managers |
//! | [`tcp`] | one subflow |
//! | [`congestion`] | congestion controls |
//! | [`wire`] | packets |
//! | [`units`] | time, rates, policies by name |
//! | [`link`] | what happens to packets between hosts |
//! | [`stack`] | sockets; of those over UDP, [`udp`] is the short name |
//! | [`Policies`], [`PolicyKind`] | what can be chosen by name |
//! | [`Namespace`] | a network namespace |
//! | `uplinks` | our stack on the uplinks (feature `tun`) |
//!
//! An [`Engine`] carries connections: it has [`Engine::connect`] and [`Engine::listen`], and its streams have tokio's traits. A program that is
//! written against it leaves the choice of the engine to whoever starts it. A program that needs one kind only takes that kind, such as
//! [`Stack`] in the example below, with methods of the same names.
//!
//! | engine | feature | |
//! |---|---|---|
//! | [`Stack::udp`] | `udp`, on by default | our stack in UDP datagrams, between two ends of ours: no privileges, passes every NAT |
//! | [`KernelEngine`] | `kernel`, on by default | the kernel's Multipath TCP, or its plain TCP |
//! | `uplinks::open` | `tun` | our stack behind a TUN device on all uplinks, to any peer: needs `CAP_NET_ADMIN` |
//! | [`Stack::start`] | | our stack behind a driver of your own |
//!
//! ```
//! use polypath::prelude::*;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main]
//! # async fn main() -> std::io::Result<()> {
//! let here = Namespace::current()?;
//! let (mut client, server) = (UdpOptions::default(), UdpOptions::server());
//! // Without this there is one path: wherever the system's routes lead.
//! client.use_uplinks(&here)?;
//! # let (client, server) = (UdpOptions { port: 6901, ..client }, UdpOptions { port: 6901, ..server });
//! let listener = Stack::udp(&here, &server)?.listen(([0, 0, 0, 0], 80).into())?;
//! tokio::spawn(async move {
//!     let (mut stream, _) = listener.accept().await?;
//!     stream.write_all(b"over all paths").await?;
//!     stream.shutdown().await
//! });
//! let mut stream = Stack::udp(&here, &client)?.connect(([127, 0, 0, 1], 80).into(), &ConnectOptions::default()).await?;
//! let mut text = String::new();
//! stream.read_to_string(&mut text).await?;
//! assert_eq!(text, "over all paths");
//! # Ok(())
//! # }
//! ```
//!
//! Under the sockets, the protocol is a state machine without sockets, clocks or tasks, [`mptcp::Host`]: packets and time come in, packets and
//! events come out.
//!
//! ```
//! use polypath::mptcp::{Host, HostConfig};
//! use polypath::units::Instant;
//! use polypath::wire::Endpoint;
//!
//! let mut server = Host::new(HostConfig::default(), 1);
//! server.listen(Endpoint::new([10, 0, 0, 2].into(), 80)).unwrap();
//! let mut client = Host::new(HostConfig::default(), 2);
//! let now = Instant::ZERO;
//! let (local, remote) = (Endpoint::new([10, 0, 0, 1].into(), 0), Endpoint::new([10, 0, 0, 2].into(), 80));
//! let id = client.connect(now, local, remote, None).unwrap();
//!
//! // Packets come out of one host and go into the other; a driver or a simulator does this.
//! for _ in 0..3 {
//!     while let Some(packet) = client.poll_transmit(now) {
//!         server.handle_packet(now, packet);
//!     }
//!     while let Some(packet) = server.poll_transmit(now) {
//!         client.handle_packet(now, packet);
//!     }
//! }
//! assert!(client.info(id).unwrap().mptcp);
//! ```
//!
//! How a connection does is a [`StreamInfo`], with a [`SubflowInfo`] for each of its subflows, from whichever engine.
//!
//! Policies are chosen in [`mptcp::ConnectionConfig`]: [`mptcp::scheduler`], [`mptcp::path_manager`], [`congestion`]. By their names they are
//! found in [`Policies`], to which a program adds its own:
//!
//! ```
//! use polypath::Policies;
//! use polypath::mptcp::scheduler::Schedulers;
//!
//! let blest = Policies::default().find::<Schedulers>("blest").unwrap();
//! let mut config = polypath::mptcp::ConnectionConfig::default();
//! config.scheduler = blest;
//! ```
//!
//! What happens to packets between hosts, in the simulator and in emulated links, is in [`link`], and chosen in the same way.

#[doc(inline)]
pub use {
    polypath_congestion as congestion, polypath_link as link, polypath_mptcp as mptcp,
    polypath_stack as stack, polypath_tcp as tcp, polypath_units as units, polypath_wire as wire,
};

#[doc(no_inline)]
pub use bytes;
#[doc(inline)]
pub use polypath_config::{Policies, PolicyKind};
#[doc(inline)]
pub use polypath_mptcp::{ConnectionConfig, ConnectionInfo};
#[doc(inline)]
pub use polypath_stack::engine::{
    Arrival, ConnectOptions, Engine, Keepalive, Listener, Stream, StreamInfo, SubflowInfo,
};
#[cfg(feature = "kernel")]
#[doc(inline)]
pub use polypath_stack::engine::{KernelArrival, KernelEngine, KernelListener, KernelStream};
#[doc(inline)]
pub use polypath_stack::stack::{
    NoRuntime, OwnedReadHalf, OwnedWriteHalf, Stack, StackEnded, StackListener, StackStream, Unanswered,
};
#[cfg(feature = "udp")]
#[doc(inline)]
pub use polypath_stack::udp::{self, UdpOptions, UdpPath};
#[doc(inline)]
pub use polypath_system::Namespace;

#[cfg(feature = "tun")]
#[doc(inline)]
pub use polypath_netsetup::uplinks;

/// What a program needs that opens and accepts connections.
pub mod prelude {
    #[cfg(feature = "kernel")]
    pub use crate::KernelEngine;
    #[cfg(feature = "tun")]
    pub use crate::uplinks::UplinkOptions;
    pub use crate::{ConnectOptions, Engine, Listener, Namespace, Stack, Stream};
    #[cfg(feature = "udp")]
    pub use crate::{UdpOptions, UdpPath};
}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/schedulers.md")]
struct Schedulers;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/path-managers.md")]
struct PathManagers;
