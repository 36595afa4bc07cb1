//! Uplinks that go for a moment, and what their connections come to.

use std::time::Duration;

use polypath_mptcp::HostConfig;
use polypath_stack::engine::{ConnectOptions, KernelEngine};
use polypath_stack::stack::Stack;
use polypath_testbed::{Testbed, is_root_or_skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::*;
use super::Host;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn what_comes_for_a_connection_as_soon_as_its_uplink_is_back_reaches_the_stack() {
    if !is_root_or_skip("uplinks that go for a moment") {
        return;
    }
    let host = Host::new();
    let tun = host.tun();
    let mut setup = host.apply(&tun, SetupOptions::default()).expect("set-up");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let stack = Stack::tun(&tun, HostConfig::default()).expect("a stack");
        let server = KernelEngine::new().in_namespace(host.testbed.server.clone());
        let path = setup.paths()[0].clone();
        let targets = [IpAddr::from(Testbed::server_v4(0)), Testbed::server_v6(0).into()];
        let mut connections = Vec::new();
        for to in targets {
            let own = path.stack_addresses().find(|own| own.is_ipv4() == to.is_ipv4()).expect("an address");
            let listener = server.listen((to, 0).into()).unwrap();
            let options = ConnectOptions {
                local: Some((own, 0).into()),
                timeout: Some(PATIENCE),
                ..ConnectOptions::default()
            };
            let at = listener.local_addr().unwrap();
            let (near, far) = tokio::join!(stack.connect(at, &options), listener.accept());
            let (mut near, (mut far, _)) = (near.expect("connects"), far.unwrap());
            far.write_all(b"before").await.unwrap();
            near.read_exact(&mut [0; 6]).await.unwrap();
            connections.push((near, far));
        }
        host.shell("ip link set path0 down");
        assert_eq!(setup.update().unwrap().removed.len(), 2);
        // Nobody looks at the network after this: the peer may well be faster.
        host.shell(&format!(
            "ip link set path0 up; ip addr add {}/64 dev path0 nodad",
            Testbed::client_v6(0)
        ));
        for (near, far) in &mut connections {
            far.write_all(b"after").await.unwrap();
            let read = tokio::time::timeout(PATIENCE, near.read_exact(&mut [0; 5])).await;
            read.expect("the peer sends it again until it comes").expect("no reset");
        }
        // What the stack says leaves again too.
        host.shell("ip route add default via 10.77.0.2 dev path0 metric 100");
        assert_eq!(setup.update().unwrap().added.len(), 1);
        for (near, far) in &mut connections {
            near.write_all(b"back").await.unwrap();
            let read = tokio::time::timeout(PATIENCE, far.read_exact(&mut [0; 4])).await;
            read.expect("it comes").expect("no reset");
        }
        // With another address, the peer is asked, and does not know it.
        host.shell(
            "ip -4 addr flush dev path0; ip addr add 10.77.0.9/24 dev path0
             ip route add default via 10.77.0.2 dev path0 metric 100",
        );
        assert_eq!(setup.update().unwrap().readdressed.len(), 1);
        let (mut near, _far) = connections.swap_remove(0);
        near.write_all(b"moved").await.unwrap();
        let read = tokio::time::timeout(PATIENCE, near.read_u8()).await.expect("an answer");
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        // The other family goes on.
        let (near, far) = &mut connections[0];
        near.write_all(b"on").await.unwrap();
        tokio::time::timeout(PATIENCE, far.read_exact(&mut [0; 2])).await.expect("it comes").unwrap();
    });
    drop(runtime);
    setup.remove().unwrap();
}
