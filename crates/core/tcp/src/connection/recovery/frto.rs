//! Whether a timeout was spurious, by what is acknowledged after it (RFC 5682).

use crate::loss_recovery::ForwardRto;

/// Where the question stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::connection) enum Frto {
    #[default]
    Off,
    /// The first segment was retransmitted; the next acknowledgment tells more.
    Resent,
    /// It advanced: two new segments may leave, and the acknowledgment after decides.
    SentNew,
}

/// What an acknowledgment says to the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Answer {
    /// Nothing yet.
    None,
    /// New data may leave, and the next one decides.
    SendNew,
    /// The timeout was spurious.
    Spurious,
    /// It was genuine.
    Genuine,
}

/// An acknowledgment after a timeout.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct Told {
    /// It is cumulative, and acknowledges more than before.
    pub(in crate::connection) advanced: bool,
    /// Something arrived that never left again.
    pub(in crate::connection) original: bool,
    /// Something arrived that left after the timeout.
    pub(in crate::connection) is_beyond: bool,
}

impl Frto {
    /// Whether the question is asked at all at a timeout.
    pub(in crate::connection) const fn is_asked(setting: ForwardRto, has_timestamps: bool) -> bool {
        match setting {
            ForwardRto::WithoutTimestamps => !has_timestamps,
            ForwardRto::Off => false,
            ForwardRto::Basic | ForwardRto::Sack => true,
        }
    }

    /// The basic form (§2.1, steps 2 and 3).
    pub(in crate::connection) const fn answer(self, told: Told) -> Answer {
        match self {
            Self::Off => Answer::None,
            Self::Resent if told.advanced => Answer::SendNew,
            Self::SentNew if told.advanced && told.original => Answer::Spurious,
            Self::Resent | Self::SentNew => Answer::Genuine,
        }
    }

    /// With selective acknowledgments (§3.1, steps 2 and 3).
    pub(in crate::connection) const fn answer_with_sack(self, told: Told) -> Answer {
        match self {
            Self::Off => Answer::None,
            Self::Resent if told.advanced => Answer::SendNew,
            // Duplicates before it change the scoreboard alone.
            Self::Resent => Answer::None,
            Self::SentNew if told.is_beyond => Answer::Genuine,
            Self::SentNew if told.original => Answer::Spurious,
            Self::SentNew if told.advanced => Answer::Genuine,
            Self::SentNew => Answer::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Told = Told { advanced: false, original: false, is_beyond: false };
    const ADVANCED: Told = Told { advanced: true, ..NOTHING };
    const ORIGINAL: Told = Told { original: true, ..NOTHING };

    #[test]
    fn timestamps_make_it_needless_unless_it_is_asked_for() {
        for (setting, expected) in [
            (ForwardRto::WithoutTimestamps, (false, true)),
            (ForwardRto::Off, (false, false)),
            (ForwardRto::Basic, (true, true)),
            (ForwardRto::Sack, (true, true)),
        ] {
            assert_eq!((Frto::is_asked(setting, true), Frto::is_asked(setting, false)), expected);
        }
    }

    #[test]
    fn two_that_advance_show_that_it_was_spurious() {
        assert_eq!(Frto::Resent.answer(ADVANCED), Answer::SendNew);
        assert_eq!(Frto::SentNew.answer(Told { original: true, ..ADVANCED }), Answer::Spurious);
        assert_eq!(Frto::SentNew.answer(ADVANCED), Answer::Genuine, "what left again");
    }

    #[test]
    fn a_duplicate_decides_the_basic_form_only() {
        for state in [Frto::Resent, Frto::SentNew] {
            assert_eq!(state.answer(ORIGINAL), Answer::Genuine);
            assert_eq!(state.answer_with_sack(NOTHING), Answer::None);
        }
        assert_eq!(Frto::Resent.answer_with_sack(ORIGINAL), Answer::None);
        assert_eq!(Frto::SentNew.answer_with_sack(ORIGINAL), Answer::Spurious);
    }

    #[test]
    fn what_left_after_the_timeout_arrives_first_where_the_rest_is_lost() {
        let told = Told { original: true, is_beyond: true, ..NOTHING };
        assert_eq!(Frto::SentNew.answer_with_sack(told), Answer::Genuine);
    }
}
