//! HLS: playlists (RFC 8216).

mod line;
mod media;
mod multivariant;
mod source;

pub(super) use source::Source;
