//! What people write to choose and to describe: names of policies and, with the feature `files`, quantities and files in TOML.
//!
//! All files have one dialect: keys of words with hyphens, quantities with their units, policies by their names, and nothing that is not
//! known. A mistake is one line that names the file, the line, the key and what was expected. Each kind of file has a JSON schema.
#![no_std]

#[cfg(feature = "files")]
extern crate alloc;

#[cfg(feature = "files")]
mod file;
mod policies;
#[cfg(feature = "files")]
pub mod quantity;
#[cfg(feature = "files")]
mod schema;

#[cfg(feature = "files")]
pub use file::{FileError, FileErrorKind, Source, read};
pub use policies::{Policies, PolicyKind};
#[cfg(feature = "files")]
pub use schema::{NoSuchKind, schema};
