use polypath::mptcp::path_manager::{PathAction, PathEvent, PathManager, PathView, Policy};

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

#[cfg(test)]
mod tests {
    use polypath::mptcp::path_manager::{LocalEndpoint, SubflowSummary};
    use polypath::wire::Endpoint;

    use super::*;

    #[test]
    fn opens_what_is_not_in_use_once_a_subflow_is_stale() {
        let (wifi, lte) = ([10, 0, 0, 1].into(), [10, 1, 0, 1].into());
        let remote = Endpoint::new([192, 0, 2, 1].into(), 80);
        let stale = SubflowSummary { stale: true, ..SubflowSummary::new(0, wifi, 1, remote) };
        let made_up = PathView::builder(wifi, remote)
            .endpoint(LocalEndpoint::subflow(wifi, 1))
            .endpoint(LocalEndpoint::subflow(lte, 2))
            .subflow(stale);
        let mut actions = Vec::new();
        Rescue.handle_event(&PathEvent::Established, &made_up.view(), &mut actions);
        assert!(actions.is_empty());
        Rescue.handle_event(&PathEvent::SubflowStale { subflow: stale.id }, &made_up.view(), &mut actions);
        let opens = PathAction::Open { local: lte, local_id: 2.into(), remote, backup: false };
        assert_eq!(actions, [opens]);
    }
}
