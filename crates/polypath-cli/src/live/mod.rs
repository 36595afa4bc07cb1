//! The live view of connections and their paths, as `polypath top` and `--live` show it.
//!
//! [`View`] is what it knows, without a clock or a terminal; `draw` and `plain` write it; [`Screen`] is a terminal.

mod draw;
mod plain;
mod screen;
#[cfg(test)]
mod tests;
mod view;
mod words;

pub(crate) use plain::{line, table};
pub(crate) use screen::{Sampler, Screen, has_terminal};
pub(crate) use view::{Sample, View};
