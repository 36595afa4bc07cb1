//! `polypath tunnel` between two machines, by the commands of the guide as they stand there: from nothing to bytes through it, on while a path
//! fails, and nothing left. Needs root; what is missing is said.

mod connections;
mod hosts;
mod mistakes;
mod peers;
mod reload;
mod reorder;
mod split;
mod uplinks;
