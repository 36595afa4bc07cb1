//! The live view of connections and their paths, and of clients of proxies, as `polypath top` and `--live` show it.
//!
//! [`View`] is what it knows, without a clock or a terminal; `draw` and `plain` write it; [`Screen`] is a terminal.

mod draw;
mod history;
mod order;
mod plain;
mod proxies;
mod screen;
#[cfg(test)]
mod tests;
mod view;
mod words;

pub(crate) use plain::{line, table};
pub(crate) use proxies::{Carried, ClientSample, LimitNow, PathKey, PathNow, PathSample, ProxySample, Told};
pub(crate) use screen::{Sampler, Samples, Screen, has_terminal};
pub(crate) use view::{Sample, View};
