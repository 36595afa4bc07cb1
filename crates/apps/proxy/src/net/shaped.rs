//! Datagrams of a client, as limits let them pass.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep};

use super::clock::now;
use super::settings::CurrentSettings;
use crate::target::Target;
use crate::throttle::{DatagramFlows, Direction, Moment, Throttle};

/// One that waited.
#[derive(Debug)]
pub(super) struct Held {
    /// With the header for the client, if it goes there.
    pub(super) bytes: Bytes,
    /// Octets of the payload.
    pub(super) count: usize,
    /// Where it goes, or whence it came.
    pub(super) server: SocketAddr,
}

/// Limits and a timer for those that wait.
pub(super) struct Shaped {
    flows: DatagramFlows<Held>,
    settings: CurrentSettings,
    sleeping: Option<Pin<Box<Sleep>>>,
}

impl Shaped {
    pub(super) fn new(
        throttle: &Throttle,
        settings: CurrentSettings,
        client: IpAddr,
        user: Option<&str>,
    ) -> Self {
        let flows = DatagramFlows::new(throttle, client, user.map(Into::into));
        Self { flows, settings, sleeping: None }
    }

    /// Whether the payload goes now to the address of its target. It waits otherwise, or is dropped.
    pub(super) fn goes_up(&mut self, target: &Target, server: SocketAddr, payload: &[u8]) -> bool {
        let held = || Held { bytes: Bytes::copy_from_slice(payload), count: payload.len(), server };
        self.flows.goes_up(|| moment(&self.settings), (target, server.ip()), payload.len(), held)
    }

    /// The same of what a server sent, with the header that goes before so many octets.
    pub(super) fn goes_down(&mut self, server: SocketAddr, count: usize, datagram: &[u8]) -> bool {
        let held = || Held { bytes: Bytes::copy_from_slice(datagram), count, server };
        self.flows.goes_down(|| moment(&self.settings), server, count, held)
    }

    /// The next that has waited long enough, and which way it goes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Direction, Held)> {
        while self.flows.are_waiting() {
            let moment = moment(&self.settings);
            if let Some(next) = self.flows.poll(moment, cx.waker()) {
                return Poll::Ready(next);
            }
            let Some(at) = self.flows.poll_timeout() else { break };
            let wait = Duration::from_nanos(at.since(moment.now).as_nanos());
            let sleeping = self.sleeping.get_or_insert_with(|| Box::pin(sleep(wait)));
            sleeping.as_mut().reset(Instant::now() + wait);
            // One that is over already asks again.
            if sleeping.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        self.sleeping = None;
        Poll::Pending
    }

    /// Whether any waits.
    pub(super) fn are_waiting(&self) -> bool {
        self.flows.are_waiting()
    }
}

fn moment(settings: &CurrentSettings) -> Moment {
    Moment { now: now(), minute: settings.get().surroundings.minute() }
}
