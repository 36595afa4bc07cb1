//! The tables of `docs/states.md`: each cell is what a real transition did. `POLYPATH_BLESS=1 cargo test -p polypath-mptcp states`
//! writes them anew.

// The one file of both crates.
#[path = "../../../tcp/src/connection/tests/states_page.rs"]
mod states_page;

use std::borrow::ToOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::String;
use std::vec::Vec;

use super::lifecycle::{Lifecycle, Mode, Streams};
use crate::misbehaviour::Misbehaviour;
use crate::subflow::Stage;
use states_page::compare;

/// In place of a state where an event can't come.
const CANT_COME: &str = "–";

/// A table of states and events; where an event changes nothing, a dot.
fn render(corner: &str, events: &[&str], cells: &BTreeMap<(usize, String), Vec<BTreeSet<String>>>) -> String {
    let mut out = format!("| {corner} | {} |\n|---|{}\n", events.join(" | "), "---|".repeat(events.len()));
    for ((_, state), row) in cells {
        let cell = |next: &BTreeSet<String>| {
            let next: Vec<&str> = next.iter().map(String::as_str).collect();
            if next == [state] { "·".to_owned() } else { next.join(" or ") }
        };
        out += &format!("| {state} | {} |\n", row.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    out
}

/// The name in the table, and its place. `Opening` and `Closed` are no states of [`Streams`]: whatever these say, the application does not
/// know of the connection yet, or it is over.
fn name_of(lifecycle: &Lifecycle) -> (usize, String) {
    let order = [
        Streams::Established,
        Streams::FinWait1,
        Streams::FinWait2,
        Streams::CloseWait,
        Streams::Closing,
        Streams::LastAck,
        Streams::Finished,
    ];
    if lifecycle.is_closed() {
        return (99, "Closed".to_owned());
    }
    if !lifecycle.is_announced() {
        return (0, "Opening".to_owned());
    }
    let at = order.iter().position(|streams| *streams == lifecycle.streams()).expect("a state");
    let name = format!("{:?}", lifecycle.streams());
    // Elsewhere it changes no state.
    let is_passive =
        lifecycle.is_passive() && matches!(lifecycle.streams(), Streams::Established | Streams::FinWait1);
    if is_passive { (2 * at + 2, name + ", passive") } else { (2 * at + 1, name) }
}

#[test]
fn states_of_the_stream() {
    type Step = fn(&mut Lifecycle);
    let has_sent =
        |lifecycle: &Lifecycle| !matches!(lifecycle.streams(), Streams::Established | Streams::CloseWait);
    // With true, what comes only after the handshake: before, no segment has a DATA_FIN, and neither do we send one.
    let events: [(&str, bool, Step); 6] = [
        ("the handshake is complete", false, |it| {
            it.handle_open();
        }),
        ("DATA_FIN sent", true, Lifecycle::handle_data_fin_sent),
        ("DATA_FIN acknowledged", true, Lifecycle::handle_data_fin_acked),
        ("peer's DATA_FIN, behind a gap", true, |_| {}),
        ("peer's stream complete", true, Lifecycle::handle_peer_finished),
        ("reset, MP_FASTCLOSE, timeout, or subflows gone", false, |it| {
            it.become_closed(true);
        }),
    ];
    let mut cells: BTreeMap<_, Vec<BTreeSet<String>>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut next = Vec::from([Lifecycle::new(Mode::Negotiating)]);
    while let Some(state) = next.pop() {
        if !seen.insert(format!("{state:?}")) {
            continue;
        }
        let row = cells.entry(name_of(&state)).or_insert_with(|| Vec::from([const { BTreeSet::new() }; 6]));
        for (column, (event, needs_handshake, step)) in events.iter().enumerate() {
            if *needs_handshake && !state.is_announced() && !state.is_closed() {
                row[column].insert(CANT_COME.to_owned());
                continue;
            }
            let mut after = state.clone();
            step(&mut after);
            // It says so once.
            if event.ends_with("gap") && !state.is_passive() {
                after.handle_peer_end_known(!has_sent(&state));
            }
            row[column].insert(name_of(&after).1);
            next.push(after);
        }
    }
    compare("stream", &render("state", &events.map(|(event, ..)| event), &cells));
}

#[test]
fn states_of_what_is_spoken() {
    type Step = fn(&mut Lifecycle);
    let events: [(&str, Step); 3] = [
        ("both ends have the keys", Lifecycle::become_mptcp),
        ("fallback", Lifecycle::become_plain),
        ("the server knows of no connection", Lifecycle::become_negotiating),
    ];
    let mut cells = BTreeMap::new();
    for (at, mode) in [Mode::Negotiating, Mode::Mptcp, Mode::Plain].into_iter().enumerate() {
        let after = events.map(|(_, step)| {
            let mut lifecycle = Lifecycle::new(mode);
            step(&mut lifecycle);
            BTreeSet::from([format!("{:?}", lifecycle.mode())])
        });
        cells.insert((at, format!("{mode:?}")), after.to_vec());
    }
    compare("mode", &render("mode", &events.map(|(event, _)| event), &cells));
}

#[test]
fn states_of_a_subflow() {
    type Step = fn(&mut Stage);
    let events: [(&str, Step); 5] = [
        ("MP_CAPABLE with the peer's key", Stage::handle_capable),
        ("first DSS", Stage::handle_confirmation),
        ("SYN/ACK with MP_JOIN", Stage::handle_join_syn_ack),
        ("third or fourth ACK of MP_JOIN", Stage::handle_join_ack),
        ("fallback", Stage::handle_fallback),
    ];
    let mut cells = BTreeMap::new();
    for (at, stage) in Stage::ALL.into_iter().enumerate() {
        let after = events.map(|(_, step)| {
            let mut after = stage;
            step(&mut after);
            BTreeSet::from([format!("{after:?}")])
        });
        cells.insert((at, format!("{stage:?}")), after.to_vec());
    }
    compare("subflow", &render("stage", &events.map(|(event, _)| event), &cells));
}

#[test]
fn states_after_misbehaviour() {
    let mut out = "| what | section | counted as | what follows |\n|---|---|---|---|\n".to_owned();
    for misbehaviour in Misbehaviour::ALL {
        let mut counters = crate::Counters::default();
        misbehaviour.count(&mut counters);
        let counted: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect();
        let (section, consequence) = (misbehaviour.section(), misbehaviour.consequence());
        let counted = counted.join(", ");
        out += &format!("| `{misbehaviour:?}` | {section} | {counted} | `{consequence:?}` |\n");
    }
    compare("misbehaviour", &out);
}
