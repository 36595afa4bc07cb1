//! One chart as SVG.

use std::collections::BTreeMap;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ink::{AXIS, FONT, GREY, GRID, Size};
use super::{Chart, Mark, Series, bars, colour};

const BAND: RGBColor = RGBColor(200, 60, 60);
const BAND_TEXT: RGBColor = RGBColor(165, 50, 50);

/// Draws a chart; `end_s` is the end of the time axis, the same for all charts of a report.
pub(super) fn draw(chart: &Chart, marks: &[Mark], end_s: f64, size: Size) -> String {
    let mut svg = String::new();
    // Drawing into a string fails only if the chart is inconsistent, and then an empty picture says so.
    let drawn = match &chart.axis {
        Some(axis) => bars::draw_into(&mut svg, chart, axis, size),
        None => draw_into(&mut svg, chart, marks, end_s, size),
    };
    if drawn.is_err() {
        svg.clear();
    }
    svg
}

fn draw_into(
    svg: &mut String,
    chart: &Chart,
    marks: &[Mark],
    end_s: f64,
    size: Size,
) -> Result<(), Box<dyn std::error::Error>> {
    let parts: Vec<&Series> = chart.series.iter().filter(|series| series.is_part()).collect();
    let layers = if chart.stacked { stack(&parts) } else { Vec::new() };
    let stacked = layers.iter().flatten().flatten().map(|(_, _, upper)| *upper);
    let top = nice_ceiling(
        chart.series.iter().flat_map(|series| &series.points).map(|point| point.1).chain(stacked),
    );
    let end_s = end_s.max(0.1);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
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
        .x_labels(size.0 as usize / 80)
        .y_labels(7)
        .x_label_formatter(&|value| format!("{}", (value * 100.0).round() / 100.0))
        .y_label_formatter(&|value| format!("{}", (value * 100.0).round() / 100.0))
        .label_style((FONT, 13).into_font().color(&GREY))
        .axis_desc_style((FONT, 13).into_font().color(&GREY))
        .x_desc("seconds")
        .draw()?;
    for (layer, series) in layers.iter().zip(&parts) {
        let (red, green, blue) = colour(series.colour);
        for stretch in layer {
            let upper = || stretch.iter().map(|(at, _, upper)| (*at, *upper));
            let outline: Vec<(f64, f64)> =
                upper().chain(stretch.iter().rev().map(|(at, lower, _)| (*at, *lower))).collect();
            context.draw_series([Polygon::new(outline, RGBColor(red, green, blue).mix(0.30))])?;
            context.draw_series(LineSeries::new(upper(), RGBColor(red, green, blue).stroke_width(2)))?;
        }
    }
    for series in chart.series.iter().filter(|series| !chart.stacked || !series.is_part()) {
        let (red, green, blue) = colour(series.colour);
        let width = if series.colour == Series::TOTAL && chart.stacked { 1 } else { 2 };
        let style = RGBColor(red, green, blue).stroke_width(width);
        for stretch in stretches(&series.points) {
            context.draw_series(LineSeries::new(stretch.iter().copied(), style))?;
        }
    }
    for label in &chart.labels {
        let (red, green, blue) = colour(label.colour);
        let ink = RGBColor(red, green, blue);
        let style = TextStyle::from((FONT, 14).into_font()).color(&ink);
        let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
        context.draw_series([Text::new(
            label.text.clone(),
            (label.at_s, label.value + top * 0.025),
            style,
        )])?;
    }
    root.present()?;
    Ok(())
}

/// One part of a stacked chart, cut where it has no values: time, lower and upper edge.
type Layer = Vec<Vec<(f64, f64, f64)>>;

/// What lies below at some time, as one comes from earlier and as one goes to later: parts end and begin at once.
#[derive(Clone, Copy, Debug, Default)]
struct Below {
    before: f64,
    after: f64,
}

/// Puts the parts on top of each other; a part without a value at some time is not there.
fn stack(parts: &[&Series]) -> Vec<Layer> {
    let millis = |at_s: f64| (at_s * 1e3).round() as i64;
    let mut below: BTreeMap<i64, Below> = BTreeMap::new();
    let mut layers = Vec::new();
    for part in parts {
        let mut layer = Layer::new();
        let mut raised = Vec::new();
        for stretch in stretches(&part.points) {
            let mut edge = Vec::with_capacity(stretch.len());
            for (number, &(at, value)) in stretch.iter().enumerate() {
                let lower = below.get(&millis(at)).copied().unwrap_or_default();
                let (first, last) = (number == 0, number + 1 == stretch.len());
                if !first {
                    edge.push((at, lower.before, lower.before + value));
                }
                if first || (!last && lower.before != lower.after) {
                    edge.push((at, lower.after, lower.after + value));
                }
                let before = if first { 0.0 } else { value };
                raised.push((millis(at), Below { before, after: if last { 0.0 } else { value } }));
            }
            layer.push(edge);
        }
        for (at, more) in raised {
            let edge = below.entry(at).or_default();
            edge.before += more.before;
            edge.after += more.after;
        }
        layers.push(layer);
    }
    layers
}

/// Cuts a line where points are missing or are no numbers, so that no line is drawn over the gap.
fn stretches(points: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    let usual = points.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::INFINITY, f64::min);
    points
        .split(|point| !point.1.is_finite())
        .flat_map(move |part| part.chunk_by(move |one, next| next.0 - one.0 <= usual * 5.0))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Label;
    use crate::report::ink::WIDE;

    #[test]
    fn the_axis_ends_at_a_round_number_above_the_values() {
        for (highest, top) in [(0.0, 1.0), (36.0, 40.0), (57.0, 80.0), (0.012, 0.015), (980.0, 1200.0)] {
            assert!((nice_ceiling([highest].into_iter()) - top).abs() < 1e-9, "{highest}");
        }
    }

    #[test]
    fn gaps_are_not_drawn_over() {
        let points: Vec<(f64, f64)> = [0.1, 0.2, 0.3, 2.0, 2.1].into_iter().map(|at| (at, 1.0)).collect();
        assert_eq!(stretches(&points).map(<[_]>::len).collect::<Vec<_>>(), [3, 2]);
        let points = [(0.1, 1.0), (0.2, f64::NAN), (0.3, 0.0), (0.4, 2.0)];
        assert_eq!(stretches(&points).map(<[_]>::len).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_chart_shows_its_lines_and_marks() {
        let series = Series { name: "wifi".into(), colour: 0, points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let label = Label { at_s: 0.5, value: 1.0, text: "half".into(), colour: Series::PEER };
        let chart = Chart { series: vec![series], labels: vec![label], ..Chart::default() };
        let mark = Mark { from_s: 0.2, to_s: 0.5, label: "wifi is down".into() };
        let svg = draw(&chart, &[mark], 1.0, WIDE);
        for part in ["polyline", "wifi is down", "#0068B2", "half"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }

    #[test]
    fn parts_stand_on_each_other_and_sums_do_not() {
        let part =
            |colour, points: &[(f64, f64)]| Series { name: "p".into(), colour, points: points.to_vec() };
        let whole = part(0, &[(0.1, 1.0), (0.2, 2.0), (0.3, 3.0)]);
        let later = part(1, &[(0.2, 5.0), (0.3, 4.0), (0.4, 4.0)]);
        let layers = stack(&[&whole, &later]);
        assert_eq!(layers[0], [[(0.1, 0.0, 1.0), (0.2, 0.0, 2.0), (0.3, 0.0, 3.0)]]);
        // Where the lower part ends, the upper one falls at once.
        let falling = [(0.2, 2.0, 7.0), (0.3, 3.0, 7.0), (0.3, 0.0, 4.0), (0.4, 0.0, 4.0)];
        assert_eq!(layers[1], [falling]);
    }
}
