//! What all charts have in common: sizes, letters and greys.

use plotters::style::RGBColor;

/// Width and height of a chart.
pub(super) type Size = (u32, u32);

/// For a page as wide as a screen.
pub(super) const WIDE: Size = (980, 300);
/// For a page as wide as a phone.
pub(super) const NARROW: Size = (400, 270);

pub(super) const FONT: &str = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";
/// Colours by role. The page's style sheet finds them by value and gives each its shade for light and dark.
pub(super) const GREY: RGBColor = RGBColor(110, 116, 126);
pub(super) const GRID: RGBColor = RGBColor(228, 231, 236);
pub(super) const AXIS: RGBColor = RGBColor(190, 195, 203);
