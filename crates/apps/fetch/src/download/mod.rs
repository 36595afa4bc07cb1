//! Downloads over several paths: connections, answers, and where the bytes go. What is asked for when, and over which path, is
//! [`crate::schedule`]'s.

pub(crate) mod asking;
mod error;
mod hasher;
mod idle;
pub(crate) mod link;
mod many;
mod options;
mod output;
mod part_file;
pub(crate) mod path;
mod pieces;
mod pool;
pub(crate) mod redirection;
mod single;
mod sources;
#[cfg(test)]
mod tests;
mod transfer;
mod verdicts;
mod way;

pub use self::error::{DownloadError, Kept};
pub use self::many::{Ended as FileEnded, Event as ManyEvent, Wanted, download_many};
pub use self::options::{Done, Options, Progress};
pub use self::output::Target;
pub use self::pieces::Pieces;
pub use self::pool::Pool;
pub use self::single::download;
pub use self::way::{Dial, Dialing, Losing, Wire};
