//! HTTP/2 as a client speaks it, where it was agreed on with a server. Frames, their compression and flow control are the crate `h2`'s;
//! here is what makes of it the events of [`crate::http1`], and what a server may do.

mod connection;
mod message;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use connection::Connection;
