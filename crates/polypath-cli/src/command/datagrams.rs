//! A program whose published port is one of UDP: nobody reaches it from outside, which it could not know.

use std::time::Duration;

use polypath_sandbox::Publish;
use tokio::task::JoinHandle;

use super::complain;

/// When it is looked: most servers listen soon. What two looks in a row find is no matter of which socket was opened first.
const LOOKS: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(2)];

/// The state of a TCP socket that listens, as `/proc/net/tcp` has it.
const LISTENING: &str = "0A";

/// Looks for such a program, a few times. It ends with this.
#[derive(Debug)]
pub(super) struct DatagramLook(JoinHandle<()>);

impl Drop for DatagramLook {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl DatagramLook {
    /// In the network of the process of this number.
    pub(super) fn start(pid: Option<u32>, published: &[Publish]) -> Self {
        let mut ports: Vec<Port> =
            published.iter().map(|publish| Port { number: publish.inside, was_udp: false }).collect();
        Self(tokio::spawn(async move {
            let Some(pid) = pid else { return };
            for pause in LOOKS {
                tokio::time::sleep(pause).await;
                let sockets = |names: [&str; 2]| -> String {
                    let read = |name| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok();
                    names.into_iter().filter_map(read).collect()
                };
                let (datagrams, streams) = (sockets(["udp", "udp6"]), sockets(["tcp", "tcp6"]));
                for port in take_due(&mut ports, &datagrams, &streams) {
                    complain(&format!(
                        "port {port} of the program is one of UDP, which is not published: -p is for TCP, and nobody \
                         reaches it from outside"
                    ));
                }
            }
        }))
    }
}

/// A published port that nothing was said of.
#[derive(Clone, Copy, Debug)]
struct Port {
    number: u16,
    /// At the look before it had a socket of UDP, and none of TCP that listens.
    was_udp: bool,
}

/// The ports that are to be told of after a look: they were of UDP alone at the look before, too. Each is told of once.
fn take_due(ports: &mut Vec<Port>, datagrams: &str, streams: &str) -> Vec<u16> {
    let mut due = Vec::new();
    ports.retain_mut(|port| {
        let is_udp = has(datagrams, port.number, None) && !has(streams, port.number, Some(LISTENING));
        let is_due = is_udp && port.was_udp;
        port.was_udp = is_udp;
        if is_due {
            due.push(port.number);
        }
        !is_due
    });
    due
}

/// Whether a list of sockets has one at a port, in some state.
fn has(sockets: &str, port: u16, state: Option<&str>) -> bool {
    sockets.lines().any(|line| {
        let mut words = line.split_whitespace();
        let local = words.nth(1).and_then(|local| local.rsplit_once(':'));
        let is_there = local.is_some_and(|(_, number)| u16::from_str_radix(number, 16) == Ok(port));
        is_there && state.is_none_or(|state| words.nth(1) == Some(state))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_known_by_their_port_and_state() {
        let streams = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
                       0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n   \
                       1: 0100007F:0050 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0\n";
        for (port, state, expected) in [
            (8080, None, true),
            (8080, Some(LISTENING), true),
            (80, None, true),
            (80, Some(LISTENING), false),
            (8081, None, false),
        ] {
            assert_eq!(has(streams, port, state), expected, "{port} {state:?}");
        }
        assert!(!has("", 80, None));
    }

    #[test]
    fn a_port_is_told_of_once_two_looks_agree() {
        let of = |state| {
            format!(
                "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                 0: 00000000:01BB 00000000:0000 {state} 00000000:00000000\n"
            )
        };
        let (datagrams, listener, connection) = (of("07"), of(LISTENING), of("01"));
        let quic = || vec![Port { number: 443, was_udp: false }, Port { number: 80, was_udp: false }];
        let mut alone = quic();
        assert!(take_due(&mut alone, &datagrams, &connection).is_empty(), "TCP may follow");
        assert_eq!(take_due(&mut alone, &datagrams, &connection), [443]);
        assert!(take_due(&mut alone, &datagrams, "").is_empty(), "it was told");
        let mut beside = quic();
        for (datagrams, streams) in [
            (&*datagrams, ""),
            (&*datagrams, &*listener),
            (&*datagrams, ""),
            ("", ""),
            (&*datagrams, ""),
            (&*datagrams, &*listener),
        ] {
            assert!(take_due(&mut beside, datagrams, streams).is_empty(), "{datagrams} {streams}");
        }
    }
}
