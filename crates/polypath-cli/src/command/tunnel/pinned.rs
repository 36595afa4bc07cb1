//! Rules that pin packets to a path that is not there: what they drop is told.

use std::collections::{BTreeMap, BTreeSet};

use polypath_tunnel::{FlowPolicy, PathId, PeerId, PeerStatus, Rule};

/// Rules, by their place, whose path to a peer is not there or does not work.
pub(super) fn missing(rules: &[Rule], status: &PeerStatus) -> impl Iterator<Item = (usize, PathId)> {
    let works = |id: PathId| status.paths.iter().any(|path| path.id == id && path.is_usable);
    let mut seen = BTreeSet::new();
    let pinned = rules.iter().enumerate().filter_map(|(at, rule)| match rule.policy {
        FlowPolicy::Pinned(id) => Some((at, id)),
        _ => None,
    });
    pinned.filter(move |&(_, id)| !works(id) && seen.insert(id))
}

/// What was told already.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Packets that each peer's rules had dropped at the last look.
    dropped: BTreeMap<PeerId, u64>,
    paths: BTreeSet<(PeerId, PathId)>,
}

impl Told {
    /// What is to be told of a peer: each path once, when the first packet is dropped, and again once it has worked in between.
    pub(super) fn look(
        &mut self,
        (id, label): (PeerId, &str),
        rules: &[Rule],
        status: &PeerStatus,
    ) -> Vec<String> {
        let dropped = status.counts.pinned_dropped;
        let before = self.dropped.insert(id, dropped).unwrap_or(0);
        let missing: Vec<_> = missing(rules, status).collect();
        self.paths.retain(|&(peer, path)| peer != id || missing.iter().any(|&(_, gone)| gone == path));
        if dropped <= before {
            return Vec::new();
        }
        let new = missing.into_iter().filter(|&(_, path)| self.paths.insert((id, path)));
        let tell = |(at, path): (usize, PathId)| {
            let is_there = status.paths.iter().any(|known| known.id == path);
            let how = if is_there { "does not work now" } else { "is not there" };
            format!(
                "rules[{at}] pins packets for {label} to path {}, which {how}: they are dropped; `polypath tunnel status` shows the paths",
                path.index()
            )
        };
        new.map(tell).collect()
    }

    /// The peer is gone.
    pub(super) fn forget(&mut self, id: PeerId) {
        self.dropped.remove(&id);
        self.paths.retain(|(peer, _)| *peer != id);
    }
}

#[cfg(test)]
mod tests {
    use polypath_tunnel::driver::{system_random, zero_since_1970};
    use polypath_tunnel::key::PrivateKey;
    use polypath_tunnel::{Engine, EngineConfig, LocalId, PathSettings, PeerConfig};
    use polypath_units::Instant;

    use super::*;

    #[test]
    fn each_path_is_told_once() {
        let mut config = EngineConfig::new(PrivateKey::from_random([1; 32]));
        config.peers.push(PeerConfig::new(PrivateKey::from_random([2; 32]).public_key()));
        let mut engine = Engine::new(config, zero_since_1970(), system_random());
        let (now, peer) = (Instant::from_secs(1), engine.peer_ids().next().unwrap());
        let (local, remote) = (LocalId(0), "192.0.2.1:7".parse().unwrap());
        let there = engine.add_path(now, peer, local, remote, PathSettings::default()).unwrap();
        let mut status = engine.peer_status(now, peer).unwrap();
        status.paths[0].is_usable = true;
        let other = PathId::new(5).unwrap();
        let rules = [there, other, other].map(|id| Rule::all(FlowPolicy::Pinned(id)));

        let mut told = Told::default();
        let mut look = |status: &PeerStatus| told.look((peer, "office"), &rules, status);
        assert!(look(&status).is_empty(), "nothing was dropped yet");
        status.counts.pinned_dropped = 3;
        let lines = look(&status);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("rules[1] pins packets for office to path 5, which is not there"),
            "{lines:?}"
        );
        status.counts.pinned_dropped = 4;
        assert!(look(&status).is_empty());

        status.paths[0].is_usable = false;
        assert!(look(&status).is_empty(), "nothing was dropped since");
        for dropped in [5, 7] {
            status.counts.pinned_dropped = dropped;
            let lines = look(&status);
            let expected = format!("to path {}, which does not work now", there.index());
            assert!(lines.len() == 1 && lines[0].contains(&expected), "{lines:?}");
            // It works in between.
            status.paths[0].is_usable = true;
            assert!(look(&status).is_empty());
            status.paths[0].is_usable = false;
        }
    }
}
