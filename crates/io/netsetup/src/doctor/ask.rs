//! Questions to the kernel that only the doctor has, about the calling thread's network namespace.

use std::collections::BTreeMap;
use std::fs;

use ethtool::{EthtoolAttr, EthtoolFeatureAttr, EthtoolHeader};
use futures_util::TryStreamExt;

/// A variable under `/proc/sys`, without the line's end.
pub(super) fn variable(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|value| value.trim().to_string())
}

/// A counter of the kernel's Multipath TCP; zero if it has none of that name.
pub(super) fn counter(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("MPTcpExt: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.split(' ').zip(values.split(' ')).find(|(known, _)| *known == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Which of a network card's offloads are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offloads {
    /// Sends large segments (TSO or GSO).
    pub(super) sends_large: bool,
    /// Receives large segments (GRO).
    pub(super) receives_large: bool,
}

/// The offloads of each interface; empty if the kernel does not tell.
pub(super) fn offloads() -> BTreeMap<String, Offloads> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
        return BTreeMap::new();
    };
    runtime.block_on(async {
        let mut known = BTreeMap::new();
        let Ok((connection, mut handle, _)) = ethtool::new_connection() else { return known };
        tokio::spawn(connection);
        let Ok(mut features) = handle.feature().get(None).execute().await.map(Box::pin) else { return known };
        while let Ok(Some(message)) = features.try_next().await {
            let (mut name, mut offloads) = (None, Offloads::default());
            for attribute in message.payload.nlas {
                match attribute {
                    EthtoolAttr::Feature(EthtoolFeatureAttr::Header(header)) => {
                        name = header.into_iter().find_map(|part| match part {
                            EthtoolHeader::DevName(name) => Some(name),
                            _ => None,
                        });
                    }
                    EthtoolAttr::Feature(EthtoolFeatureAttr::Active(bits)) => {
                        let is_on = |wanted: &str| bits.iter().any(|bit| bit.name == wanted && bit.value);
                        offloads.sends_large =
                            is_on("tx-tcp-segmentation") || is_on("tx-generic-segmentation");
                        offloads.receives_large = is_on("rx-gro") || is_on("rx-lro");
                    }
                    _ => {}
                }
            }
            known.extend(name.map(|name| (name, offloads)));
        }
        known
    })
}
