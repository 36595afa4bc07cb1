//! Packets that wait for a path: fair between flows, and short (RFC 8289, RFC 8290).

mod codel;
mod fair_queue;

pub(crate) use codel::Behind;
pub(crate) use fair_queue::FairQueue;
