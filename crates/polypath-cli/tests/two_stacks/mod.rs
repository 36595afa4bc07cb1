//! Two stacks behind TUN devices in namespaces, joined by two paths.

use std::net::IpAddr;

use polypath_mptcp::HostConfig;
use polypath_mptcp::path_manager::LocalEndpoint;
use polypath_stack::Stack;
use polypath_system::tun::TunConfig;
use polypath_testbed::{Side, Testbed};

pub(crate) struct Hosts {
    pub(crate) client: Stack,
    pub(crate) server: Stack,
    _testbed: Testbed,
}

impl Hosts {
    pub(crate) fn new() -> Self {
        let testbed = Testbed::new(2).expect("namespaces");
        let stack = |side: Side, endpoint: fn(IpAddr, u8) -> LocalEndpoint| {
            let tun = testbed.attach_tun(side, &TunConfig::default()).expect("a TUN device");
            let endpoints = (0..2).map(|path| endpoint(side.stack_v4(path).into(), path + 1)).collect();
            Stack::tun(&tun, HostConfig { endpoints, ..HostConfig::default() }).expect("a stack")
        };
        let client = stack(Side::Client, LocalEndpoint::subflow);
        let server = stack(Side::Server, LocalEndpoint::signal);
        Self { client, server, _testbed: testbed }
    }
}
