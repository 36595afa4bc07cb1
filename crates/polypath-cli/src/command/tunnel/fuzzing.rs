//! What the fuzz target of a tunnel's file does, shared with the seeded run in the tests: no text breaks the reader, and what is wrong is
//! said in one line, with its place.

use std::path::Path;

use super::super::Failure;
use super::file::{File, Plan};

/// Any bytes as a tunnel's file.
#[cfg_attr(
    not(feature = "fuzzing"),
    expect(unreachable_pub, reason = "fuzz targets, which reach it, have the feature")
)]
pub fn file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = Path::new("t.toml");
    match File::parse(text, path) {
        Err(failure) => {
            let rest = mistake(failure);
            let line = rest.strip_prefix("line ").and_then(|rest| rest.split_once(": ")?.0.parse().ok());
            let last = text.matches('\n').count() + 1;
            assert!(line.is_some_and(|line| (1..=last).contains(&line)), "{text:?}: {rest}");
        }
        Ok(file) => match file.plan(path) {
            Err(failure) => {
                let rest = mistake(failure);
                let place = rest.split(['.', ':', '[']).next();
                let places = ["interface", "uplinks", "peers", "rules"];
                assert!(place.is_some_and(|place| places.contains(&place)), "{text:?}: {rest}");
            }
            Ok(plan) => look(&plan, text),
        },
    }
}

/// What is said behind the file's name.
fn mistake(failure: Failure) -> String {
    let message = failure.message();
    assert!(!message.contains(char::is_control), "{message:?} is more than a line");
    message.strip_prefix("t.toml, ").unwrap_or_else(|| panic!("{message:?} has no place")).to_owned()
}

/// What was understood can be.
fn look(plan: &Plan, text: &str) {
    assert!((1280..=9000).contains(&plan.mtu_bytes) && (1..16).contains(&plan.name.len()), "{text:?}");
    assert!(!plan.name.contains('/'), "{text:?}");
    assert!(plan.fixed_differences(plan).is_empty(), "{text:?}");
    let known: Vec<_> = plan.peers.iter().flat_map(|peer| &peer.allowed_ips).copied().collect();
    assert!(plan.networks().iter().all(|network| known.contains(network)), "{text:?}");
    assert!(plan.uplinks.budgets().all(|budget| budget.bytes > 0), "{text:?}");
    let _ = plan.leaves_out_v6();
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    const WHOLE: &str = "[interface]\nprivate-key = \"dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\"\n\
        addresses = [\"10.99.0.2/24\", \"fd77::2/64\"]\nname = \"polypath-é\"\nmtu = 1400\nlisten-port = 1\n\
        [uplinks]\ninterfaces = [\"wlan0\", \"wwan0,backup,priority=1,budget=5MB/day,hard\", {name = \"eth0\", backup = true}]\n\
        [forward]\nlan = [\"eth1\"]\ninternet = true\n\
        [[peers]]\nname = '''a\nb'''\npublic-key = \"dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\"\n\
        endpoints = [\"vpn.example.org\", \"[2001:db8::1]:9\"]\nallowed-ips = [\"0.0.0.0/0\", \"::/0\"]\n\
        [[rules]]\nports = \"5000-5100\"\nprotocol = \"udp\"\nnetwork = \"10.0.0.0/8\"\ndscp = 46\npolicy = \"pinned:3\"\n";

    /// What a mutation puts in: what TOML treats as special, and what ends a line or is none of it.
    const PIECES: [&str; 16] =
        ["\n", "\"", "'", "[", "]", "=", ",", ".", "\\", "\\n", "é", "\u{2028}", "\r", "0", "/", "\"\"\""];

    #[test]
    fn no_text_breaks_the_reader() {
        file(WHOLE.replace("polypath-é", "polypath-a").as_bytes());
        for seed in 0..20_000 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut bytes = WHOLE.as_bytes().to_vec();
            for _ in 0..1 + random.next_u32() % 8 {
                let at = random.next_u32() as usize % bytes.len();
                let end = (at + random.next_u32() as usize % 40).min(bytes.len());
                match random.next_u32() % 4 {
                    0 => bytes[at] = (random.next_u32() % 128) as u8,
                    1 => {
                        let piece = PIECES[random.next_u32() as usize % PIECES.len()];
                        drop(bytes.splice(at..at, piece.bytes()));
                    }
                    2 => drop(bytes.drain(at..end)),
                    _ => {
                        let copied = bytes[at..end].to_vec();
                        bytes.extend(copied);
                    }
                }
                if bytes.is_empty() {
                    bytes.push(b'\n');
                }
            }
            file(&bytes);
        }
    }

    #[test]
    fn names_that_are_lines_are_told_in_one() {
        file(b"[interface]\n\"a\\nb\" = 1\n");
        file(b"[interface]\nprivate-key = \"\xc3\xa9\n");
        file("é\n = \u{2028}".as_bytes());
    }
}
