//! How a connection ends and is freed.

use super::plain::Rest;
use super::*;
use crate::CloseReason;

impl Host {
    /// After anything that came in for a connection: its events, and a turn to transmit.
    pub(super) fn after_input(&mut self, id: ConnectionId) {
        self.take_events(id);
        let Some(connection) = self.core.get_mut(id) else { return };
        self.counters.tcp_abort_on_data += u64::from(connection.abort_if_unwanted());
        self.core.mark_ready(id);
    }

    /// A connection has nothing to transmit for now: arm its timer, or free what TCP is done with.
    pub(super) fn settle(&mut self, now: Instant, id: ConnectionId) {
        self.take_events(id);
        let Some(connection) = self.core.get_mut(id) else { return };
        match connection.rest(now, self.config.connection.fin_wait_2) {
            Rest::Wait => {}
            Rest::Closed => self.events.push_back((id, HostEvent::Closed(CloseReason::Finished))),
            Rest::Over => return self.unbind(id),
            Rest::TimeWait(numbers, ends_at) => {
                let (flow, time_wait) = (connection.flow(), self.config.connection.time_wait);
                self.unbind(id);
                return self.core.enter_time_wait(id, flow, numbers, ends_at.unwrap_or(now + time_wait));
            }
        }
        self.core.arm(id);
    }

    fn take_events(&mut self, id: ConnectionId) {
        while let Some(connection) = self.core.get_mut(id) {
            let Some(mut event) = connection.poll_event(&mut self.counters) else { return };
            if event == HostEvent::Connected
                && let Some(listener) = self.core.end_half_open(id)
                && let Some(connection) = self.core.get_mut(id)
            {
                connection.hold();
                event = HostEvent::Accepted { listener, local: connection.flow().local };
            }
            if self.held(id).is_some() {
                self.events.push_back((id, event));
            }
        }
    }

    /// TCP is done with a connection: its flow is free. The connection stays as long as the application holds it.
    pub(super) fn unbind(&mut self, id: ConnectionId) {
        let Some(connection) = self.core.get_mut(id).filter(|connection| connection.is_bound()) else {
            return;
        };
        connection.unbind();
        let (flow, is_held) = (connection.flow(), connection.is_held());
        self.counters.attempt_fails += u64::from(!connection.is_established());
        self.core.remove_flow(id, &flow);
        self.core.disarm(id);
        self.core.end_half_open(id);
        if !is_held {
            self.forget(id);
        }
    }

    /// Removes a connection, and keeps what it has counted.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        if let Some(connection) = self.core.remove(id) {
            connection.add_to(&mut self.counters);
        }
    }
}
