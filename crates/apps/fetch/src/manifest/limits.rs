//! How much a manifest may have.

/// Bytes of a manifest, or of a playlist or index that belongs to it.
pub(super) const MAX_MANIFEST_BYTES: usize = 8 << 20;
/// Segments of one quality.
pub(super) const MAX_SEGMENTS: usize = 100_000;
/// Qualities of one track.
pub(super) const MAX_QUALITIES: usize = 64;
/// Bytes of a URL.
pub(super) const MAX_URL_BYTES: usize = 8192;
