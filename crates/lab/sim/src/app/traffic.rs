//! One end of a connection that sends what a plan says and checks what it receives.

use polypath_tcp::ConnectionId;
use polypath_units::{BitRate, Duration, Instant};
use polypath_wire::Payload;

use super::{Application, Mismatch, Pattern, Stack, StreamEvent};

/// What one end of a connection does.
#[derive(Clone, Debug)]
pub struct TrafficPlan {
    /// What it sends.
    pub send: SendPlan,
    /// Number of the stream that it sends, which decides the content.
    pub send_stream: u64,
    /// Number of the stream that it expects.
    pub receive_stream: u64,
    /// Compare what arrives with what was to arrive. Off saves time in benchmarks.
    pub verify: bool,
    /// Keep what arrives, for a closer look.
    pub keep: bool,
    /// Close the sending direction after the last byte. Off keeps it open to the end of the run.
    pub close_when_sent: bool,
    /// Stop sending at this time, as if everything had been sent.
    pub stop_at: Option<Instant>,
    /// Abort the connection at this time.
    pub abort_at: Option<Instant>,
}

impl Default for TrafficPlan {
    /// Sends nothing, closes at once, verifies stream 0.
    fn default() -> Self {
        Self {
            send: SendPlan::Bytes(0),
            send_stream: 1,
            receive_stream: 0,
            verify: true,
            keep: false,
            close_when_sent: true,
            stop_at: None,
            abort_at: None,
        }
    }
}

/// What an end sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendPlan {
    /// So many bytes, as fast as they are taken; `u64::MAX` for no end.
    Bytes(u64),
    /// Blocks of equal size, each of which the receiver times.
    Blocks {
        /// Size of a block in bytes.
        block_bytes: u64,
        /// Rate at which blocks are made; if none, each is made when the send buffer has taken the one before.
        rate: Option<BitRate>,
        /// Bytes in all; `u64::MAX` for no end.
        total_bytes: u64,
    },
    /// Requests and responses in turn.
    Exchange(ExchangePlan),
}

/// Requests and responses in turn: the end with `initiates` sends a request, the other answers, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangePlan {
    /// This end sends the requests.
    pub initiates: bool,
    /// Size of a request in bytes, at least 1.
    pub request_bytes: u64,
    /// Size of a response in bytes, at least 1.
    pub response_bytes: u64,
    /// How many requests.
    pub count: u64,
}

/// What one end did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrafficReport {
    /// When the connection opened here.
    pub opened_at: Option<Instant>,
    /// Bytes that the stack took.
    pub sent_bytes: u64,
    /// Bytes that arrived, in order.
    pub received_bytes: u64,
    /// What arrived, if the plan keeps it.
    pub kept: Vec<u8>,
    /// When the latest byte arrived.
    pub last_received_at: Option<Instant>,
    /// When the peer's last byte and the end of its stream had arrived.
    pub peer_finished_at: Option<Instant>,
    /// When the connection was over, whether in order, and why.
    pub closed: Option<(Instant, bool, &'static str)>,
    /// Why the connection fell back to TCP, if it did.
    pub fell_back: Option<&'static str>,
    /// The first wrong byte.
    pub mismatch: Option<Mismatch>,
    /// This end aborted.
    pub aborted: bool,
    /// Subflows that were established in all.
    pub subflows_established: u32,
    /// Completed exchanges, at the initiating end.
    pub exchanges: u64,
    /// When each block was made, at the end that sends blocks.
    pub blocks_made: Vec<Instant>,
    /// When the last byte of each block arrived, at the end that receives blocks.
    pub block_arrivals: Vec<Instant>,
}

// Large enough that the queue of slices in a stack stays short, and a divisor of nothing in particular.
const CHUNK_BYTES: u64 = 256 * 1024;

/// One end of a connection with a plan.
#[derive(Debug)]
pub struct Traffic {
    plan: TrafficPlan,
    send_pattern: Pattern,
    receive_pattern: Pattern,
    report: TrafficReport,
    // How far the plan allows to send by now.
    allowed_bytes: u64,
    open: bool,
    shut: bool,
    // If the peer makes blocks.
    expected_block_bytes: Option<u64>,
    released: bool,
}

impl TrafficReport {
    /// How long each block took from its making at `sender` to its arrival here.
    pub fn block_delays<'a>(&'a self, sender: &'a Self) -> impl Iterator<Item = Duration> + 'a {
        self.block_arrivals.iter().zip(&sender.blocks_made).map(|(arrived, made)| arrived.since(*made))
    }
}

impl Traffic {
    /// An end that follows `plan`.
    pub fn new(plan: TrafficPlan) -> Self {
        let allowed_bytes = match plan.send {
            SendPlan::Bytes(bytes) => bytes,
            SendPlan::Blocks { .. } => 0,
            SendPlan::Exchange(exchange) if exchange.initiates && exchange.count > 0 => {
                exchange.request_bytes
            }
            SendPlan::Exchange(_) => 0,
        };
        Self {
            send_pattern: Pattern::new(plan.send_stream),
            receive_pattern: Pattern::new(plan.receive_stream),
            report: TrafficReport::default(),
            allowed_bytes,
            open: false,
            shut: false,
            expected_block_bytes: None,
            released: false,
            plan,
        }
    }

    /// The peer sends blocks of this size, whose arrivals are to be recorded.
    pub fn expect_blocks(&mut self, block_bytes: u64) {
        self.expected_block_bytes = Some(block_bytes.max(1));
    }

    /// What happened so far.
    pub fn report(&self) -> &TrafficReport {
        &self.report
    }

    /// The plan.
    pub fn plan(&self) -> &TrafficPlan {
        &self.plan
    }

    /// The connection could not even be opened.
    pub(super) fn refuse(&mut self, now: Instant) {
        self.report.closed = Some((now, false, "not opened"));
        self.released = true;
    }

    /// The connection is over.
    pub fn is_over(&self) -> bool {
        self.released
    }

    fn total_bytes(&self) -> u64 {
        match self.plan.send {
            SendPlan::Bytes(bytes) => bytes,
            SendPlan::Blocks { total_bytes, .. } => total_bytes,
            SendPlan::Exchange(exchange) => {
                let each = if exchange.initiates { exchange.request_bytes } else { exchange.response_bytes };
                each.saturating_mul(exchange.count)
            }
        }
    }

    /// Sends what the plan allows and the stack takes; closes after the last byte.
    fn pump<S: Stack>(&mut self, now: Instant, stack: &mut S, id: ConnectionId) {
        if !self.open || self.shut || self.released {
            return;
        }
        let stopped = self.plan.stop_at.is_some_and(|at| now >= at);
        if stopped {
            self.forget_unwritten_block();
        } else {
            while self.make_block_if_written(now) || self.report.sent_bytes < self.allowed_bytes {
                let wanted = (self.allowed_bytes - self.report.sent_bytes).min(CHUNK_BYTES);
                let chunk = self.send_pattern.slice(self.report.sent_bytes, wanted);
                let chunk_bytes = chunk.len();
                let taken = stack.send(id, chunk).unwrap_or(0);
                self.report.sent_bytes += taken as u64;
                if taken < chunk_bytes {
                    return;
                }
            }
        }
        if stopped || self.report.sent_bytes >= self.total_bytes() {
            self.shut = true;
            if self.plan.close_when_sent {
                stack.shutdown(now, id);
            }
        }
    }

    /// Without a rate, a program writes block after block; it makes one when the last is written. True if it did.
    fn make_block_if_written(&mut self, now: Instant) -> bool {
        let SendPlan::Blocks { block_bytes, rate: None, total_bytes } = self.plan.send else { return false };
        let is_due = self.report.sent_bytes >= self.allowed_bytes && self.allowed_bytes < total_bytes;
        if is_due {
            self.report.blocks_made.push(now);
            self.allowed_bytes = self.allowed_bytes.saturating_add(block_bytes.max(1)).min(total_bytes);
        }
        is_due
    }

    /// The block that was being written when sending stopped will never be whole.
    fn forget_unwritten_block(&mut self) {
        if let SendPlan::Blocks { block_bytes, rate: None, .. } = self.plan.send {
            self.report.blocks_made.truncate((self.report.sent_bytes / block_bytes.max(1)) as usize);
        }
    }

    fn drain<S: Stack>(&mut self, now: Instant, stack: &mut S, id: ConnectionId) {
        while let Some(payload) = stack.recv(id) {
            self.receive(now, &payload);
        }
        if let SendPlan::Exchange(exchange) = self.plan.send {
            self.advance_exchange(exchange);
        }
        if let Some(block_bytes) = self.expected_block_bytes {
            let arrived = self.report.received_bytes / block_bytes;
            self.report.block_arrivals.resize(arrived as usize, now);
        }
    }

    #[inline]
    fn receive(&mut self, now: Instant, payload: &Payload) {
        for slice in payload.slices() {
            if self.plan.verify
                && self.report.mismatch.is_none()
                && let Err(mismatch) = self.receive_pattern.verify(self.report.received_bytes, slice)
            {
                self.report.mismatch = Some(mismatch);
            }
            if self.plan.keep {
                self.report.kept.extend_from_slice(slice);
            }
            self.report.received_bytes += slice.len() as u64;
        }
        self.report.last_received_at = Some(now);
    }

    fn advance_exchange(&mut self, exchange: ExchangePlan) {
        let (own, peer) = match exchange.initiates {
            true => (exchange.request_bytes, exchange.response_bytes),
            false => (exchange.response_bytes, exchange.request_bytes),
        };
        let complete = self.report.received_bytes / peer.max(1);
        self.report.exchanges = complete;
        let turns = if exchange.initiates { (complete + 1).min(exchange.count) } else { complete };
        self.allowed_bytes = own * turns;
    }

    fn release_if_over<S: Stack>(&mut self, now: Instant, stack: &mut S, id: ConnectionId) {
        if self.report.closed.is_some() && !self.released {
            self.released = true;
            stack.release(now, id);
        }
    }

    /// When the next block is due.
    fn next_block_at(&self) -> Option<Instant> {
        let SendPlan::Blocks { block_bytes, rate: Some(rate), total_bytes } = self.plan.send else {
            return None;
        };
        let opened = self.report.opened_at?;
        if self.shut || self.allowed_bytes >= total_bytes {
            return None;
        }
        let made = self.allowed_bytes / block_bytes.max(1);
        Some(opened + rate.time_to_send(block_bytes) * made)
    }
}

impl<S: Stack> Application<S> for Traffic {
    fn handle_event(&mut self, now: Instant, stack: &mut S, id: ConnectionId, event: StreamEvent) {
        if self.released {
            return;
        }
        match event {
            StreamEvent::Readable => {
                self.drain(now, stack, id);
                if matches!(self.plan.send, SendPlan::Exchange(_)) {
                    self.pump(now, stack, id);
                }
            }
            StreamEvent::Writable => self.pump(now, stack, id),
            StreamEvent::Connected | StreamEvent::Accepted { .. } => {
                self.open = true;
                self.report.opened_at.get_or_insert(now);
                self.handle_timeout(now, stack, id);
                self.pump(now, stack, id);
            }
            StreamEvent::PeerFinished => {
                self.drain(now, stack, id);
                self.report.peer_finished_at.get_or_insert(now);
            }
            StreamEvent::Closed { in_order, reason } => {
                self.drain(now, stack, id);
                self.report.closed.get_or_insert((now, in_order, reason));
                self.release_if_over(now, stack, id);
            }
            StreamEvent::FellBack { reason } => self.report.fell_back = Some(reason),
            StreamEvent::SubflowEstablished => self.report.subflows_established += 1,
            StreamEvent::SubflowClosed | StreamEvent::Other => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.released {
            return None;
        }
        let stop = self.plan.stop_at.filter(|_| !self.shut && self.open);
        let abort = self.plan.abort_at.filter(|_| !self.report.aborted);
        [stop, abort, self.next_block_at()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, stack: &mut S, id: ConnectionId) {
        if self.released {
            return;
        }
        if self.plan.abort_at.is_some_and(|at| now >= at) && !self.report.aborted {
            self.report.aborted = true;
            stack.abort(now, id);
            return;
        }
        if let SendPlan::Blocks { block_bytes, total_bytes, .. } = self.plan.send {
            while let Some(at) = self.next_block_at().filter(|at| *at <= now) {
                self.report.blocks_made.push(at);
                self.allowed_bytes = self.allowed_bytes.saturating_add(block_bytes.max(1)).min(total_bytes);
            }
        }
        self.pump(now, stack, id);
    }
}
