use std::io;
use std::task::{Context, Poll};

use polypath_wire::Packet;

/// The sending half of a driver. It is called with the stack's state locked, so it never waits.
pub trait Transmit: Send {
    /// Hands a packet, which may be an aggregate (`Segment::segment_size`), to the network, or keeps it until
    /// [`Transmit::flush`]. What the network has no room for is lost, as anywhere on its way.
    fn transmit(&mut self, packet: Packet) -> io::Result<()>;

    /// Sends what was kept.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The receiving half of a driver; a task of its own polls it.
pub trait Receive: Send {
    /// Adds what has arrived to `packets`, a bounded number of them, or registers the task to be woken.
    fn poll_receive(&mut self, cx: &mut Context<'_>, packets: &mut Vec<Packet>) -> Poll<io::Result<()>>;
}
