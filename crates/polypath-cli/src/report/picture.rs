//! The charts that are seen first, as one SVG file for a document.

use std::fmt::Write;

use super::html::{CHART_STYLE, escape, palette, variable};
use super::{Report, chart, ink};

const MARGIN: u32 = 20;
const STYLE: &str = "
text { font-family: system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }
svg { --text: #1c2026; --dim: #667080; --line: #dde1e7; --card: #fff; --alarm: #c22f2f; }
@media (prefers-color-scheme: dark) {
  svg { --text: #e6e9ee; --dim: #9aa4b2; --line: #343a44; --card: #1d2128; --alarm: #ff8a80; }
}
.card { fill: var(--card); } .text { fill: var(--text); } .dim { fill: var(--dim); }
";

/// Title and first charts.
#[must_use]
pub(crate) fn draw(report: &Report) -> String {
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = write_picture(&mut svg, report);
    svg
}

fn write_picture(svg: &mut String, report: &Report) -> std::fmt::Result {
    let (chart_width, chart_height) = ink::WIDE;
    let title = lines(&report.title);
    let (head, chart_head) = (24 + 26 * u32::try_from(title.len()).unwrap_or(1), 34);
    let width = chart_width + 2 * MARGIN;
    let charts = u32::try_from(report.pictures.len()).unwrap_or(0);
    let height = head + charts * (chart_head + chart_height) + MARGIN;
    write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\"><style>{STYLE}{CHART_STYLE}{}</style>\n\
         <rect class=\"card\" width=\"{width}\" height=\"{height}\"/>\n",
        palette()
    )?;
    for (line, top) in title.iter().zip((36..).step_by(26)) {
        writeln!(
            svg,
            "<text class=\"text\" x=\"{MARGIN}\" y=\"{top}\" font-size=\"19\" font-weight=\"600\">{}</text>",
            escape(line)
        )?;
    }
    let mut top = head;
    for one in &report.pictures {
        write!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{}\" font-size=\"15\"><tspan class=\"text\" font-weight=\"600\">{}</tspan>\
             <tspan class=\"dim\" dx=\"8\" font-size=\"13\">{}</tspan>",
            top + 20,
            escape(&one.title),
            escape(&one.unit)
        )?;
        for series in &one.series {
            let (name, colour) = (escape(&series.name), variable(series.colour));
            write!(
                svg,
                "<tspan dx=\"18\" font-size=\"13\" style=\"fill:var({colour})\">■</tspan>\
                 <tspan class=\"dim\" dx=\"5\" font-size=\"13\">{name}</tspan>"
            )?;
        }
        top += chart_head;
        let drawn = chart::draw(one, &report.marks, report.end_s(), ink::WIDE);
        let placed = format!("<svg x=\"{MARGIN}\" y=\"{top}\" ");
        write!(svg, "</text>\n{}", drawn.replacen("<svg ", &placed, 1))?;
        top += chart_height;
    }
    svg.push_str("</svg>\n");
    Ok(())
}

/// A title in as many lines as it needs.
fn lines(title: &str) -> Vec<String> {
    const MOST: usize = 76;
    let mut lines = vec![String::new()];
    for word in title.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + word.chars().count() < MOST => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Chart, Series};

    #[test]
    fn a_picture_holds_its_charts_and_text_stays_text() {
        let series = Series { name: "a & b".into(), colour: 0, points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let chart = Chart { title: "Speed".into(), series: vec![series], ..Chart::default() };
        let report = Report { title: "<wifi> ".repeat(20), pictures: vec![chart], ..Report::default() };
        let svg = draw(&report);
        assert_eq!(svg.matches("<svg ").count(), 2);
        assert_eq!(svg.matches("</svg>").count(), 2);
        for part in ["&lt;wifi&gt;", "a &amp; b", "polyline"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }
}
