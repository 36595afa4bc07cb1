//! One HTTP download over several interfaces: HTTP/1.1 without sockets, what answers to range requests say, and connections over a
//! named interface.

pub mod answer;
pub mod http1;
#[cfg(feature = "net")]
pub mod net;
