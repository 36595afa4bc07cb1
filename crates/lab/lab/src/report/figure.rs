//! Figures as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::metrics::{Distribution, percentile};

/// Colours that people with any colour vision tell apart (Okabe and Ito), darkened for thin lines on white. The page
/// gives each its own shade on a dark background.
pub(super) const PALETTE: [(u8, u8, u8); 8] = [
    (0, 104, 178),
    (213, 94, 0),
    (0, 140, 105),
    (190, 90, 150),
    (150, 120, 0),
    (60, 150, 210),
    (110, 80, 190),
    (95, 100, 110),
];
pub(super) const PALETTE_DARK: [(u8, u8, u8); 8] = [
    (84, 172, 250),
    (255, 156, 74),
    (60, 203, 160),
    (229, 143, 203),
    (217, 185, 59),
    (150, 210, 255),
    (180, 155, 255),
    (170, 176, 186),
];

const FONT: &str = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";
const GREY: RGBColor = RGBColor(110, 116, 126);
const GRID: RGBColor = RGBColor(228, 231, 236);
const AXIS: RGBColor = RGBColor(190, 195, 203);

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) fn colour(index: usize) -> RGBColor {
    let (red, green, blue) = PALETTE[index % PALETTE.len()];
    RGBColor(red, green, blue)
}

/// A named set of values in a colour.
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    pub(super) colour: usize,
    pub(super) values: Vec<f64>,
}

/// A line in a colour.
pub(super) struct Line {
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

fn draw(size: (u32, u32), into: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        // Drawing into a string fails only if the figure is inconsistent; then the page has a gap there.
        if into(&root).and_then(|()| Ok(root.present()?)).is_err() {
            return String::new();
        }
    }
    // Takes the width that there is.
    svg.replacen(&format!("width=\"{}\" height=\"{}\"", size.0, size.1), "role=\"img\"", 1)
}

fn label(value: &f64) -> String {
    let text = format!("{value:.3}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_string(),
        text => text.to_string(),
    }
}

/// The range of all finite values with some air, and 0 where it is near.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (0.0, 1.0);
    }
    let low = if low > 0.0 && low < 0.6 * high { 0.0 } else { low };
    let air = (high - low).max(high.abs() * 1e-3).max(1e-9) * 0.05;
    (if low == 0.0 { 0.0 } else { low - air }, high + air)
}

/// Cumulative distributions: which share of the sets has at most so much.
pub(super) fn cumulative(samples: &[Sample<'_>], axis: &str) -> String {
    let (low, high) = axis_range(samples);
    draw((980, 360), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin_top(12)
            .margin_right(18)
            .x_label_area_size(44)
            .y_label_area_size(58)
            .build_cartesian_2d(low..high, 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .x_labels(11)
            .y_labels(6)
            .x_label_formatter(&label)
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .label_style((FONT, 13).into_font().color(&GREY))
            .axis_desc_style((FONT, 13).into_font().color(&GREY))
            .x_desc(axis)
            .y_desc("share of sets")
            .draw()?;
        for sample in samples {
            let mut sorted: Vec<f64> =
                sample.values.iter().copied().filter(|value| !value.is_nan()).collect();
            sorted.sort_by(f64::total_cmp);
            let count = sorted.len() as f64;
            let mut points = vec![(low, sorted.iter().filter(|value| **value < low).count() as f64 / count)];
            let mut share = 0.0;
            // What is beyond the edge, or never came, is not there: the line ends below the top.
            for value in sorted.iter().filter(|value| **value <= high).map(|value| value.max(low)) {
                points.push((value, share));
                share += 1.0 / count;
                points.push((value, share));
            }
            points.push((high, share));
            chart.draw_series(LineSeries::new(points, colour(sample.colour).stroke_width(2)))?;
        }
        Ok(())
    })
}

/// A range for all samples, whose outermost hundredth does not count if it would squeeze the rest.
fn axis_range(samples: &[Sample<'_>]) -> (f64, f64) {
    let mut all: Vec<f64> = samples
        .iter()
        .flat_map(|sample| sample.values.iter().copied())
        .filter(|value| value.is_finite())
        .collect();
    all.sort_by(f64::total_cmp);
    let (p1, p99) = (percentile(&all, 0.01), percentile(&all, 0.99));
    let spread = (p99 - p1).max(1e-9);
    range(all.into_iter().filter(|value| *value > p1 - spread && *value < p99 + spread))
}

/// Boxes of the middle half with the median, whiskers to the 5th and 95th percentiles, dots at the extremes.
pub(super) fn boxes(samples: &[Sample<'_>], axis: &str) -> String {
    let (low, high) = axis_range(samples);
    let height = 70 + 34 * samples.len() as u32;
    draw((980, height), |root| {
        let rows = samples.len() as f64;
        let mut chart = ChartBuilder::on(root)
            .margin_top(8)
            .margin_right(18)
            .x_label_area_size(44)
            .y_label_area_size(190)
            .build_cartesian_2d(low..high, 0.0..rows)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .x_labels(11)
            .y_labels(0)
            .x_label_formatter(&label)
            .label_style((FONT, 13).into_font().color(&GREY))
            .axis_desc_style((FONT, 13).into_font().color(&GREY))
            .x_desc(axis)
            .draw()?;
        for (row, sample) in samples.iter().enumerate() {
            let Some(all) = Distribution::of(sample.values.iter().copied()) else { continue };
            let colour = colour(sample.colour);
            let at = rows - row as f64 - 0.5;
            let [p5, p25, median, p75, p95] = all.five().map(|value| value.clamp(low, high));
            let stroke = colour.stroke_width(2);
            let line = |points: [(f64, f64); 2]| PathElement::new(points, stroke);
            chart.draw_series([line([(p5, at), (p25, at)]), line([(p75, at), (p95, at)])])?;
            chart.draw_series([p5, p95].map(|end| line([(end, at - 0.14), (end, at + 0.14)])))?;
            chart.draw_series([Rectangle::new(
                [(p25, at - 0.27), (p75, at + 0.27)],
                colour.mix(0.25).filled(),
            )])?;
            chart.draw_series([Rectangle::new(
                [(p25, at - 0.27), (p75, at + 0.27)],
                colour.stroke_width(1),
            )])?;
            chart.draw_series([PathElement::new(
                [(median, at - 0.27), (median, at + 0.27)],
                colour.stroke_width(4),
            )])?;
            let ends = [all.min, all.max].into_iter().filter(|end| (low..=high).contains(end));
            chart.draw_series(ends.map(|end| Circle::new((end, at), 3, colour.filled())))?;
            let (x, y) = chart.backend_coord(&(low, at));
            let style = (FONT, 14).into_font().color(&GREY).pos(plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Right,
                plotters::style::text_anchor::VPos::Center,
            ));
            root.draw(&Text::new(sample.name.to_string(), (x - 10, y), style))?;
        }
        Ok(())
    })
}

/// Values over a swept parameter, which are `places` on the axis with `names`.
pub(super) fn lines(lines: &[Line], x_axis: &str, y_axis: &str, names: Option<&[String]>) -> String {
    let xs = || lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let (left, right) = match names {
        Some(names) => (-0.3, names.len() as f64 - 0.7),
        None => range(xs()),
    };
    let (low, high) = range(lines.iter().flat_map(|line| &line.points).map(|point| point.1));
    draw((980, 360), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin_top(12)
            .margin_right(18)
            .x_label_area_size(44)
            .y_label_area_size(58)
            .build_cartesian_2d(left..right, low..high)?;
        let name = |value: &f64| match names {
            Some(names) if (value - value.round()).abs() < 1e-6 && *value > -0.5 => {
                names.get(value.round() as usize).cloned().unwrap_or_default()
            }
            Some(_) => String::new(),
            None => label(value),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .x_labels(names.map_or(11, <[String]>::len))
            .y_labels(7)
            .x_label_formatter(&name)
            .y_label_formatter(&label)
            .label_style((FONT, 13).into_font().color(&GREY))
            .axis_desc_style((FONT, 13).into_font().color(&GREY))
            .x_desc(x_axis)
            .y_desc(y_axis)
            .draw()?;
        for line in lines {
            let colour = colour(line.colour);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
            if line.points.len() <= 60 {
                chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str, colour: usize, values: impl IntoIterator<Item = f64>) -> Sample<'_> {
        Sample { name, colour, values: values.into_iter().collect() }
    }

    #[test]
    fn figures_show_every_sample_in_its_colour() {
        let samples = [
            sample("LIA", 0, (0..50).map(|value| f64::from(value) / 50.0)),
            sample("CUBIC", 1, [0.5, f64::NAN, f64::INFINITY, 0.7]),
        ];
        for svg in [cumulative(&samples, "benefit"), boxes(&samples, "benefit")] {
            assert!(svg.contains("#0068B2") && svg.contains("#D55E00"), "{svg}");
            assert!(svg.contains("benefit") && !svg.contains("NaN"));
        }
        assert!(boxes(&samples, "").contains("CUBIC"));
        let line = Line { colour: 2, points: vec![(0.0, 1.0), (1.0, 3.0)] };
        let names = ["64KB".to_string(), "1MB".to_string()];
        let svg = lines(&[line], "size", "s", Some(&names));
        assert!(svg.contains("64KB") && svg.contains("1MB") && svg.contains("#008C69"), "{svg}");
    }

    #[test]
    fn nothing_and_a_single_value_are_no_reason_to_fail() {
        for values in [vec![], vec![f64::NAN], vec![f64::INFINITY], vec![2.0], vec![0.0, 0.0]] {
            let samples = [sample("a", 0, values)];
            assert!(cumulative(&samples, "x").contains("<svg"));
            assert!(boxes(&samples, "x").contains("<svg"));
        }
        assert!(lines(&[], "x", "y", None).contains("<svg"));
    }

    #[test]
    fn one_outlier_does_not_squeeze_the_rest() {
        let values = (0..200).map(f64::from).chain([1e9]);
        let (low, high) = axis_range(&[sample("a", 0, values)]);
        assert!(low <= 0.0 && (199.0..1000.0).contains(&high), "{low} {high}");
    }
}
