use polypath_mptcp::path_manager::{Budget, LocalEndpoint};

/// What is wanted of one uplink, beside being used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UplinkPreference {
    /// The smaller, the more is it preferred by handovers. Default 0.
    pub priority: u8,
    /// Bytes that may go over it before it becomes a backup. Default: any number.
    pub budget_bytes: Option<u64>,
    /// Once the budget is spent, the uplink is used no more. Default false.
    pub is_budget_hard: bool,
}

impl UplinkPreference {
    /// One of the endpoints of the uplink with this number, from 0; they share the budget.
    pub fn apply(self, endpoint: LocalEndpoint, number: u8) -> LocalEndpoint {
        let (is_hard, pool) = (self.is_budget_hard, number + 1);
        let budget = self.budget_bytes.map(|bytes| Budget { bytes, is_hard, pool });
        LocalEndpoint { priority: self.priority, budget, ..endpoint }
    }
}
