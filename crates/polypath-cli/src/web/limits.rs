//! What one client may take.

use std::time::Duration;

/// How long a client may take to begin with TLS, and for the fields of a request, and rest between requests.
pub(crate) const HEADER_LIMIT: Duration = Duration::from_secs(20);
/// A period in which at least [`LEAST_BODY_BYTES`] of a body have to pass, in either direction.
pub(crate) const BODY_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of a body in each [`BODY_LIMIT`]: 500 a second.
pub(crate) const LEAST_BODY_BYTES: u64 = 15_000;
/// What the fields of a request may have.
pub(crate) const FIELDS_BYTES: usize = 32 << 10;
