//! Connections by each of two paths to a server that both lead to. Makes network namespaces: needs root, and is skipped without.
#![cfg(feature = "net")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener};
use std::thread;

use polypath_fetch::net::{Dialer, Tls, TlsOptions};
use polypath_system::Netlink;
use polypath_testbed::{Testbed, is_root_or_skip};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Where the server is, behind both paths.
const SERVER: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

/// Path 1 has its routes in a table of its own, which only its addresses lead to, as on machines with two uplinks.
fn routes(testbed: &Testbed) {
    for (server, length) in SERVER.into_iter().zip([32, 128]) {
        let server: IpAddr = server.parse().unwrap();
        testbed.server.run(|| Netlink::new()?.add_address("lo", server, length)).unwrap().unwrap();
        let (gateways, own): ([IpAddr; 2], IpAddr) = if server.is_ipv4() {
            ([Testbed::server_v4(0).into(), Testbed::server_v4(1).into()], Testbed::client_v4(1).into())
        } else {
            ([Testbed::server_v6(0).into(), Testbed::server_v6(1).into()], Testbed::client_v6(1).into())
        };
        let add = || {
            let netlink = Netlink::new()?;
            netlink.add_route("path0", (server, length), Some(gateways[0]), None)?;
            netlink.add_route("path1", (server, length), Some(gateways[1]), Some(101))?;
            netlink.add_source_rule((own, length), 101, 1000)
        };
        testbed.client.run(add).unwrap().unwrap();
    }
}

#[test]
fn a_connection_leaves_by_its_interface_and_from_its_address() {
    if !is_root_or_skip("connections by interfaces") {
        return;
    }
    let testbed = Testbed::new(2).expect("namespaces");
    routes(&testbed);
    let tls = Tls::new(&TlsOptions { is_unverified: true, ..TlsOptions::default() }).unwrap();
    for server in SERVER {
        let listener = testbed.server.run(|| TcpListener::bind((server, 0))).unwrap().unwrap();
        let addr = listener.local_addr().unwrap();
        for path in 0..2 {
            let listener = listener.try_clone().unwrap();
            let serving = thread::spawn(move || {
                let (mut stream, from) = listener.accept().unwrap();
                stream.read_exact(&mut [0]).unwrap();
                stream.write_all(from.ip().to_string().as_bytes()).unwrap();
            });
            let dialer = Dialer::new(Some(&Testbed::interface(path)), tls.clone());
            let seen = testbed.client.run(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut stream = dialer.dial(&format!("http://{addr}/").parse().unwrap()).await.unwrap();
                    stream.write_all(&[0]).await.unwrap();
                    let mut seen = String::new();
                    stream.read_to_string(&mut seen).await.unwrap();
                    seen
                })
            });
            let own: IpAddr = if addr.is_ipv4() {
                Testbed::client_v4(path).into()
            } else {
                Testbed::client_v6(path).into()
            };
            assert_eq!(seen.unwrap(), own.to_string());
            serving.join().unwrap();
        }
    }
}
