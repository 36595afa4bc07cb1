//! The view as a frame of a terminal.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;
use ratatui::text::{Line, Span};

use super::proxies::{Client, ClientPath, Proxy};
use super::view::{Connection, Path, Report, View};
use super::words::{packets, rate, round_trip, share};

/// What is around the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// What it is a view of.
    pub(crate) title: String,
    pub(crate) is_coloured: bool,
    /// The latest thing that the command had to say.
    pub(crate) message: Option<String>,
}

/// Which columns there is room for.
#[derive(Clone, Copy)]
struct Columns {
    name: usize,
    state: bool,
    up: bool,
    round_trip: bool,
    share: bool,
    window: bool,
    /// What is left for the picture of the rate.
    picture: usize,
}

const STATE: usize = 7;
const RATE: usize = 11;
const ROUND_TRIP: usize = 7;
const SHARE: usize = 6;
const WINDOW: usize = 5;
const LEAST_PICTURE: usize = 4;
/// Paths are called by their interfaces; those of proxies by the side, too.
const NAME: usize = 14;
const NAME_WITH_SIDE: usize = 18;

impl Columns {
    fn for_width(width: usize, name: usize) -> Self {
        let mut columns = Self {
            name: name.min(width.saturating_sub(RATE + 1)).max(4),
            state: false,
            up: false,
            round_trip: false,
            share: false,
            window: false,
            picture: 0,
        };
        let mut left = width.saturating_sub(columns.name + RATE + 1);
        // The most telling first.
        for (column, needed) in [
            (&mut columns.state, STATE),
            (&mut columns.up, RATE),
            (&mut columns.round_trip, ROUND_TRIP),
            (&mut columns.share, SHARE),
            (&mut columns.window, WINDOW),
        ] {
            if left <= needed {
                break;
            }
            *column = true;
            left -= needed + 1;
        }
        columns.picture = if left > LEAST_PICTURE { left - 1 } else { 0 };
        columns
    }

    /// Of a row with its picture, and of headings.
    fn width(&self) -> usize {
        (self.row("", "", [""; 5]).len() + self.picture).max(20)
    }

    /// Cells beside each other, those without a column left out.
    fn row(&self, name: &str, state: &str, cells: [&str; 5]) -> String {
        let [down, up, round_trip, share, window] = cells;
        let mut text = format!("{:<width$}", cut(name, self.name), width = self.name);
        if self.state {
            text += &format!(" {state:<STATE$}");
        }
        text += &format!(" {down:>RATE$}");
        for (is_there, cell, width) in [
            (self.up, up, RATE),
            (self.round_trip, round_trip, ROUND_TRIP),
            (self.share, share, SHARE),
            (self.window, window, WINDOW),
        ] {
            if is_there {
                text += &format!(" {cell:>width$}");
            }
        }
        text
    }
}

/// Draws it all.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View, around: &Surroundings) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let report = view.report();
    let columns = Columns::for_width(width, if report.proxies.is_empty() { NAME } else { NAME_WITH_SIDE });
    let strong = Style::new().add_modifier(Modifier::BOLD);
    let faint = Style::new().add_modifier(Modifier::DIM);
    let headings = columns.row("", "state", ["down", "up", "rtt", "resent", "cwnd"]);
    let mut lines = vec![Line::styled(title(view, &report, around), strong), Line::styled(headings, faint)];
    if report.has_sums() {
        let rates = (report.down_bps, report.up_bps);
        lines.push(total_line("total", rates, view.total(), columns, strong));
    }
    let order = view.order().name();
    let keys = format!("q quit  \u{2191}\u{2193} select  p pause  s sort by {order}");
    let keys = if keys.chars().count() <= width { keys } else { format!("q quit  p pause  s {order}") };
    let below = 1 + usize::from(around.message.is_some());
    let room = height.saturating_sub(lines.len() + below);
    lines.extend(body(view, &report, columns, around.is_coloured, room));
    if report.connections.is_empty() && report.has_sums() && room > 0 {
        lines.push(Line::styled("no connection yet", faint));
    }
    for (index, line) in lines.into_iter().take(height.saturating_sub(below)).enumerate() {
        put(frame, index, line);
    }
    if let Some(message) = &around.message {
        put(frame, height.saturating_sub(2), Line::raw(message.as_str()));
    }
    put(frame, height.saturating_sub(1), Line::styled(keys, faint));
}

fn put(frame: &mut Frame<'_>, row: usize, line: Line<'_>) {
    let area = frame.area();
    if row < usize::from(area.height) {
        frame.render_widget(line, Rect { y: area.y + row as u16, height: 1, ..area });
    }
}

/// What there is, in numbers.
fn title(view: &View, report: &Report, around: &Surroundings) -> String {
    let count = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    let mut parts = Vec::new();
    if report.has_sums() {
        let of_stacks =
            if report.stacks == 1 { String::new() } else { format!(" of {}", count(report.stacks, "stack")) };
        parts.push(count(report.connections.len(), "connection") + &of_stacks);
    }
    if !report.proxies.is_empty() {
        let clients = report.proxies.iter().map(|proxy| proxy.clients.len()).sum();
        let proxies = report.proxies.len();
        let proxies = if proxies == 1 { "1 proxy".into() } else { format!("{proxies} proxies") };
        parts.push(format!("{} of {proxies}", count(clients, "client")));
    }
    let paused = if view.is_paused() { "  paused" } else { "" };
    format!("{}  {}{paused}", around.title, parts.join(", "))
}

/// Rates of all together, with their picture.
fn total_line(
    name: &str,
    (down, up): (f64, f64),
    history: &VecDeque<u64>,
    columns: Columns,
    style: Style,
) -> Line<'static> {
    let most = history.iter().copied().max().unwrap_or(0);
    let text = columns.row(name, "", [&rate(down), &rate(up), "", "", ""]);
    let picture = picture(history, most, columns.picture, Style::new());
    Line::from(vec![Span::styled(text, style), picture])
}

/// Rows, of which one is selected.
#[derive(Default)]
struct Rows {
    lines: Vec<Line<'static>>,
    count: usize,
    selected: std::ops::Range<usize>,
}

impl Rows {
    /// Those that are selected together.
    fn add(&mut self, is_selected: bool, lines: impl IntoIterator<Item = Line<'static>>) {
        let first = self.lines.len();
        self.lines.extend(lines);
        if is_selected {
            self.selected = first..self.lines.len();
        }
        self.count += 1;
    }
}

/// The connections and clients that there is room for, with the selected one among them.
fn body(
    view: &View,
    report: &Report,
    columns: Columns,
    is_coloured: bool,
    room: usize,
) -> Vec<Line<'static>> {
    let mut rows = Rows::default();
    for connection in &report.connections {
        let is_selected = rows.count == view.selected();
        // One scale for the paths of a connection, so that their pictures can be compared.
        let most = connection.listed.iter().flat_map(|path| &path.history).copied().max().unwrap_or(0);
        let paths = connection.listed.iter().map(|path| path_line(path, columns, most, is_coloured));
        rows.add(is_selected, std::iter::once(heading(connection, is_selected, columns)).chain(paths));
    }
    for proxy in &report.proxies {
        rows.lines.extend(proxy_lines(proxy, columns));
        for client in &proxy.clients {
            let is_selected = rows.count == view.selected();
            rows.add(is_selected, client_lines(client, is_selected, columns, is_coloured));
        }
    }
    let Rows { lines, selected, .. } = rows;
    // Scrolled as far as needed, and not further.
    let skipped = selected.end.saturating_sub(room).min(selected.start);
    lines.into_iter().skip(skipped).take(room).collect()
}

/// A proxy without its clients.
fn proxy_lines(proxy: &Proxy, columns: Columns) -> Vec<Line<'static>> {
    let strong = Style::new().add_modifier(Modifier::BOLD);
    let rates = (proxy.down_bps, proxy.up_bps);
    let mut lines = vec![
        Line::styled(cut(&proxy.heading(), columns.width()), strong),
        total_line("  total", rates, &proxy.history, columns, Style::new()),
    ];
    lines.extend(proxy.limit_lines().map(|line| Line::raw(cut(&format!("  {line}"), columns.width()))));
    lines
}

fn client_lines(
    client: &Client,
    is_selected: bool,
    columns: Columns,
    is_coloured: bool,
) -> Vec<Line<'static>> {
    let most = client.paths.iter().flat_map(|path| &path.history).copied().max().unwrap_or(0);
    let line = |path: &ClientPath| {
        let (name, now) = (format!("  {}", path.label()), &path.now);
        let last = (now.rtt_ms, now.retransmitted_share, now.cwnd_packets);
        let text = path_row(&name, now.state, (path.down_bps, path.up_bps), last, columns);
        let colour = if now.state == "backup" { Color::Yellow } else { Color::Green };
        let style = if is_coloured { Style::new().fg(colour) } else { Style::new() };
        Line::from(vec![Span::styled(text, style), picture(&path.history, most, columns.picture, style)])
    };
    let heading = heading_line(&client.heading(), is_selected, columns);
    std::iter::once(heading).chain(client.paths.iter().map(line)).collect()
}

fn heading(connection: &Connection, is_selected: bool, columns: Columns) -> Line<'static> {
    let kind = if connection.is_multipath { connection.scheduler.as_str() } else { "plain TCP" };
    let text = format!("{} {}[{}] {kind}", connection.peer, connection.process, connection.pid);
    heading_line(&text, is_selected, columns)
}

fn heading_line(text: &str, is_selected: bool, columns: Columns) -> Line<'static> {
    let mut style = Style::new().add_modifier(Modifier::BOLD);
    let mut mark = "";
    if is_selected {
        mark = "> ";
        style = style.add_modifier(Modifier::UNDERLINED);
    }
    Line::styled(cut(&format!("{mark}{text}"), columns.width()), style)
}

fn path_row(
    name: &str,
    state: &str,
    (down, up): (f64, f64),
    (rtt_ms, retransmitted, cwnd): (f64, Option<f64>, u64),
    columns: Columns,
) -> String {
    let cells = [rate(down), rate(up), round_trip(rtt_ms), share(retransmitted), packets(cwnd)];
    columns.row(name, state, cells.each_ref().map(String::as_str))
}

fn path_line(path: &Path, columns: Columns, most: u64, is_coloured: bool) -> Line<'static> {
    let last = (path.rtt_ms, path.retransmitted_share, path.cwnd_packets);
    let name = format!("  {}", path.label);
    let text = path_row(&name, path.state, (path.down_bps, path.up_bps), last, columns);
    let mut style = Style::new();
    if is_coloured {
        style = style.fg(match path.state {
            "up" => Color::Green,
            "backup" | "aside" | "joining" => Color::Yellow,
            _ => Color::Red,
        });
    }
    if path.state == "lost" {
        style = style.add_modifier(Modifier::DIM);
    }
    Line::from(vec![Span::styled(text, style), picture(&path.history, most, columns.picture, style)])
}

/// The latest rates as bars, the newest at the right.
fn picture(history: &VecDeque<u64>, most: u64, width: usize, style: Style) -> Span<'static> {
    if width == 0 {
        return Span::raw("");
    }
    const LEVELS: [&str; 9] = [
        " ",
        bar::ONE_EIGHTH,
        bar::ONE_QUARTER,
        bar::THREE_EIGHTHS,
        bar::HALF,
        bar::FIVE_EIGHTHS,
        bar::THREE_QUARTERS,
        bar::SEVEN_EIGHTHS,
        bar::FULL,
    ];
    let latest = history.iter().skip(history.len().saturating_sub(width));
    let bars: String = latest
        .map(|rate| {
            // Anything at all is seen.
            let level = (*rate as f64 * 8.0 / most.max(1) as f64).ceil() as usize;
            LEVELS[level.min(8)]
        })
        .collect();
    Span::styled(format!(" {bars:>width$}"), style)
}

fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect(),
        None => text.into(),
    }
}
