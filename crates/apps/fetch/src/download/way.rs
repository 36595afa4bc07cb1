//! Ways to servers, and connections over them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use url::Url;

use crate::http1;
use crate::net::{Dialer, Protocol, Stream};

/// A connection to a server.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {
    /// The round trip that the system measured.
    fn round_trip(&self) -> Option<Duration>;
    /// The version of HTTP that was agreed on.
    fn protocol(&self) -> Protocol {
        Protocol::Http1
    }
    /// Answers came over it before, for another download. It may have ended since, which says nothing of its server.
    fn was_used(&self) -> bool {
        false
    }
    /// Whether nothing is under way on it: then whoever gives it up leaves it to the next download.
    fn set_idle(&mut self, is_idle: bool) {
        let _ = is_idle;
    }
}

/// The future of [`Dial::lost`].
pub type Losing<'a> = Pin<Box<dyn Future<Output = String> + Send + 'a>>;

/// The future of [`Dial::dial`].
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>> + Send + 'a>>;

/// A way to servers, such as over one interface.
pub trait Dial: Send + Sync {
    /// What people call it, such as `wlan0`.
    fn name(&self) -> &str;
    /// Connects to the server of a URL. An error says over which way it failed.
    fn dial<'a>(&'a self, url: &'a Url) -> Dialing<'a>;
    /// Completes when connections over it can bring nothing any more, with the reason; pending for ever where nobody can know.
    fn lost(&self) -> Losing<'_> {
        Box::pin(std::future::pending())
    }
    /// The request for a URL on a connection to it.
    ///
    /// # Errors
    /// The URL can't be asked for.
    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest>;
}

impl Dial for Dialer {
    fn name(&self) -> &str {
        self.interface().unwrap_or("the default route")
    }

    fn dial<'a>(&'a self, url: &'a Url) -> Dialing<'a> {
        Box::pin(async {
            let stream = self.dial(url).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn Wire>)
        })
    }

    fn lost(&self) -> Losing<'_> {
        Box::pin(async { self.interface_lost().await.to_string() })
    }

    fn request(&self, url: &Url) -> Result<http1::Request, http1::InvalidRequest> {
        self.request(http1::Method::Get, url)
    }
}

impl Wire for Stream {
    fn round_trip(&self) -> Option<Duration> {
        self.round_trip_time().ok().flatten()
    }

    fn protocol(&self) -> Protocol {
        self.protocol()
    }
}
