//! A soak scenario in words.

use std::fmt;

use polypath_wire::MptcpVersion;

use super::scenario::{Ending, PathPlan, SoakScenario};

/// In words, with a line for each path.
impl fmt::Display for SoakScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = match self.version {
            MptcpVersion::V0 => "version 0",
            MptcpVersion::V1 => "version 1",
        };
        let checksum = if self.checksum { ", checksums" } else { "" };
        let aggregates = if self.aggregates { ", segments in aggregates" } else { "" };
        let ending = match self.ending {
            Ending::Orderly => "each end closes after its last byte".into(),
            Ending::Stop { at } => format!("both ends stop at {at}"),
            Ending::Abort { at, client: true } => format!("the client aborts at {at}"),
            Ending::Abort { at, client: false } => format!("the server aborts at {at}"),
        };
        let mut lines = vec![
            format!("seed {}: {} bytes up, {} down; {ending}", self.seed, self.up_bytes, self.down_bytes),
            format!("  {version}{checksum}{aggregates}"),
            format!(
                "  scheduler {}, congestion control {}, path manager {}",
                self.scheduler, self.congestion, self.path_manager
            ),
            format!(
                "  send buffers {} bytes, receive buffers {}; {:.1} % of window updates are lost",
                self.window_bytes,
                self.receive_bytes,
                self.lost_window_updates * 100.0
            ),
        ];
        lines.extend(self.paths.iter().enumerate().map(|(number, path)| describe_path(number + 1, path)));
        f.write_str(&lines.join("\n"))
    }
}

fn describe_path(number: usize, path: &PathPlan) -> String {
    let order = if path.any_order { ", packets overtake" } else { "" };
    let under_way = if path.flush { "what is under way is lost" } else { "what is under way waits" };
    let cuts: Vec<String> =
        path.cuts.iter().map(|cut| format!("at {} for {}", cut.from, cut.lasts)).collect();
    let cuts =
        if cuts.is_empty() { String::new() } else { format!("; cut {}: {under_way}", cuts.join(", ")) };
    format!(
        "  path {number}: {}, delay {} + {}{order}, queue {}, loss {:.2} %, duplicated {:.2} %, reordered {:.2} %{cuts}",
        path.rate,
        path.delay,
        path.jitter,
        path.queue,
        path.loss * 100.0,
        path.duplicate * 100.0,
        path.reorder * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_told_in_words() {
        for seed in 0..50 {
            let scenario = SoakScenario::from_seed(seed, &polypath_config::Policies::default());
            let told = scenario.to_string();
            assert_eq!(told.lines().count(), 4 + scenario.paths.len(), "{told}");
            assert!(told.starts_with(&format!("seed {seed}: ")) && !told.contains(['{', '[']), "{told}");
        }
    }
}
