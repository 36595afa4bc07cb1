//! The view as a frame of a terminal.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;
use ratatui::text::{Line, Span};

use super::view::{Connection, Path, View};
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

impl Columns {
    fn for_width(width: usize) -> Self {
        let mut columns = Self {
            name: 14.min(width.saturating_sub(RATE + 1)).max(4),
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
    let columns = Columns::for_width(width);
    let report = view.report();
    let strong = Style::new().add_modifier(Modifier::BOLD);
    let faint = Style::new().add_modifier(Modifier::DIM);
    let count = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    let mut title = format!("{}  {}", around.title, count(report.connections.len(), "connection"));
    if report.stacks != 1 {
        title += &format!(" of {}", count(report.stacks, "stack"));
    }
    if view.is_paused() {
        title += "  paused";
    }
    let headings = columns.row("", "state", ["down", "up", "rtt", "resent", "cwnd"]);
    let total = columns.row("total", "", [&rate(report.down_bps), &rate(report.up_bps), "", "", ""]);
    let most = view.total().iter().copied().max().unwrap_or(0);
    let mut lines = vec![
        Line::styled(title, strong),
        Line::styled(headings, faint),
        Line::from(vec![
            Span::styled(total, strong),
            picture(view.total(), most, columns.picture, Style::new()),
        ]),
    ];
    let order = view.order().name();
    let keys = format!("q quit  \u{2191}\u{2193} select  p pause  s sort by {order}");
    let keys = if keys.chars().count() <= width { keys } else { format!("q quit  p pause  s {order}") };
    let below = 1 + usize::from(around.message.is_some());
    let room = height.saturating_sub(lines.len() + below);
    lines.extend(body(view, &report.connections, columns, around.is_coloured, room));
    if report.connections.is_empty() && room > 0 {
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

/// The connections that there is room for, with the selected one among them.
fn body(
    view: &View,
    connections: &[Connection],
    columns: Columns,
    is_coloured: bool,
    room: usize,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut selected = 0..0;
    for (index, connection) in connections.iter().enumerate() {
        let first = lines.len();
        let is_selected = index == view.selected();
        lines.push(heading(connection, is_selected, columns));
        // One scale for the paths of a connection, so that their pictures can be compared.
        let most = connection.listed.iter().flat_map(|path| &path.history).copied().max().unwrap_or(0);
        lines.extend(connection.listed.iter().map(|path| path_line(path, columns, most, is_coloured)));
        if is_selected {
            selected = first..lines.len();
        }
    }
    // Scrolled as far as needed, and not further.
    let skipped = selected.end.saturating_sub(room).min(selected.start);
    lines.into_iter().skip(skipped).take(room).collect()
}

fn heading(connection: &Connection, is_selected: bool, columns: Columns) -> Line<'static> {
    let kind = if connection.is_multipath { connection.scheduler.as_str() } else { "plain TCP" };
    let text = format!("{} {}[{}] {kind}", connection.peer, connection.process, connection.pid);
    let mut style = Style::new().add_modifier(Modifier::BOLD);
    let mut mark = "";
    if is_selected {
        mark = "> ";
        style = style.add_modifier(Modifier::UNDERLINED);
    }
    let width = columns.row("", "", [""; 5]).len() + columns.picture;
    Line::styled(cut(&format!("{mark}{text}"), width.max(20)), style)
}

fn path_line(path: &Path, columns: Columns, most: u64, is_coloured: bool) -> Line<'static> {
    let cells = [
        rate(path.down_bps),
        rate(path.up_bps),
        round_trip(path.rtt_ms),
        share(path.retransmitted_share),
        packets(path.cwnd_packets),
    ];
    let cells = cells.each_ref().map(String::as_str);
    let text = columns.row(&format!("  {}", path.label), path.state, cells);
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
