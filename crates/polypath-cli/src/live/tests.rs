use std::time::Duration;

use polypath_control::{Answer, ConnectionReport, SubflowReport};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::{Surroundings, draw};
use super::history::HISTORY;
use super::plain;
use super::proxies::{Carried, ClientSample, LimitNow, PathKey, PathNow, PathSample, ProxySample, Told};
use super::view::{Key, Sample, View};

fn subflow(id: u8, interface: &str, bytes_received: u64) -> SubflowReport {
    let json = serde_json::json!({
        "id": id, "interface": interface, "state": "established", "local": "192.0.2.1:40000", "remote": "198.51.100.7:443",
        "local_id": id, "remote_id": 0, "is_established": true, "is_backup": false, "congestion": "cubic", "rto_ms": 200.0,
        "rtt_ms": 20.5 * f64::from(id + 1), "rttvar_ms": 1.0, "minrtt_ms": 20.0, "mss_bytes": 1400, "pmtu_bytes": 1500,
        "cwnd_bytes": 14_000, "ssthresh_bytes": null, "in_flight_bytes": 0, "notsent_bytes": 0, "bytes_sent": 2000,
        "bytes_acked": 1000, "bytes_received": bytes_received, "bytes_retrans": 25, "data_segs_out": 2, "retrans": 0,
        "snd_wnd_bytes": 1, "pacing_rate_bps": 0, "delivery_rate_bps": 0,
    });
    serde_json::from_value(json).expect("a subflow")
}

fn connection(token: u32, remote: &str, subflows: Vec<SubflowReport>) -> ConnectionReport {
    let json = serde_json::json!({
        "local": "192.0.2.1:40000", "remote": remote, "is_multipath": true, "version": 1, "csum_enabled": false,
        "scheduler": "default", "token": token, "remote_token": 1, "write_seq": 1, "snd_una": 1, "rcv_nxt": 1, "recv_q_bytes": 0,
        "send_q_bytes": 0, "reassembly_bytes": 0, "subflows": subflows,
    });
    serde_json::from_value(json).expect("a connection")
}

fn sample(connections: Vec<ConnectionReport>) -> Vec<Sample> {
    let answer = Answer { process: "polypath".into(), pid: 123, connections, ..Answer::default() };
    vec![Sample { socket: "123.sock".into(), answer }]
}

/// Ten seconds of a download over WiFi and LTE, in which WiFi brings as much more in each second.
fn download() -> View {
    let mut view = View::default();
    for second in 0..10_u64 {
        let wifi = subflow(0, "wifi", 125_000 * second * second);
        let lte = subflow(1, "lte", 250_000 * second);
        let at = Duration::from_secs(second);
        view.handle_samples(at, &sample(vec![connection(7, "198.51.100.7:443", vec![wifi, lte])]));
    }
    view
}

fn frame(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let around = Surroundings { title: "polypath top".into(), is_coloured: false, message: None };
    terminal.draw(|frame| draw(frame, view, &around)).expect("a frame");
    let buffer = terminal.backend().buffer();
    let rows = (0..height).map(|row| {
        let cells = (0..width).map(|column| buffer[(column, row)].symbol());
        cells.collect::<String>().trim_end().to_string()
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_round_trip_is_what_was_measured_last() {
    let mut wifi = subflow(0, "wifi", 0);
    (wifi.rcv_rtt_ms, wifi.is_rcv_rtt_newer) = (180.0, true);
    let mut lte = subflow(1, "lte", 0);
    lte.rcv_rtt_ms = 90.0;
    let mut view = View::default();
    view.handle_samples(Duration::ZERO, &sample(vec![connection(7, "198.51.100.7:443", vec![wifi, lte])]));
    let listed = view.report().connections.remove(0).listed;
    assert_eq!(listed.iter().map(|path| path.rtt_ms).collect::<Vec<_>>(), [41.0, 180.0]);
}

#[test]
fn a_download_on_a_usual_terminal() {
    let wanted = "\
polypath top  1 connection
               state          down          up     rtt resent  cwnd
total                  19.0 Mbit/s           0                         ▂▃▃▄▅▆▇██
> 198.51.100.7:443 polypath[123] default
  lte          up      2.00 Mbit/s           0 41.0 ms 1.25 %    10    ▁▁▁▁▁▁▁▁▁
  wifi         up      17.0 Mbit/s           0 20.5 ms 1.25 %    10    ▁▂▃▄▅▆▇██


q quit  ↑↓ select  p pause  s sort by rate";
    assert_eq!(frame(&download(), 80, 9), wanted);
}

#[test]
fn on_a_narrow_terminal_the_most_telling_stays() {
    let wanted = "\
polypath top  1 connection
               state          down
total                  19.0 Mbit/s ▅▆▇██
> 198.51.100.7:443 polypath[123] defau…
  lte          up      2.00 Mbit/s ▁▁▁▁▁
  wifi         up      17.0 Mbit/s ▅▆▇██
q quit  p pause  s rate";
    assert_eq!(frame(&download(), 40, 7), wanted);
    // However small, it is drawn.
    for (width, height) in [(1, 1), (5, 2), (12, 3), (20, 4), (200, 60)] {
        frame(&download(), width, height);
    }
}

#[test]
fn a_path_that_ends_is_seen_for_a_while() {
    let mut view = download();
    for second in 10..60_u64 {
        let lte = subflow(1, "lte", 250_000 * second);
        let at = Duration::from_secs(second);
        view.handle_samples(at, &sample(vec![connection(7, "198.51.100.7:443", vec![lte])]));
        let states: Vec<&str> = view.report().connections[0].listed.iter().map(|path| path.state).collect();
        let wanted: &[&str] = if second < 40 { &["up", "lost"] } else { &["up"] };
        assert_eq!(states, wanted, "after {second} s");
    }
    assert!((view.report().down_bps - 2e6).abs() < 1.0);
}

#[test]
fn the_rate_of_a_path_goes_on_when_the_first_one_is_lost() {
    let mut view = download();
    let mut later = |second, subflow: SubflowReport, port: &str| {
        let mut report = connection(7, "198.51.100.7:443", vec![subflow]);
        // The first path's address is the connection's, as stacks tell it.
        report.local = Some(format!("192.0.2.2:{port}").parse().expect("an address"));
        view.handle_samples(Duration::from_secs(second), &sample(vec![report]));
        view.report().connections[0].listed.iter().map(|path| (path.subflow, path.down_bps)).collect()
    };
    let rates: Vec<(u8, f64)> = later(10, subflow(1, "lte", 2_500_000), "50000");
    assert_eq!(rates, [(1, 2e6), (0, 0.0)]);
    // Its number comes again on another interface, where it counts from nothing.
    let rates: Vec<(u8, f64)> = later(11, subflow(1, "eth", 2_600_000), "50001");
    assert_eq!(rates[0], (1, 2.6e6 * 8.0));
}

#[test]
fn a_path_that_comes_back_takes_the_place_of_the_one_that_ended() {
    let mut view = download();
    let later = |view: &mut View, second, subflows| {
        view.handle_samples(
            Duration::from_secs(second),
            &sample(vec![connection(7, "198.51.100.7:443", subflows)]),
        );
        let listed = view.report().connections.remove(0).listed;
        listed.into_iter().map(|path| (path.label, path.state)).collect::<Vec<_>>()
    };
    let lte = || subflow(1, "lte", 2_500_000);
    later(&mut view, 10, vec![lte()]);
    let gone = later(&mut view, 11, vec![lte()]);
    assert_eq!(gone, [("lte".to_string(), "up"), ("wifi".to_string(), "lost")]);
    let back = later(&mut view, 12, vec![lte(), subflow(2, "wifi", 0), subflow(3, "wifi", 0)]);
    let wanted = [("lte", "up"), ("wifi #2", "up"), ("wifi #3", "up")];
    assert_eq!(back, wanted.map(|(label, state)| (label.to_string(), state)));
}

#[test]
fn keys_select_pause_and_sort() {
    let mut view = View::default();
    let both = |bytes| {
        sample(vec![
            connection(1, "198.51.100.9:80", vec![subflow(0, "wifi", bytes)]),
            connection(2, "198.51.100.8:80", vec![subflow(0, "lte", 2 * bytes)]),
        ])
    };
    let peers = |view: &View| {
        view.report().connections.into_iter().map(|connection| connection.peer).collect::<Vec<_>>()
    };
    view.handle_samples(Duration::from_secs(0), &both(0));
    view.handle_samples(Duration::from_secs(1), &both(1000));
    assert_eq!(peers(&view), ["198.51.100.8:80", "198.51.100.9:80"], "the fastest first");
    view.handle_key(Key::Down);
    view.handle_key(Key::Down);
    assert_eq!(view.selected(), 1);
    view.handle_key(Key::Up);
    assert_eq!(view.selected(), 0);
    view.handle_key(Key::Pause);
    view.handle_samples(Duration::from_secs(2), &both(1_000_000));
    assert!((view.report().down_bps - 24_000.0).abs() < 1.0, "nothing moves");
    assert!(frame(&view, 80, 10).contains("paused"));
    view.handle_key(Key::Pause);
    view.handle_key(Key::Sort);
    assert!(frame(&view, 80, 10).contains("sort by process"));
    view.handle_samples(Duration::from_secs(3), &[]);
    assert!(frame(&view, 80, 10).contains("no connection yet"));
}

#[test]
fn with_little_room_the_selected_connection_is_seen() {
    let mut view = View::default();
    let many = (0..30).map(|index| {
        connection(
            index,
            &format!("198.51.100.{index}:80"),
            vec![subflow(0, "wifi", 0), subflow(1, "lte", 0)],
        )
    });
    view.handle_samples(Duration::ZERO, &sample(many.collect()));
    for _ in 0..20 {
        view.handle_key(Key::Down);
    }
    let shown = frame(&view, 80, 12);
    assert!(shown.contains("> 198.51.100.20:80"), "{shown}");
}

/// A proxy that has carried so much for a client over two paths, and others before.
fn proxy(pid: u32, down_bytes: u64) -> ProxySample {
    let path = |side, interface: &str, state, down_bytes| PathSample {
        key: PathKey { side, local: interface.into(), remote: "198.51.100.7:443".into() },
        carried: Carried { up_bytes: 0, down_bytes },
        now: PathNow {
            interface: interface.into(),
            state,
            rtt_ms: 20.5,
            retransmitted_share: Some(0.0),
            cwnd_packets: 10,
        },
    };
    let client = |number, target: &str, paths| ClientSample {
        number,
        told: Told {
            protocol: "socks".into(),
            client: format!("10.0.0.5:4000{number}"),
            user: (number == 2).then(|| "ann".into()),
            target: Some(target.into()),
        },
        carried: Carried { up_bytes: 0, down_bytes: down_bytes * (number - 1) },
        paths,
    };
    let line = "limit guests, 5mbit: of 4 flows, 1 waits";
    let paths = vec![
        path("client", "br-lan", "tcp", down_bytes),
        path("server", "lte", "backup", down_bytes / 4),
        path("server", "wifi", "mptcp", down_bytes / 4 * 3),
    ];
    ProxySample {
        socket: "proxy-gateway.sock".into(),
        name: "gateway".into(),
        pid,
        carried: Carried { up_bytes: 0, down_bytes: 1_000_000 + 2 * down_bytes },
        memory: None,
        limits: vec![LimitNow { name: "guests".into(), line: line.into(), ..LimitNow::default() }],
        clients: vec![client(1, "a.example:443", Vec::new()), client(2, "b.example:443", paths)],
    }
}

fn carrying_proxy() -> View {
    let mut view = View::default();
    for second in 0..10_u64 {
        view.handle_proxies(Duration::from_secs(second), &[proxy(77, 100_000 * second * second)]);
    }
    view
}

#[test]
fn clients_of_a_proxy_stand_below_it_with_both_of_their_sides() {
    let wanted = "\
polypath top  2 clients of 1 proxy
                   state          down          up     rtt resent  cwnd
proxy gateway[77]  2 clients
  total                    27.2 Mbit/s           0                      ▂▃▄▅▆▇██
  limit guests, 5mbit: of 4 flows, 1 waits
> 10.0.0.5:40002 socks to b.example:443 by ann
  client br-lan    tcp     13.6 Mbit/s           0 20.5 ms    0 %    10 ▂▃▄▅▆▇██
  server lte       backup  3.40 Mbit/s           0 20.5 ms    0 %    10 ▁▁▁▂▂▂▂▂
  server wifi      mptcp   10.2 Mbit/s           0 20.5 ms    0 %    10 ▂▂▃▄▄▅▆▆
10.0.0.5:40001 socks to a.example:443

q quit  ↑↓ select  p pause  s sort by rate";
    assert_eq!(frame(&carrying_proxy(), 80, 12), wanted);
    let wanted = "\
path             state          down          up      rtt resent   cwnd
proxy gateway[77]  2 clients
  total                  27.2 Mbit/s           0
  limit guests, 5mbit: of 4 flows, 1 waits
10.0.0.5:40002 socks to b.example:443 by ann
  client br-lan  tcp     13.6 Mbit/s           0  20.5 ms    0 %     10
  server lte     backup  3.40 Mbit/s           0  20.5 ms    0 %     10
  server wifi    mptcp   10.2 Mbit/s           0  20.5 ms    0 %     10
10.0.0.5:40001 socks to a.example:443";
    assert_eq!(plain::table(&carrying_proxy().report()), wanted);
    for (width, height) in [(1, 1), (5, 2), (12, 3), (20, 4), (200, 60)] {
        frame(&carrying_proxy(), width, height);
    }
}

#[test]
fn clients_are_selected_after_connections_and_a_proxy_that_starts_anew_begins_at_nothing() {
    let mut view = carrying_proxy();
    view.handle_samples(Duration::ZERO, &sample(vec![connection(1, "198.51.100.9:80", Vec::new())]));
    assert!(frame(&view, 80, 20).starts_with("polypath top  1 connection, 2 clients of 1 proxy\n"));
    (0..5).for_each(|_| view.handle_key(Key::Down));
    assert_eq!(view.selected(), 2);
    view.handle_key(Key::Sort);
    assert!(frame(&view, 80, 20).contains("> 10.0.0.5:40002"), "in the order in which they came");
    view.handle_proxies(Duration::from_secs(10), &[proxy(78, 900_000_000)]);
    assert!(view.report().proxies[0].down_bps.abs() < 1.0 && view.report().proxies[0].pid == 78);
    view.handle_proxies(Duration::from_secs(11), &[]);
    assert_eq!((view.report().proxies.len(), view.selected()), (0, 0));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut view = View::default();
    for second in 0..2 * HISTORY as u64 {
        let wifi = subflow(0, "wifi", 1000 * second);
        view.handle_samples(
            Duration::from_secs(second),
            &sample(vec![connection(7, "198.51.100.7:443", vec![wifi])]),
        );
    }
    assert_eq!(view.report().connections[0].listed[0].history.len(), HISTORY);
    assert_eq!(view.total().len(), HISTORY);
}

#[test]
fn without_a_terminal_there_are_lines() {
    let report = download().report();
    let wanted = "\
path             state          down          up      rtt resent   cwnd
total                    19.0 Mbit/s           0
198.51.100.7:443 polypath[123] default
  lte            up      2.00 Mbit/s           0  41.0 ms 1.25 %     10
  wifi           up      17.0 Mbit/s           0  20.5 ms 1.25 %     10";
    assert_eq!(plain::table(&report), wanted);
    let wanted = "down 19.0 Mbit/s, up 0; lte 2.00 Mbit/s / 0, 41.0 ms; wifi 17.0 Mbit/s / 0, 20.5 ms";
    assert_eq!(plain::line(&report).as_deref(), Some(wanted));
    assert_eq!(plain::line(&View::default().report()), None);
    let mut view = download();
    let left = vec![subflow(0, "wifi", 9_000_000)];
    view.handle_samples(Duration::from_secs(10), &sample(vec![connection(7, "198.51.100.7:443", left)]));
    let line = plain::line(&view.report()).expect("a line");
    assert!(line.contains("; lte lost; wifi "), "{line}");
}
