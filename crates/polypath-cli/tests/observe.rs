//! The commands that look at a running stack and change it: two stacks that talk in datagrams over the loopback interface.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use polypath_control::offer;
use polypath_mptcp::scheduler;
use polypath_stack::stack::{StackListener, StackStream};
use polypath_stack::udp::{UdpOptions, UdpPath};
use polypath_stack::{Stack, WeakStack};
use polypath_system::Namespace;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PORT: u16 = 443;

/// A server at a UDP port, and a client with two paths to it, both over the loopback interface.
fn stacks(port: u16) -> (Stack, Stack) {
    let here = Namespace::current().expect("this one");
    let server = Stack::udp(&here, &UdpOptions { port, ..UdpOptions::server() }).expect("a stack");
    let path = UdpPath { interface: Some("lo".into()), ..UdpPath::default() };
    let options = UdpOptions { port, paths: vec![path.clone(), path], ..UdpOptions::default() };
    (Stack::udp(&here, &options).expect("a stack"), server)
}

async fn pair(client: &Stack, listener: &StackListener) -> (StackStream, StackStream) {
    let options = Default::default();
    let to = ([127, 0, 0, 1], PORT).into();
    let (near, far) = tokio::join!(client.connect(to, &options), listener.accept());
    (near.expect("connects"), far.expect("is accepted").0)
}

async fn exchange(from: &mut StackStream, to: &mut StackStream) {
    from.write_all(&[7; 200_000]).await.expect("room");
    to.read_exact(&mut vec![0; 200_000]).await.expect("the bytes");
}

/// Asks again until it is so: what a command changes takes a round trip or two.
async fn until(what: &str, stack: &WeakStack, is_so: impl Fn(&Stack) -> bool) {
    for _ in 0..1000 {
        if is_so(&stack.upgrade().expect("it runs")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: {:?}", stack.upgrade().expect("it runs").connections());
}

fn command(folder: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
    command.args(words.split_whitespace()).env("POLYPATH_RUNTIME_DIR", folder).stdin(Stdio::null());
    command
}

fn polypath(folder: &Path, words: &str) -> impl Future<Output = Output> + use<> {
    let mut command = command(folder, words);
    async { tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("it runs") }
}

/// What it prints when all is well.
async fn printed(folder: &Path, words: &str) -> String {
    let output = polypath(folder, words).await;
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The one line that it says, and its code.
async fn refused(folder: &Path, words: &str) -> (String, Option<i32>) {
    let output = polypath(folder, words).await;
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said.lines().count(), 1, "{words}: {said}");
    (said.trim_end().to_string(), output.status.code())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ss_shows_interfaces_and_no_address_of_our_own() {
    let (client, server) = stacks(16_951);
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let _sockets =
        [&client, &server].map(|stack| offer(Arc::new(stack.downgrade()), folder).expect("a socket"));
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let (mut near, mut far) = pair(&client, &listener).await;
    until("two subflows", &client.downgrade(), |stack| {
        stack.connections()[0].1.subflows.iter().filter(|subflow| subflow.established).count() == 2
    })
    .await;
    exchange(&mut near, &mut far).await;
    let all = printed(folder, "ss -Mtaniemop").await;
    assert!(!all.contains("fd70:"), "{all}");
    assert!(
        all.contains("127.0.0.1%lo:") && all.contains("tcp-ulp-mptcp") && all.contains("users:(("),
        "{all}"
    );
    assert!(all.contains("*:443") && all.contains("LISTEN"), "{all}");
    let count = async |words: &str| printed(folder, words).await.lines().count();
    // Each end has its own view of the connection and of its two subflows.
    assert_eq!(count("ss -MH").await, 2);
    assert_eq!(count("ss -tHn").await, 4);
    assert_eq!(count("ss -lH").await, 1);
    assert_eq!(count("ss -MaH").await, 3);
    assert_eq!(count("ss -MH dport = :443").await, 1);
    assert_eq!(count("ss -tH ( sport = :443 or dport = :1 ) and src 127.0.0.0/8").await, 2);
    assert_eq!(count("ss -tH dev lo").await, 2);
    assert_eq!(count("ss -tH state listening").await, 1);
    assert_eq!(count("ss -tH6").await, 0);
    let json: serde_json::Value =
        serde_json::from_str(&printed(folder, "ss -J dport = :443").await).expect("JSON");
    let mut connections = json.as_array().expect("stacks").iter().map(|stack| &stack["connections"][0]);
    assert!(connections.any(|connection| connection["subflows"][0]["interface"] == "lo"), "{json}");
    let (said, code) = refused(folder, "ss -tan dport = :https").await;
    assert_eq!(
        (said.as_str(), code),
        ("polypath: \":https\" in the filter; expected a port such as :443", Some(2))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn monitor_sees_the_first_events_of_a_stack_that_starts_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut monitor =
        command(folder, "monitor -ts --count 3").stdout(Stdio::piped()).spawn().expect("it runs");
    let (client, server) = stacks(16_952);
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    // It has found nothing by then, if it runs at all.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _socket = offer(Arc::new(client.downgrade()), folder).expect("a socket");
    let _pair = pair(&client, &listener).await;
    let output = monitor.stdout.take().expect("a pipe");
    let lines = tokio::task::spawn_blocking(move || {
        BufReader::new(output).lines().map(|line| line.expect("text")).collect::<Vec<_>>()
    });
    let lines = lines.await.expect("a thread");
    assert!(monitor.wait().expect("it ends").success());
    for (line, event) in lines.iter().zip(["CREATED", "ESTABLISHED", "SF_ESTABLISHED"]) {
        let (time, rest) = line.split_once("] ").expect("a time");
        assert!(time.starts_with("[20") && time.ends_with('Z') && time.len() == 28, "{line}");
        assert!(
            rest.contains(event) && rest.contains(" daddr4=127.0.0.1 ") && rest.contains(" dev=lo"),
            "{line}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_shows_rates_of_paths() {
    let (client, server) = stacks(16_953);
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let _socket = offer(Arc::new(client.downgrade()), folder).expect("a socket");
    let (mut near, mut far) = pair(&client, &listener).await;
    let moving = tokio::spawn(async move {
        loop {
            exchange(&mut near, &mut far).await;
        }
    });
    let json = printed(folder, "top --json -n 2 -d 0.3").await;
    let last: serde_json::Value = serde_json::from_str(json.lines().last().expect("a line")).expect("JSON");
    let connection = &last["connections"][0];
    assert_eq!(connection["peer"], "127.0.0.1:443", "{last}");
    assert_eq!(connection["paths"][0]["interface"], "lo", "{last}");
    assert!(last["up_bps"].as_f64() > Some(1e6), "{last}");
    let (said, code) = refused(folder, "top").await;
    assert!(said.contains("expected one, or -b for plain lines") && code == Some(2), "{said}");
    let table = printed(folder, "top -b -n 1 -d 0.1").await;
    assert!(table.starts_with("path ") && table.contains("\n  lo #"), "{table}");
    moving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_changes_a_stack_while_it_carries_data() {
    let (client, server) = stacks(16_954);
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (none, code) = refused(folder, "path show").await;
    assert_eq!((none.as_str(), code), ("polypath: no stack of this user runs here", Some(1)));
    let listener = server.listen(([0, 0, 0, 0], PORT).into()).expect("a listener");
    let _socket = offer(Arc::new(client.downgrade()), folder).expect("a socket");
    let (mut near, mut far) = pair(&client, &listener).await;
    let weak = client.downgrade();
    let established = |stack: &Stack| {
        let connections = stack.connections();
        connections[0].1.subflows.iter().filter(|subflow| subflow.established).count()
    };
    until("two subflows", &weak, |stack| established(stack) == 2).await;
    exchange(&mut near, &mut far).await;
    let shown = printed(folder, "path endpoint show").await;
    assert_eq!(
        shown, "127.0.0.1 id 1 subflow fullmesh dev lo\n127.0.0.1 id 2 subflow fullmesh dev lo\n",
        "{shown}"
    );

    printed(folder, "path endpoint change id 2 backup priority 7").await;
    let has_backup =
        |stack: &Stack| stack.connections()[0].1.subflows.iter().any(|subflow| subflow.is_backup());
    until("a backup", &weak, has_backup).await;
    let shown = printed(folder, "path endpoint").await;
    assert!(shown.contains("id 2 subflow backup fullmesh dev lo priority 7"), "{shown}");
    printed(folder, "path endpoint change id 2 nobackup").await;
    until("no backup", &weak, |stack| !has_backup(stack)).await;

    printed(folder, "path endpoint delete id 2").await;
    until("one subflow", &weak, |stack| established(stack) == 1).await;
    exchange(&mut near, &mut far).await;
    assert!(
        printed(folder, "path endpoint").await.contains("id 2 subflow fullmesh dev lo priority 7 (deleted)")
    );
    printed(folder, "path endpoint add id 2").await;
    until("two subflows again", &weak, |stack| established(stack) == 2).await;
    let anew = printed(folder, "path endpoint").await;
    assert!(anew.ends_with("id 2 subflow fullmesh dev lo\n"), "what was deleted is forgotten: {anew}");

    printed(folder, "path scheduler set redundant").await;
    assert_eq!(client.connections()[0].1.scheduler, "redundant", "the live one too");
    assert_eq!(printed(folder, "path scheduler show").await, "scheduler redundant\n");
    // A scheduler of the program's own.
    let mut schedulers = client.schedulers();
    let redundant = "redundant".parse::<scheduler::Policy>().expect("ours");
    schedulers.add(scheduler::Policy::from_fn("mine", move |given| redundant.build_for(given)));
    client.set_schedulers(schedulers);
    printed(folder, "path scheduler set mine").await;
    assert_eq!(printed(folder, "path scheduler show").await, "scheduler mine\n");
    let (said, _) = refused(folder, "path scheduler set best").await;
    assert!(said.contains("mine") && said.contains("lowest-rtt"), "{said}");
    printed(folder, "path scheduler set redundant").await;
    exchange(&mut near, &mut far).await;
    printed(folder, "path limits set subflows 0 add_addr_accepted 3").await;
    assert_eq!(printed(folder, "path limits").await, "add_addr_accepted 3 subflows 0\n");
    let (second, _far) = pair(&client, &listener).await;
    assert_eq!(second.connection_info().expect("it lives").scheduler, "redundant");

    printed(folder, "path endpoint add 192.0.2.9 signal port 8080").await;
    let json: serde_json::Value =
        serde_json::from_str(&printed(folder, "path show --json").await).expect("JSON");
    assert_eq!(json[0]["endpoints"][2]["address"], "192.0.2.9", "{json}");
    assert_eq!(json[0]["endpoints"][2]["port"], 8080, "{json}");
    assert_eq!(json[0]["subflows"], 0, "{json}");
    printed(folder, "path endpoint delete 192.0.2.9").await;
    for (words, expected, code) in [
        ("path endpoint add 224.0.0.9 signal", "224.0.0.9: no address of one host; expected a unicast", 1),
        ("path endpoint add 192.0.2.8 signal port 0", "\"0\": expected a port of 1 to 65535", 2),
        ("path endpoint add eth9", "eth9: no path of this stack; it has lo. A further interface", 1),
        ("path endpoint add id 2", "id 2: in use already", 1),
        ("path endpoint add lo", "lo: in use already", 1),
        ("path endpoint add 192.0.2.1", "192.0.2.1: no address of a path; expected `signal`", 1),
        ("path endpoint add 192.0.2.1 signal id 2", "id 2: another endpoint has it", 1),
        ("path scheduler set best", "best", 1),
        ("path endpoint add wifi lte", "\"lte\": expected dev NAME", 2),
        ("path --pid 1 show", "--pid 1: no stack of this user", 2),
    ] {
        let (said, got) = refused(folder, words).await;
        assert!(said.contains(expected) && got == Some(code), "{words}: {said} ({got:?})");
    }
}
