//! Interfaces that go down under their subflows, where no event tells of it.

use std::collections::{BTreeMap, BTreeSet};

use polypath_system::{Namespace, Netlink, SystemState};

/// Those that went down, with the bytes that had come and gone by then.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    down: BTreeMap<String, u64>,
}

impl Links {
    /// Those that went down since the last look. `in_use` are the interfaces of subflows with the bytes that they carried; of `lost`
    /// ones it is known already.
    pub(super) fn went_down(
        &mut self,
        in_use: &BTreeMap<String, u64>,
        running: &BTreeSet<String>,
        lost: &BTreeSet<String>,
    ) -> Vec<String> {
        let went = in_use.iter().filter(|(name, _)| !running.contains(*name) && !lost.contains(*name));
        let went: Vec<(&String, &u64)> = went.collect();
        self.down.extend(went.iter().map(|(name, bytes)| ((*name).clone(), **bytes)));
        went.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// Those that are up again and have carried something since.
    pub(super) fn carrying_again(
        &self,
        in_use: &BTreeMap<String, u64>,
        running: &BTreeSet<String>,
    ) -> Vec<String> {
        let has_carried = |(name, before): &(&String, &u64)| {
            running.contains(*name) && in_use.get(*name).is_some_and(|bytes| bytes > *before)
        };
        self.down.iter().filter(has_carried).map(|(name, _)| name.clone()).collect()
    }

    /// It is in use again.
    pub(super) fn forget(&mut self, name: &str) {
        self.down.remove(name);
    }

    pub(super) fn is_down(&self, name: &str) -> bool {
        self.down.contains_key(name)
    }
}

/// The interfaces that are up and have a carrier; none if that can't be read.
pub(super) async fn running() -> Option<BTreeSet<String>> {
    let look = || Namespace::current()?.run(|| SystemState::read(&Netlink::new()?))?;
    let state = tokio::task::spawn_blocking(look).await.ok()?.ok()?;
    Some(state.links.into_iter().filter(|link| link.is_running).map(|link| link.name).collect())
}
