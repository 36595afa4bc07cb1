//! The table of `docs/states.md`: each cell is what a real transition did. `POLYPATH_BLESS=1 cargo test -p polypath-tcp states` writes
//! it anew.

#[path = "tests/states_page.rs"]
mod states_page;

use std::string::String;

use polypath_units::Instant;

use super::event::CloseReason;
use super::lifecycle::{Lifecycle, State};
use states_page::compare;

const STATES: [State; 10] = [
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
    State::Closed,
];

/// States in which both SYNs have been exchanged, and the end.
const AFTER_SYNS: &[State] = STATES.split_at(2).1;

#[test]
fn states_of_tcp() {
    type Step = fn(&mut Lifecycle);
    // The states in which a segment or the application can bring each about.
    let events: [(&str, &[State], Step); 6] = [
        ("SYN that crosses ours", &[State::SynSent], Lifecycle::become_syn_received),
        (
            "our SYN acknowledged, the peer's there",
            &[State::SynSent, State::SynReceived],
            Lifecycle::become_established,
        ),
        ("FIN sent", &[State::Established, State::CloseWait], Lifecycle::handle_fin_sent),
        ("FIN acknowledged", AFTER_SYNS, |it| {
            it.handle_fin_acked(Instant::ZERO);
        }),
        ("peer's FIN", AFTER_SYNS, |it| {
            it.handle_peer_fin(Instant::ZERO);
        }),
        ("reset, abort, timeout", &STATES, |it| {
            it.become_closed(CloseReason::Aborted);
        }),
    ];
    let names = events.map(|(event, ..)| event).join(" | ");
    let mut table = std::format!("| state | {names} |\n|---|{}\n", "---|".repeat(events.len()));
    for state in STATES {
        let cells = events.map(|(_, from, step)| {
            if !from.contains(&state) {
                return String::from("–");
            }
            let mut lifecycle = Lifecycle::new(state);
            step(&mut lifecycle);
            let after = lifecycle.state();
            if after == state { String::from("·") } else { std::format!("{after:?}") }
        });
        table += &std::format!("| {state:?} | {} |\n", cells.join(" | "));
    }
    compare("tcp", &table);
}
