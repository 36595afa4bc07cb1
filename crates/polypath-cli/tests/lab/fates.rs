//! Programs over two paths, each of which may be lost while they run.

use std::process::Output;

use super::{Lab, Running, finish, has_or_skip};

/// Each path's rate, and what is transferred: long enough to be cut in the middle.
const RATE: &str = "100mbit";
pub(crate) const FILE_BYTES: usize = 16 << 20;

/// What happens to the paths while a program runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    BothWork,
    Loses(u8),
}

/// Runs a program with both paths, and once more for each path that is lost midway. `set_up` starts the server and says what to run, `start` runs it,
/// beside what it needs; `check` looks at the result.
pub(crate) fn survives(
    what: &str,
    programs: &[&str],
    start: impl Fn(&Lab, &[String]) -> (Option<Running>, Running),
    set_up: impl Fn(&Lab) -> (Running, Vec<String>),
    check: impl Fn(&Lab, &Output),
) {
    if !programs.iter().chain(&["mptcpize"]).all(|program| has_or_skip(program, what)) {
        return;
    }
    for fate in [Fate::BothWork, Fate::Loses(0), Fate::Loses(1)] {
        let Some(lab) = Lab::with_rate_or_skip(what, RATE) else { return };
        lab.add_default_routes();
        let (_server, command) = set_up(&lab);
        let (_beside, running) = start(&lab, &command);
        if let Fate::Loses(path) = fate {
            lab.wait_until_carried(FILE_BYTES as u64 / 3);
            lab.cut(path);
        }
        let output = finish(running);
        assert!(output.status.success(), "{what}, {fate:?}: {output:?}");
        check(&lab, &output);
        let carried = lab.carried();
        eprintln!("{what}, {fate:?}: {carried:?} bytes on the paths");
        // A third each would be a tie with three; a fifth shows that both were used for data.
        if fate == Fate::BothWork {
            assert!(carried.iter().all(|&bytes| bytes > FILE_BYTES as u64 / 5), "{what}: {carried:?}");
        }
    }
}
