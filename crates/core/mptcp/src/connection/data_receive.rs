//! What the peer sends: data in order, what waits for its turn, the window promised, and where the stream ends (RFC 8684 §3.3.2 to
//! §3.3.5).

use alloc::collections::VecDeque;

use polypath_wire::{DataSeq, Payload};

use crate::config::ConnectionConfig;
use crate::counters::Counters;
use crate::misbehaviour::Misbehaviour;
use crate::reassembly::{Inserted, Reassembly};
use crate::receive_window::{DataArrival, ReceiveBuffer, ReceiveMemory, ReceiveWindow};

/// A window that opens beyond this is told of at once: 64 KB, a large segment.
const LEAST_WINDOW_BYTES: u64 = 64 << 10;

/// The receive half of a connection.
#[derive(Debug)]
pub(super) struct DataReceive {
    /// Next byte expected.
    next: DataSeq,
    /// Data in order that the application has not read.
    in_order: VecDeque<Payload>,
    unread_bytes: u64,
    reassembly: Reassembly,
    window: ReceiveWindow,
    /// The largest window of ours when data came.
    most_window_bytes: u64,
    /// Number of the peer's DATA_FIN.
    fin: Option<DataSeq>,
    /// Everything up to the peer's end of stream has arrived.
    is_finished: bool,
    /// The application reads no more: what arrives is dropped.
    discards: bool,
    /// Something was, and the peer is to know.
    has_discarded: bool,
}

/// What a DATA_FIN says that was not known before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerFin {
    /// Where the stream ends.
    New,
    /// Another end than before.
    Moved,
    /// Nothing.
    Repeated,
    /// The stream ended there, and the peer does not know that we do.
    Unacknowledged,
}

impl DataReceive {
    pub(super) fn new() -> Self {
        Self {
            next: DataSeq(0),
            in_order: VecDeque::new(),
            unread_bytes: 0,
            reassembly: Reassembly::default(),
            window: ReceiveWindow::default(),
            most_window_bytes: 0,
            fin: None,
            is_finished: false,
            discards: false,
            has_discarded: false,
        }
    }

    // ---- what arrives

    /// The peer's first byte has this number.
    pub(super) fn begin(&mut self, first: DataSeq) {
        self.next = first;
    }

    /// Data with its number: in order to the application, else to reassembly. In TCP's order (`is_plain`), the subflow's own window is
    /// the bound; what an infinite mapping puts behind a gap is not in that order. `Ok(true)`: everything before the peer's DATA_FIN has
    /// come with it.
    #[inline]
    pub(super) fn handle_data(
        &mut self,
        config: &ConnectionConfig,
        counters: &mut Counters,
        is_plain: bool,
        seq: DataSeq,
        mut data: Payload,
    ) -> Result<bool, Misbehaviour> {
        let end = seq.add(data.len() as u64);
        let next = self.next;
        if !end.after(next) || self.is_finished {
            counters.duplicate_data += 1;
            return Ok(false);
        }
        if (seq.after(next) || !is_plain) && end.after(self.taken_edge(config)) {
            return Err(Misbehaviour::DataBeyondWindow);
        }
        if seq.after(next) {
            counters.ofo_queue += 1;
            if self.reassembly.insert(seq, data) == Inserted::Duplicate {
                counters.duplicate_data += 1;
            }
            return Ok(false);
        }
        data.advance(next.diff(seq) as usize);
        self.handle_in_order(data);
        if !self.reassembly.is_empty() {
            while let Some(data) = self.reassembly.pop(self.next) {
                self.handle_in_order(data);
            }
        }
        Ok(self.is_complete())
    }

    /// Notes how much the peer may send, before data is judged by it.
    #[inline]
    pub(super) fn note_window(&mut self, config: &ConnectionConfig) {
        self.most_window_bytes = self.most_window_bytes.max(self.window_bytes(config));
    }

    /// Data up to `end`, which can be the peer's, lies behind where its DATA_FIN said that the stream ends.
    #[inline]
    pub(super) fn contradicts_fin(&self, config: &ConnectionConfig, end: DataSeq) -> bool {
        self.fin.is_some_and(|fin| end.after(fin)) && !end.after(self.taken_edge(config))
    }

    /// The next data of the stream.
    #[inline]
    pub(super) fn handle_in_order(&mut self, data: Payload) {
        if data.is_empty() {
            return;
        }
        self.next = self.next.add(data.len() as u64);
        if self.discards {
            self.has_discarded = true;
            return;
        }
        self.unread_bytes += data.len() as u64;
        let at = self.in_order.len();
        self.in_order.push_back(data);
        polypath_tcp::join_tiny(&mut self.in_order, at);
    }

    /// A DATA_FIN can only be where data that is there ends, or behind that, and no further than the window reaches. Of two that differ
    /// the later one holds, since the peer repeats its own.
    pub(super) fn handle_fin(
        &mut self,
        config: &ConnectionConfig,
        seq: DataSeq,
    ) -> Result<PeerFin, Misbehaviour> {
        if self.is_finished {
            // Our DATA_ACK of it was lost.
            return Ok(if self.fin == Some(seq) { PeerFin::Unacknowledged } else { PeerFin::Repeated });
        }
        let known = self.reassembly.end().unwrap_or(self.next).max(self.next);
        if seq.before(known) {
            return Err(Misbehaviour::DataFinBeforeData);
        }
        if seq.after(self.taken_edge(config)) {
            return Err(Misbehaviour::DataFinBeyondWindow);
        }
        Ok(match self.fin.replace(seq) {
            None => PeerFin::New,
            Some(known) if known == seq => PeerFin::Repeated,
            Some(_) => PeerFin::Moved,
        })
    }

    /// Where the DATA_FIN was is data: it counts no more.
    pub(super) fn forget_fin(&mut self) {
        self.fin = None;
    }

    /// All data before the DATA_FIN has come.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        !self.is_finished && self.fin == Some(self.next)
    }

    /// The stream ends here, by DATA_FIN, which takes a number.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
        self.next = self.next.add(1);
        self.reassembly.clear();
    }

    /// The stream ends here, by the FIN of the only subflow (fallback).
    pub(super) fn finish_plain(&mut self) {
        self.is_finished = true;
    }

    /// What waits came from other subflows, and comes again (fallback).
    pub(super) fn forget_reassembly(&mut self) {
        self.reassembly.clear();
    }

    /// Data came over a subflow: the promise to the peer keeps ahead of it.
    #[inline]
    pub(super) fn handle_arrival(
        &mut self,
        config: &ConnectionConfig,
        arrival: impl FnOnce(DataSeq) -> DataArrival,
        memory: &mut ReceiveMemory,
    ) {
        // In order, or the newest of what waits for its turn.
        let end = self.reassembly.end().unwrap_or(self.next).max(self.next);
        let buffer = self.buffer(config);
        self.window.on_arrival(arrival(end), buffer, memory);
    }

    // ---- the application

    /// The next data in order.
    #[inline]
    pub(super) fn read(&mut self, config: &ConnectionConfig) -> Option<Payload> {
        let data = self.in_order.pop_front()?;
        self.unread_bytes -= data.len() as u64;
        let buffer = self.buffer(config);
        self.window.on_read(buffer);
        Some(data)
    }

    /// The window is so small that the peer is to hear at once when it opens.
    #[inline]
    pub(super) fn is_window_small(&self, config: &ConnectionConfig) -> bool {
        self.window_bytes(config) < LEAST_WINDOW_BYTES
    }

    /// It reads no more.
    pub(super) fn discard(&mut self) {
        self.discards = true;
    }

    /// Data came that nobody reads.
    #[inline]
    pub(super) const fn has_discarded(&self) -> bool {
        self.has_discarded
    }

    /// In order, and not read.
    #[inline]
    pub(super) const fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }

    // ---- what holds

    /// Next byte expected: our DATA_ACK.
    #[inline]
    pub(super) const fn next(&self) -> DataSeq {
        self.next
    }

    /// The next byte of the stream, behind which a DATA_FIN may have taken a number.
    pub(super) fn next_in_stream(&self) -> DataSeq {
        self.fin.filter(|_| self.is_finished).unwrap_or(self.next)
    }

    /// The peer's stream has ended, and all of it is here.
    #[inline]
    pub(super) const fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Bytes that wait for others before them.
    #[inline]
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.reassembly.len_bytes()
    }

    /// Some wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.reassembly.is_empty()
    }

    /// Less than its DATA_FIN said has come, or something is missing before what waits.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_waiting() || self.fin.is_some_and(|fin| self.next.before(fin))
    }

    // ---- the window

    /// The window to advertise: relative to the next data expected, the same on every subflow (RFC 8684 §3.3.4).
    #[inline]
    pub(super) fn window_bytes(&self, config: &ConnectionConfig) -> u64 {
        self.edge(config).diff(self.next).max(0) as u64
    }

    /// Right edge of our window. It never moves back.
    #[inline]
    fn edge(&self, config: &ConnectionConfig) -> DataSeq {
        let buffer = self.buffer(config);
        if config.receive_autotuning {
            self.window.edge(buffer)
        } else {
            buffer.next.add(buffer.cap_bytes.saturating_sub(buffer.unread_bytes))
        }
    }

    /// Up to where data is taken: what was promised once may be used later. Linux goes by the DATA_ACK of a segment and the window of
    /// an older one, where TCP does not take that of the segment for newer (RFC 9293 §3.10.7.4), and sends beyond our edge. TCP has
    /// acknowledged such data, so that it would come again only by and by, for each piece after a timeout of the connection.
    #[inline]
    fn taken_edge(&self, config: &ConnectionConfig) -> DataSeq {
        self.edge(config).max(self.next.add(self.most_window_bytes))
    }

    #[inline]
    fn buffer(&self, config: &ConnectionConfig) -> ReceiveBuffer {
        ReceiveBuffer {
            next: self.next,
            unread_bytes: self.unread_bytes,
            cap_bytes: config.tcp.receive_buffer_bytes,
        }
    }

    /// The connection goes: so does what it promised.
    pub(super) fn release(&mut self, memory: &mut ReceiveMemory) {
        self.window.release(memory);
    }
}
