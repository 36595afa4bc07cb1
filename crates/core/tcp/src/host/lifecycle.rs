//! How a connection comes to life, ends and is freed.

use super::*;
use crate::{CloseReason, ConnectionOption, Event, State};

impl Host {
    /// Changes a setting of a live connection, as `setsockopt` does.
    pub fn set_option(&mut self, now: Instant, id: ConnectionId, option: ConnectionOption) {
        if let Some(entry) = held_mut(&mut self.connections, id).filter(|entry| !entry.closed) {
            entry.tcp.set_option(now, option);
            self.after_input(id.0);
        }
    }

    /// After anything that came in for a connection: its events, and a turn to transmit.
    pub(super) fn after_input(&mut self, key: Key) {
        self.take_events(key);
        let Some(entry) = self.connections.get_mut(key) else { return };
        if !entry.held && entry.established && !entry.closed && entry.tcp.readable_bytes() > 0 {
            // RFC 9293 §3.6.1: nobody will read this, and the peer must know.
            entry.closed = true;
            entry.tcp.abort();
            self.counters.tcp_abort_on_data += 1;
        }
        self.ready.mark(key.index, &mut entry.queued);
    }

    /// A connection has nothing to transmit for now: arm its timer, or free what TCP is done with.
    pub(super) fn settle(&mut self, now: Instant, key: Key) {
        self.take_events(key);
        let Some(entry) = self.connections.get_mut(key) else { return };
        if !entry.held && entry.half_open_of.is_none() {
            entry.tcp.orphan(now);
        }
        match entry.tcp.state() {
            State::Closed => return self.unbind(key),
            State::TimeWait => {
                if !entry.held {
                    return self.compact(now, key);
                }
                if !entry.closed {
                    entry.closed = true;
                    self.events.push_back((ConnectionId(key), HostEvent::Closed(CloseReason::Finished)));
                }
            }
            State::FinWait2 if !entry.held && entry.orphan_ends_at.is_none() => {
                entry.orphan_ends_at = Some(now + self.config.connection.fin_wait_2);
            }
            _ => {}
        }
        self.arm(key);
    }

    pub(super) fn arm(&mut self, key: Key) {
        let Some(entry) = self.connections.get_mut(key) else { return };
        let mut at = entry.tcp.poll_timeout();
        if let Some(end) = entry.orphan_ends_at {
            at = Some(at.map_or(end, |at| at.min(end)));
        }
        self.timers.arm(&mut entry.timer, key.index, at);
    }

    fn take_events(&mut self, key: Key) {
        let Some(entry) = self.connections.get_mut(key) else { return };
        let id = ConnectionId(key);
        while let Some(event) = entry.tcp.poll() {
            let event = match event {
                Event::Connected => {
                    entry.established = true;
                    match entry.half_open_of.take() {
                        Some(listener) => {
                            entry.held = true;
                            self.half_open -= 1;
                            self.listeners.leave(listener, entry.tuple.remote.addr);
                            HostEvent::Accepted { listener }
                        }
                        None => HostEvent::Connected,
                    }
                }
                Event::Readable if entry.readable_queued => continue,
                Event::Readable => {
                    entry.readable_queued = true;
                    HostEvent::Readable
                }
                Event::PeerFinished => HostEvent::PeerFinished,
                // The connection itself deals with these.
                Event::TimedOut | Event::MtuChanged => continue,
                Event::Closed(reason) => {
                    let reset = matches!(reason, CloseReason::Reset | CloseReason::Aborted);
                    self.counters.estab_resets += u64::from(entry.established && reset);
                    self.counters.tcp_abort_on_timeout += u64::from(reason == CloseReason::TimedOut);
                    if core::mem::replace(&mut entry.closed, true) {
                        continue;
                    }
                    HostEvent::Closed(reason)
                }
            };
            if entry.held {
                self.events.push_back((id, event));
            }
        }
        // As Linux: a third of the buffer must be free, so that a writer wakes for more than a segment.
        let has_space = || entry.send_space_bytes() >= entry.tcp.send_buffer_bytes() / 3;
        if entry.wants_writable && !entry.closed && has_space() {
            entry.wants_writable = false;
            self.events.push_back((id, HostEvent::Writable));
        }
    }

    /// TCP is done with a connection: its flow is free. The entry stays as long as the application holds it.
    pub(super) fn unbind(&mut self, key: Key) {
        let Some(entry) = self.connections.get_mut(key).filter(|entry| entry.bound) else { return };
        entry.bound = false;
        entry.closed = true;
        self.flows.remove(&entry.tuple);
        self.timers.cancel(&mut entry.timer);
        if let Some(listener) = entry.half_open_of.take() {
            self.half_open -= 1;
            self.listeners.leave(listener, entry.tuple.remote.addr);
        }
        if !entry.established {
            self.counters.attempt_fails += 1;
        }
        if !entry.held {
            self.forget(key);
        }
    }

    /// Removes an entry, and keeps what it has counted.
    pub(super) fn forget(&mut self, key: Key) {
        if let Some(entry) = self.connections.remove(key) {
            entry.add_to(&mut self.counters);
        }
    }

    /// Puts a TIME-WAIT record in the place of a connection.
    fn compact(&mut self, now: Instant, key: Key) {
        let Some(entry) = self.connections.get(key) else { return };
        let tuple = entry.tuple;
        let ends_at = entry.tcp.poll_timeout().unwrap_or(now + self.config.connection.time_wait);
        let numbers = entry.tcp.time_wait_numbers();
        self.unbind(key);
        if let Some(index) = self.strangers.keep_time_wait(tuple, numbers, ends_at) {
            self.flows.insert(tuple, FlowRef::time_wait(index));
        }
    }
}
