//! One HTTP download over several interfaces: HTTP/1.1 without sockets, and what answers to range requests say.

pub mod answer;
pub mod http1;
