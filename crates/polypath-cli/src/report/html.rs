//! The page around the charts.

use std::fmt::Write;

use super::{
    Bar, Chart, Mark, PALETTE, PALETTE_DARK, PEER, PEER_DARK, Report, Series, TOTAL, TOTAL_DARK, Table,
    chart, ink,
};

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1c2026; --dim: #667080; --line: #dde1e7; --page: #f6f7f9; --card: #fff; --alarm: #c22f2f; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ee; --dim: #9aa4b2; --line: #343a44; --page: #14171c; --card: #1d2128; --alarm: #ff8a80; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 36px 24px 60px; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em; text-wrap: balance; }
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
figure svg { display: block; width: 100%; height: auto; }
figure svg.narrow { display: none; }
.scrolling { overflow-x: auto; }
tr.part td { color: var(--dim); font-size: 13px; padding-top: 14px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--dim); margin: 0 0 4px; }
.legend i { display: inline-block; width: 18px; height: 4px; border-radius: 2px; vertical-align: middle; margin-right: 7px; }
.bar { display: flex; gap: 2px; height: 26px; margin: 10px 0 4px; border-radius: 6px; overflow: hidden; }
.bar i { min-width: 2px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 22px; margin: 0; font-size: 14px; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
@media (max-width: 640px) {
  main { padding: 20px 12px 40px; }
  h1 { font-size: 21px; }
  section { padding: 14px 12px; }
  figure svg.wide { display: none; }
  figure svg.narrow { display: block; }
  .headlines { gap: 8px; }
  .headlines div { flex-basis: 130px; padding: 10px 12px; }
  .headlines b { font-size: 20px; }
  th, td { padding: 5px 6px; }
  table { font-size: 13px; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: 6px; }
}
";

/// The greys and reds of charts, in light and dark.
pub(super) const CHART_STYLE: &str = "
svg [stroke='#E4E7EC'], svg [stroke='#BEC3CB'] { stroke: var(--line); }
svg [fill='#6E747E'] { fill: var(--dim); }
svg [fill='#C83C3C'], svg [fill='#A53232'] { fill: var(--alarm); }
svg polyline { stroke-linejoin: round; }
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
    let title = escape(&whole_quantities(&report.title));
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}{CHART_STYLE}{}</style></head><body><main>\n<h1>{title}</h1>\n\
         <p class=\"summary\">{}</p>\n",
        palette(),
        escape(&whole_quantities(&report.summary))
    )?;
    let end_s = report.end_s();
    for one in &report.pictures {
        write_chart(page, one, &report.marks, end_s)?;
    }
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
    for bar in &report.bars {
        write_bar(page, bar)?;
    }
    for one in &report.charts {
        write_chart(page, one, &report.marks, end_s)?;
    }
    if !report.terms.is_empty() {
        page.push_str("<section><h2>What the words mean</h2><dl>");
        for (term, meaning) in &report.terms {
            write!(page, "<dt>{}</dt><dd>{}</dd>", escape(term), escape(meaning))?;
        }
        page.push_str("</dl></section>\n");
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

fn write_chart(page: &mut String, one: &Chart, marks: &[Mark], end_s: f64) -> std::fmt::Result {
    let (heading, unit) = (escape(&one.title), escape(&one.unit));
    write!(page, "<section><h2>{heading} <small>{unit}</small></h2><div class=\"legend\">")?;
    for series in &one.series {
        let (colour, name) = (variable(series.colour), escape(&series.name));
        write!(page, "<span><i style=\"background:var({colour})\"></i>{name}</span>")?;
    }
    write!(page, "</div><figure aria-label=\"{heading}\">")?;
    for (class, size) in [("wide", ink::WIDE), ("narrow", ink::NARROW)] {
        let svg = chart::draw(one, marks, end_s, size);
        // It takes the width that there is.
        let fixed = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
        page.push_str(&svg.replacen(&fixed, &format!("role=\"img\" class=\"{class}\""), 1));
    }
    page.push_str("</figure>");
    write_note(page, &one.note)?;
    page.push_str("</section>\n");
    Ok(())
}

fn write_bar(page: &mut String, bar: &Bar) -> std::fmt::Result {
    write!(page, "<section><h2>{}</h2><div class=\"legend\">", escape(&bar.title))?;
    for part in &bar.parts {
        let (colour, name) = (variable(part.colour), escape(&part.name));
        write!(page, "<span><i style=\"background:var({colour})\"></i>{name}</span>")?;
    }
    page.push_str("</div><div class=\"bar\">");
    for part in &bar.parts {
        let colour = variable(part.colour);
        write!(page, "<i style=\"flex-grow:{:.4};background:var({colour})\"></i>", part.share)?;
    }
    page.push_str("</div>");
    write_note(page, &bar.note)?;
    page.push_str("</section>\n");
    Ok(())
}

fn write_note(page: &mut String, note: &str) -> std::fmt::Result {
    if note.is_empty() { Ok(()) } else { write!(page, "<p class=\"note\">{}</p>", escape(note)) }
}

/// The name of a colour on the page.
pub(super) fn variable(colour: usize) -> String {
    match colour {
        Series::TOTAL => "--total".into(),
        Series::PEER => "--peer".into(),
        path => format!("--path-{}", path % PALETTE.len()),
    }
}

/// The colours of the lines: charts are drawn in those of the light page, and the page gives each its own shade.
pub(super) fn palette() -> String {
    let hex = |(red, green, blue): (u8, u8, u8)| format!("#{red:02X}{green:02X}{blue:02X}");
    let numbers = || (0..PALETTE.len()).chain([Series::TOTAL, Series::PEER]);
    let light: Vec<String> = PALETTE.into_iter().chain([TOTAL, PEER]).map(hex).collect();
    let dark: Vec<String> = PALETTE_DARK.into_iter().chain([TOTAL_DARK, PEER_DARK]).map(hex).collect();
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
            "svg [stroke='{drawn}'] {{ stroke: var({shade}); }} svg [fill='{drawn}'] {{ fill: var({shade}); }}\n"
        );
    }
    style
}

fn write_table(page: &mut String, table: &Table) -> std::fmt::Result {
    write!(page, "<section><h2>{}</h2><div class=\"scrolling\"><table><thead><tr>", escape(&table.title))?;
    for column in &table.columns {
        write!(page, "<th>{}</th>", escape(column))?;
    }
    page.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        if let [part] = &row[..] {
            let columns = table.columns.len();
            write!(page, "<tr class=\"part\"><td colspan=\"{columns}\">{}</td></tr>", escape(part))?;
            continue;
        }
        let strong = row.first().is_some_and(|name| name.starts_with("Multipath TCP"));
        page.push_str(if strong { "<tr class=\"strong\">" } else { "<tr>" });
        for cell in row {
            write!(page, "<td>{}</td>", escape(cell))?;
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div>");
    write_note(page, &table.note)?;
    page.push_str("</section>\n");
    Ok(())
}

/// No line ends between a number and its unit.
fn whole_quantities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(' ') {
        let number = word.strip_suffix(' ').filter(|word| word.ends_with(|last: char| last.is_ascii_digit()));
        match number {
            Some(number) => out.extend([number, "\u{a0}"]),
            None => out.push_str(word),
        }
    }
    out
}

pub(super) fn escape(text: &str) -> String {
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
