//! What the system has to let happen for TCP Fast Open (RFC 7413).

use std::fs;

/// `net.ipv4.tcp_fastopen`: a bit for each side.
const SWITCH: &str = "/proc/sys/net/ipv4/tcp_fastopen";
const CONNECTING: u32 = 1;
const LISTENING: u32 = 2;

/// What is to be said if the system has switched off what is wanted.
pub(super) fn warning(connects: bool, listens: bool) -> Option<String> {
    let is = fs::read_to_string(SWITCH).ok()?.trim().parse().ok()?;
    warning_of(is, connects, listens)
}

fn warning_of(is: u32, connects: bool, listens: bool) -> Option<String> {
    let wanted = if connects { CONNECTING } else { 0 } | if listens { LISTENING } else { 0 };
    (is & wanted != wanted).then(|| {
        format!(
            "--fast-open: net.ipv4.tcp_fastopen is {is}, and the first packets have no data: expected `sysctl -w net.ipv4.tcp_fastopen={}`",
            is | wanted
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_a_switch() {
        for (is, connects, listens, expected) in [
            (0, true, false, Some("=1`")),
            (1, true, false, None),
            (1, true, true, Some("=3`")),
            (2, false, true, None),
            (0x402, true, true, Some("=1027`")),
            (3, true, true, None),
        ] {
            let said = warning_of(is, connects, listens);
            match expected {
                Some(expected) => assert!(said.is_some_and(|said| said.ends_with(expected)), "{is}"),
                None => assert_eq!(said, None, "{is}"),
            }
        }
    }
}
