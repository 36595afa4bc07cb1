use super::lowest_rtt::lowest_rtt;
use super::{Data, Decision, Scheduler, SubflowView, View};

/// Lowest round-trip time, and backups (RFC 8684 §3.3.8) help from the first sign of trouble on, not only when every
/// regular subflow has timed out: while all regular subflows wait for the answer to a probe, a backup carries new
/// data; and it carries reinjections that no regular subflow can take now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BackupAware;

impl Scheduler for BackupAware {
    fn name(&self) -> &'static str {
        "backup-aware"
    }

    fn select(&mut self, view: &View<'_>) -> Option<Decision> {
        let is_sound = |subflow: &SubflowView| subflow.timeouts == 0 && !subflow.is_probing;
        let is_any_sound = view.subflows.iter().any(is_sound);
        let regular =
            lowest_rtt(view, |subflow| subflow.is_available() && (is_sound(subflow) || !is_any_sound));
        let wanted = if view.reinjection_bytes > 0 {
            (!matches!(regular, Some(Decision { data: Data::Reinjection, .. }))).then_some(Data::Reinjection)
        } else {
            (!is_any_sound && view.new_bytes > 0).then_some(Data::New)
        };
        let backup = wanted.and_then(|data| {
            let backup = view
                .standby
                .iter()
                .filter(|subflow| subflow.is_available() && Some(subflow.id) != view.reinjection_from)
                .min_by_key(|subflow| subflow.srtt)?;
            Some(Decision::send(backup.id, data))
        });
        backup.or(regular)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{subflow, view};
    use super::*;
    use crate::identifiers::SubflowId;

    #[test]
    fn a_backup_waits_until_the_regular_subflows_are_in_doubt() {
        let mut regular = [subflow(1, 20, 0)];
        let standby = [SubflowView { backup: true, ..subflow(2, 50, 5) }];
        let pick = |regular: &[SubflowView]| BackupAware.select(&View { standby: &standby, ..view(regular) });
        assert_eq!(pick(&regular), None);
        regular[0].is_probing = true;
        assert_eq!(pick(&regular), Some(Decision::send(SubflowId(2), Data::New)));
    }

    #[test]
    fn a_backup_takes_what_was_lost_if_no_regular_subflow_can() {
        let mut regular = [subflow(1, 20, 0), subflow(3, 30, 0)];
        let standby = [SubflowView { backup: true, ..subflow(2, 50, 5) }];
        let pick = |regular: &[SubflowView]| {
            let lost =
                View { reinjection_bytes: 1460, reinjection_from: Some(SubflowId(1)), ..view(regular) };
            BackupAware.select(&View { standby: &standby, ..lost })
        };
        assert_eq!(pick(&regular), Some(Decision::send(SubflowId(2), Data::Reinjection)));
        regular[1].room_bytes = 1460;
        assert_eq!(pick(&regular), Some(Decision::send(SubflowId(3), Data::Reinjection)));
    }
}
