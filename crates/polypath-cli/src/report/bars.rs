//! A density as SVG: shares over whole numbers.

use plotters::prelude::*;

use super::ink::{AXIS, FONT, GREY, GRID, Size};
use super::{Axis, Chart, colour};

/// Shares that are smaller are drawn as this one.
const LEAST_DECADES: i32 = 6;

pub(super) fn draw_into(
    svg: &mut String,
    chart: &Chart,
    axis: &Axis,
    size: Size,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let (from, to) = points().fold((0.0_f64, 1.0_f64), |(from, to), (at, _)| (from.min(*at), to.max(*at)));
    let decades = f64::from(decades(points().map(|(_, share)| *share)));
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    let mut context = ChartBuilder::on(&root)
        .margin_top(12)
        .margin_right(14)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d(from - 0.7..to + 0.7, 0.0..decades)?;
    context
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(AXIS)
        .x_labels(size.0 as usize / 80)
        .y_labels(decades as usize + 1)
        .x_label_formatter(&|value| if value.fract() == 0.0 { format!("{value}") } else { String::new() })
        .y_label_formatter(&|value| label(*value, decades))
        .label_style((FONT, 13).into_font().color(&GREY))
        .axis_desc_style((FONT, 13).into_font().color(&GREY))
        .x_desc(axis.name.as_str())
        .draw()?;
    // Where there are many, each is as wide as can be seen.
    let half = (0.38_f64).max((to - from) / f64::from(size.0));
    for series in &chart.series {
        let (red, green, blue) = colour(series.colour);
        let bars = series.points.iter().filter(|(_, share)| *share > 0.0).map(|(at, share)| {
            let height = (share.log10() + decades).max(0.02);
            Rectangle::new([(at - half, 0.0), (at + half, height)], RGBColor(red, green, blue).filled())
        });
        context.draw_series(bars)?;
    }
    root.present()?;
    Ok(())
}

/// So many powers of ten the smallest share is below one, and one more, so that it has a height.
fn decades(shares: impl Iterator<Item = f64>) -> i32 {
    let least = shares.filter(|share| *share > 0.0).fold(1.0, f64::min);
    ((-f64::log10(least)).floor() as i32 + 1).clamp(2, LEAST_DECADES)
}

/// The share at a height, if that is a power of ten.
fn label(height: f64, decades: f64) -> String {
    let power = height - decades;
    if power.fract() != 0.0 {
        return String::new();
    }
    let digits = (-power - 2.0).max(0.0) as usize;
    format!("{:.digits$} %", 10_f64.powf(power + 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Series;
    use crate::report::chart::draw;
    use crate::report::ink::{NARROW, WIDE};

    #[test]
    fn bars_stand_on_whole_numbers_and_rare_ones_are_seen() {
        let points = vec![(-3.0, 0.0004), (0.0, 0.9), (1200.0, 0.0996)];
        let series = Series { name: "packets".into(), colour: 0, points };
        let axis = Some(Axis { name: "places".into() });
        let chart = Chart { series: vec![series], axis, ..Chart::default() };
        for size in [WIDE, NARROW] {
            let svg = draw(&chart, &[], 0.0, size);
            assert!(svg.contains("places") && svg.contains("0.01 %") && svg.contains("100 %"), "{svg}");
            assert_eq!(svg.matches("fill=\"#0068B2\"").count(), 3, "{svg}");
            assert!(!svg.contains("seconds"));
        }
    }

    #[test]
    fn the_axis_has_a_line_for_each_power_of_ten() {
        assert_eq!(decades([0.9, 0.1].into_iter()), 2);
        assert_eq!(decades([0.9, 0.05].into_iter()), 2);
        assert_eq!(decades([0.9, 0.002].into_iter()), 3);
        assert_eq!(decades([1e-9].into_iter()), 6);
        assert_eq!([4.0, 2.0, 1.0, 0.5].map(|height| label(height, 4.0)), ["100 %", "1 %", "0.1 %", ""]);
    }
}
