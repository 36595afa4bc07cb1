//! What share of its packets a path loses.

/// So many packets count, the newest most.
const MEMORY_PACKETS: f64 = 512.0;
/// Of fewer packets nothing is concluded: one that is lost among the first is one of so many.
const LEAST_PACKETS: f64 = 64.0;

/// The share of packets that were lost, exponentially smoothed.
#[derive(Debug, Default)]
pub(crate) struct LossRate {
    packets: f64,
    lost: f64,
}

impl LossRate {
    /// So many were acknowledged, so many were taken for lost, and so many of those taken for lost before came all the same.
    pub(crate) fn handle(&mut self, acked: u64, lost: u64, late: u64) {
        let count = (acked + lost) as f64;
        let kept = MEMORY_PACKETS / (MEMORY_PACKETS + count);
        self.packets = self.packets * kept + count;
        self.lost = (self.lost * kept + lost as f64 - late as f64).max(0.0);
    }

    /// The share, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.lost / self.packets.max(LEAST_PACKETS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_found_and_forgotten() {
        let mut loss = LossRate::default();
        loss.handle(3, 1, 0);
        assert!(loss.share() < 0.02, "one of few: {}", loss.share());
        for _ in 0..200 {
            loss.handle(18, 2, 0);
        }
        assert!((loss.share() - 0.1).abs() < 0.005, "{}", loss.share());
        for _ in 0..200 {
            loss.handle(20, 0, 0);
        }
        assert!(loss.share() < 0.001, "{}", loss.share());
    }

    #[test]
    fn what_was_only_late_is_no_loss() {
        let mut loss = LossRate::default();
        for _ in 0..200 {
            loss.handle(18, 2, 0);
            loss.handle(0, 0, 2);
        }
        assert!(loss.share() < 0.001, "{}", loss.share());
    }
}
