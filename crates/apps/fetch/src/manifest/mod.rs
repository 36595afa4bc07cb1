//! What adaptive streams consist of: MPEG-DASH (ISO/IEC 23009-1) and HLS (RFC 8216) read into one form, without
//! sockets.
//!
//! [`Manifest::parse`] reads what a URL gave. [`Manifest::poll_fetch`] says what has to be fetched before the stream is known, and
//! [`Manifest::handle_fetched`] takes it: the media playlists of HLS, the indexes of DASH's single files.
//! [`Manifest::presentation`] then gives tracks, qualities and segments. A [`LocalPlaylist`] offers what was fetched to a player.
//!
//! Left out: subtitles, other languages and angles, trick play, decryption, what isn't in MP4 or MPEG-TS, parts of segments (low
//! latency), remote periods, and the server's clock (UTCTiming). What can't be read is an error that says what and where.

mod budget;
mod codecs;
mod dash;
mod error;
mod hls;
mod limits;
mod local;
mod presentation;
mod reader;
mod resource;

pub use error::Error;
pub use local::{LocalPlaylist, multivariant_playlist};
pub use presentation::{Container, Presentation, Quality, Resolution, Segment, Track, TrackKind};
pub use reader::{Check, Manifest};
pub use resource::{ByteRange, Resource};

#[cfg(test)]
mod tests;
