//! Pieces of markup.

use super::figure::PALETTE;

/// The property of the page that holds the colour of this number.
pub(super) fn colour(index: usize) -> String {
    format!("--colour-{}", index % PALETTE.len())
}

/// Text as it stands between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
