//! Counters by the names that the Linux kernel gives them (`nstat -asz | grep MPTcpExt`).

use polypath_tcp::StrangerCounts;

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident = $name:literal,)*) => {
        /// Counters of a host.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            /// All counters with the kernel's names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field)),*].into_iter()
            }
        }
    };
}

counters! {
    /// SYNs with MP_CAPABLE received: two for one connection, where its client tries two addresses at a time.
    mp_capable_syn_rx = "MPCapableSYNRX",
    /// SYNs with MP_CAPABLE sent.
    mp_capable_syn_tx = "MPCapableSYNTX",
    /// SYN/ACKs with MP_CAPABLE received.
    mp_capable_syn_ack_rx = "MPCapableSYNACKRX",
    /// Third ACKs with MP_CAPABLE received.
    mp_capable_ack_rx = "MPCapableACKRX",
    /// Server-side fallbacks during the handshake.
    mp_capable_fallback_ack = "MPCapableFallbackACK",
    /// Client-side fallbacks during the handshake.
    mp_capable_fallback_syn_ack = "MPCapableFallbackSYNACK",
    /// MP_JOINs with an unknown token.
    mp_join_no_token_found = "MPJoinNoTokenFound",
    /// SYNs with MP_JOIN received.
    mp_join_syn_rx = "MPJoinSynRx",
    /// SYN/ACKs with MP_JOIN received.
    mp_join_syn_ack_rx = "MPJoinSynAckRx",
    /// SYN/ACKs with a wrong HMAC.
    mp_join_syn_ack_hmac_failure = "MPJoinSynAckHMacFailure",
    /// Third ACKs with MP_JOIN received.
    mp_join_ack_rx = "MPJoinAckRx",
    /// Third ACKs with a wrong HMAC.
    mp_join_ack_hmac_failure = "MPJoinAckHMacFailure",
    /// Mappings that contradict an earlier one, or whose first bytes came without them.
    dss_not_matching = "DSSNotMatching",
    /// Arrivals of bytes without a mapping, while Multipath TCP is spoken.
    data_without_mapping = "DataWithoutMapping",
    /// Infinite mappings sent.
    infinite_map_tx = "InfiniteMapTx",
    /// Infinite mappings received.
    infinite_map_rx = "InfiniteMapRx",
    /// Mappings whose checksum failed.
    data_csum_err = "DataCsumErr",
    /// Data that arrived ahead of a gap, at the data level.
    ofo_queue = "OFOQueue",
    /// Data that had arrived before, at the data level.
    duplicate_data = "DuplicateData",
    /// ADD_ADDRs received.
    add_addr = "AddAddr",
    /// ADD_ADDRs sent.
    add_addr_tx = "AddAddrTx",
    /// Echoes received.
    echo_add = "EchoAdd",
    /// ADD_ADDRs dropped: wrong HMAC, or too many.
    add_addr_drop = "AddAddrDrop",
    /// REMOVE_ADDRs received.
    rm_addr = "RmAddr",
    /// REMOVE_ADDRs sent.
    rm_addr_tx = "RmAddrTx",
    /// MP_PRIOs received.
    mp_prio_rx = "MPPrioRx",
    /// MP_PRIOs sent.
    mp_prio_tx = "MPPrioTx",
    /// MP_FAILs received.
    mp_fail_rx = "MPFailRx",
    /// MP_FAILs sent, repeated ones too.
    mp_fail_tx = "MPFailTx",
    /// MP_FASTCLOSEs received.
    mp_fastclose_rx = "MPFastcloseRx",
    /// MP_FASTCLOSEs sent.
    mp_fastclose_tx = "MPFastcloseTx",
    /// MP_TCPRSTs received.
    mp_rst_rx = "MPRstRx",
    /// Pieces of data given to a subflow again: what another lost or holds up, and copies that the scheduler wants. One mapping each.
    mptcp_retrans = "MPTCPRetrans",
    /// Subflows that became stale.
    subflow_stale = "SubflowStale",
    /// Stale subflows on which something was acknowledged again.
    subflow_recover = "SubflowRecover",
    /// Subflows that the peer was asked not to use, for they held up the rest.
    paths_set_aside = "PathsSetAside",
    /// Subflows that had been set aside and were tried.
    paths_tried = "PathsTried",
    /// Data outside of the receive window.
    no_dss_in_window = "NoDSSInWindow",
    /// Connections now established that this end has not finished; not a count of events as the others are.
    curr_estab = "MPCurrEstab",
    /// Fallbacks after the handshake.
    fallbacks = "DataFallback",
    /// SYNs that found a listener or their source with its fill of half-open connections.
    listen_overflows = "ListenOverflows",
    /// SYNs and third ACKs dropped because there were too many connections.
    listen_drops = "ListenDrops",
    /// SYNs answered without holding anything, MP_JOINs included.
    syncookies_sent = "SyncookiesSent",
    /// Connections and subflows opened by the third ACK after such an answer.
    syncookies_recv = "SyncookiesRecv",
    /// Acknowledgments without a flow, dropped while cookies were in use, as they had none.
    syncookies_failed = "SyncookiesFailed",
    /// Subflows without TIME-WAIT because there were too many records.
    time_wait_overflow = "TCPTimeWaitOverflow",
    /// Answers without a connection dropped because too many wait to be sent.
    reply_queue_drops = "ReplyQueueDrops",
    /// Challenge ACKs withheld because there were too many in the same second.
    challenges_withheld = "TCPACKSkippedChallenge",
    /// Third ACKs of joins dropped unread because too many HMACs were computed for others in the same second.
    join_acks_dropped = "JoinAcksDropped",
    /// Resets withheld because there were too many in the same second.
    resets_withheld = "ResetsWithheld",
}

impl Counters {
    /// Takes over what the host's strangers have counted.
    pub(crate) fn add_strangers(&mut self, strangers: StrangerCounts) {
        self.syncookies_sent += strangers.cookies_sent;
        self.syncookies_failed += strangers.cookies_failed;
        self.time_wait_overflow += strangers.time_wait_overflows;
        self.reply_queue_drops += strangers.replies_dropped;
        self.resets_withheld += strangers.resets_withheld;
    }
}
