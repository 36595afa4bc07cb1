//! What tells of losses: RACK as it stands, or one of the settings beside it, which take memory only where they are set.

use alloc::boxed::Box;

use super::patience::Patience;
use super::threshold::{DUPLICATE_THRESHOLD, Threshold};
use crate::loss_recovery::{LossDetection, LossRecovery};

/// How losses are found. The default is RACK.
#[derive(Clone, Debug, Default)]
pub(super) struct Detection(Option<Box<Set>>);

#[derive(Clone, Copy, Debug)]
enum Set {
    /// The slowest of several paths is waited for.
    Patient(Patience),
    /// Segments that overtook are counted.
    ByCount(Threshold),
}

impl Detection {
    pub(super) fn new(settings: &LossRecovery) -> Self {
        Self(match settings.detection {
            LossDetection::RackTlp => None,
            LossDetection::RackPatient => Some(Box::new(Set::Patient(Patience::new()))),
            LossDetection::ByCount(threshold) => Some(Box::new(Set::ByCount(Threshold::new(threshold)))),
        })
    }

    /// What segments are counted by, where they are.
    #[inline]
    pub(super) fn threshold(&self) -> Option<&Threshold> {
        match self.0.as_deref() {
            Some(Set::ByCount(threshold)) => Some(threshold),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn threshold_mut(&mut self) -> Option<&mut Threshold> {
        match self.0.as_deref_mut() {
            Some(Set::ByCount(threshold)) => Some(threshold),
            _ => None,
        }
    }

    /// How long late segments take, where they are waited for.
    #[inline]
    pub(super) fn patience(&self) -> Option<&Patience> {
        match self.0.as_deref() {
            Some(Set::Patient(patience)) => Some(patience),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn patience_mut(&mut self) -> Option<&mut Patience> {
        match self.0.as_deref_mut() {
            Some(Set::Patient(patience)) => Some(patience),
            _ => None,
        }
    }

    /// So many duplicate acknowledgments, or segments that overtook another, mean loss.
    #[inline]
    pub(super) fn segments(&self) -> u32 {
        self.threshold().map_or(DUPLICATE_THRESHOLD, Threshold::segments)
    }

    /// The least that this ever is.
    pub(super) fn least_segments(&self) -> u32 {
        self.threshold().map_or(DUPLICATE_THRESHOLD, Threshold::least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss_recovery::DuplicateThreshold;

    fn detection(detection: LossDetection) -> Detection {
        Detection::new(&LossRecovery { detection, ..LossRecovery::default() })
    }

    #[test]
    fn what_is_not_set_takes_a_pointer_and_has_the_standard_threshold() {
        assert_eq!(size_of::<Detection>(), size_of::<usize>());
        for rack in
            [Detection::default(), detection(LossDetection::RackTlp), detection(LossDetection::RackPatient)]
        {
            assert!(rack.threshold().is_none());
            assert_eq!((rack.segments(), rack.least_segments()), (DUPLICATE_THRESHOLD, DUPLICATE_THRESHOLD));
        }
    }

    #[test]
    fn a_setting_is_what_was_asked_for() {
        assert!(detection(LossDetection::RackPatient).patience().is_some());
        let mut counted = detection(LossDetection::ByCount(DuplicateThreshold { least: 5, forward: true }));
        assert!(counted.patience().is_none());
        counted.threshold_mut().unwrap().handle_reordered(9);
        assert_eq!((counted.segments(), counted.least_segments()), (9, 5));
    }
}
