//! Results as a picture: one HTML file that needs nothing else.

mod bars;
mod chart;
mod html;
mod ink;
mod picture;

use serde::Serialize;

pub(crate) use html::render;
pub(crate) use picture::draw as draw_picture;

/// What a report shows, from top to bottom.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Heading.
    pub(crate) title: String,
    /// One sentence below it.
    pub(crate) summary: String,
    /// The charts that are seen first.
    pub(crate) pictures: Vec<Chart>,
    /// The result that matters, large: value and what it is.
    pub(crate) headlines: Vec<(String, String)>,
    /// Tables.
    pub(crate) tables: Vec<Table>,
    /// Parts of a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) bars: Vec<Bar>,
    /// Charts, which share their time axis and the colours of their series.
    pub(crate) charts: Vec<Chart>,
    /// Stretches of time in which something was different, in all charts.
    pub(crate) marks: Vec<Mark>,
    /// Settings of the run, name and value.
    pub(crate) parameters: Vec<(String, String)>,
    /// What the words on the page mean.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) terms: Vec<(String, String)>,
}

impl Report {
    /// Where the time axis of all charts ends.
    fn end_s(&self) -> f64 {
        let charts = self.pictures.iter().chain(&self.charts);
        let points = charts.flat_map(|chart| &chart.series).flat_map(|series| &series.points);
        points.map(|(at, _)| *at).fold(0.0, f64::max)
    }
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
    /// Words in the chart.
    pub(crate) labels: Vec<Label>,
    /// How to read it, below it.
    pub(crate) note: String,
    /// Instead of lines over time: bars over whole numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) axis: Option<Axis>,
}

/// What bars stand on. Their heights are shares, and each step of the other axis is ten times the one below, so that what is
/// rare is seen.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Axis {
    /// What the numbers are.
    pub(crate) name: String,
}

/// Words at a point of a chart.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Label {
    /// Time in seconds: the middle of the words.
    pub(crate) at_s: f64,
    /// Value: the words stand above it.
    pub(crate) value: f64,
    /// The words.
    pub(crate) text: String,
    /// Colour, as that of a line.
    pub(crate) colour: usize,
}

/// One line.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Series {
    /// Name, as in the legend.
    pub(crate) name: String,
    /// Which colour: paths by their number, [`Series::TOTAL`] and [`Series::PEER`].
    pub(crate) colour: usize,
    /// Time in seconds and value. A value that is not a number ends the line; the next begins another.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Series {
    /// The colour of a sum over all paths.
    pub(crate) const TOTAL: usize = usize::MAX;
    /// The colour of what the result is compared with.
    pub(crate) const PEER: usize = usize::MAX - 1;

    /// It stands for a path, and not for a sum or for something else.
    fn is_part(&self) -> bool {
        self.colour != Self::TOTAL && self.colour != Self::PEER
    }
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

/// A whole, as a bar of its parts.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Bar {
    /// What is shown.
    pub(crate) title: String,
    /// From left to right.
    pub(crate) parts: Vec<BarPart>,
    /// Below it.
    pub(crate) note: String,
}

/// A part of a bar.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct BarPart {
    /// Name, as in the legend.
    pub(crate) name: String,
    /// Which colour, as that of a line.
    pub(crate) colour: usize,
    /// Of one.
    pub(crate) share: f64,
}

/// A table. The first column is text, the others are numbers. A row with one cell is the heading of those below it.
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

/// What is compared with is red.
const PEER: (u8, u8, u8) = (190, 30, 60);
const PEER_DARK: (u8, u8, u8) = (255, 120, 135);

fn colour(index: usize) -> (u8, u8, u8) {
    match index {
        Series::TOTAL => TOTAL,
        Series::PEER => PEER,
        path => PALETTE[path % PALETTE.len()],
    }
}
