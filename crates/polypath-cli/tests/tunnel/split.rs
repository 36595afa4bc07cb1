//! Connections that are split: Multipath TCP between the tunnel's ends.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use polypath_testbed::is_root_or_skip;

use super::hosts::{Hosts, INSIDE, append, connect, echo, path_over, status, until};

#[test]
fn split_tcp_has_both_paths_outlives_one_and_tells_of_refusals() {
    if !is_root_or_skip("a tunnel that splits TCP") {
        return;
    }
    let hosts = Hosts::new();
    append(hosts.laptop.path(), "laptop.toml", "[[rules]]\ntcp = \"split\"\n");
    let (serving, calling) = (hosts.serve(), hosts.call());
    hosts.wait_for_paths(2);
    let flows = |folder: &Path| status(folder)[0]["peers"][0]["split_flows"].as_u64().expect("a number");

    let mut stream = hosts.connect();
    echo(&mut stream, 3_000_000);
    assert_eq!([&hosts.laptop, &hosts.server].map(|folder| flows(folder.path())), [1, 1]);
    let sent = |path| path_over(&status(hosts.laptop.path()), path)["sent_bytes"].as_u64().expect("bytes");
    assert!(sent("path0") > 100_000 && sent("path1") > 100_000, "{} {}", sent("path0"), sent("path1"));
    for path in [0, 1] {
        hosts.set_up(path, false);
        echo(&mut stream, 100_000);
        hosts.set_up(path, true);
        hosts.wait_for_paths(2);
    }
    let nobody = SocketAddr::new(INSIDE.ip(), 9);
    let error = hosts.testbed.client.run(|| TcpStream::connect(nobody)).expect("the namespace").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

    // One direction ends, and the other goes on.
    stream.shutdown(Shutdown::Write).expect("an end");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the echo's end");
    drop(stream);
    until("the flows' end", || (flows(hosts.laptop.path()) + flows(hosts.server.path()) == 0).then_some(()));

    // What a killed end knew is broken off, and new connections are opened.
    let mut stream = hosts.connect();
    echo(&mut stream, 10_000);
    serving.kill();
    let serving = hosts.serve();
    stream.write_all(&[1; 1_000]).expect("it is taken");
    assert!(stream.read_exact(&mut [0; 1_000]).is_err(), "it was reset");
    let beside = SocketAddr::new(INSIDE.ip(), INSIDE.port() + 1);
    let (mut stream, seen) = connect(&hosts.testbed.client, &hosts.testbed.server, beside);
    echo(&mut stream, 10_000);
    assert_eq!(stream.local_addr().expect("an address"), seen, "the server sees who it is");

    // A host that only reads is told, too.
    calling.kill();
    let calling = hosts.call();
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    let error = stream.read(&mut [0; 10]).expect_err("nothing is sent");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop((serving, calling));
}
