//! What adaptive streams consist of: HLS (RFC 8216) read into a form of its own, without sockets.
//!
//! [`Manifest::parse`] reads what a URL gave. [`Manifest::poll_fetch`] says what has to be fetched before the stream is known, and
//! [`Manifest::handle_fetched`] takes it: the media playlists. [`Manifest::presentation`] then gives tracks, qualities and segments.
//!
//! Left out: subtitles, other languages and angles, trick play, decryption, what isn't in MP4 or MPEG-TS, parts of segments (low
//! latency). What can't be read is an error that says what and where.

mod budget;
mod codecs;
mod error;
mod hls;
mod presentation;
mod reader;
mod resource;

pub use error::Error;
pub use presentation::{Container, Presentation, Quality, Resolution, Segment, Track, TrackKind};
pub use reader::Manifest;
pub use resource::{ByteRange, Resource};

#[cfg(test)]
mod tests;
