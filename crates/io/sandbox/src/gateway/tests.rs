//! The gateway between a namespace with a program's sockets and a testbed's server, for each engine.

use std::io::{Read, Write};
use std::net::TcpStream;

use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_stack::Stack;
use polypath_stack::engine::{KernelEngine, Stream};
use polypath_system::Namespace;
use polypath_system::tun::TunConfig;
use polypath_testbed::{Side, Testbed, is_root_or_skip};
use polypath_wire::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

use super::*;
use crate::inside::open_network;
use crate::{GATEWAY_V4, PROGRAM_V4};

/// Which engine carries the connections.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    Kernel,
    Stack,
}

struct Scene {
    program: Namespace,
    running: Running,
    listener: polypath_stack::engine::Listener,
    _testbed: Testbed,
}

impl Scene {
    async fn new(carrier: Carrier) -> Self {
        let testbed = Testbed::new(2).expect("namespaces");
        let engine = match carrier {
            Carrier::Kernel => Engine::Kernel(KernelEngine::new().in_namespace(testbed.client.clone())),
            Carrier::Stack => {
                let tun = testbed.attach_tun(Side::Client, &TunConfig::default()).expect("a TUN device");
                let path = |path| LocalEndpoint::subflow(Side::Client.stack_v4(path).into(), path + 1);
                let config = polypath_mptcp::HostConfig {
                    endpoints: vec![path(0), path(1)],
                    ..polypath_mptcp::HostConfig::default()
                };
                Engine::Stack(Stack::tun(&tun, config).expect("a stack"))
            }
        };
        let program = Namespace::create().expect("a namespace");
        let descriptors = program.run(|| open_network(65_520, &[])).expect("a thread").expect("a network");
        let enclosure = Enclosure { resolvers: Vec::new(), ..Enclosure::new("none") };
        let running = start(&enclosure, engine, descriptors).await.expect("a gateway");
        let server = Engine::Kernel(KernelEngine::new().in_namespace(testbed.server.clone()));
        let listener = server.listen((Testbed::server_v4(0), 0).into()).await.expect("a listener");
        Self { program, running, listener, _testbed: testbed }
    }

    /// Does something with a connection of the program, on a thread that may wait.
    fn connect<T: Send + 'static>(
        &self,
        act: impl FnOnce(TcpStream) -> T + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let (program, to) = (self.program.clone(), self.listener.local_addr().expect("its address"));
        tokio::task::spawn_blocking(move || {
            act(program.run(|| TcpStream::connect(to)).expect("a thread").expect("a connection"))
        })
    }

    async fn accept(&self) -> Stream {
        self.listener.accept().await.expect("a connection").0
    }

    /// Waits until the gateway has forgotten every connection.
    async fn is_idle(&self) {
        let gateway = &self.running.0;
        for _ in 0..1000 {
            let is_idle = {
                let state = gateway.state.borrow();
                state.opened.is_empty() && state.sending == 0 && state.host.population().connections == 0
            };
            if is_idle {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?} are left", gateway.state.borrow().host);
    }
}

async fn on_each_engine(what: &str, test: impl AsyncFn(Scene)) {
    if !is_root_or_skip(what) {
        return;
    }
    for carrier in [Carrier::Kernel, Carrier::Stack] {
        eprintln!("{what} by {carrier:?}");
        let local = LocalSet::new();
        let done = local.run_until(async { test(Scene::new(carrier).await).await });
        tokio::time::timeout(Duration::from_secs(60), done).await.expect("an end");
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[tokio::test]
async fn megabytes_go_both_ways_and_end_half_by_half() {
    on_each_engine("gateway: megabytes", async |scene: Scene| {
        let data = pattern(8 << 20);
        let expected = data.clone();
        let program = scene.connect(move |mut stream| {
            let mut writer = stream.try_clone().unwrap();
            let writing = std::thread::spawn(move || {
                writer.write_all(&data).unwrap();
                writer.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            writing.join().unwrap();
            received
        });
        let (mut reader, mut writer) = tokio::io::split(scene.accept().await);
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        // The program has ended its half; ours is still open.
        writer.write_all(b"after the end").await.unwrap();
        writer.shutdown().await.unwrap();
        let received = program.await.unwrap();
        assert_eq!(received.len(), expected.len() + 13);
        assert!(received.starts_with(&expected) && received.ends_with(b"after the end"));
        scene.is_idle().await;
    })
    .await;
}

#[tokio::test]
async fn a_reset_on_either_side_reaches_the_other() {
    on_each_engine("gateway: resets", async |scene: Scene| {
        let program = scene.connect(|stream| {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        });
        let mut server = scene.accept().await;
        program.await.unwrap();
        assert!(server.read(&mut [0; 10]).await.is_err());

        let program = scene.connect(|mut stream| {
            stream.write_all(b"x").unwrap();
            stream.read(&mut [0; 10]).unwrap_err().kind()
        });
        let mut server = scene.accept().await;
        server.read_exact(&mut [0]).await.unwrap();
        server.abort();
        assert_eq!(program.await.unwrap(), io::ErrorKind::ConnectionReset);
        scene.is_idle().await;
    })
    .await;
}

#[tokio::test]
async fn a_slow_reader_holds_the_writer_back() {
    on_each_engine("gateway: back-pressure", async |scene: Scene| {
        let program = scene.connect(|mut stream| {
            stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let block = pattern(1 << 16);
            let mut written = 0;
            while let Ok(taken) = stream.write(&block) {
                written += taken;
                assert!(written < 64 << 20, "nothing holds the writer back");
            }
            written
        });
        let mut server = scene.accept().await;
        let written = program.await.unwrap();
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), written);
        drop(server);
        scene.is_idle().await;
    })
    .await;
}

#[tokio::test]
async fn many_connections_at_once() {
    const CONNECTIONS: usize = 200;
    on_each_engine("gateway: many connections", async |scene: Scene| {
        let programs: Vec<_> = (0..CONNECTIONS)
            .map(|index| {
                scene.connect(move |mut stream| {
                    stream.write_all(&pattern(1000 + index)).unwrap();
                    stream.shutdown(std::net::Shutdown::Write).unwrap();
                    let mut received = Vec::new();
                    stream.read_to_end(&mut received).unwrap();
                    received == pattern(1000 + index)
                })
            })
            .collect();
        for _ in 0..CONNECTIONS {
            let stream = scene.accept().await;
            spawn_local(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
            });
        }
        for program in programs {
            assert!(program.await.unwrap());
        }
        scene.is_idle().await;
    })
    .await;
}

#[tokio::test]
async fn destinations_that_refuse_are_refused_to_the_program() {
    on_each_engine("gateway: refusals", async |scene: Scene| {
        let (program, mut to) = (scene.program.clone(), scene.listener.local_addr().unwrap());
        to.set_port(9);
        let connecting =
            tokio::task::spawn_blocking(move || program.run(|| TcpStream::connect(to)).unwrap().unwrap_err());
        assert_eq!(connecting.await.unwrap().kind(), io::ErrorKind::ConnectionRefused);
        scene.is_idle().await;
    })
    .await;
}

#[test]
fn what_a_program_sends_is_acknowledged_at_once() {
    let now = Instant::from_secs(1);
    let mut gateway = Host::new(host_config(65_520), 1);
    let _ = gateway.listen_everywhere(ListenConfig { backlog: 1, backlog_per_source: 1 });
    let mut program = Host::new(host_config(65_520), 2);
    let (from, to) = (Endpoint::new(PROGRAM_V4.into(), 4000), Endpoint::new(GATEWAY_V4.into(), 80));
    let id = program.connect(now, from, to).expect("a connection");
    // Packets that the gateway sent.
    let mut exchange = |program: &mut Host| {
        let mut answers = 0;
        loop {
            if let Some(packet) = program.poll_transmit(now) {
                gateway.handle_packet(now, packet);
            } else if let Some(packet) = gateway.poll_transmit(now) {
                answers += 1;
                program.handle_packet(now, packet);
            } else {
                return answers;
            }
        }
    };
    assert_eq!(exchange(&mut program), 1);
    // Beyond the start, when everything is acknowledged at once anyway.
    for sent in 0..100 {
        let taken = program.send(id, Bytes::from_static(&[7; 1000]));
        assert_eq!((taken, exchange(&mut program)), (Ok(1000), 1), "the segment after {sent}");
    }
}
