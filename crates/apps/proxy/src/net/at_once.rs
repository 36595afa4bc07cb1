//! Bytes that wait for no others.

use polypath_mptcp::ConnectionOption;
use polypath_stack::engine::Stream;

/// Bytes leave when they come: who waits for more to send with them is a client or a server.
pub(super) fn send_at_once(stream: &Stream) {
    match stream {
        Stream::Stack(stream) => stream.set_option(ConnectionOption::NoDelay(true)),
        // What has ended has no options.
        Stream::Kernel(stream) => drop(stream.as_tokio().set_nodelay(true)),
        _ => {}
    }
}
