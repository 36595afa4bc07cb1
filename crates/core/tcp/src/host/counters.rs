use polypath_wire::{Packet, Segment, Transport};

use super::strangers::StrangerCounts;

/// Declares the counters once, with the kernel's names beside the fields.
macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident: $name:literal,)*) => {
        /// Counters of a host since its start, with the kernel's MIB names (`/proc/net/snmp`,
        /// `/proc/net/netstat`) in [`Counters::iter`]. An aggregate counts as the segments that it is cut
        /// into.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            /// All counters by the kernel's names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Connections opened from here.
    active_opens: "ActiveOpens",
    /// Connections opened from outside: a SYN was answered.
    passive_opens: "PassiveOpens",
    /// Connections that failed before they were established.
    attempt_fails: "AttemptFails",
    /// Established connections that ended by a reset, from either side.
    estab_resets: "EstabResets",
    /// Connections in ESTABLISHED or CLOSE-WAIT now.
    curr_estab: "CurrEstab",
    /// Segments received.
    in_segs: "InSegs",
    /// Segments sent, retransmissions excluded.
    out_segs: "OutSegs",
    /// Segments retransmitted.
    retrans_segs: "RetransSegs",
    /// Resets sent.
    out_rsts: "OutRsts",
    /// Retransmission timeouts.
    tcp_timeouts: "TCPTimeouts",
    /// SYNs that found a listener or their source with its fill of half-open connections.
    listen_overflows: "ListenOverflows",
    /// SYNs answered with a cookie.
    syncookies_sent: "SyncookiesSent",
    /// Connections opened by a cookie.
    syncookies_recv: "SyncookiesRecv",
    /// Acknowledgments without a connection, dropped while cookies were in use, as they had none.
    syncookies_failed: "SyncookiesFailed",
    /// SYNs to a listener that were dropped for any reason.
    listen_drops: "ListenDrops",
    /// Connections reset because data arrived after the application had let go.
    tcp_abort_on_data: "TCPAbortOnData",
    /// Connections reset because the application let go with data unread.
    tcp_abort_on_close: "TCPAbortOnClose",
    /// Connections that failed because their peer did not answer.
    tcp_abort_on_timeout: "TCPAbortOnTimeout",
    /// Connections that went through TIME-WAIT in their compact form.
    tw: "TW",
    /// TIME-WAIT records that a new connection of the same 4-tuple ended early.
    tw_recycled: "TWRecycled",
    /// Connections without TIME-WAIT because there were too many records.
    tcp_time_wait_overflow: "TCPTimeWaitOverflow",
    /// Answers (resets, acknowledgments in TIME-WAIT) dropped because too many wait to be sent.
    reply_queue_drops: "ReplyQueueDrops",
    /// Challenge ACKs withheld because there were too many in the same second.
    challenges_withheld: "TCPACKSkippedChallenge",
    /// Resets withheld because there were too many in the same second.
    resets_withheld: "ResetsWithheld",
}

impl Counters {
    pub(super) fn count_received(&mut self, packet: &Packet) {
        if let Transport::Tcp(segment) = &packet.transport {
            self.in_segs += segment_count(segment);
        }
    }

    pub(super) fn count_sent(&mut self, packet: &Packet) {
        if let Transport::Tcp(segment) = &packet.transport {
            self.out_segs += segment_count(segment);
            self.out_rsts += u64::from(segment.flags.rst());
        }
    }

    /// Takes over what the host's strangers have counted.
    pub(super) fn add_strangers(&mut self, strangers: StrangerCounts) {
        self.syncookies_sent += strangers.cookies_sent;
        self.syncookies_failed += strangers.cookies_failed;
        self.tw += strangers.time_waits;
        self.tw_recycled += strangers.time_waits_reopened;
        self.tcp_time_wait_overflow += strangers.time_wait_overflows;
        self.reply_queue_drops += strangers.replies_dropped;
        self.resets_withheld += strangers.resets_withheld;
    }
}

/// How many segments an aggregate stands for.
fn segment_count(segment: &Segment) -> u64 {
    if segment.segment_size == 0 {
        return 1;
    }
    (segment.payload.len() as u64).div_ceil(u64::from(segment.segment_size)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels() {
        let counters = Counters { out_rsts: 3, ..Counters::default() };
        assert!(counters.iter().any(|pair| pair == ("OutRsts", 3)));
        assert_eq!(counters.iter().map(|(_, count)| count).sum::<u64>(), 3);
    }
}
