//! What a connection asks its host for, in states that a network brings about by rare coincidence.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use polypath_tcp::{Connection as TcpConnection, Setup};
use polypath_units::Instant;
use polypath_wire::{Endpoint, FourTuple, MptcpVersion, SeqNumber};

use super::{Connection, ConnectionSetup, Request};
use crate::config::ConnectionConfig;
use crate::crypto::Key;
use crate::identifiers::AddressId;
use crate::mapping::Mapping;
use crate::subflow::Stage;

fn addr(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn setup(config: &ConnectionConfig, port: u16) -> Setup {
    Setup {
        tuple: FourTuple { local: Endpoint::new(addr(1), port), remote: Endpoint::new(addr(100), 80) },
        isn: SeqNumber(1),
        timestamp_offset: 0,
        config: config.tcp.clone(),
        congestion: config.congestion.clone(),
    }
}

/// A connection whose first subflow has come so far.
fn connection(config: &ConnectionConfig, stage: Stage) -> Connection {
    let tcp: TcpConnection<Mapping> = TcpConnection::connect(Instant::ZERO, setup(config, 1000));
    let (config, version) = (Arc::new(config.clone()), MptcpVersion::V1);
    Connection::new(ConnectionSetup { config, is_client: true, version, local_key: Key(7), tcp, stage })
}

#[test]
fn what_was_to_join_is_not_asked_for_when_the_handshake_begins_again() {
    let mut connection = connection(&ConnectionConfig::default(), Stage::CapableAck);
    connection.outbox.ask_for_subflow(0, (addr(2), AddressId(2)), Endpoint::new(addr(100), 80), false);
    connection.begin_again();
    let requests: Vec<Request> = connection.take_requests();
    assert!(requests.iter().any(|request| matches!(request, Request::Race { .. })), "{requests:?}");
    assert!(!requests.iter().any(|request| matches!(request, Request::OpenSubflow { .. })), "{requests:?}");
}
