//! Figures as Prometheus gets them, from stacks that the test makes up.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polypath_control::{
    ConnectionReport, EventReport, FiguresReport, Observed, PathReport, SubflowsNow, offer,
};
use tokio::sync::broadcast;

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A stack that says what the test wants said.
struct MadeUp {
    sent_bytes: AtomicU64,
}

impl Observed for MadeUp {
    fn connections(&self) -> Vec<ConnectionReport> {
        Vec::new()
    }

    fn subscribe(&self) -> broadcast::Receiver<EventReport> {
        broadcast::channel(1).1
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("MPJoinSynRx", 3), ("MPCurrEstab", 1)]
    }

    fn figures(&self) -> FiguresReport {
        let sent_bytes = self.sent_bytes.load(Ordering::Relaxed);
        let path = |interface: &str| PathReport {
            interface: Some(interface.into()),
            address: [10, 0, 0, 1].into(),
            sent_bytes,
            received_bytes: 2 * sent_bytes,
            retransmitted_bytes: 10,
            retransmitted_segments: 1,
            subflows: 1,
            now: SubflowsNow {
                subflows: 1,
                rtt_ms: Some(20.0),
                cwnd_bytes: 14_600,
                delivery_rate_bps: 8_000_000,
            },
        };
        FiguresReport {
            paths: vec![path("wifi"), path("lte \"x\"\n")],
            connections: 1,
            fallbacks: vec![("syn_dropped".into(), 2)],
        }
    }
}

fn polypath(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(arguments).env("POLYPATH_RUNTIME_DIR", directory);
    command
}

/// `polypath metrics` at a port that is free, and where it is.
fn serve(directory: &Path, more: &[&str]) -> (Running, SocketAddr) {
    let arguments = [&["metrics", "--listen", "127.0.0.1:0"], more].concat();
    let mut child = polypath(&arguments, directory).stderr(Stdio::piped()).spawn().expect("it runs");
    let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let at = lines.into_iter().find_map(|line| {
        line.strip_prefix("polypath: figures at http://")?.strip_suffix("/metrics")?.parse().ok()
    });
    (Running(child), at.expect("it says where"))
}

fn get(at: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(at).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Asks until the answer is as wanted.
fn until(what: &str, mut ask: impl FnMut() -> bool) {
    let began = Instant::now();
    while !ask() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} in time");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn is_missing(program: &str) -> bool {
    let is_missing = Command::new(program).arg("--version").output().is_err();
    if is_missing {
        eprintln!("SKIPPING: {program} is not installed (Debian's package prometheus)");
    }
    is_missing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_has_nothing_to_say_against_the_text() {
    if is_missing("promtool") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let made_up = Arc::new(MadeUp { sent_bytes: AtomicU64::new(1000) });
    let _socket = offer(made_up, folder.path()).expect("a socket");
    let output = polypath(&["metrics", "--once"], folder.path()).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("interface=\"wifi\",path=\"0\"} 1000"), "{text}");
    assert!(!text.contains("MPCurrEstab") && text.contains("name=\"MPJoinSynRx\"} 3"), "{text}");
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    check
        .stdin
        .take()
        .expect("a pipe")
        .write_all(format!("{}\n", text.trim_end()).as_bytes())
        .expect("it reads");
    let said = check.wait_with_output().expect("it ends");
    let words = [said.stdout, said.stderr].concat();
    assert!(said.status.success() && words.is_empty(), "{}", String::from_utf8_lossy(&words));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_scrapes_and_counts_stay_when_stacks_end() {
    if is_missing("prometheus") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let made_up = Arc::new(MadeUp { sent_bytes: AtomicU64::new(1000) });
    let socket = offer(made_up.clone(), folder.path()).expect("a socket");
    let (_serving, at) = serve(folder.path(), &["--no-history"]);
    let config = folder.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: polypath\n  static_configs: [{{targets: ['{at}']}}]\n"
    );
    fs::write(&config, text).expect("a file");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={free}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _prometheus = Running(prometheus.spawn().expect("it runs"));
    let query =
        |expression: &str| get(free, &format!("/api/v1/query?query={expression}")).unwrap_or_default();
    let sum = "sum(polypath_sent_bytes_total)";
    until("a first scrape", || query(sum).contains(",\"2000\"]"));
    assert!(query("up").contains(",\"1\"]"), "{}", query("up"));
    let metadata = get(free, "/api/v1/metadata?metric=polypath_sent_bytes").unwrap_or_default();
    assert!(metadata.contains("counter") && metadata.contains("bytes"), "it speaks OpenMetrics: {metadata}");
    made_up.sent_bytes.store(4000, Ordering::Relaxed);
    until("what was added", || query(sum).contains(",\"8000\"]"));
    socket.close();
    let stacks = "absent(polypath_stacks)";
    until("the end of the stack", || query(stacks).contains(",\"1\"]"));
    assert!(query(sum).contains(",\"8000\"]"), "{}", query(sum));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_carried_after_the_last_look_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_serving, at) = serve(folder.path(), &["--no-history"]);
    let sent = || -> u64 {
        let text = get(at, "/metrics").unwrap_or_default();
        let counts = text.lines().filter(|line| line.starts_with("polypath_sent_bytes_total{"));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    // On a busy machine a stack may have ended before anybody hears of it; then another one comes.
    until("the last words of a stack", || {
        let before = sent();
        let made_up = Arc::new(MadeUp { sent_bytes: AtomicU64::new(1000) });
        let socket = offer(made_up.clone(), folder.path()).expect("a socket");
        std::thread::sleep(Duration::from_millis(300));
        made_up.sent_bytes.store(4000, Ordering::Relaxed);
        socket.close();
        std::thread::sleep(Duration::from_millis(1200));
        sent() == before + 8000
    });
}

#[test]
fn a_second_recorder_is_refused_in_one_line_and_so_is_history_that_is_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("history");
    let directory = directory.to_str().expect("UTF-8");
    let history = |arguments: &[&str]| polypath(arguments, folder.path()).output().expect("it runs");
    let said = history(&["history", "--directory", directory]);
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.code() == Some(2) && words.lines().count() == 1, "{words}");
    assert!(words.contains("there is no history"), "{words}");
    let (_first, _) = serve(folder.path(), &["--history", directory]);
    let said = history(&["metrics", "--listen", "127.0.0.1:0", "--history", directory]);
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.code() == Some(2) && words.lines().count() == 1, "{words}");
    assert!(words.contains("another process records there"), "{words}");
    let said = history(&["history", "--directory", directory]);
    assert!(String::from_utf8_lossy(&said.stdout).starts_with("nothing was carried since "), "{said:?}");
}

#[test]
fn what_keeps_figures_from_being_offered_is_said_before_an_address_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("its address");
    let said = polypath(&["metrics", "--no-history", "--listen", &at.to_string()], folder.path()).output();
    let said = said.expect("it runs");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(1) && words.lines().count() == 1, "{words}");
    let wanted = format!("figures can't be offered at {at}: something else has port {}, which", at.port());
    assert!(words.contains(&wanted) && words.contains("expected a free one with --listen"), "{words}");
    if !polypath_testbed::is_root_or_skip("metrics of a user without a session") {
        return;
    }
    let mut nobody = Command::new(env!("CARGO_BIN_EXE_polypath"));
    nobody.args(["metrics", "--no-history", "--listen", "127.0.0.1:0"]).current_dir("/");
    nobody.env_remove("POLYPATH_RUNTIME_DIR").env_remove("XDG_RUNTIME_DIR");
    let said = std::os::unix::process::CommandExt::uid(&mut nobody, 65_534).output().expect("it runs");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(1) && words.lines().count() == 1, "{words}");
    assert!(words.contains("no place for the sockets of this user's stacks"), "{words}");
    assert!(words.contains("in POLYPATH_RUNTIME_DIR"), "{words}");
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring").join(name)
}

#[test]
fn the_dashboard_names_only_what_is_exposed() {
    let dashboard = fs::read_to_string(example("grafana/polypath.json")).expect("the dashboard");
    let json: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    assert!(json["panels"].as_array().expect("panels").len() > 10);
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let named: BTreeSet<&str> =
        dashboard.split(|letter| !is_word(letter)).filter(|word| word.starts_with("polypath_")).collect();
    let exposed: BTreeSet<&str> = polypath_metrics::metric_names().collect();
    assert!(named.is_subset(&exposed), "{:?}", named.difference(&exposed));
    let of_stacks = exposed.iter().filter(|name| !name.contains("link") && !name.contains("build"));
    let missing: Vec<_> = of_stacks.filter(|name| !named.contains(*name)).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
}

#[test]
fn the_example_for_prometheus_is_one_that_it_accepts() {
    if is_missing("promtool") {
        return;
    }
    let check = Command::new("promtool").args(["check", "config"]).arg(example("prometheus.yml")).output();
    let check = check.expect("promtool runs");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
