//! The byte stream above the subflows: all that their options speak of.

use alloc::sync::Arc;

use super::data_receive::DataReceive;
use super::data_send::DataSend;
use super::infinite_mapping::Fallback;
use super::lifecycle::Lifecycle;
use super::negotiation::Negotiation;
use crate::config::ConnectionConfig;

/// Both directions of the stream, what the ends agreed on, and how far it is. Its parts own their state.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) config: Arc<ConnectionConfig>,
    pub(super) negotiation: Negotiation,
    pub(super) lifecycle: Lifecycle,
    pub(super) send: DataSend,
    pub(super) receive: DataReceive,
    pub(super) fallback: Fallback,
}
