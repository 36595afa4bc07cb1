//! An outside oracle: tshark reads our traces, finds nothing malformed, and sees the tokens and data sequence numbers that we
//! say we sent.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use polypath_link::middlebox::{self, Chain};
use polypath_link::{LinkConfig, QueueLimit};
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_mptcp::{ConnectionConfig, HostConfig};
use polypath_sim::app::{SendPlan, TrafficPlan};
use polypath_sim::conversation::Conversation;
use polypath_sim::network::{BoxPosition, LinkSpec, NetworkBuilder};
use polypath_sim::trace::TraceOutputs;
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::{Endpoint, MptcpVersion};

/// What a trace is to show.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    version: MptcpVersion,
    checksum: bool,
    /// A box on the first path, which is then the only one.
    middlebox: Option<&'static str>,
    abort: bool,
    /// Subtypes of Multipath TCP that must be seen: 0 CAPABLE, 1 JOIN, 2 DSS, 3 ADD_ADDR, 6 FAIL, 7 FASTCLOSE.
    subtypes: &'static [u8],
}

const V0: MptcpVersion = MptcpVersion::V0;
const V1: MptcpVersion = MptcpVersion::V1;

const CASES: [Case; 8] = [
    Case {
        name: "full-v1",
        version: V1,
        checksum: false,
        middlebox: None,
        abort: false,
        subtypes: &[0, 1, 2, 3],
    },
    Case {
        name: "full-v0",
        version: V0,
        checksum: false,
        middlebox: None,
        abort: false,
        subtypes: &[0, 1, 2, 3],
    },
    Case {
        name: "checksum-v1",
        version: V1,
        checksum: true,
        middlebox: None,
        abort: false,
        subtypes: &[0, 1, 2],
    },
    Case {
        name: "checksum-v0",
        version: V0,
        checksum: true,
        middlebox: None,
        abort: false,
        subtypes: &[0, 1, 2],
    },
    Case {
        name: "abort-v1",
        version: V1,
        checksum: false,
        middlebox: None,
        abort: true,
        subtypes: &[0, 1, 2, 7],
    },
    Case {
        name: "fail-v1",
        version: V1,
        checksum: true,
        middlebox: Some("rewrite-payload"),
        abort: false,
        subtypes: &[0, 2, 6],
    },
    Case {
        name: "fail-v0",
        version: V0,
        checksum: true,
        middlebox: Some("rewrite-payload"),
        abort: false,
        subtypes: &[0, 2, 6],
    },
    Case {
        name: "fallback-v1",
        version: V1,
        checksum: false,
        middlebox: Some("strip-mptcp-synack"),
        abort: false,
        subtypes: &[0],
    },
];

/// Runs a case; returns the trace file, the text trace, and the tokens that its hosts name.
fn run(case: Case, folder: &Path) -> (PathBuf, String, BTreeSet<u32>) {
    let connection =
        ConnectionConfig { version: case.version, checksum: case.checksum, ..Default::default() };
    let host = |endpoints| HostConfig {
        connection: Arc::new(connection.clone()),
        endpoints,
        ..HostConfig::default()
    };
    let addr = |path: u8, last: u8| [10, 0, path, last].into();
    let mut builder = NetworkBuilder::new(7);
    let paths = if case.middlebox.is_some() { 1 } else { 2 };
    let uplinks = (0..paths).map(|path| LocalEndpoint::subflow(addr(path, 1), path + 1));
    let client = builder.host("client", host(uplinks.collect()));
    let server = builder.host("server", host(vec![LocalEndpoint::signal(addr(1, 2), 9)]));
    let queue = QueueLimit::Delay(Duration::from_millis(50));
    let link = LinkConfig::new(BitRate::from_mbps(20), Duration::from_millis(10), queue);
    for path in 0..paths {
        let mut spec = LinkSpec::new(
            format!("path {path}"),
            [client, server],
            [Some(addr(path, 1)), Some(addr(path, 2))],
        )
        .with(link.clone(), link.clone());
        if let Some(name) = case.middlebox {
            let mut chain = Chain::new();
            chain.push(middlebox::Policy::by_name(name).expect("a box of that name").build_for(&3));
            spec = spec.with_boxes(BoxPosition::Second, chain);
        }
        builder.link(spec);
    }
    let pcapng = folder.join(format!("{}.pcapng", case.name));
    let text = folder.join(format!("{}.txt", case.name));
    let create = |path: &Path| -> Option<Box<dyn std::io::Write>> {
        Some(Box::new(std::fs::File::create(path).expect("a file in the build's own folder")))
    };
    let outputs = TraceOutputs { pcapng: create(&pcapng), text: create(&text), ..TraceOutputs::default() };
    let tracer = builder.tracer(outputs).expect("a trace");
    let mut network = builder.build();
    network.set_tracer(Some(tracer));
    let (opener, acceptor) = Conversation::plans(1, Some(150_000), Some(150_000));
    let endless = SendPlan::Bytes(u64::MAX);
    let opener = if case.abort { TrafficPlan { send: endless, ..opener } } else { opener };
    let ends = network.converse(Conversation {
        from: client,
        local: addr(0, 1),
        to: server,
        remote: Endpoint::new(addr(0, 2), 80),
        start: Instant::ZERO,
        config: None,
        opener,
        acceptor,
    });
    network.run_for(Duration::from_millis(120));
    let mut tokens = BTreeSet::new();
    for end in [ends.opener, ends.acceptor] {
        let host = network.host(end.node);
        if let Some(info) = host.connection(end.app).and_then(|id| host.stack.info(id)) {
            tokens.insert(info.local_token);
        }
    }
    if case.abort {
        network.with_host(client, |now, host| {
            if let Some(id) = host.connection(ends.opener.app) {
                host.stack.abort(now, id);
            }
        });
    }
    network.run_for(Duration::from_secs(20));
    network.take_tracer().expect("the tracer").finish().expect("the trace is written");
    (pcapng, std::fs::read_to_string(text).expect("the text trace"), tokens)
}

fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file);
    for preference in [
        "ip.check_checksum:TRUE",
        "tcp.check_checksum:TRUE",
        "tcp.relative_sequence_numbers:FALSE",
        "mptcp.relative_sequence_numbers:FALSE",
    ] {
        command.args(["-o", preference]);
    }
    // The port is that of HTTP, and the payload is random.
    command.args(["--disable-protocol", "http", "-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
}

/// The numbers after `word` in our own trace, in order.
fn numbers_after(text: &str, word: &str) -> Vec<u64> {
    let number = |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    text.lines().flat_map(|line| line.split(word).skip(1).filter_map(number)).collect()
}

#[test]
fn tshark_reads_what_we_write() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("SKIPPED: tshark is not installed (apt-get install tshark)");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for case in CASES {
        let (file, text, tokens) = run(case, folder);
        let bad = "_ws.malformed || tcp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\" || tcp.option.len.invalid";
        let wrong = tshark(&file, bad, &["frame.number", "_ws.col.Info"]);
        assert!(wrong.is_empty(), "{}: {wrong:?}", case.name);
        assert!(
            !tshark(&file, "tcp.checksum.status == \"Good\"", &["frame.number"]).is_empty(),
            "{}",
            case.name
        );

        let seen: BTreeSet<u8> = tshark(&file, "tcp.options.mptcp.subtype", &["tcp.options.mptcp.subtype"])
            .iter()
            .flat_map(|line| {
                line.split(',').map(|subtype| subtype.parse().expect("a number")).collect::<Vec<_>>()
            })
            .collect();
        for subtype in case.subtypes {
            assert!(seen.contains(subtype), "{}: subtype {subtype} is not among {seen:?}", case.name);
        }

        let joins = tshark(&file, "tcp.options.mptcp.recvtok", &["tcp.options.mptcp.recvtok"]);
        for join in &joins {
            let token: u32 = join.parse().expect("a token");
            assert!(tokens.contains(&token), "{}: token {token} is none of {tokens:?}", case.name);
        }
        assert_eq!(joins.is_empty(), !case.subtypes.contains(&1), "{}", case.name);

        // Every data sequence number, in the order of the packets.
        let theirs: Vec<u64> =
            tshark(&file, "tcp.options.mptcp.rawdataseqno", &["tcp.options.mptcp.rawdataseqno"])
                .iter()
                .flat_map(|line| {
                    line.split(',').map(|seq| seq.parse().expect("a number")).collect::<Vec<u64>>()
                })
                .collect();
        let mut ours = Vec::new();
        for line in text.lines() {
            if let Some(at) = line.find(" dss") {
                ours.extend(numbers_after(&line[at..], " seq "));
            }
        }
        assert_eq!(theirs, ours, "{}: data sequence numbers", case.name);
    }
}
