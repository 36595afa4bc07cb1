//! Results as a picture: one HTML file that needs nothing else.

mod chart;
mod html;

use serde::Serialize;

pub(crate) use html::render;

/// What a report shows, from top to bottom.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Heading.
    pub(crate) title: String,
    /// One sentence below it.
    pub(crate) summary: String,
    /// The result that matters, large: value and what it is.
    pub(crate) headlines: Vec<(String, String)>,
    /// Tables.
    pub(crate) tables: Vec<Table>,
    /// Charts, which share their time axis and the colours of their series.
    pub(crate) charts: Vec<Chart>,
    /// Stretches of time in which something was different, in all charts.
    pub(crate) marks: Vec<Mark>,
    /// Settings of the run, name and value.
    pub(crate) parameters: Vec<(String, String)>,
}

/// Lines over time.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Chart {
    /// What is shown.
    pub(crate) title: String,
    /// Unit of the values.
    pub(crate) unit: String,
    /// Parts are drawn as areas on top of each other, sums as a line.
    pub(crate) stacked: bool,
    /// The lines.
    pub(crate) series: Vec<Series>,
}

/// One line.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Series {
    /// Name, as in the legend.
    pub(crate) name: String,
    /// Which colour: paths by their number, and [`Series::TOTAL`].
    pub(crate) colour: usize,
    /// Time in seconds and value.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Series {
    /// The colour of a sum over all paths.
    pub(crate) const TOTAL: usize = usize::MAX;
}

/// A stretch of time.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Mark {
    /// Start in seconds.
    pub(crate) from_s: f64,
    /// End in seconds.
    pub(crate) to_s: f64,
    /// What was different.
    pub(crate) label: String,
}

/// A table. The first column is text, the others are numbers.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Table {
    /// What is shown.
    pub(crate) title: String,
    /// Column headings.
    pub(crate) columns: Vec<String>,
    /// Cells.
    pub(crate) rows: Vec<Vec<String>>,
    /// Below it.
    pub(crate) note: String,
}

/// Colours that people with any colour vision tell apart (Okabe and Ito), darkened for thin lines on white.
const PALETTE: [(u8, u8, u8); 6] =
    [(0, 104, 178), (213, 94, 0), (0, 140, 105), (190, 90, 150), (150, 120, 0), (60, 150, 210)];

/// The same, for a dark page.
const PALETTE_DARK: [(u8, u8, u8); 6] =
    [(84, 172, 250), (255, 156, 74), (60, 203, 160), (229, 143, 203), (217, 185, 59), (150, 210, 255)];

/// Sums are dark grey, or light on a dark page.
const TOTAL: (u8, u8, u8) = (60, 64, 72);
const TOTAL_DARK: (u8, u8, u8) = (206, 212, 222);

fn colour(index: usize) -> (u8, u8, u8) {
    if index == Series::TOTAL { TOTAL } else { PALETTE[index % PALETTE.len()] }
}
