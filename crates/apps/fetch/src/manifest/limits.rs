//! How much a manifest may have.

/// Bytes of a manifest, or of a playlist or index that belongs to it.
pub(super) const MAX_MANIFEST_BYTES: usize = 8 << 20;
/// Segments of one quality.
pub(super) const MAX_SEGMENTS: usize = 100_000;
/// Segments of all qualities.
pub(super) const MAX_SEGMENTS_IN_ALL: usize = 1_000_000;
/// Bytes of what names or describes a quality.
pub(super) const MAX_WORD_BYTES: usize = 1024;
/// Qualities of one track.
pub(super) const MAX_QUALITIES: usize = 64;
/// Bytes of a URL.
pub(super) const MAX_URL_BYTES: usize = 8192;
