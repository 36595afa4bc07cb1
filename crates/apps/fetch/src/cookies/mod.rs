//! Cookies (RFC 6265), as curl keeps them: which of them a request has, which ones of an answer are kept, and files of them. No clock: time
//! comes in, but in [`Cookies`].

mod cookie;
mod date;
mod jar;
mod netscape;
mod set_cookie;
mod shared;

pub use self::jar::Jar;
pub use self::netscape::{InvalidLine, MAX_FILE_BYTES};
pub use self::shared::Cookies;
pub(crate) use self::shared::Noted;
