//! One HTTP download over several interfaces: HTTP/1.1 without sockets.

pub mod http1;
