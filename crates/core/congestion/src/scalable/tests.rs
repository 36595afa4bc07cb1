use super::*;
use crate::testing::{Connection, assert_close};

fn connection(packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("scalable").expect("in the table"), &[50]);
    connection.avoid_congestion_from(0, packets);
    connection
}

#[test]
fn each_acknowledged_segment_adds_a_hundredth() {
    let mut connection = connection(1000.0);
    connection.ack(0, 1);
    assert_close(connection.packets(0), 1000.01, 0.001, "a of Kelly's section 2");
    connection.ack(0, 49);
    connection.ack(0, 50);
    assert_close(connection.packets(0), 1001.0, 0.001, "a hundred segments");
}

#[test]
fn small_windows_grow_as_renos() {
    for packets in [10.0, 50.0, 100.0] {
        let mut connection = connection(packets);
        connection.ack(0, packets as u64);
        assert_close(connection.packets(0), packets + 1.0, 0.001, "one a round");
    }
}

#[test]
fn congestion_and_timeouts_take_an_eighth() {
    let mut lossy = connection(800.0);
    lossy.lose(0);
    assert_eq!(lossy.packets(0), 700.0);
    let mut silent = connection(800.0);
    silent.time_out(0);
    assert_eq!(silent.packets(0), 1.0);
    assert_eq!(silent.controllers[0].ssthresh_bytes(), 700 * 1460);
}

/// Kelly's recovery time: `ln(1-b)/ln(1+a)` round trips, whatever the window.
#[test]
fn a_loss_is_made_up_for_in_as_many_rounds_at_any_window() {
    for packets in [400.0, 4000.0, 40_000.0] {
        let mut connection = connection(packets);
        connection.lose(0);
        let mut rounds = 0;
        while connection.packets(0) < packets {
            connection.round(0);
            rounds += 1;
        }
        assert_eq!(rounds, 14, "from {packets}: ln(8/7)/ln(1.01) = 13.4");
    }
}

/// Where growth and loss balance, `a · w = p · b · w²`: the window is `a/b` over the probability of loss.
#[test]
fn the_window_is_as_one_over_the_loss() {
    for loss in [0.0004_f64, 0.0001] {
        let rest = A_PACKETS.recip() / B / loss;
        let mut grown = connection(rest);
        grown.ack(0, 1);
        let growth = grown.packets(0) - rest;
        let mut lost = connection(rest);
        lost.lose(0);
        let fall = rest - lost.packets(0);
        assert_close(growth / (loss * fall), 1.0, 0.1, "balance, to whole bytes");
    }
}
