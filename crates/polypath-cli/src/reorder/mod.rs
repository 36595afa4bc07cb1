//! How far out of order packets came, of captures or of a tunnel that runs: reading, numbering, and the figures.

mod byte_stream;
mod capture;
mod counted_flows;
mod counter;
mod data_sequence;
mod data_stream;
mod figures;
mod flow;
mod flows;
mod ip;
mod link_layer;
mod live;
mod metrics;
mod numbers;
mod one;
mod outcome;
mod seen;
mod sent;
mod tcp_flows;
#[cfg(test)]
mod tests;
mod two;

pub(crate) use figures::{Figures, Spread};
pub(crate) use flow::FlowId;
pub(crate) use live::Live;
pub(crate) use numbers::Numbers;
pub(crate) use one::examine;
pub(crate) use outcome::{FlowFigures, Outcome};
pub(crate) use two::{Comparing, compare};
