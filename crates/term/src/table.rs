//! Plain tables: columns without borders, one line per row.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStyle {
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
#[derive(Clone, Debug)]
pub struct TextTable {
    header: Vec<&'static str>,
    right_aligned: Vec<usize>,
    rows: Vec<(RowStyle, Vec<String>)>,
}

impl TextTable {
    /// A table without rows. An empty header draws no header line.
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), right_aligned: Vec::new(), rows: Vec::new() }
    }

    /// The table with these columns aligned to the right; columns count from 0.
    #[must_use]
    pub fn align_right(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.right_aligned.extend(columns);
        self
    }

    /// Adds a row.
    pub fn row<C: Into<String>>(&mut self, style: RowStyle, cells: impl IntoIterator<Item = C>) {
        self.rows.push((style, cells.into_iter().map(Into::into).collect()));
    }

    /// Adds a row without colour.
    pub fn plain<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.row(RowStyle::Plain, cells);
    }

    /// The table as text; each line ends with a line break and without blanks. Colour applies to
    /// whole lines, after the widths are computed.
    pub fn draw(&self, headers: bool, colour: bool) -> String {
        let headers = headers && !self.header.is_empty();
        let mut table = Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if headers {
            table.set_header(self.header.clone());
        }
        for (_, cells) in &self.rows {
            // A line break in a cell would take a row apart.
            table.add_row(cells.iter().map(|cell| cell.replace('\n', " ")).collect::<Vec<_>>());
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if self.right_aligned.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
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

    /// The table as text with its header and without colour.
    pub fn plain_text(&self) -> String {
        self.draw(true, false)
    }
}

/// A line in the colour of its style.
pub fn paint(line: &str, style: RowStyle, colour: bool) -> String {
    let code = match style {
        RowStyle::Good => "32",
        RowStyle::Warn => "33",
        RowStyle::Strong => "1",
        RowStyle::Plain => return line.to_owned(),
    };
    if colour { format!("\u{1b}[{code}m{line}\u{1b}[0m") } else { line.to_owned() }
}

#[cfg(test)]
mod tests;
