//! What a peer, or something between, does against the standard, and what follows from it.
//!
//! Whoever notices a misbehaviour makes a value of it, and nothing else. What is counted and done is said here, once for each.

use polypath_wire::ResetReason;

use crate::counters::Counters;
use crate::event::{CloseReason, SubflowError};

/// Something that a peer must not do. A middlebox may have done it in the peer's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misbehaviour {
    /// The SYN/ACK of an MP_JOIN has another HMAC than the keys yield.
    WrongHmacInJoinSynAck,
    /// So has the third ACK.
    WrongHmacInJoinAck,
    /// The answer to an MP_JOIN has no such option, or came as if both ends had opened.
    JoinWithoutOption,
    /// The third ACK of an MP_JOIN has no such option.
    JoinAckWithoutOption,
    /// No fourth ACK came for an MP_JOIN, however often the third was sent.
    JoinAckUnanswered,
    /// An ADD_ADDR has another HMAC than the keys yield, or is one too many.
    AddressNotTaken,
    /// Nobody else can answer at an announced address.
    AddressOfNobody,
    /// MP_PRIO names an address, which only version 0 does.
    PrioForAddress,
    /// MP_FASTCLOSE has another key than ours.
    WrongKeyInFastclose,
    /// A DATA_ACK acknowledges what never was sent.
    DataAckOfUnsent,
    /// A mapping contradicts an earlier one.
    MappingsContradict,
    /// The head of a mapping with a checksum came without it.
    MappingWithoutHead,
    /// A subflow, the only one or one of several, brings bytes without a mapping.
    DataWithoutMapping {
        /// Others carry data too, or something waits for what they bring.
        is_one_of_several: bool,
    },
    /// Bytes came without a mapping, with or behind a segment that had one: merged with it on the way.
    MappingMergedAway,
    /// The checksum of a mapping does not match.
    WrongChecksum {
        /// No other subflow carries data.
        is_alone: bool,
    },
    /// MP_FAIL was sent again and again, and no infinite mapping came.
    FailUnanswered,
    /// MP_FAIL for what is not outstanding.
    FailOfUnsent,
    /// MP_FAIL on one of several subflows.
    FailOfOneOfSeveral,
    /// An infinite mapping leaves a gap, or comes on one of several subflows.
    InfiniteMappingMisplaced,
    /// A mapping says of bytes behind an infinite mapping that they are other data.
    InfiniteMappingContradicted,
    /// Data lies beyond the window.
    DataBeyondWindow,
    /// Data comes from behind where DATA_FIN said that the stream ends.
    DataAfterDataFin {
        /// The application was told that it ended.
        is_told: bool,
    },
    /// A DATA_FIN says that the stream ends before data that is there.
    DataFinBeforeData,
    /// A DATA_FIN lies beyond the window.
    DataFinBeyondWindow,
    /// A DATA_FIN is elsewhere than the one before.
    DataFinMoved,
    /// A FIN ends a stream in the middle, after a fallback.
    StreamCutShort,
}

/// What follows from a misbehaviour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Consequence {
    /// What was said does not count.
    Ignore,
    /// It counts in place of what was said before.
    Accept,
    /// An earlier DATA_FIN does not count any more.
    ForgetDataFin,
    /// MP_FAIL asks for an infinite mapping.
    SendFail,
    /// All that comes is the stream from here on.
    FallBack,
    /// The subflow is reset, with the reason in MP_TCPRST.
    Reset(SubflowError, ResetReason),
    /// The connection ends: its stream can't be mended.
    Close(CloseReason),
}

impl Misbehaviour {
    /// Each of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 29] = [
        Self::WrongHmacInJoinSynAck,
        Self::WrongHmacInJoinAck,
        Self::JoinWithoutOption,
        Self::JoinAckWithoutOption,
        Self::JoinAckUnanswered,
        Self::AddressNotTaken,
        Self::AddressOfNobody,
        Self::PrioForAddress,
        Self::WrongKeyInFastclose,
        Self::DataAckOfUnsent,
        Self::MappingsContradict,
        Self::MappingWithoutHead,
        Self::DataWithoutMapping { is_one_of_several: false },
        Self::DataWithoutMapping { is_one_of_several: true },
        Self::MappingMergedAway,
        Self::WrongChecksum { is_alone: true },
        Self::WrongChecksum { is_alone: false },
        Self::FailUnanswered,
        Self::FailOfUnsent,
        Self::FailOfOneOfSeveral,
        Self::InfiniteMappingMisplaced,
        Self::InfiniteMappingContradicted,
        Self::DataBeyondWindow,
        Self::DataAfterDataFin { is_told: false },
        Self::DataAfterDataFin { is_told: true },
        Self::DataFinBeforeData,
        Self::DataFinBeyondWindow,
        Self::DataFinMoved,
        Self::StreamCutShort,
    ];

    /// What is done about it.
    pub(crate) const fn consequence(self) -> Consequence {
        match self {
            Self::WrongHmacInJoinSynAck | Self::WrongHmacInJoinAck => {
                Consequence::Reset(SubflowError::WrongHmac, ResetReason::MPTCP)
            }
            Self::JoinWithoutOption => Consequence::Reset(SubflowError::JoinStripped, ResetReason::MPTCP),
            Self::JoinAckWithoutOption | Self::JoinAckUnanswered => {
                Consequence::Reset(SubflowError::JoinStripped, ResetReason::MIDDLEBOX)
            }
            Self::WrongChecksum { is_alone: true } => Consequence::SendFail,
            Self::DataWithoutMapping { is_one_of_several: false } => Consequence::FallBack,
            Self::DataWithoutMapping { is_one_of_several: true }
            | Self::WrongChecksum { is_alone: false }
            | Self::FailUnanswered
            | Self::FailOfOneOfSeveral => Consequence::Reset(SubflowError::Middlebox, ResetReason::MIDDLEBOX),
            Self::InfiniteMappingContradicted
            | Self::DataAfterDataFin { is_told: true }
            | Self::StreamCutShort => Consequence::Close(CloseReason::Damaged),
            Self::DataAfterDataFin { is_told: false } => Consequence::ForgetDataFin,
            Self::DataFinMoved => Consequence::Accept,
            Self::AddressNotTaken
            | Self::AddressOfNobody
            | Self::PrioForAddress
            | Self::WrongKeyInFastclose
            | Self::DataAckOfUnsent
            | Self::MappingsContradict
            | Self::MappingWithoutHead
            | Self::MappingMergedAway
            | Self::FailOfUnsent
            | Self::InfiniteMappingMisplaced
            | Self::DataBeyondWindow
            | Self::DataFinBeforeData
            | Self::DataFinBeyondWindow => Consequence::Ignore,
        }
    }

    /// Counts it, by the name that the kernel has for it.
    pub(crate) fn count(self, counters: &mut Counters) {
        match self {
            Self::WrongHmacInJoinSynAck => counters.mp_join_syn_ack_hmac_failure += 1,
            Self::WrongHmacInJoinAck => counters.mp_join_ack_hmac_failure += 1,
            Self::AddressNotTaken | Self::AddressOfNobody => counters.add_addr_drop += 1,
            Self::MappingsContradict | Self::MappingWithoutHead => counters.dss_not_matching += 1,
            Self::DataWithoutMapping { .. } | Self::MappingMergedAway => counters.data_without_mapping += 1,
            Self::WrongChecksum { .. } => counters.data_csum_err += 1,
            Self::DataBeyondWindow | Self::DataFinBeforeData | Self::DataFinBeyondWindow => {
                counters.no_dss_in_window += 1;
            }
            _ => {}
        }
    }

    /// The section of RFC 8684 that has it, or what follows.
    #[cfg(test)]
    pub(crate) const fn section(self) -> &'static str {
        match self {
            Self::WrongHmacInJoinSynAck
            | Self::WrongHmacInJoinAck
            | Self::JoinWithoutOption
            | Self::JoinAckWithoutOption
            | Self::JoinAckUnanswered => "3.2",
            Self::AddressNotTaken | Self::AddressOfNobody => "3.4.1",
            Self::PrioForAddress => "3.3.8",
            Self::WrongKeyInFastclose => "3.5",
            Self::DataAckOfUnsent => "3.3.2",
            Self::MappingsContradict | Self::MappingWithoutHead | Self::MappingMergedAway => "3.3.1",
            Self::DataWithoutMapping { .. }
            | Self::WrongChecksum { .. }
            | Self::FailUnanswered
            | Self::FailOfUnsent
            | Self::FailOfOneOfSeveral
            | Self::InfiniteMappingMisplaced
            | Self::InfiniteMappingContradicted
            | Self::StreamCutShort => "3.7",
            Self::DataBeyondWindow => "3.3.5",
            Self::DataAfterDataFin { .. }
            | Self::DataFinBeforeData
            | Self::DataFinBeyondWindow
            | Self::DataFinMoved => "3.3.3",
        }
    }
}
