//! Plain tables for terminals: columns, no borders, one line a row.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;

/// The style of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowStyle {
    /// No colour.
    Plain,
    /// Something is available.
    Good,
    /// Something needs attention.
    Warn,
    /// A sum.
    Strong,
}

/// A table under construction.
pub(crate) struct TextTable {
    header: Vec<&'static str>,
    rows: Vec<(RowStyle, Vec<String>)>,
}

impl TextTable {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, style: RowStyle, cells: Vec<String>) {
        self.rows.push((style, cells));
    }

    /// The table as text. Colour applies to whole lines, after the widths are computed.
    pub(crate) fn draw(&self, headers: bool, colour: bool) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if headers {
            table.set_header(self.header.clone());
        }
        for (_, cells) in &self.rows {
            // A line break in a cell would take a row apart.
            table.add_row(cells.iter().map(|cell| cell.replace('\n', " ")).collect::<Vec<_>>());
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let mut text = String::new();
        let tones = headers.then_some(RowStyle::Plain).into_iter();
        let tones = tones.chain(self.rows.iter().map(|(style, _)| *style));
        for (line, style) in table.lines().zip(tones) {
            text.push_str(&paint(line.trim_end(), style, colour));
            text.push('\n');
        }
        text
    }
}

/// A line in the colour of its style.
pub(crate) fn paint(line: &str, style: RowStyle, colour: bool) -> String {
    let code = match style {
        RowStyle::Good => "32",
        RowStyle::Warn => "33",
        RowStyle::Strong => "1",
        RowStyle::Plain => return line.to_owned(),
    };
    if colour { format!("\u{1b}[{code}m{line}\u{1b}[0m") } else { line.to_owned() }
}

/// How long ago something was, in the largest two units, as kubectl writes it: `3m12s`, `2d4h`.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(at.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 10..) => format!("{minutes}m"),
        (0, 0, _) => two(minutes, "m", seconds % 60, "s"),
        (0, ..) => two(hours, "h", minutes % 60, "m"),
        (1..10, ..) => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// Two units; the smaller one only if it is not zero.
fn two(large: i64, unit: &str, small: i64, part: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{part}") }
}

#[cfg(test)]
mod tests;
