//! What a running tunnel is asked. What is recorded goes on until the asker leaves.

use super::super::control_socket::{Answer, Sockets};

/// Those of tunnels, each with the name of its interface.
pub(super) const TUNNELS: Sockets = Sockets("tunnel");

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Status,
    Down,
    /// To take its file anew.
    Reload,
    /// Which file it has.
    File,
    /// To record what comes from a peer.
    Record,
}

impl Question {
    const ALL: [Self; 5] = [Self::Status, Self::Down, Self::Reload, Self::File, Self::Record];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Down => "down",
            Self::Reload => "reload",
            Self::File => "file",
            Self::Record => "record",
        }
    }
}

/// What answers questions, from what answers those that there are.
pub(super) fn answering(
    mut answer: impl FnMut(Question, &str) -> Answer,
) -> impl FnMut(&str, &str) -> Option<Answer> {
    move |word, rest| {
        let question = Question::ALL.into_iter().find(|question| question.word() == word)?;
        Some(answer(question, rest))
    }
}
