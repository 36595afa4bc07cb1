//! One HTTP download over several interfaces: HTTP/1.1 without sockets and HTTP/2 over them, what answers to range requests say, and connections over a
//! named interface; which bytes are asked for when and over which path, without sockets too; and what a player would have of it.
//! Manifests of adaptive streams are read here too.

pub mod answer;
#[cfg(feature = "net")]
pub mod cookies;
#[cfg(feature = "net")]
pub mod download;
pub mod exchange;
pub mod http1;
#[cfg(feature = "net")]
mod http2;
#[cfg(feature = "stream")]
pub mod manifest;
#[cfg(all(feature = "net", feature = "stream"))]
pub mod metalink;
#[cfg(feature = "net")]
pub mod net;
pub mod playback;
pub mod schedule;
#[cfg(any(feature = "net", feature = "stream"))]
mod shown;
pub mod stream;
#[cfg(all(feature = "net", feature = "stream"))]
pub mod streaming;
