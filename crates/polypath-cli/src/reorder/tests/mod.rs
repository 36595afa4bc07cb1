//! Captures that are made here, and what is found in them.

mod captures;
mod one_capture;
mod reading;
mod two_captures;
