//! How fast flows may be.

mod bucket;

pub use bucket::Bucket;
