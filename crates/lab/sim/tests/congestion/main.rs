//! Congestion control in whole networks, with the production stack.

mod fairness;
mod fluid;
mod line;
mod network;
