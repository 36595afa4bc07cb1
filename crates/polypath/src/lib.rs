//! Multipath TCP in user space: one connection, many paths.
//!
//! This crate is what people depend on. The protocol is a state machine without sockets, clocks or tasks ([`mptcp::Host`]); [`net`] runs
//! it on real networks, the crate `polypath-sim` in virtual time.
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

#[doc(inline)]
pub use {
    polypath_congestion as congestion, polypath_link as link, polypath_mptcp as mptcp, polypath_net as net,
    polypath_tcp as tcp, polypath_units as units, polypath_wire as wire,
};
