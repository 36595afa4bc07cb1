//! A connection's behaviour, feature by feature.

mod lifecycle;
mod loss;
mod pair;
mod transfer;
