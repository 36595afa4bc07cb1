//! What a connection over several paths is compared with: plain TCP over one of them.

use std::sync::Arc;

use polypath_config::FileError;
use polypath_mptcp::ConnectionConfig;
use polypath_wire::Endpoint;

use super::{Outputs, Scenario, run};
use crate::network::NodeId;

impl Scenario {
    /// The same with plain TCP (CUBIC) in place of the connection with this number, once from each address of the host that
    /// opens it, with the name of the link there. Nothing is written. Empty if there is no such connection, if it is plain
    /// TCP already, or if its host has one address.
    ///
    /// # Errors
    /// Only what [`Scenario::run`] reports.
    pub fn over_tcp(&self, connection: usize) -> Result<Vec<(String, Self)>, FileError> {
        let Some(plan) = self.plan.connections.get(connection).filter(|plan| plan.config.mptcp) else {
            return Ok(Vec::new());
        };
        let mut quiet = self.clone();
        *quiet.outputs_mut() = Outputs::default();
        let (network, _) = run::build(&quiet)?;
        let [from, to] = [plan.from, plan.to].map(|node| NodeId(node as u32));
        let locals = network.addresses(from);
        if locals.len() < 2 {
            return Ok(Vec::new());
        }
        let config = ConnectionConfig {
            mptcp: false,
            congestion: polypath_congestion::CUBIC,
            ..(*plan.config).clone()
        };
        let config = Arc::new(config);
        let remotes = [plan.remote.addr].into_iter().chain(network.addresses(to));
        let remotes: Vec<_> = remotes.collect();
        let ways = locals.into_iter().filter_map(|local| {
            let reached = remotes.iter().copied().find(|remote| {
                local.is_ipv4() == remote.is_ipv4()
                    && network.reaches(from, local, *remote)
                    && network.reaches(to, *remote, local)
            });
            let hop = network.next_hop(from, local, reached?)?;
            Some((local, reached?, self.plan.links[hop.link().index()].name.clone()))
        });
        let over = ways.map(|(local, remote, link)| {
            let mut scenario = quiet.clone();
            let changed = &mut scenario.plan.connections[connection];
            changed.local = local;
            changed.remote = Endpoint::new(remote, plan.remote.port);
            changed.config = config.clone();
            (link, scenario)
        });
        Ok(over.collect())
    }
}

#[cfg(test)]
mod tests {
    use polypath_config::Policies;

    use super::*;

    const FILE: &str = r#"
duration = "20s"
[[hosts]]
name = "phone"
[[hosts]]
name = "server"
[[links]]
name = "wifi"
between = ["phone", "server"]
rate = "8mbit"
delay = "10ms"
limit = "80ms"
[[links]]
name = "lte"
between = ["phone", "server"]
rate = "4mbit"
delay = "30ms"
limit = "80ms"
[[connections]]
from = "phone"
to = "server"
direction = "download"
bytes = "1MB"
"#;

    #[test]
    fn a_connection_is_compared_with_tcp_over_each_path() {
        let scenario = Scenario::parse("a.toml", FILE, &Policies::default()).expect("it is right");
        let over = scenario.over_tcp(0).expect("nothing is written");
        assert_eq!(over.iter().map(|(link, _)| link.as_str()).collect::<Vec<_>>(), ["wifi", "lte"]);
        for ((_, alone), mbps) in over.iter().zip([8.0, 4.0]) {
            let result = alone.run(&mut ()).expect("nothing is written");
            let download = result.connections[0].download.as_ref().expect("a download");
            assert!(!result.connections[0].mptcp && download.completed_at_s.is_some());
            assert!((0.8..1.0).contains(&(download.goodput_bps / 1e6 / mbps)), "{}", download.goodput_bps);
            assert!(alone.over_tcp(0).expect("nothing is written").is_empty(), "it is TCP already");
        }
    }
}
