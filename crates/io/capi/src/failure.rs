//! How a failure reaches a C program: `errno`, and a sentence.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, io};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A number of errno with words of ours.
#[derive(Debug)]
struct Numbered {
    code: c_int,
    message: String,
}

impl fmt::Display for Numbered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Numbered {}

/// A failure with this `errno`.
pub(crate) fn number(code: c_int, message: &str) -> io::Error {
    io::Error::other(Numbered { code, message: message.to_string() })
}

/// A system call's result.
pub(crate) fn errno_failure(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets `errno` and what [`polypath_strerror`] says.
pub(crate) fn report(error: &io::Error) {
    let ours = error.get_ref().and_then(|inner| inner.downcast_ref::<Numbered>()).map(|inner| inner.code);
    let code = ours.unwrap_or_else(|| polypath_relay::errno(error));
    let message = CString::new(error.to_string()).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = message);
    set_errno(code);
}

pub(crate) fn set_errno(code: c_int) {
    // SAFETY: always gives this thread's own variable.
    unsafe { *libc::__errno_location() = code };
}

/// Runs a call. One that succeeds leaves `errno` as it was, whatever was tried on the way. A failure is reported and becomes `failed`, and so does a panic, which must not enter C.
pub(crate) fn guard<T>(failed: T, call: impl FnOnce() -> io::Result<T>) -> T {
    // SAFETY: always gives this thread's own variable.
    let before = unsafe { *libc::__errno_location() };
    let result = catch_unwind(AssertUnwindSafe(call));
    match result.unwrap_or_else(|_| Err(number(libc::EIO, "a fault in Polypath itself"))) {
        Ok(value) => {
            set_errno(before);
            value
        }
        Err(error) => {
            report(&error);
            failed
        }
    }
}

/// What went wrong in this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn polypath_strerror() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"the thread is ending".as_ptr())
}
