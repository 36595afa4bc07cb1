//! A host that forwards for a tunnel.

use std::process::Command;

use polypath_testbed::is_root_or_skip;

use super::super::gateway::{Gateway, GatewayOptions};
use super::*;

fn options() -> GatewayOptions {
    GatewayOptions {
        lan: vec!["path0".into()],
        internet: true,
        masquerade: true,
        addresses: vec![addr("10.99.0.2"), addr("fd99::2")],
        has_v6: true,
        mtu_bytes: 1_400,
    }
}

fn output(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("the shell");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_gateway_forwards_for_the_tunnel_alone_and_leaves_nothing() {
    if !is_root_or_skip("a gateway") {
        return;
    }
    let host = Host::new();
    let directory = host.directory.path().to_path_buf();
    let tun = host.testbed.client.run(|| {
        let tun = Tun::create(&TunConfig { name: "polypath-vpn".into(), ..TunConfig::default() });
        Netlink::new()?.set_up("polypath-vpn")?;
        Ok::<_, io::Error>(tun.expect("a device"))
    });
    let tun = tun.expect("the namespace").expect("a device");
    let before = host.snapshot();
    let gateway = host.testbed.client.run(|| Gateway::open_in("polypath-vpn", options(), directory.clone()));
    let mut gateway = gateway.expect("the namespace").expect("a gateway");
    let (table, forwarding) = host
        .testbed
        .client
        .run(|| (output("nft list ruleset"), output("cat /proc/sys/net/ipv4/conf/path[01]/forwarding")))
        .expect("the namespace");
    for line in [
        "meta nfproto ipv4 tcp flags syn tcp option maxseg size set 1360",
        "meta nfproto ipv6 tcp flags syn tcp option maxseg size set 1340",
        "iifname \"path0\" oifname \"polypath-vpn\" accept",
        "oifname \"polypath-vpn\" drop",
        "iifname \"path1\" meta nfproto ipv4 drop",
        "snat ip to 10.99.0.2",
        "snat ip6 to fd99::2",
        "iifname \"polypath-vpn\" oifname != \"polypath-vpn\" masquerade",
    ] {
        assert!(table.contains(line), "{line} is not in {table}");
    }
    assert_eq!(forwarding, "1\n1\n");
    host.testbed.client.run(|| gateway.update()).expect("the namespace").expect("the same again");
    host.testbed.client.run(|| gateway.close()).expect("the namespace").expect("it is taken down");
    assert_eq!(host.snapshot(), before);
    assert_eq!(directory.read_dir().expect("a folder").count(), 0);

    let wrong = host.testbed.client.run(|| Gateway::open_in("../vpn", options(), directory.clone()));
    assert!(wrong.expect("the namespace").is_err());
    drop(tun);
}
