use super::*;
use crate::testing::{Connection, assert_close};

fn connection(packets: f64) -> Connection {
    let mut connection = Connection::new(crate::Policy::by_name("bic").expect("in the table"), &[50]);
    connection.avoid_congestion_from(0, packets);
    connection
}

/// What a round adds at this window, with this maximum; one by hand, and one from the controller.
#[test]
fn growth_is_a_search_below_the_maximum_and_a_probe_above_it() {
    for (window, last_max, growth) in [
        // Up to low_window Reno, whatever the maximum.
        (14.0, 1000.0, 1.0),
        // A quarter of the way is beyond Smax: additive.
        (500.0, 1000.0, 16.0),
        (936.0, 1000.0, 16.0),
        // A quarter of the way.
        (940.0, 1000.0, 15.0),
        (980.0, 1000.0, 5.0),
        (992.0, 1000.0, 2.0),
        // Near the maximum and just above it, 4/20.
        (993.0, 1000.0, 0.2),
        (999.0, 1000.0, 0.2),
        (1000.0, 1000.0, 0.2),
        (1003.0, 1000.0, 0.2),
        // Beyond it a third of the way come, up to Smax.
        (1006.0, 1000.0, 2.0),
        (1030.0, 1000.0, 10.0),
        (1048.0, 1000.0, 16.0),
        (2000.0, 1000.0, 16.0),
        // No maximum is known: a twentieth, if that is more than the probe.
        (30.0, 0.0, 10.0),
        (100.0, 0.0, 16.0),
        (400.0, 0.0, 20.0),
    ] {
        assert_close(growth_packets(window, last_max), growth, 1e-9, "growth");
    }
}

#[test]
fn a_loss_takes_a_fifth_and_is_searched_for_again() {
    let mut connection = connection(1000.0);
    connection.lose(0);
    assert_close(connection.packets(0), 1000.0 * 819.0 / 1024.0, 0.001, "β");
    let mut windows = alloc::vec::Vec::new();
    for _ in 0..15 {
        connection.round(0);
        windows.push(connection.packets(0));
    }
    // Nine rounds of 16, then by quarters of what is left, which falls during the round.
    assert_close(windows[7], 799.8 + 8.0 * 16.0, 1.5, "additive");
    let quarter = 1.0 - libm::exp(-0.25);
    assert_close(windows[9] - windows[8], (1000.0 - windows[8]) * quarter, 0.3, "a quarter, in steps");
    assert!(windows.windows(2).all(|pair| pair[1] - pair[0] <= 16.1), "{windows:?}");
    assert!(windows[14] < 1000.0, "{windows:?}");
}

#[test]
fn small_windows_are_halved() {
    for (window, left) in [(14.0, 7.0), (16.0, 16.0 * 819.0 / 1024.0)] {
        let mut connection = connection(window);
        connection.lose(0);
        assert_close(connection.packets(0), left, 0.001, "left");
    }
}

fn last_max_packets(connection: &Connection) -> f64 {
    let controller = &*connection.controllers[0] as &dyn core::any::Any;
    controller.downcast_ref::<Bic>().expect("is BIC").last_max_bytes / 1460.0
}

#[test]
fn a_second_loss_below_the_maximum_lowers_it() {
    let mut connection = connection(1000.0);
    connection.lose(0);
    assert_close(last_max_packets(&connection), 1000.0, 0.001, "the window at the loss");
    connection.lose(0);
    // 799.8 · (1024 + 819)/2048.
    assert_close(last_max_packets(&connection), 799.8047 * 1843.0 / 2048.0, 0.01, "fast convergence");
    connection.controllers[0].set_window(2000 * 1460, None);
    connection.lose(0);
    assert_close(last_max_packets(&connection), 2000.0, 0.001, "above it, it is the window");
}

#[test]
fn a_timeout_forgets_the_maximum_and_a_spurious_one_does_not() {
    let mut connection = connection(1000.0);
    connection.lose(0);
    connection.ack(0, 1);
    for spurious in [true, false] {
        connection.time_out(0);
        connection.time_out(0);
        assert_eq!((connection.packets(0), last_max_packets(&connection)), (1.0, 0.0));
        if spurious {
            connection.controllers[0].on_spurious(Instant::ZERO);
            assert_close(last_max_packets(&connection), 1000.0, 0.001, "as before");
            assert_close(connection.packets(0), 799.8, 0.1, "as before");
        }
    }
    assert_close(
        connection.controllers[0].ssthresh_bytes() as f64 / 1460.0,
        799.8 * 0.7998,
        0.1,
        "threshold",
    );
}
