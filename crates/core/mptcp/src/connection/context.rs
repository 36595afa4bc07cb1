use polypath_tcp::ReplyLimit;
use polypath_units::Instant;

use crate::counters::Counters;
use crate::host::Budgets;
use crate::path_manager::{Limits, LocalEndpoint};
use crate::receive_window::ReceiveMemory;

/// What a connection needs of its host for the length of a call.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) counters: &'a mut Counters,
    pub(crate) endpoints: &'a [LocalEndpoint],
    pub(crate) limits: Limits,
    pub(crate) max_announced_addresses: usize,
    pub(crate) memory: &'a mut ReceiveMemory,
    pub(crate) budgets: &'a mut Budgets,
    pub(crate) challenges: &'a mut ReplyLimit,
}
