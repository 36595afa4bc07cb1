//! Results as a picture: one HTML file that needs nothing else.

mod chart;
mod html;

use serde::Serialize;

pub use html::render;

/// What a report shows, from top to bottom.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Heading.
    pub title: String,
    /// One sentence below it.
    pub summary: String,
    /// The result that matters, large: value and what it is.
    pub headlines: Vec<(String, String)>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Charts, which share their time axis and the colours of their series.
    pub charts: Vec<Chart>,
    /// Stretches of time in which something was different, in all charts.
    pub marks: Vec<Mark>,
    /// Settings of the run, name and value.
    pub parameters: Vec<(String, String)>,
}

/// Lines over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Chart {
    /// What is shown.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// Parts are drawn as areas on top of each other, sums as a line.
    pub stacked: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// Name, as in the legend.
    pub name: String,
    /// Which colour: paths by their number, and [`Series::TOTAL`].
    pub colour: usize,
    /// Time in seconds and value.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// The colour of a sum over all paths.
    pub const TOTAL: usize = usize::MAX;
}

/// A stretch of time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Mark {
    /// Start in seconds.
    pub from_s: f64,
    /// End in seconds.
    pub to_s: f64,
    /// What was different.
    pub label: String,
}

/// A table. The first column is text, the others are numbers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// What is shown.
    pub title: String,
    /// Column headings.
    pub columns: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
    /// Below it.
    pub note: String,
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
