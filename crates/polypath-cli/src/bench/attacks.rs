//! Attacks on everything: those on hosts in virtual time, those on the UDP engine, and those on a file server.

use polypath_sim::attack::{self, Attack, Group};
use polypath_stack::udp::attacks as udp;

use crate::web::attacks as web;

/// What a payload may hold, for one byte of it.
const MOST_HELD: f64 = 8.0;

const MEBIBYTE: f64 = 1_048_576.0;
/// Of files for whose digests nobody waits: what each of two workers has begun.
const MOST_IN_VAIN_MIB: f64 = 16.0;

const OWN: [Group; 2] = [("the UDP engine", engine), ("a file server", server)];

/// All groups of attacks.
#[must_use]
pub(crate) fn groups() -> Vec<Group> {
    attack::GROUPS.into_iter().chain(OWN).collect()
}

fn engine() -> Vec<Attack> {
    let (evicted, locked_out) = udp::paths_lost_in_a_flood();
    let stolen = udp::datagrams_to_a_thief().map_or(f64::INFINITY, |stolen| stolen as f64);
    let (of_one, made_up) = (udp::strange_syns(false), udp::strange_syns(true));
    vec![
        Attack::at_most("a path's identifier from elsewhere: datagrams stolen", "of 2000", stolen, 0.0),
        Attack::at_most(
            "5000 SYNs a second from one network: seen by the stack",
            "of 5000",
            of_one.reached_stack as f64,
            300.0,
        ),
        Attack::at_most(
            "the same from made-up addresses: seen by the stack",
            "of 5000",
            made_up.reached_stack as f64,
            2000.0,
        ),
        Attack::at_most(
            "the same: bytes sent to them",
            "for one of theirs",
            of_one.bytes_for_one.max(made_up.bytes_for_one),
            1.0,
        ),
        Attack::at_most(
            "the same: the slowest of 100 honest connects",
            "round trips",
            of_one.most_round_trips.max(made_up.most_round_trips),
            2.0,
        ),
        Attack::at_most("70 000 SYNs a second over UDP: paths lost", "of 100", evicted as f64, 0.0),
        Attack::at_most("70 000 SYNs a second over UDP: owners locked out", "of 100", locked_out as f64, 0.0),
        Attack::at_most(
            "33 330 datagrams of ten bytes: memory held",
            "bytes for one of payload",
            udp::memory_of_small_datagrams(),
            MOST_HELD,
        ),
    ]
}

fn server() -> Vec<Attack> {
    let starved = web::starved_by_slow_clients().map_or(f64::INFINITY, |starved| starved as f64);
    // If nobody can store anything, that says nothing of tokens.
    let stored = match web::stored_without_the_token() {
        Ok((stored, true)) => stored as f64,
        _ => f64::INFINITY,
    };
    let beside = web::beside_digests();
    let unserved = beside.as_ref().map_or(f64::INFINITY, |beside| beside.starved as f64);
    let read = beside.map_or(f64::INFINITY, |beside| beside.read_for_nobody as f64 / MEBIBYTE);
    let (held, bound) = web::held_for_those_who_do_not_read().unwrap_or((f64::INFINITY, 0.0));
    vec![
        Attack::at_most("8 digests of 50 GiB: others not served with theirs", "of 32", unserved, 0.0),
        Attack::at_most(
            "8 digests of 50 GiB: read when nobody waits any more",
            "MiB",
            read,
            MOST_IN_VAIN_MIB,
        ),
        Attack::at_most("200 downloads that nobody reads: held for each", "bytes", held, bound),
        Attack::at_most("200 clients that stop in a request: others not served", "of 32", starved, 0.0),
        Attack::at_most("storing files without the token: attempts that did", "of 5", stored, 0.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_on_engine_and_server_is_held() {
        let attacks = attack::run(&OWN, |_| {});
        let open: Vec<_> = attacks.iter().filter(|attack| !attack.held).collect();
        assert!(open.is_empty(), "{open:#?}");
        assert_eq!(attacks.len(), 13);
    }
}
