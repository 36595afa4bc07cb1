//! TCP Fast Open (RFC 7413): whether it is possible, here and in this system.

use std::fs;

use polypath_stack::Engine;

use super::super::Failure;
use super::entrances::Protocol;
use super::file::Plan;

/// `net.ipv4.tcp_fastopen`: a bit for each side.
const SWITCH: &str = "/proc/sys/net/ipv4/tcp_fastopen";
const CONNECTING: u32 = 1;
const LISTENING: u32 = 2;

/// Who speaks Convert here: others' first packets have no data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    /// A converter is on the way.
    asks: bool,
    /// A converter is here.
    converts: bool,
}

impl Sides {
    pub(super) fn of(plan: &Plan) -> Self {
        let asks = plan.via.as_ref().is_some_and(|via| via.is_converter());
        let converts = plan.entrances.iter().any(|entrance| entrance.protocol == Protocol::Convert);
        Self { asks, converts }
    }

    /// Whether connections are such that it helps.
    pub(super) fn check(self, engine: &Engine, accepting: &Engine) -> Result<(), Failure> {
        let expected = if !self.asks && !self.converts {
            "--via convert://HOST:PORT or an entrance for convert with it"
        } else if self.asks && !is_of_tcp(engine) {
            "--engine tcp with it, as connections of Multipath TCP have no data in their first packets"
        } else if self.converts && !is_of_tcp(accepting) {
            "--accept tcp with it, as Multipath TCP of Linux does not answer before the end of the handshake"
        } else {
            return Ok(());
        };
        Err(Failure::Input(format!("--fast-open: expected {expected}")))
    }

    /// What is to be said if the system has switched off what is wanted.
    pub(super) fn warning(self) -> Option<String> {
        let is = fs::read_to_string(SWITCH).ok()?.trim().parse().ok()?;
        self.warning_where(is)
    }

    fn warning_where(self, is: u32) -> Option<String> {
        let asking = if self.asks { CONNECTING } else { 0 };
        let wanted = asking | if self.converts { LISTENING } else { 0 };
        (is & wanted != wanted).then(|| {
            format!(
                "--fast-open: net.ipv4.tcp_fastopen is {is}, and first packets have no data: expected `sysctl -w net.ipv4.tcp_fastopen={}`",
                is | wanted
            )
        })
    }
}

fn is_of_tcp(engine: &Engine) -> bool {
    matches!(engine, Engine::Kernel(engine) if engine.is_plain_tcp())
}

/// Listeners of it take data with first packets.
pub(super) fn take_first_packets(accepting: Engine) -> Engine {
    match accepting {
        Engine::Kernel(accepting) => accepting.with_fast_open_listeners().into(),
        accepting => accepting,
    }
}

#[cfg(test)]
mod tests {
    use polypath_stack::engine::KernelEngine;

    use super::*;

    #[test]
    fn each_side_has_a_switch() {
        for (is, asks, converts, expected) in [
            (0, true, false, Some("=1`")),
            (1, true, false, None),
            (1, true, true, Some("=3`")),
            (2, false, true, None),
            (0x402, true, true, Some("=1027`")),
            (3, true, true, None),
        ] {
            let said = Sides { asks, converts }.warning_where(is);
            match expected {
                Some(expected) => assert!(said.is_some_and(|said| said.ends_with(expected)), "{is}"),
                None => assert_eq!(said, None, "{is}"),
            }
        }
    }

    #[test]
    fn it_is_of_tcp_between_who_asks_and_who_converts() {
        let [tcp, multipath] = [KernelEngine::plain_tcp(), KernelEngine::new()].map(Engine::from);
        let check = |asks, converts, engine, accepting| {
            Sides { asks, converts }.check(engine, accepting).map_err(|failure| failure.message())
        };
        assert_eq!(check(true, false, &tcp, &multipath), Ok(()));
        assert_eq!(check(false, true, &multipath, &tcp), Ok(()));
        for (said, expected) in [
            (check(false, false, &tcp, &tcp), "expected --via"),
            (check(true, false, &multipath, &tcp), "expected --engine tcp"),
            (check(true, true, &tcp, &multipath), "expected --accept tcp"),
        ] {
            assert!(said.is_err_and(|said| said.contains(expected)), "{expected}");
        }
    }
}
