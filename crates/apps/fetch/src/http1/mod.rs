//! HTTP/1.1 as a client speaks it, with pipelining. No socket, clock or task: bytes go in, bytes and events come out.

mod chunked;
mod connection;
mod error;
mod fields;
mod framing;
mod head;
mod limits;
mod request;

pub use connection::{Connection, Event, RequestId};
pub use error::Error;
pub use fields::Fields;
pub use head::Head;
#[cfg(feature = "net")]
pub(crate) use limits::MAX_INTERIM_ANSWERS;
pub use limits::{MAX_FIELDS, MAX_HEAD_BYTES};
pub use request::{InvalidRequest, Method, Request};

#[cfg(feature = "net")]
pub(crate) use framing::{Framing, framing};
#[cfg(feature = "net")]
pub(crate) use head::{end_of_head, parse_head};
