//! A proxy in numbers, for `polypath metrics`.

use std::collections::BTreeMap;

use polypath_metrics::{LimitSample, MemorySample, ProxySample};
use polypath_proxy::net::Proxy;
use serde::{Deserialize, Serialize};

/// What a proxy says to the word `figures`. No connection is asked for it, as it is for `status`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(in crate::command) struct Figures {
    sessions: BTreeMap<String, u64>,
    ended: Vec<EndedFigures>,
    to_server_bytes: u64,
    to_client_bytes: u64,
    memory: Option<MemoryFigures>,
    limits: BTreeMap<String, LimitFigures>,
}

#[derive(Debug, Deserialize, Serialize)]
struct EndedFigures {
    protocol: String,
    ending: String,
    count: u64,
}

#[derive(Debug, Deserialize, Serialize)]
struct MemoryFigures {
    bytes: u64,
    limit_bytes: u64,
}

#[derive(Debug, Deserialize, Serialize)]
struct LimitFigures {
    flows: u64,
    waiting_flows: u64,
}

impl Figures {
    /// As they are now.
    pub(super) fn of(proxy: &Proxy) -> Self {
        let counts = proxy.counts();
        let ended = counts.ended.into_iter().map(|((protocol, outcome), count)| EndedFigures {
            protocol: protocol.into(),
            ending: outcome.name().into(),
            count,
        });
        let limits = proxy.limits().into_iter().map(|state| {
            let (flows, waiting_flows) = (state.flows as u64, state.waiting as u64);
            (state.limit.name.to_string(), LimitFigures { flows, waiting_flows })
        });
        // No subflow waits as a whole.
        let of_paths = proxy
            .path_limits()
            .into_iter()
            .map(|state| (state.name, LimitFigures { flows: state.subflows as u64, waiting_flows: 0 }));
        Self {
            sessions: counts.present.into_iter().map(|(protocol, count)| (protocol.into(), count)).collect(),
            ended: ended.collect(),
            to_server_bytes: counts.carried.to_server_bytes,
            to_client_bytes: counts.carried.to_client_bytes,
            memory: proxy
                .memory()
                .map(|memory| MemoryFigures { bytes: memory.octets, limit_bytes: memory.most }),
            limits: limits.chain(of_paths).collect(),
        }
    }

    /// For what makes a text of them.
    pub(in crate::command) fn sample(self, source: String, name: &str) -> ProxySample {
        let limit = |LimitFigures { flows, waiting_flows }| LimitSample { flows, waiting_flows };
        let ended = self.ended.into_iter().map(|ended| ((ended.protocol, ended.ending), ended.count));
        ProxySample {
            source,
            name: name.into(),
            sessions: self.sessions,
            ended: ended.collect(),
            up_bytes: self.to_server_bytes,
            down_bytes: self.to_client_bytes,
            memory: self
                .memory
                .map(|MemoryFigures { bytes, limit_bytes }| MemorySample { bytes, limit_bytes }),
            limits: self.limits.into_iter().map(|(name, figures)| (name, limit(figures))).collect(),
        }
    }
}
