//! Connections to servers of HTTP over an interface that is named.

mod dialer;
mod endpoint;
mod error;
mod interface;
mod proxy;
mod race;
mod stream;
mod tls;

pub use dialer::Dialer;
pub use error::{DialError, Failure};
pub use proxy::{InvalidProxy, Proxy};
pub use stream::Stream;
pub use tls::{Protocol, Tls, TlsOptions, TlsSetupError};
