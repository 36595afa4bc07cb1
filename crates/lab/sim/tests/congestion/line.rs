//! One flow alone.

use polypath_link::{LinkConfig, Loss, QueueLimit};
use polypath_sim::network::{LinkSpec, NetworkBuilder};
use polypath_units::{BitRate, Duration, Instant};

use crate::network::{add_pair, goodput, settings, wire};

/// One plain TCP alone on a line: goodput as a share of the rate, IP and TCP headers left out, from 5 to 40 s, and its
/// smoothed round-trip time at the end.
fn alone_on_a_line(congestion: &str, mbps: u64, queue_ms: u64, loss: f64) -> (f64, Duration) {
    alone_on_a_line_of(15, congestion, mbps, queue_ms, loss)
}

/// The same where the line is `delay_ms` long, and the path 5 ms longer.
fn alone_on_a_line_of(
    delay_ms: u64,
    congestion: &str,
    mbps: u64,
    queue_ms: u64,
    loss: f64,
) -> (f64, Duration) {
    let mut builder = NetworkBuilder::new(7);
    let routers = [builder.router("left"), builder.router("right")];
    let queue = QueueLimit::Delay(Duration::from_millis(queue_ms));
    let mut line = LinkConfig::new(BitRate::from_mbps(mbps), Duration::from_millis(delay_ms), queue);
    line.loss = Loss::Random(loss);
    let back = LinkConfig { loss: Loss::None, ..line.clone() };
    builder.link(LinkSpec::new("line", routers, [None, None]).with(line, back));
    let ways = [(routers[0], wire(Duration::from_millis(4)))];
    let pair = add_pair(&mut builder, 1, settings(congestion, false), &ways, &routers[1..]);
    let mut network = builder.build();
    let ends = [pair.start(&mut network, 0, Instant::ZERO)];
    let bytes = goodput(&mut network, &ends, 5, 40)[0];
    let possible = BitRate::from_mbps(mbps).bytes_in(Duration::from_secs(35)) as f64 * 1448.0 / 1500.0;
    let info = network.connection_info(ends[0].opener).expect("it is open");
    (bytes / possible, info.subflows[0].tcp.srtt)
}

#[test]
fn bbr_fills_a_line_without_filling_its_queue() {
    for (mbps, queue_ms, most_ms) in [(50, 200, 65), (50, 40, 60), (2, 100, 95)] {
        let (share, srtt) = alone_on_a_line("bbr", mbps, queue_ms, 0.0);
        println!("bbr, {mbps} Mbit/s, queue of {queue_ms} ms: {share:.3} of the rate, {srtt}");
        assert!(share > 0.93 && srtt < Duration::from_millis(most_ms), "{mbps} {queue_ms}: {share} {srtt}");
    }
    // A queue of an eighth of the bandwidth-delay product.
    let (share, _) = alone_on_a_line("bbr", 50, 5, 0.0);
    assert!(share > 0.85, "{share}");
}

#[test]
fn bbr_takes_loss_below_two_percent_for_noise() {
    for (loss, least) in [(0.001, 0.85), (0.01, 0.7)] {
        let (bbr, _) = alone_on_a_line("bbr", 50, 40, loss);
        let (cubic, _) = alone_on_a_line("cubic", 50, 40, loss);
        println!("loss {loss}: bbr {bbr:.3}, cubic {cubic:.3} of the rate");
        assert!(bbr > least && bbr > 3.0 * cubic, "{bbr} {cubic}");
    }
    // Beyond, it yields.
    let (share, _) = alone_on_a_line("bbr", 50, 40, 0.05);
    assert!(share < 0.4, "{share}");
}

#[test]
fn wvegas_keeps_its_ten_segments_in_the_queue() {
    for mbps in [5, 20] {
        let (share, srtt) = alone_on_a_line("wvegas", mbps, 200, 0.0);
        let queued_packets =
            BitRate::from_mbps(mbps).bytes_in(srtt - Duration::from_millis(40)) as f64 / 1500.0;
        println!("wvegas, {mbps} Mbit/s: {share:.3} of the rate, {queued_packets:.1} segments queued");
        assert!(share > 0.95 && (6.0..12.0).contains(&queued_packets), "{share} {queued_packets}");
    }
}

#[test]
fn those_of_linux_fill_a_line() {
    for congestion in
        ["bic", "htcp", "hybla", "illinois", "lp", "scalable", "vegas", "veno", "westwood", "yeah"]
    {
        let (share, srtt) = alone_on_a_line(congestion, 20, 40, 0.0);
        println!("{congestion}: {share:.3} of the rate, {srtt}");
        // One that yields to a short queue is at times without any.
        let least = if congestion == "lp" { 0.8 } else { 0.9 };
        assert!(share > least, "{congestion}: {share}");
    }
}

#[test]
fn vegas_keeps_two_to_four_segments_in_the_queue() {
    for mbps in [5, 20] {
        let (share, srtt) = alone_on_a_line("vegas", mbps, 200, 0.0);
        let queued_packets =
            BitRate::from_mbps(mbps).bytes_in(srtt - Duration::from_millis(40)) as f64 / 1500.0;
        println!("vegas, {mbps} Mbit/s: {share:.3} of the rate, {queued_packets:.1} segments queued");
        assert!(share > 0.95 && (1.0..6.0).contains(&queued_packets), "{share} {queued_packets}");
    }
}

#[test]
fn those_for_lossy_paths_get_more_of_one_than_reno() {
    let (reno, _) = alone_on_a_line("reno", 20, 40, 0.005);
    for congestion in ["veno", "westwood"] {
        let (share, _) = alone_on_a_line(congestion, 20, 40, 0.005);
        println!("{congestion}: {share:.3} of the rate, reno {reno:.3}");
        assert!(share > 1.3 * reno, "{congestion}: {share} {reno}");
    }
}

#[test]
fn those_for_long_paths_get_more_of_one_than_reno() {
    let (reno, _) = alone_on_a_line_of(245, "reno", 20, 40, 0.0002);
    for congestion in ["bic", "htcp", "hybla", "illinois", "scalable", "yeah"] {
        let (share, _) = alone_on_a_line_of(245, congestion, 20, 40, 0.0002);
        println!("{congestion}: {share:.3} of the rate, reno {reno:.3}");
        assert!(share > 1.3 * reno, "{congestion}: {share} {reno}");
    }
}

#[test]
fn plain_tcp_sends_whole_segments_however_its_window_grows() {
    let mut builder = NetworkBuilder::new(3);
    let router = builder.router("middle");
    let access = LinkConfig { loss: Loss::Random(0.001), ..wire(Duration::from_millis(19)) };
    let pair = add_pair(&mut builder, 1, settings("reno", false), &[(router, access)], &[router]);
    let mut network = builder.build();
    let ends = pair.start(&mut network, 0, Instant::ZERO);
    network.run_until(Instant::from_secs(30));
    let info = network.connection_info(ends.opener).expect("it is open");
    let sent = &info.subflows[0].tcp;
    let mean_bytes = sent.bytes_sent as f64 / sent.data_segs_out as f64;
    assert!(mean_bytes > 1440.0, "{mean_bytes} bytes of 1448 in the mean");
}
