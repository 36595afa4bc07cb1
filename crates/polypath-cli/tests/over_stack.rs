//! The commands that look at our own stack: two stacks behind TUN devices in namespaces, joined by two paths.

mod two_stacks;

use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use polypath_control::{ConnectionReport, EventKind, EventReport, Observed, offer};
use polypath_testbed::{Side, is_root_or_skip};
use tokio::sync::broadcast;
use two_stacks::Hosts;

fn polypath(arguments: &[&str], directory: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(arguments).env("POLYPATH_RUNTIME_DIR", directory);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ss_and_monitor_show_a_running_stack() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    if !is_root_or_skip("ss of the stack") {
        return;
    }
    let hosts = Hosts::new();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = offer(Arc::new(hosts.client.downgrade()), folder.path()).expect("a socket");
    let monitor = polypath(&["monitor", "--count", "3"], folder.path()).stdout(Stdio::piped()).spawn();
    let monitor = monitor.expect("the command runs");
    // It watches as soon as its socket is there; nothing else tells.
    let weak: &dyn Observed = &hosts.client.downgrade();
    assert_eq!(weak.connections(), []);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let listener = hosts.server.listen((Side::Server.stack_v4(0), 443).into()).expect("a listener");
    let at = listener.local_addr();
    let options = Default::default();
    let (sent, accepted) = tokio::join!(hosts.client.connect(at, &options), listener.accept());
    let (mut sent, (mut accepted, _)) = (sent.expect("a connection"), accepted.expect("the same"));
    let watched = tokio::task::spawn_blocking(|| monitor.wait_with_output());
    let watched = watched.await.expect("a thread").expect("the command ends");
    let events = text(&watched);
    let lines: Vec<&str> = events.lines().collect();
    assert!(
        lines[0].starts_with("[       CREATED] token=") && lines[0].contains("daddr4=10.78.0.2"),
        "{events}"
    );
    assert!(lines[1].starts_with("[   ESTABLISHED] token=") && lines[1].contains("dport=443"), "{events}");
    sent.write_all(&[1; 300_000]).await.expect("room");
    accepted.read_exact(&mut vec![0; 300_000]).await.expect("the bytes");
    let ss = |arguments: &'static [&'static str]| {
        let mut command = polypath(arguments, folder.path());
        async {
            tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("ss runs")
        }
    };
    let plain = text(&ss(&["ss", "-M"]).await);
    assert!(plain.starts_with("State Recv-Q Send-Q") && plain.contains("10.78.0.2:443"), "{plain}");
    let token = lines[0].split(' ').find_map(|word| word.strip_prefix("token=")).expect("a token");
    let detailed = text(&ss(&["ss", "-Mip"]).await);
    for wanted in
        ["ESTAB", "subflows:", &format!(" token:{token}"), "scheduler:default", " cubic rto:", "pid="]
    {
        assert!(detailed.contains(wanted), "\"{wanted}\" is not in:\n{detailed}");
    }
    let acked: u64 = detailed
        .split([' ', '\n'])
        .filter_map(|word| word.strip_prefix("bytes_acked:")?.parse::<u64>().ok())
        .sum();
    assert!(acked >= 200_000, "{detailed}");
    let counters = text(&ss(&["ss", "-s"]).await);
    // The first handshake is tried over both paths.
    let established = counters.lines().find(|line| line.starts_with("MPTcpExtMPCapableSYNTX"));
    assert_eq!(established.map(|line| line.split_whitespace().nth(1)), Some(Some("2")), "{counters}");
    let json: serde_json::Value = serde_json::from_str(&text(&ss(&["ss", "-J"]).await)).expect("JSON");
    assert_eq!(json[0]["connections"][0]["remote"], "10.78.0.2:443");
    socket.close();
    let nothing = ss(&["ss"]).await;
    assert!(nothing.status.success() && text(&nothing).lines().count() == 1);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no stack"));
}

/// Says the same to everybody.
struct Fake {
    events: broadcast::Sender<EventReport>,
}

impl Observed for Fake {
    fn connections(&self) -> Vec<ConnectionReport> {
        Vec::new()
    }

    fn subscribe(&self) -> broadcast::Receiver<EventReport> {
        let receiver = self.events.subscribe();
        // Somebody listens now, so it can be said.
        let _ = self.events.send(EventReport::new(EventKind::Closed, 0xab));
        receiver
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("MPFailTx", 3), ("MPFailRx", 0)]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_stacks_are_asked_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let fake = Arc::new(Fake { events: broadcast::Sender::new(8) });
    let _sockets = [(); 2].map(|()| offer(fake.clone(), folder.path()).expect("a socket"));
    let run = |arguments: &'static [&'static str]| {
        let mut command = polypath(arguments, folder.path());
        async {
            tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("it runs")
        }
    };
    let sums = text(&run(&["ss", "-s", "-H"]).await);
    assert_eq!(sums.split_whitespace().collect::<Vec<_>>(), ["MPTcpExtMPFailTx", "6", "0.0"]);
    assert!(text(&run(&["ss", "-sz"]).await).contains("MPTcpExtMPFailRx"));
    let events = run(&["monitor", "--count", "1"]).await;
    assert_eq!(text(&events), "[        CLOSED] token=000000ab\n");
    let events: serde_json::Value =
        serde_json::from_str(&text(&run(&["monitor", "-J", "--count", "1"]).await)).expect("JSON");
    assert_eq!(events["event"], "CLOSED");
}
