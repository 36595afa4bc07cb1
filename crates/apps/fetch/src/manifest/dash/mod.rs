//! MPEG-DASH: media presentation descriptions (ISO/IEC 23009-1).

mod addressing;
mod expand;
mod index;
mod mpd;
mod select;
mod source;
mod template;
mod time;
mod xml;

pub(super) use index::check_index;
pub(super) use source::Source;
