//! What a subflow's segments have yet to say of the connection.

use polypath_wire::{DataSeq, MptcpOption};

use crate::rare_list::RareList;

/// Signals, DATA_ACK, DATA_FIN and keys that are to leave, and what has left.
#[derive(Debug)]
pub(crate) struct Owed {
    /// Options that leave once, with the next acknowledgment.
    signals: RareList<MptcpOption>,
    /// The latest DATA_ACK that left here.
    data_acked: DataSeq,
    /// What had arrived from the peer when the latest mapping was made here.
    received_before: DataSeq,
    /// Stream offset after the first data that left with a DSS in each segment: once it is acknowledged, options pass. Zero before.
    first_mapped_end: u64,
    /// Data left without the DATA_ACK that was due; nothing else may say it.
    data_ack: bool,
    /// DATA_FIN is to leave with an acknowledgment, once no data goes before it.
    data_fin: bool,
    /// Client, before the first DSS came: the keys have left, which the peer must have before it can read a DATA_FIN.
    are_keys_said: bool,
    /// A SYN left without Multipath TCP option: what dropped the earlier ones may be gone with it.
    is_syn_bare: bool,
}

impl Owed {
    pub(super) const fn new() -> Self {
        Self {
            signals: RareList::new(),
            data_acked: DataSeq(0),
            received_before: DataSeq(0),
            first_mapped_end: 0,
            data_ack: false,
            data_fin: false,
            are_keys_said: false,
            is_syn_bare: false,
        }
    }

    // ---- signals

    /// An option is to leave once.
    pub(crate) fn signal(&mut self, option: MptcpOption) {
        self.signals.push_back(option);
    }

    /// Some are to leave.
    #[inline]
    pub(crate) fn has_signals(&self) -> bool {
        !self.signals.is_empty()
    }

    /// The one that leaves first.
    pub(crate) fn take_signal(&mut self) -> Option<MptcpOption> {
        self.signals.pop_front()
    }

    /// Offers each to `write`, which says whether it leaves.
    pub(crate) fn write_signals(&mut self, mut write: impl FnMut(MptcpOption) -> bool) {
        self.signals.retain(|signal| !write(signal.clone()));
    }

    /// The address with this identifier is gone before its ADD_ADDR has left. An echo of the peer's leaves still.
    pub(crate) fn forget_announcement(&mut self, address_id: u8) {
        let is_meant = |signal: &MptcpOption| matches!(signal, MptcpOption::AddAddr(add) if !add.echo && add.address_id == address_id);
        self.signals.retain(|signal| !is_meant(signal));
    }

    /// The peer would understand none (fallback).
    pub(crate) fn forget_signals(&mut self) {
        self.signals = RareList::new();
    }

    // ---- DATA_ACK

    /// A DATA_ACK leaves, for everything before `next`.
    #[inline]
    pub(crate) fn handle_data_ack_sent(&mut self, next: DataSeq) {
        self.data_ack = false;
        self.data_acked = next;
    }

    /// A DATA_ACK was due and had no room.
    #[inline]
    pub(crate) fn owe_data_ack(&mut self) {
        self.data_ack = true;
    }

    /// Data leaves without DSS: whoever acknowledges TCP's bytes with it, or has more than it said last, has yet to say so.
    #[inline]
    pub(crate) fn handle_bare_data(&mut self, next: DataSeq, acknowledges: bool) {
        self.data_ack |= acknowledges || self.data_acked != next;
    }

    #[inline]
    pub(crate) const fn owes_data_ack(&self) -> bool {
        self.data_ack
    }

    // ---- mappings

    /// A mapping is made while `next` is expected from the peer; it ends at this offset of the stream. Where the subflow is established,
    /// the first one that is acknowledged shows that options pass.
    #[inline]
    pub(crate) fn handle_mapped(&mut self, next: DataSeq, end: u64, is_established: bool) {
        self.received_before = next;
        if is_established && self.first_mapped_end == 0 {
            self.first_mapped_end = end;
        }
    }

    /// The peer has acknowledged `acked_offset`, and options with it.
    #[inline]
    pub(crate) const fn have_options_passed(&self, acked_offset: u64) -> bool {
        self.first_mapped_end != 0 && acked_offset >= self.first_mapped_end
    }

    /// Data came since the latest mapping was made.
    #[inline]
    pub(crate) fn has_received_since(&self, next: DataSeq) -> bool {
        self.received_before != next
    }

    // ---- DATA_FIN and keys

    /// DATA_FIN is to leave if it `may`, for the first time or again: then the keys go first, where the peer may not have them.
    pub(crate) fn owe_data_fin(&mut self, may: bool, is_first: bool) {
        self.data_fin = may;
        self.are_keys_said &= is_first;
    }

    #[inline]
    pub(crate) const fn owes_data_fin(&self) -> bool {
        self.data_fin
    }

    /// An acknowledgment leaves that has room for it; once.
    #[inline]
    pub(crate) fn take_data_fin(&mut self) -> bool {
        core::mem::take(&mut self.data_fin)
    }

    /// The keys leave; true if they had before.
    pub(crate) fn handle_keys_sent(&mut self) -> bool {
        core::mem::replace(&mut self.are_keys_said, true)
    }

    // ---- SYN

    /// A SYN leaves without option.
    pub(crate) fn handle_bare_syn(&mut self) {
        self.is_syn_bare = true;
    }

    /// See [`Owed::handle_bare_syn`].
    pub(crate) const fn is_syn_bare(&self) -> bool {
        self.is_syn_bare
    }
}
