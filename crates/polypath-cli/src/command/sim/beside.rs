//! A stream beside what plain TCP over one path made of it.

use polypath_sim::scenario::{ConnectionResult, StreamResult};

use super::stream::{longest_pause, megabytes};
use crate::command::harmless;
use crate::demo::{faster, seconds};

/// A link, and what plain TCP made of the connection over it.
pub(super) type Alone = (String, ConnectionResult);

/// Where the other went on for so much longer, a stream without an end of its own has stopped.
const STOPPED_S: f64 = 1.0;

/// Plain TCP over one path, and the stream of it that is meant.
#[derive(Clone, Copy)]
struct Beside<'a> {
    link: &'a str,
    connection: &'a ConnectionResult,
    stream: &'a StreamResult,
}

/// Against the best of plain TCP over one path. The rate of one that did not finish is that of a part, and no measure.
pub(super) fn comparison(stream: &StreamResult, is_upload: bool, alone: &[Alone]) -> Option<String> {
    let all = alone.iter().filter_map(|(link, connection)| {
        let stream = if is_upload { &connection.upload } else { &connection.download };
        Some(Beside { link, connection, stream: stream.as_ref()? })
    });
    let (failed, finished): (Vec<_>, Vec<_>) = all.partition(|beside| beside.has_failed_beside(stream));
    let best =
        finished.iter().max_by(|one, other| one.stream.goodput_bps.total_cmp(&other.stream.goodput_bps));
    let mut sentences = Vec::new();
    if let Some(best) = best {
        let (link, bps) = (harmless(best.link), best.stream.goodput_bps);
        let which =
            if failed.is_empty() { format!("the best path alone, {link}") } else { format!("{link} alone") };
        let rate = format!("{:.1} Mbit/s", bps / 1e6);
        sentences.push(if is_short(stream) {
            let comma = if failed.is_empty() { "," } else { "" };
            format!("Plain TCP over {which}{comma} brought all of it ({rate}).")
        } else {
            format!("That is {} plain TCP over {which} ({rate}).", faster(stream.goodput_bps, bps))
        });
        if let Some((_, pause_s)) = longest_pause(best.connection, best.stream) {
            sentences.push(format!("There nothing arrived for {}.", seconds(pause_s)));
        }
    }
    sentences.extend(failed.iter().map(Beside::failure));
    (!sentences.is_empty()).then(|| format!("  {}", sentences.join(" ")))
}

/// Not all that was planned has arrived.
fn is_short(stream: &StreamResult) -> bool {
    stream.planned_bytes.is_some() && stream.completed_at_s.is_none()
}

impl Beside<'_> {
    /// Not all that was planned arrived; or, without a plan, it ended by itself or fell silent while `other` went on.
    fn has_failed_beside(&self, other: &StreamResult) -> bool {
        if self.stream.planned_bytes.is_some() {
            return is_short(self.stream);
        }
        let went_on_s = other.last_arrived_at_s.unwrap_or(0.0) - self.stream.last_arrived_at_s.unwrap_or(0.0);
        self.why().is_some() || went_on_s >= STOPPED_S
    }

    /// Why the connection ended, if not by itself.
    fn why(&self) -> Option<&str> {
        self.connection.closed.as_deref().filter(|why| *why != "finished")
    }

    fn failure(&self) -> String {
        let link = harmless(self.link);
        let why = self.why().map_or(String::new(), |why| format!(": {}", harmless(why)));
        let (arrived, last_s) = (megabytes(self.stream.bytes), self.stream.last_arrived_at_s);
        match (self.stream.planned_bytes, last_s) {
            (_, None) => format!("Plain TCP over {link} brought nothing{why}."),
            (Some(planned), Some(last_s)) => format!(
                "Plain TCP over {link} did not finish: {arrived} of {} arrived, the last at {}{why}.",
                megabytes(planned),
                seconds(last_s)
            ),
            (None, Some(last_s)) => {
                format!("Plain TCP over {link} stopped at {}, after {arrived}{why}.", seconds(last_s))
            }
        }
    }
}
