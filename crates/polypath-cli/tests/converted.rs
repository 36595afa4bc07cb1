//! Two boxes: a proxy on a laptop reaches servers through a converter, over Multipath TCP where the path lets it through. Needs root; what is
//! missing is said.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

use polypath_emulate::{EmulatedLink, Emulation};
use polypath_link::{LinkConfig, middlebox};
use polypath_system::Namespace;
use polypath_testbed::{Testbed, is_root_or_skip};

/// A proxy in a namespace, which ends with this.
struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    /// Once clients can enter.
    fn new(at: &Namespace, name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polypath"));
        command.args(["proxy", "--no-config", "--instance", name]).args(arguments).stdout(Stdio::piped());
        command.env("POLYPATH_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
        let mut child = at.run(|| command.spawn()).expect("a namespace").expect("a proxy");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        let mut running = Self { child, said };
        assert!(running.line().starts_with("Clients of"));
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_path_that_strips_options_is_converted_all_the_same() {
    if !is_root_or_skip("a converter behind a middlebox") {
        return;
    }
    let data: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (box_on_the_way, transports) in [(None, "tcp to mptcp"), (Some("strip-mptcp-syn"), "tcp to tcp")] {
        let testbed = Testbed::with_middle(1).expect("namespaces");
        let boxes = box_on_the_way.map(|name| middlebox::Policy::by_name(name).expect("a middlebox"));
        let link = EmulatedLink {
            a: "client0".into(),
            b: "server0".into(),
            forward: LinkConfig::default(),
            backward: LinkConfig::default(),
            middleboxes: boxes.into_iter().collect(),
            seed: 7,
        };
        let _emulation =
            Emulation::start(testbed.middle.as_ref().expect("a middle"), vec![link]).expect("an emulation");
        let server = Testbed::server_v4(0);
        let origin = testbed.server.run(|| TcpListener::bind((server, 0))).expect("a namespace");
        let origin = origin.expect("a server");
        let port = origin.local_addr().expect("its address").port();
        let converter = ["--convert", "0.0.0.0:5000", "--open", "--engine", "tcp"];
        let mut converter = Running::new(&testbed.server, "converter", &converter);
        let via = format!("convert://{server}:5000");
        let socks = format!("{}:1080", Testbed::client_v4(0));
        let laptop = ["--socks", &socks, "--open", "--via", &via, "--engine", "kernel"];
        let mut laptop = Running::new(&testbed.client, "laptop", &laptop);

        let client = testbed.client.run(|| TcpStream::connect((Testbed::client_v4(0), 1080)));
        let mut client = client.expect("a namespace").expect("a connection");
        let asked = [&[5, 1, 0, 5, 1, 0, 1][..], &server.octets(), &port.to_be_bytes()].concat();
        client.write_all(&asked).expect("it is sent");
        let heard = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = origin.accept().expect("a connection");
                let mut request = Vec::new();
                stream.read_to_end(&mut request).expect("all of it");
                stream.write_all(&request).expect("it is sent back");
            });
            let mut reply = [0; 12];
            client.read_exact(&mut reply).expect("a reply");
            assert_eq!(reply[..4], [5, 0, 5, 0]);
            client.write_all(&data).expect("it is sent");
            client.shutdown(Shutdown::Write).expect("an end");
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).expect("all of it");
            heard
        });
        assert!(heard == data, "{} bytes by way of {box_on_the_way:?}", heard.len());
        let told = laptop.line();
        assert!(told.contains(transports) && told.contains("ended"), "{box_on_the_way:?}: {told}");
        let told = converter.line();
        let of_client = transports.rsplit(' ').next().expect("a word");
        assert!(told.contains(&format!(", {of_client} to tcp")), "{box_on_the_way:?}: {told}");
    }
}
