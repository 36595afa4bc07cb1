//! What the kernel tells of a connection: `MPTCP_INFO` and `TCP_INFO` (linux/mptcp.h, linux/tcp.h).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use polypath_mptcp::SubflowInfo;
use polypath_tcp::{Info as TcpInfo, State as TcpState};
use polypath_units::{BitRate, Duration};
use polypath_wire::FourTuple;

use super::kernel_option::get;
use super::stream_info::StreamInfo;

const SOL_MPTCP: i32 = 284;
const MPTCP_INFO: i32 = 1;
const MPTCP_TCPINFO: i32 = 2;
const MPTCP_SUBFLOW_ADDRS: i32 = 3;
const MPTCP_INFO_FLAG_FALLBACK: u32 = 1;

/// `struct mptcp_subflow_data`, which heads each list of subflows.
const LIST_HEAD_BYTES: usize = 16;
/// As much of `struct tcp_info` as is looked at; the kernel gives less if it has less.
const TCP_INFO_BYTES: usize = 248;
/// The slow-start threshold before the first loss, in segments (`TCP_INFINITE_SSTHRESH`).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// `struct mptcp_subflow_addrs`: two of `struct sockaddr_storage`.
const ADDRS_BYTES: usize = 2 * SOCKADDR_BYTES;
const SOCKADDR_BYTES: usize = 128;
/// Subflows that there is room for; the kernel has at most 9 of them (`MPTCP_SUBFLOWS_MAX`).
const MAX_SUBFLOWS: usize = 64;
/// Times that the two lists are asked for until they fit together.
const ATTEMPTS: usize = 3;

/// State of a connection; `local` and `peer` are its socket's addresses.
pub(super) fn stream_info(socket: &impl AsFd, local: SocketAddr, peer: SocketAddr) -> io::Result<StreamInfo> {
    if is_multipath(socket) {
        for _ in 0..ATTEMPTS {
            let addresses = list(socket, MPTCP_SUBFLOW_ADDRS, ADDRS_BYTES)?;
            let states = list(socket, MPTCP_TCPINFO, TCP_INFO_BYTES)?;
            if addresses.len() == states.len() {
                let subflow = |(pair, state): (&Vec<u8>, &Vec<u8>)| {
                    let (local, remote) = pair.split_at_checked(SOCKADDR_BYTES)?;
                    Some(subflow(socket_address(local)?, socket_address(remote)?, state))
                };
                let subflows = addresses.iter().zip(&states).filter_map(subflow).collect::<Result<_, _>>()?;
                return Ok(StreamInfo { is_multipath: true, subflows });
            }
        }
    }
    tcp_info(socket, local, peer)
}

/// The same of one that is of plain TCP.
pub(super) fn tcp_info(socket: &impl AsFd, local: SocketAddr, peer: SocketAddr) -> io::Result<StreamInfo> {
    let mut state = [0; TCP_INFO_BYTES];
    let length = get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
    Ok(StreamInfo { is_multipath: false, subflows: vec![subflow(local, peer, &state[..length])?] })
}

/// Whether Multipath TCP is in use. A socket that fell back, or never was one, refuses the option.
pub fn is_multipath(socket: &impl AsFd) -> bool {
    let mut info = [0; 64];
    get(socket, SOL_MPTCP, MPTCP_INFO, &mut info).is_ok_and(|length| {
        number(&info[..length], 8).is_some_and(|flags| flags & MPTCP_INFO_FLAG_FALLBACK == 0)
    })
}

/// Whether the peer has acknowledged all that was sent by Multipath TCP; none where that is not told.
pub(super) fn is_all_acknowledged(socket: &impl AsFd) -> Option<bool> {
    let mut info = [0; 64];
    let length = get(socket, SOL_MPTCP, MPTCP_INFO, &mut info).ok()?;
    // `mptcpi_write_seq` and `mptcpi_snd_una`.
    let [sent, acknowledged] =
        [16, 24].map(|at| info[..length].get(at..at + 8).and_then(|bytes| bytes.try_into().ok()));
    Some(u64::from_ne_bytes(sent?) == u64::from_ne_bytes(acknowledged?))
}

/// Whether the peer has acknowledged all that was sent by TCP: nothing is in flight (`tcpi_unacked`), and nothing waits (`tcpi_notsent_bytes`).
pub(super) fn is_all_acknowledged_by_tcp(socket: &impl AsFd) -> Option<bool> {
    let mut state = [0; TCP_INFO_BYTES];
    let length = get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state).ok()?;
    let [in_flight, waiting] = [24, 144].map(|at| number(&state[..length], at));
    Some(in_flight? == 0 && waiting? == 0)
}

fn subflow(local: SocketAddr, remote: SocketAddr, tcp_info: &[u8]) -> io::Result<SubflowInfo> {
    let tcp = tcp_state(tcp_info).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel tells too little of TCP; Linux 5.4 tells enough",
        )
    })?;
    let tuple = FourTuple { local: local.into(), remote: remote.into() };
    Ok(SubflowInfo {
        tuple,
        established: tcp.state.is_synchronized(),
        // No socket option tells.
        multipath: None,
        tcp,
    })
}

/// `struct tcp_info`, in our words; none if it is that of a kernel before Linux 5.4.
fn tcp_state(tcp_info: &[u8]) -> Option<TcpInfo> {
    let small = |offset| number(tcp_info, offset).map(u64::from);
    let large = |offset| tcp_info.get(offset..offset + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let micros = |offset| small(offset).map(Duration::from_micros);
    let rate =
        |offset| large(offset).map(|bytes_per_s: u64| BitRate::from_bps(bytes_per_s.saturating_mul(8)));
    let mss_bytes = number(tcp_info, 16)?;
    // The kernel counts segments where we count bytes.
    let segments = |count: u64| count * u64::from(mss_bytes);
    let (unacked, sacked, lost, resent) = (small(24)?, small(28)?, small(32)?, small(36)?);
    Some(TcpInfo {
        state: tcp_state_of(*tcp_info.first()?),
        congestion: None,
        srtt: micros(68)?,
        rttvar: micros(72)?,
        min_rtt: if number(tcp_info, 148)? == u32::MAX { Duration::ZERO } else { micros(148)? },
        rcv_rtt: micros(92)?,
        // Data came later than data went. The kernel's timestamps tick in milliseconds, too.
        rcv_rtt_is_newer: small(92)? > 0 && small(52)? < small(44)? && small(92)?.abs_diff(small(68)?) > 1000,
        rto: micros(8)?,
        cwnd_bytes: segments(small(80)?),
        ssthresh_bytes: if number(tcp_info, 76)? >= INFINITE_SSTHRESH {
            u64::MAX
        } else {
            segments(small(76)?)
        },
        in_flight_bytes: segments((unacked + resent).saturating_sub(sacked + lost)),
        lost_bytes: segments(lost),
        sacked_bytes: segments(sacked),
        unsent_bytes: small(144)?,
        peer_window_bytes: small(228)?,
        mss_bytes,
        pmtu_bytes: number(tcp_info, 60)?,
        bytes_acked: large(120)?,
        bytes_received: large(128)?,
        bytes_sent: large(200)?,
        bytes_retrans: large(208)?,
        data_segs_out: small(156)?,
        retransmits: small(100)?,
        timeouts: tcp_info
            .get(240..242)
            .and_then(|count| Some(u16::from_ne_bytes(count.try_into().ok()?).into())),
        recoveries: None,
        spurious: None,
        dsacks: small(216)?,
        reordering_seen: small(220)? > 0,
        delivery_rate: rate(160)?,
        // All bits set where nothing limits it.
        pacing_rate: if large(104)? == u64::MAX { BitRate::ZERO } else { rate(104)? },
    })
}

/// The kernel's number of a state (net/tcp_states.h).
fn tcp_state_of(number: u8) -> TcpState {
    match number {
        1 => TcpState::Established,
        2 => TcpState::SynSent,
        3 | 12 => TcpState::SynReceived,
        4 => TcpState::FinWait1,
        5 => TcpState::FinWait2,
        6 => TcpState::TimeWait,
        8 => TcpState::CloseWait,
        9 => TcpState::LastAck,
        11 => TcpState::Closing,
        // A listener has no connection.
        _ => TcpState::Closed,
    }
}

fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let address = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// A list with one element for each subflow.
fn list(socket: &impl AsFd, option: i32, element_bytes: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut buffer = vec![0; LIST_HEAD_BYTES + MAX_SUBFLOWS * element_bytes];
    buffer[..4].copy_from_slice(&(LIST_HEAD_BYTES as u32).to_ne_bytes());
    buffer[12..16].copy_from_slice(&(element_bytes as u32).to_ne_bytes());
    get(socket, SOL_MPTCP, option, &mut buffer)?;
    let count = number(&buffer, 4).unwrap_or(0) as usize;
    let given = (number(&buffer, 8).unwrap_or(0) as usize).min(element_bytes);
    let elements = buffer[LIST_HEAD_BYTES..].chunks_exact(element_bytes);
    Ok(elements.take(count).map(|element| element[..given].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use polypath_testbed::{Testbed, is_root_or_skip};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::engine::{ConnectOptions, KernelEngine};

    /// Sends a little from a client to a server, and compares what both kernels tell.
    async fn check(client: KernelEngine, server: KernelEngine, address: IpAddr, is_multipath: bool) {
        let listener = server.listen((address, 0).into()).expect("a listener");
        let to = listener.local_addr().expect("its address");
        let options = ConnectOptions::default();
        let (sent, accepted) = tokio::join!(client.connect(to, &options), listener.accept());
        let (mut sent, (mut accepted, peer)) = (sent.expect("a connection"), accepted.expect("the same"));
        sent.write_all(&[7; 100_000]).await.expect("room");
        accepted.read_exact(&mut [0; 100_000]).await.expect("the bytes");
        accepted.write_all(b"x").await.expect("room");
        sent.read_exact(&mut [0]).await.expect("the byte");
        let (here, there) = (sent.info().expect("info"), accepted.info().expect("info"));
        assert_eq!(
            (here.is_multipath, there.is_multipath),
            (is_multipath, is_multipath),
            "{here:?} {there:?}"
        );
        let (first, reversed) = (&here.subflows[0], &there.subflows[0]);
        assert_eq!((first.tuple.local, first.tuple.remote), (peer.into(), to.into()));
        assert_eq!((reversed.tuple.local, reversed.tuple.remote), (to.into(), peer.into()));
        assert!(first.tcp.bytes_acked >= 100_000 && first.tcp.bytes_received == 1, "{first:?}");
        assert!(reversed.tcp.bytes_received >= 100_000, "{reversed:?}");
        let tcp = &first.tcp;
        assert!(!tcp.srtt.is_zero() && !tcp.min_rtt.is_zero() && tcp.min_rtt <= tcp.rto, "{tcp:?}");
        assert!(tcp.cwnd_bytes > 1000 && tcp.ssthresh_bytes > 1000 && tcp.pmtu_bytes >= 1280, "{tcp:?}");
        assert!(tcp.bytes_sent - tcp.bytes_retrans >= 100_000 && tcp.in_flight_bytes == 0, "{tcp:?}");
        assert!((100_000 / u64::from(tcp.mss_bytes)..1000).contains(&tcp.data_segs_out), "{tcp:?}");
        assert!(tcp.peer_window_bytes > 1000 && tcp.delivery_rate > BitRate::ZERO, "{tcp:?}");
        assert_eq!((tcp.state, first.established, &first.multipath), (TcpState::Established, true, &None));
    }

    #[tokio::test]
    async fn the_kernel_tells_of_subflows_and_of_fallback() {
        if !is_root_or_skip("kernel info") {
            return;
        }
        let testbed = Testbed::new(1).expect("namespaces");
        let at = |engine: KernelEngine| {
            (engine.clone().in_namespace(testbed.client.clone()), engine.in_namespace(testbed.server.clone()))
        };
        let (client, server) = at(KernelEngine::new());
        let (plain_client, plain_server) = at(KernelEngine::plain_tcp());
        for address in [IpAddr::V4(Testbed::server_v4(0)), IpAddr::V6(Testbed::server_v6(0))] {
            check(client.clone(), server.clone(), address, true).await;
            check(client.clone(), plain_server.clone(), address, false).await;
            check(plain_client.clone(), server.clone(), address, false).await;
        }
    }

    #[tokio::test]
    async fn the_kernel_tells_of_several_subflows() {
        if !is_root_or_skip("kernel info") {
            return;
        }
        let testbed = Testbed::new(2).expect("namespaces");
        let second = Testbed::client_v4(1).to_string();
        for (namespace, arguments) in [
            (&testbed.client, vec!["mptcp", "endpoint", "add", &second, "dev", "path1", "subflow"]),
            (&testbed.client, vec!["mptcp", "limits", "set", "subflow", "2", "add_addr_accepted", "2"]),
            (&testbed.server, vec!["mptcp", "limits", "set", "subflow", "2", "add_addr_accepted", "2"]),
        ] {
            let run = || std::process::Command::new("ip").args(&arguments).status();
            let Ok(status) = namespace.run(run).expect("the namespace") else {
                eprintln!("SKIPPED kernel info with several subflows: there is no ip command");
                return;
            };
            assert!(status.success(), "ip {arguments:?}");
        }
        // The second path leads to the server's only address that listens.
        testbed.server.set_variable("net/ipv4/conf/all/rp_filter", "0").expect("a variable");
        let route = || {
            let to = format!("{}/32", Testbed::server_v4(0));
            let via = Testbed::server_v4(1).to_string();
            let add = |arguments: &[&str]| std::process::Command::new("ip").args(arguments).status();
            add(&["rule", "add", "from", &second, "lookup", "77"])?;
            add(&["route", "add", &to, "via", &via, "dev", "path1", "table", "77"])
        };
        assert!(testbed.client.run(route).expect("the namespace").expect("ip").success());
        let server = KernelEngine::new().in_namespace(testbed.server.clone());
        let listener = server.listen((Testbed::server_v4(0), 0).into()).expect("a listener");
        let client = KernelEngine::new().in_namespace(testbed.client.clone());
        let to = listener.local_addr().expect("its address");
        let options = ConnectOptions::default();
        let (sent, accepted) = tokio::join!(client.connect(to, &options), listener.accept());
        let (mut sent, (mut accepted, _)) = (sent.expect("a connection"), accepted.expect("the same"));
        let mut locals = Vec::new();
        // The second subflow comes when the kernel likes, soon.
        for _ in 0..200 {
            sent.write_all(&[1; 1000]).await.expect("room");
            accepted.read_exact(&mut [0; 1000]).await.expect("the bytes");
            locals =
                sent.info().expect("info").subflows.iter().map(|subflow| subflow.tuple.local.addr).collect();
            if locals.len() == 2 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(locals, [IpAddr::V4(Testbed::client_v4(0)), IpAddr::V4(Testbed::client_v4(1))]);
    }
}
