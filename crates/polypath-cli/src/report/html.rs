//! The page around the charts.

use std::fmt::Write;

use super::{PALETTE, PALETTE_DARK, Report, Series, TOTAL, TOTAL_DARK, Table, chart};

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1c2026; --dim: #667080; --line: #dde1e7; --page: #f6f7f9; --card: #fff; --alarm: #c22f2f; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ee; --dim: #9aa4b2; --line: #343a44; --page: #14171c; --card: #1d2128; --alarm: #ff8a80; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 36px 24px 60px; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 0 0 10px; }
p.summary { color: var(--dim); margin: 0 0 24px; max-width: 90ch; text-wrap: pretty; }
.headlines { display: flex; flex-wrap: wrap; gap: 14px; margin: 0 0 22px; }
.headlines div { flex: 1 1 170px; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 18px; }
.headlines b { display: block; font-size: 25px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.headlines span { color: var(--dim); font-size: 13px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; margin: 0 0 18px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { color: var(--dim); font-weight: 500; font-size: 13px; }
tr:last-child td { border-bottom: 0; }
tr.strong td { font-weight: 650; }
.note { color: var(--dim); font-size: 13px; margin: 8px 0 0; }
h2 small { color: var(--dim); font-weight: 400; margin-left: 6px; }
figure { margin: 0; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 620px; height: auto; }
figure svg [stroke='#E4E7EC'], figure svg [stroke='#BEC3CB'] { stroke: var(--line); }
figure svg [fill='#6E747E'] { fill: var(--dim); }
figure svg [fill='#C83C3C'], figure svg [fill='#A53232'] { fill: var(--alarm); }
figure svg polyline { stroke-linejoin: round; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--dim); margin: 0 0 4px; }
.legend i { display: inline-block; width: 18px; height: 4px; border-radius: 2px; vertical-align: middle; margin-right: 7px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 22px; margin: 0; font-size: 14px; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
";

/// The report as one HTML page without any outside reference.
#[must_use]
pub(crate) fn render(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, report);
    page
}

fn write_page(page: &mut String, report: &Report) -> std::fmt::Result {
    let title = escape(&report.title);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}{}</style></head><body><main>\n<h1>{title}</h1>\n\
         <p class=\"summary\">{}</p>\n",
        palette(),
        escape(&report.summary)
    )?;
    if !report.headlines.is_empty() {
        page.push_str("<div class=\"headlines\">");
        for (value, meaning) in &report.headlines {
            write!(page, "<div><b>{}</b><span>{}</span></div>", escape(value), escape(meaning))?;
        }
        page.push_str("</div>\n");
    }
    for table in &report.tables {
        write_table(page, table)?;
    }
    let points = report.charts.iter().flat_map(|chart| &chart.series).flat_map(|series| &series.points);
    let end_s = points.map(|(at, _)| *at).fold(0.0, f64::max);
    for one in &report.charts {
        let (heading, unit) = (escape(&one.title), escape(&one.unit));
        write!(page, "<section><h2>{heading} <small>{unit}</small></h2><div class=\"legend\">")?;
        for series in &one.series {
            let (colour, name) = (variable(series.colour), escape(&series.name));
            write!(page, "<span><i style=\"background:var({colour})\"></i>{name}</span>")?;
        }
        let svg = chart::draw(one, &report.marks, end_s);
        writeln!(page, "</div><figure aria-label=\"{}\">{svg}</figure></section>", escape(&one.title))?;
    }
    if !report.parameters.is_empty() {
        page.push_str("<section><h2>Run</h2><dl>");
        for (name, value) in &report.parameters {
            write!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value))?;
        }
        page.push_str("</dl></section>\n");
    }
    page.push_str("</main></body></html>\n");
    Ok(())
}

/// The name of a colour on the page.
fn variable(colour: usize) -> String {
    if colour == Series::TOTAL { "--total".into() } else { format!("--path-{}", colour % PALETTE.len()) }
}

/// The colours of the lines: charts are drawn in those of the light page, and the page gives each its own shade.
fn palette() -> String {
    let hex = |(red, green, blue): (u8, u8, u8)| format!("#{red:02X}{green:02X}{blue:02X}");
    let numbers = || (0..PALETTE.len()).chain([Series::TOTAL]);
    let light: Vec<String> = PALETTE.into_iter().chain([TOTAL]).map(hex).collect();
    let dark: Vec<String> = PALETTE_DARK.into_iter().chain([TOTAL_DARK]).map(hex).collect();
    let set = |shades: &[String]| -> String {
        numbers().zip(shades).map(|(colour, shade)| format!("{}: {shade}; ", variable(colour))).collect()
    };
    let mut style = format!(
        ":root {{ {}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {}}} }}\n",
        set(&light),
        set(&dark)
    );
    for (colour, drawn) in numbers().zip(&light) {
        let shade = variable(colour);
        style += &format!(
            "figure svg [stroke='{drawn}'] {{ stroke: var({shade}); }} figure svg [fill='{drawn}'] {{ fill: var({shade}); }}\n"
        );
    }
    style
}

fn write_table(page: &mut String, table: &Table) -> std::fmt::Result {
    write!(page, "<section><h2>{}</h2><table><thead><tr>", escape(&table.title))?;
    for column in &table.columns {
        write!(page, "<th>{}</th>", escape(column))?;
    }
    page.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        let strong = row.first().is_some_and(|name| name.starts_with("Multipath TCP"));
        page.push_str(if strong { "<tr class=\"strong\">" } else { "<tr>" });
        for cell in row {
            write!(page, "<td>{}</td>", escape(cell))?;
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table>");
    if !table.note.is_empty() {
        write!(page, "<p class=\"note\">{}</p>", escape(&table.note))?;
    }
    page.push_str("</section>\n");
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_outside_and_text_stays_text() {
        let report = Report {
            title: "<script>alert(1)</script>".into(),
            tables: vec![Table { rows: vec![vec!["a & b".into(), "\"1\"".into()]], ..Table::default() }],
            ..Report::default()
        };
        let page = render(&report);
        assert!(!page.contains("<script") && page.contains("a &amp; b"));
        assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("@import"));
    }
}
