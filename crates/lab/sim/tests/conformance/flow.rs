//! One flow as the peer of a script sees it.

use polypath_wire::{Endpoint, FourTuple, Segment};

use crate::script::SubflowSpec;

/// What the runner keeps of a flow. Sequence numbers are relative to the initial ones.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) name: String,
    /// Ends that are known; port 0 is not.
    pub(crate) host: Endpoint,
    pub(crate) peer: Endpoint,
    pub(crate) host_isn: Option<u32>,
    pub(crate) peer_isn: u32,
    /// After the last that either sent.
    pub(crate) host_next: i64,
    pub(crate) peer_next: i64,
    /// The window that the peer says, unless a line says another.
    pub(crate) window: u16,
    /// The peer sends timestamps.
    pub(crate) timestamps: bool,
    pub(crate) host_timestamp: u32,
    /// The host's first timestamp, from which a case counts.
    pub(crate) first_host_timestamp: Option<u32>,
    pub(crate) host_nonce: u32,
    pub(crate) peer_nonce: u32,
    /// Mappings that either sent.
    pub(crate) host_maps: Vec<Map>,
    pub(crate) peer_maps: Vec<Map>,
}

/// Subflow sequence numbers from `at` on are the stream from `from` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    pub(crate) at: i64,
    pub(crate) len: i64,
    pub(crate) from: i64,
}

impl Flow {
    pub(crate) fn new(number: u32, spec: &SubflowSpec) -> Self {
        Self {
            name: spec.name.clone(),
            host: spec.host,
            peer: spec.peer,
            host_isn: None,
            peer_isn: 0x5000_0000_u32.wrapping_mul(number + 1),
            host_next: 0,
            peer_next: 0,
            window: u16::MAX,
            timestamps: false,
            host_timestamp: 0,
            first_host_timestamp: None,
            host_nonce: 0,
            peer_nonce: 0x1000 + number,
            host_maps: Vec::new(),
            peer_maps: Vec::new(),
        }
    }

    /// Both ends are known.
    pub(crate) fn is_bound(&self) -> bool {
        self.host.port != 0 && self.peer.port != 0
    }

    /// The flow of a packet of the host, as far as this one's ends are known.
    pub(crate) fn may_be(&self, tuple: &FourTuple) -> bool {
        let is = |known: Endpoint, end: Endpoint| {
            known.addr == end.addr && (known.port == 0 || known.port == end.port)
        };
        is(self.host, tuple.local) && is(self.peer, tuple.remote)
    }

    /// As the peer sends on it.
    pub(crate) fn as_peer_sends(&self) -> FourTuple {
        FourTuple { local: self.peer, remote: self.host }
    }

    pub(crate) fn host_seq(&self, relative: i64) -> u32 {
        self.host_isn.unwrap_or(0).wrapping_add(relative as u32)
    }

    pub(crate) fn peer_seq(&self, relative: i64) -> u32 {
        self.peer_isn.wrapping_add(relative as u32)
    }

    /// The relative number of the host's that is nearest to what it has sent.
    pub(crate) fn relative_host(&self, seq: u32) -> i64 {
        let next = self.host_seq(self.host_next);
        self.host_next + i64::from(seq.wrapping_sub(next) as i32)
    }

    pub(crate) fn relative_peer(&self, seq: u32) -> i64 {
        let next = self.peer_seq(self.peer_next);
        self.peer_next + i64::from(seq.wrapping_sub(next) as i32)
    }

    /// What the host has said with a segment that was expected.
    pub(crate) fn note_host(&mut self, segment: &Segment) {
        let end = self.relative_host(segment.seq.0) + i64::from(segment.sequence_len());
        if !segment.flags.rst() {
            self.host_next = self.host_next.max(end);
        }
        if let Some(timestamps) = segment.options.timestamps {
            self.host_timestamp = timestamps.value;
            self.first_host_timestamp.get_or_insert(timestamps.value);
        }
    }

    /// Where in the stream the byte at a subflow sequence number is: what a mapping says, else its own place.
    pub(crate) fn place(maps: &[Map], seq: i64) -> u64 {
        let map = maps.iter().rev().find(|map| map.at <= seq && seq < map.at + map.len);
        let place = map.map_or(seq - 1, |map| map.from - 1 + seq - map.at);
        place.max(0) as u64
    }
}
