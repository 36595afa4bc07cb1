//! One chart as SVG.

use std::collections::BTreeMap;

use plotters::prelude::*;

use super::{Chart, Mark, Series, colour};

const SIZE: (u32, u32) = (980, 300);
const FONT: &str = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";
/// Colours by role. The page's style sheet finds them by value and gives each its shade for light and dark.
const GREY: RGBColor = RGBColor(110, 116, 126);
const GRID: RGBColor = RGBColor(228, 231, 236);
const AXIS: RGBColor = RGBColor(190, 195, 203);
const BAND: RGBColor = RGBColor(200, 60, 60);
const BAND_TEXT: RGBColor = RGBColor(165, 50, 50);

/// Draws a chart; `end_s` is the end of the time axis, the same for all charts of a report.
pub(super) fn draw(chart: &Chart, marks: &[Mark], end_s: f64) -> String {
    let mut svg = String::new();
    // Drawing into a string fails only if the chart is inconsistent, and then an empty picture says so.
    if draw_into(&mut svg, chart, marks, end_s).is_err() {
        svg.clear();
    }
    responsive(svg)
}

fn draw_into(
    svg: &mut String,
    chart: &Chart,
    marks: &[Mark],
    end_s: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let layers = if chart.stacked { stack(&chart.series) } else { Vec::new() };
    let stacked = layers.iter().flatten().map(|(_, _, upper)| *upper);
    let top = nice_ceiling(
        chart.series.iter().flat_map(|series| &series.points).map(|point| point.1).chain(stacked),
    );
    let end_s = end_s.max(0.1);
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut context = ChartBuilder::on(&root)
        .margin_top(12)
        .margin_right(14)
        .x_label_area_size(38)
        .y_label_area_size(46)
        .build_cartesian_2d(0.0..end_s, 0.0..top)?;
    for mark in marks {
        let band = Rectangle::new([(mark.from_s, 0.0), (mark.to_s, top)], BAND.mix(0.10).filled());
        context.draw_series([band])?;
        let style = (FONT, 13).into_font().color(&BAND_TEXT);
        context.draw_series([Text::new(
            mark.label.clone(),
            (mark.from_s + end_s * 0.006, top * 0.97),
            style,
        )])?;
    }
    context
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(AXIS)
        .x_labels(12)
        .y_labels(7)
        .x_label_formatter(&|value| format!("{}", (value * 100.0).round() / 100.0))
        .y_label_formatter(&|value| format!("{}", (value * 100.0).round() / 100.0))
        .label_style((FONT, 13).into_font().color(&GREY))
        .axis_desc_style((FONT, 13).into_font().color(&GREY))
        .x_desc("seconds")
        .draw()?;
    let parts = chart.series.iter().filter(|series| series.colour != Series::TOTAL);
    for (layer, series) in layers.iter().zip(parts) {
        let (red, green, blue) = colour(series.colour);
        let upper = layer.iter().map(|(at, _, upper)| (*at, *upper));
        let outline: Vec<(f64, f64)> =
            upper.clone().chain(layer.iter().rev().map(|(at, lower, _)| (*at, *lower))).collect();
        context.draw_series([Polygon::new(outline, RGBColor(red, green, blue).mix(0.30))])?;
        context.draw_series(LineSeries::new(upper, RGBColor(red, green, blue).stroke_width(2)))?;
    }
    for series in chart.series.iter().filter(|series| !chart.stacked || series.colour == Series::TOTAL) {
        let (red, green, blue) = colour(series.colour);
        let width = if series.colour == Series::TOTAL { 1 } else { 2 };
        let style = RGBColor(red, green, blue).stroke_width(width);
        for stretch in stretches(&series.points) {
            context.draw_series(LineSeries::new(stretch.iter().copied(), style))?;
        }
    }
    root.present()?;
    Ok(())
}

/// One part of a stacked chart: time, lower and upper edge.
type Layer = Vec<(f64, f64, f64)>;

/// Puts the parts on top of each other; a part without a value at some time counts as zero there.
fn stack(series: &[Series]) -> Vec<Layer> {
    let millis = |at_s: f64| (at_s * 1e3).round() as i64;
    let parts = || series.iter().filter(|series| series.colour != Series::TOTAL);
    let mut edge: BTreeMap<i64, f64> =
        parts().flat_map(|part| &part.points).map(|point| (millis(point.0), 0.0)).collect();
    let mut layers = Vec::new();
    for part in parts() {
        let values: BTreeMap<i64, f64> = part.points.iter().map(|point| (millis(point.0), point.1)).collect();
        let mut layer = Layer::with_capacity(edge.len());
        for (at, height) in &mut edge {
            let lower = *height;
            *height += values.get(at).copied().unwrap_or(0.0);
            layer.push((*at as f64 / 1e3, lower, *height));
        }
        layers.push(layer);
    }
    layers
}

/// Cuts a line where points are missing, so that no line is drawn over the gap.
fn stretches(points: &[(f64, f64)]) -> Vec<&[(f64, f64)]> {
    let usual = points.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::INFINITY, f64::min);
    points.chunk_by(|one, next| next.0 - one.0 <= usual * 5.0).collect()
}

/// The next round number above all values: 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten.
fn nice_ceiling(values: impl Iterator<Item = f64>) -> f64 {
    let highest = values.filter(|value| value.is_finite()).fold(0.0, f64::max) * 1.08;
    if highest <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(highest.log10().floor());
    let steps = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= highest).unwrap_or(10.0 * power)
}

/// Lets the picture take the width that there is.
fn responsive(svg: String) -> String {
    let (width, height) = SIZE;
    let fixed = format!("width=\"{width}\" height=\"{height}\"");
    svg.replacen(&fixed, "role=\"img\"", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_ends_at_a_round_number_above_the_values() {
        for (highest, top) in [(0.0, 1.0), (36.0, 40.0), (57.0, 80.0), (0.012, 0.015), (980.0, 1200.0)] {
            assert!((nice_ceiling([highest].into_iter()) - top).abs() < 1e-9, "{highest}");
        }
    }

    #[test]
    fn gaps_are_not_drawn_over() {
        let points: Vec<(f64, f64)> = [0.1, 0.2, 0.3, 2.0, 2.1].into_iter().map(|at| (at, 1.0)).collect();
        assert_eq!(stretches(&points).iter().map(|part| part.len()).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn a_chart_shows_its_lines_and_marks() {
        let series = Series { name: "wifi".into(), colour: 0, points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let chart = Chart { title: "t".into(), unit: "Mbit/s".into(), stacked: false, series: vec![series] };
        let mark = Mark { from_s: 0.2, to_s: 0.5, label: "wifi is down".into() };
        let svg = draw(&chart, &[mark], 1.0);
        assert!(svg.contains("polyline") && svg.contains("wifi is down") && svg.contains("#0068B2"), "{svg}");
    }

    #[test]
    fn parts_stand_on_each_other_and_sums_do_not() {
        let part =
            |colour, points: &[(f64, f64)]| Series { name: "p".into(), colour, points: points.to_vec() };
        let series = [
            part(0, &[(0.1, 1.0), (0.2, 2.0)]),
            part(Series::TOTAL, &[(0.1, 9.0)]),
            part(1, &[(0.2, 5.0), (0.3, 4.0)]),
        ];
        let layers = stack(&series);
        assert_eq!(layers[0], [(0.1, 0.0, 1.0), (0.2, 0.0, 2.0), (0.3, 0.0, 0.0)]);
        assert_eq!(layers[1], [(0.1, 1.0, 1.0), (0.2, 2.0, 7.0), (0.3, 0.0, 4.0)]);
    }
}
