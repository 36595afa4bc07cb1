//! One chart as SVG.

use plotters::prelude::*;
use plotters::style::RGBAColor;

use super::{Chart, Mark, colour};

const SIZE: (u32, u32) = (980, 300);
const FONT: &str = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";
const GREY: RGBColor = RGBColor(110, 116, 126);

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
    let top = nice_ceiling(chart.series.iter().flat_map(|series| &series.points).map(|(_, value)| *value));
    let end_s = end_s.max(0.1);
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut context = ChartBuilder::on(&root)
        .margin_top(12)
        .margin_right(18)
        .x_label_area_size(34)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..end_s, 0.0..top)?;
    for mark in marks {
        let band =
            Rectangle::new([(mark.from_s, 0.0), (mark.to_s, top)], RGBAColor(200, 60, 60, 0.10).filled());
        context.draw_series([band])?;
        let style = (FONT, 12).into_font().color(&RGBColor(165, 50, 50));
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
        .bold_line_style(RGBColor(228, 231, 236))
        .axis_style(RGBColor(190, 195, 203))
        .x_labels(12)
        .y_labels(5)
        .x_label_formatter(&|value| format!("{}", (value * 100.0).round() / 100.0))
        .y_label_formatter(&|value| format!("{}", (value * 100.0).round() / 100.0))
        .label_style((FONT, 12).into_font().color(&GREY))
        .axis_desc_style((FONT, 12).into_font().color(&GREY))
        .x_desc("seconds")
        .y_desc(chart.unit.clone())
        .draw()?;
    for series in &chart.series {
        let (red, green, blue) = colour(series.colour);
        let width = if series.colour == super::Series::TOTAL { 1 } else { 2 };
        let style = RGBColor(red, green, blue).stroke_width(width);
        for stretch in stretches(&series.points) {
            context.draw_series(LineSeries::new(stretch.iter().copied(), style))?;
        }
    }
    root.present()?;
    Ok(())
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
    use crate::report::Series;

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
        let chart = Chart { title: "t".into(), unit: "Mbit/s".into(), series: vec![series] };
        let mark = Mark { from_s: 0.2, to_s: 0.5, label: "wifi is down".into() };
        let svg = draw(&chart, &[mark], 1.0);
        assert!(svg.contains("polyline") && svg.contains("wifi is down") && svg.contains("#0068B2"), "{svg}");
    }
}
