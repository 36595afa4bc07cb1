//! How a plain TCP recovers from losses: the flavours of a document, by name (Kaspar 2011, tables 5.4 and 5.6).

use std::fmt;
use std::str::FromStr;

use polypath_tcp::{Config, DuplicateThreshold, ForwardRto, LossDetection, LossRecovery};

/// What a TCP has besides its congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// Selective acknowledgments.
    pub sack: bool,
    /// Timestamps, and Eifel by them.
    pub timestamps: bool,
    /// What tells of losses.
    pub recovery: LossRecovery,
    /// Segments are spread over the round trip.
    pub pacing: bool,
    /// Initial window in segments.
    pub initial_window_packets: u32,
}

impl Default for Flavour {
    /// What the stack does unless it is told otherwise.
    fn default() -> Self {
        let config = Config::default();
        Self {
            sack: config.sack,
            timestamps: config.timestamps,
            recovery: config.loss_recovery,
            pacing: config.pacing,
            initial_window_packets: config.initial_window_packets,
        }
    }
}

/// Those of Linux 2.6.32 have no pacing, and three segments at first.
const fn of_before(sack: bool, timestamps: bool, all: bool, threshold: DuplicateThreshold) -> Flavour {
    Flavour {
        sack,
        timestamps,
        recovery: LossRecovery {
            detection: LossDetection::ByCount(threshold),
            duplicate_reports: all,
            forward_rto: if all { ForwardRto::Sack } else { ForwardRto::Off },
        },
        pacing: false,
        initial_window_packets: 3,
    }
}

const fn threshold(least: u8, forward: bool) -> DuplicateThreshold {
    DuplicateThreshold { least, forward }
}

impl Flavour {
    /// The flavours by name, but for the stack's own.
    const NAMED: &'static [(&'static str, Self)] = &[
        ("newreno", of_before(false, false, false, threshold(3, false))),
        ("sack", of_before(true, false, false, threshold(3, false))),
        // The text has it without SACK, the table with it.
        ("eifel", of_before(false, true, false, threshold(3, false))),
        ("eifel-sack", of_before(true, true, false, threshold(3, false))),
        ("linux-2.6.32", of_before(true, true, true, threshold(3, true))),
        ("tuned", of_before(true, true, true, threshold(3, false))),
        ("r30-tuned", of_before(true, true, true, threshold(30, false))),
        ("r50-tuned", of_before(true, true, true, threshold(50, false))),
    ];

    /// The stack's own, for paths that differ.
    const PATIENT: &'static str = "patient";

    /// The stack's own.
    const STACK: &'static str = "stack";

    /// Puts it into the settings of a connection.
    pub(super) fn apply(&self, config: &mut Config) {
        config.sack = self.sack;
        config.timestamps = self.timestamps;
        config.loss_recovery = self.recovery;
        config.pacing = self.pacing;
        config.initial_window_packets = self.initial_window_packets;
    }

    /// Counts losses, and by what `change` makes of the threshold.
    pub(crate) fn count_losses(&mut self, change: impl FnOnce(&mut DuplicateThreshold)) {
        let mut threshold = match self.recovery.detection {
            LossDetection::ByCount(threshold) => threshold,
            LossDetection::RackTlp | LossDetection::RackPatient => DuplicateThreshold::default(),
        };
        change(&mut threshold);
        self.recovery.detection = LossDetection::ByCount(threshold);
    }

    /// The names of all.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        [Self::STACK, Self::PATIENT].into_iter().chain(Self::NAMED.iter().map(|(name, _)| *name))
    }
}

/// There is no such flavour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFlavour(String);

impl fmt::Display for UnknownFlavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Flavour::names().collect();
        write!(f, "no flavour is called \"{}\"; expected one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownFlavour {}

impl FromStr for Flavour {
    type Err = UnknownFlavour;

    fn from_str(name: &str) -> Result<Self, UnknownFlavour> {
        if name == Self::STACK {
            return Ok(Self::default());
        }
        if name == Self::PATIENT {
            let recovery = LossRecovery { detection: LossDetection::RackPatient, ..LossRecovery::default() };
            return Ok(Self { recovery, ..Self::default() });
        }
        let found = Self::NAMED.iter().find(|(known, _)| *known == name);
        found.map(|(_, flavour)| *flavour).ok_or_else(|| UnknownFlavour(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_name_and_none_is_another() {
        let flavours: Vec<Flavour> = Flavour::names().map(|name| name.parse().unwrap()).collect();
        for (index, flavour) in flavours.iter().enumerate() {
            assert!(!flavours[..index].contains(flavour), "{flavour:?}");
        }
        let mut config = Config::default();
        flavours[0].apply(&mut config);
        assert_eq!(config, Config::default());
        let error = "reno".parse::<Flavour>().unwrap_err().to_string();
        assert!(
            error.starts_with("no flavour is called \"reno\"; expected one of stack, patient, newreno, "),
            "{error}"
        );
    }
}
