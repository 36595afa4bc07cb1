use polypath_mptcp::path_manager::{PathAction, PathEvent, PathManager, PathView, Policy};

/// A path manager: opens the other paths when the first one fails.
pub const RESCUE: Policy = Policy::new("rescue", |_| Box::new(Rescue));

#[derive(Debug)]
struct Rescue;

impl PathManager for Rescue {
    fn name(&self) -> &'static str {
        RESCUE.name()
    }

    fn handle_event(&mut self, event: &PathEvent, view: &PathView<'_>, actions: &mut Vec<PathAction>) {
        if !matches!(event, PathEvent::SubflowStale { .. }) || !view.is_client || !view.may_join {
            return;
        }
        let remote = view.initial_remote;
        for endpoint in view.endpoints.iter().filter(|endpoint| endpoint.subflow) {
            let is_used = view.subflows.iter().any(|subflow| subflow.local == endpoint.addr);
            if !is_used && endpoint.addr.is_ipv4() == remote.addr.is_ipv4() {
                let (local, local_id, backup) = (endpoint.addr, endpoint.id, endpoint.backup);
                actions.push(PathAction::Open { local, local_id, remote, backup });
            }
        }
    }
}
