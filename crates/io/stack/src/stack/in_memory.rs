//! For tests: stacks whose packets go from one to the other within the process, without delay or loss. Needs no privileges.

use std::io;
use std::task::{Context, Poll};

use polypath_mptcp::HostConfig;
use polypath_wire::Packet;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Receive, Stack, Transmit};

/// The sending half of an end of a link. What the other end leaves is lost.
#[derive(Debug)]
pub struct Sender(UnboundedSender<Packet>);

/// The receiving half of it.
#[derive(Debug)]
pub struct Receiver(UnboundedReceiver<Packet>);

/// Both ends of a link.
#[must_use]
pub fn link() -> [(Sender, Receiver); 2] {
    let (to_one, at_one) = unbounded_channel();
    let (to_other, at_other) = unbounded_channel();
    [(Sender(to_other), Receiver(at_one)), (Sender(to_one), Receiver(at_other))]
}

/// Two stacks with these settings, in the tokio runtime of the caller.
pub fn stacks(configs: [HostConfig; 2]) -> io::Result<[Stack; 2]> {
    let ([one, other], [(to_other, at_one), (to_one, at_other)]) = (configs, link());
    Ok([Stack::start(one, to_other, [at_one])?, Stack::start(other, to_one, [at_other])?])
}

impl Transmit for Sender {
    fn transmit(&mut self, packet: Packet) -> io::Result<()> {
        let _ = self.0.send(packet);
        Ok(())
    }
}

impl Receiver {
    /// What arrives next, for who is no stack.
    pub async fn next(&mut self) -> Option<Packet> {
        self.0.recv().await
    }
}

impl Receive for Receiver {
    fn poll_receive(&mut self, cx: &mut Context<'_>, packets: &mut Vec<Packet>) -> Poll<io::Result<()>> {
        match self.0.poll_recv(cx) {
            Poll::Ready(Some(packet)) => {
                packets.push(packet);
                Poll::Ready(Ok(()))
            }
            _ => Poll::Pending,
        }
    }
}
