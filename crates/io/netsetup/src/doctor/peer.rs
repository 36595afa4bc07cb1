//! What follows from the connections that were tried.

use std::net::SocketAddr;

use polypath_system::Link;

use super::Finding;
use super::probe::{Outcome, PathMtu, Probe, Probed};

/// Passes where the options of TCP do not.
const TUNNEL: &str =
    "choose --engine udp to a Polypath peer, which needs no TCP options, or a VPN on this path";

/// What a probe says of its path.
pub(super) fn check_path(link: &Link, probe: &Probe, probed: &Probed) -> Vec<Finding> {
    let (remote, name) = (probe.remote, &link.name);
    let mut findings = Vec::new();
    match &probe.tcp {
        Outcome::Plain | Outcome::Multipath => findings.push(Finding::good(
            "peer",
            format!("{remote} answers after {:.1} ms", probe.answer_time.as_secs_f64() * 1e3),
        )),
        Outcome::Refused => findings.push(Finding::good("peer", format!("{remote} is reached"))),
        Outcome::Silent => findings.push(Finding::blocked(
            "peer",
            format!("{remote} does not answer by this path"),
            format!(
                "`ping -I {name} {}` tells whether anything passes; then look at its gateway, and at firewalls on the way",
                remote.ip()
            ),
        )),
        Outcome::Failed(error) => findings.push(Finding::blocked(
            "peer",
            format!("{remote} can't be reached by this path: {error}"),
            format!("`ip route get {} oif {name}` tells the way", remote.ip()),
        )),
    }
    findings.extend(probe.multipath.as_ref().and_then(|outcome| multipath(remote, outcome, probed)));
    findings.extend(path_mtu(link, probe));
    findings
}

fn multipath(remote: SocketAddr, outcome: &Outcome, probed: &Probed) -> Option<Finding> {
    Some(match outcome {
        Outcome::Multipath => Finding::good("multipath", format!("{remote} answers with Multipath TCP")),
        // A kernel that left the option out says nothing about the path, nor does a peer without it.
        Outcome::Plain if probed.is_given_up || !probed.peer_speaks_multipath() => return None,
        Outcome::Plain => Finding::blocked(
            "multipath",
            format!(
                "something on this path removes the options of Multipath TCP: {remote} answers without them, by another path with them"
            ),
            TUNNEL,
        ),
        Outcome::Silent => Finding::blocked(
            "multipath",
            format!(
                "something on this path drops SYNs with Multipath TCP: {remote} answers plain TCP, and is silent otherwise"
            ),
            TUNNEL,
        ),
        Outcome::Refused => Finding::blocked(
            "multipath",
            format!("{remote} accepts plain TCP, but refuses Multipath TCP"),
            "look for a firewall on the way, or before the peer, that refuses TCP option 30",
        ),
        Outcome::Failed(_) => return None,
    })
}

fn path_mtu(link: &Link, probe: &Probe) -> Option<Finding> {
    let (remote, whole) = (probe.remote.ip(), link.mtu_bytes);
    match probe.path_mtu {
        PathMtu::Unknown => None,
        PathMtu::Whole => {
            Some(Finding::good("path_mtu", format!("packets of {whole} bytes reach {remote} whole")))
        }
        PathMtu::Bytes(bytes) => Some(Finding::limited(
            "path_mtu",
            format!(
                "packets of more than {bytes} bytes do not reach {remote}; the interface sends up to {whole}"
            ),
            format!("`ip link set {} mtu {bytes}` saves the detection", link.name),
        )),
    }
}

/// What all probes together say of the peer.
pub(super) fn check(peer: &[SocketAddr], probed: &Probed) -> Vec<Finding> {
    let Some(remote) = probed.all().map(|probe| probe.remote).next().or(peer.first().copied()) else {
        return Vec::new();
    };
    let any = |wanted: &dyn Fn(&Probe) -> bool| probed.all().any(wanted);
    if !any(&|_| true) {
        let text = format!("no path leads to {remote}");
        return vec![Finding::blocked("peer", text, "see above for what each interface lacks")];
    }
    if !any(&|probe| probe.tcp == Outcome::Plain) {
        return vec![if any(&|probe| probe.tcp == Outcome::Refused) {
            Finding::blocked(
                "peer",
                format!("{remote} refuses connections: nothing listens at port {}", remote.port()),
                "start the server, or name a port where one listens: --peer HOST:PORT; one with --engine udp takes no TCP connections, and can't be tried this way",
            )
        } else {
            Finding::blocked(
                "peer",
                format!("{remote} does not answer by any path"),
                "check the address, whether the peer is up, and its firewall",
            )
        }];
    }
    if probed.peer_speaks_multipath() {
        return vec![Finding::good("multipath", "the peer speaks Multipath TCP")];
    }
    if probed.is_given_up {
        return vec![Finding::limited(
            "multipath",
            "this kernel leaves Multipath TCP out for a while, since SYNs with it were lost before",
            "`sysctl -w net.mptcp.blackhole_timeout=0`, and look again",
        )];
    }
    let answers = any(&|probe| probe.multipath == Some(Outcome::Plain));
    if !answers {
        return Vec::new();
    }
    vec![Finding::blocked(
        "multipath",
        "the peer answers without Multipath TCP by every path: it does not speak it, or something on the way removes it",
        "on Linux, start its server with `mptcpize run SERVER`, or use `polypath serve` there; behind a load balancer, that has to speak it; where something removes it, `--engine udp` at both ends",
    )]
}
