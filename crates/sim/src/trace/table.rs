//! A CSV table. Columns are found by name; errors give line and column.

use std::collections::BTreeMap;
use std::io::Read;

use csv::StringRecord;

use super::TraceError;
use super::lines::Lines;

/// Characters of a wrong value that an error shows.
const MAX_SHOWN_CHARS: usize = 40;
/// Kubernetes' limit for the name of a pod or node.
const MAX_NAME_BYTES: usize = 253;

pub(super) struct CsvTable<R> {
    lines: Lines<R>,
    file: String,
    /// Where each column stands.
    columns: BTreeMap<String, usize>,
    /// Fields of the header, and so of every row.
    width: usize,
    /// The column of names.
    name: &'static str,
    /// The line of each name.
    names: BTreeMap<String, u64>,
}

/// A line of the table.
pub(super) struct Row<'a> {
    file: &'a str,
    columns: &'a BTreeMap<String, usize>,
    record: StringRecord,
    line: u64,
}

impl<R: Read> CsvTable<R> {
    /// Reads the header, which must contain the name column and all columns of `others`.
    pub(super) fn open(
        reader: R,
        file: &str,
        what: &'static str,
        name: &'static str,
        others: &[&'static str],
    ) -> Result<Self, TraceError> {
        let mut lines = Lines::of(reader, file);
        let Some(header) = lines.next()? else {
            return Err(TraceError::Empty { file: file.to_owned(), what });
        };
        let (file, line) = (file.to_owned(), lines.line);
        let mut columns = BTreeMap::new();
        for (index, column) in header.iter().enumerate() {
            if !column.is_empty() && columns.insert(column.to_owned(), index).is_some() {
                return Err(TraceError::DuplicateColumn { file, line, column: shortened(column) });
            }
        }
        let mut required = [name].into_iter().chain(others.iter().copied());
        if let Some(column) = required.find(|column| !columns.contains_key(*column)) {
            let found = list(header.iter());
            return Err(TraceError::MissingColumn { file, line, column, found });
        }
        Ok(Self { lines, file, columns, width: header.len(), name, names: BTreeMap::new() })
    }

    /// The next row with its unique name.
    pub(super) fn next(&mut self) -> Result<Option<(String, Row<'_>)>, TraceError> {
        let Some(record) = self.lines.next()? else { return Ok(None) };
        let (line, fields, width) = (self.lines.line, record.len(), self.width);
        let row = Row { file: &self.file, columns: &self.columns, record, line };
        if fields != width {
            let problem = format!(
                "has {fields} fields where the header has {width}; check for a missing or extra comma"
            );
            return Err(TraceError::Row { file: self.file.clone(), line, problem });
        }
        let name = row.name(self.name)?;
        if let Some(first) = self.names.insert(name.clone(), line) {
            let (file, column) = (self.file.clone(), self.name);
            return Err(TraceError::DuplicateName { file, line, column, name, first });
        }
        Ok(Some((name, row)))
    }
}

impl Row<'_> {
    /// The field of a column; empty if the table has no such column.
    pub(super) fn text(&self, column: &str) -> &str {
        self.columns.get(column).and_then(|index| self.record.get(*index)).unwrap_or_default()
    }

    /// A whole number in a range. `12.0`, as spreadsheets and data frames write it, is accepted.
    pub(super) fn whole(
        &self,
        column: &'static str,
        (least, most): (u64, u64),
    ) -> Result<u64, TraceError> {
        let value = self.text(column);
        whole(value)
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.field(column, format!("a whole number from {least} to {most}")))
    }

    /// The same as [`Row::whole`], for numbers with a small limit.
    pub(super) fn small(
        &self,
        column: &'static str,
        limits: (u32, u32),
    ) -> Result<u32, TraceError> {
        let number = self.whole(column, (limits.0.into(), limits.1.into()))?;
        Ok(u32::try_from(number).unwrap_or(limits.1))
    }

    /// A time in seconds; `None` if the field is empty.
    pub(super) fn time(&self, column: &'static str) -> Result<Option<u64>, TraceError> {
        // Eleven digits reach the year 5138 and tell seconds from milliseconds.
        const MAX_SECONDS: u64 = 99_999_999_999;
        if self.text(column).is_empty() {
            return Ok(None);
        }
        let time = whole(self.text(column)).filter(|time| *time <= MAX_SECONDS);
        time.map(Some).ok_or_else(|| {
            self.field(column, format!("a time in whole seconds from 0 to {MAX_SECONDS}, or empty"))
        })
    }

    fn name(&self, column: &'static str) -> Result<String, TraceError> {
        let name = self.text(column);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(
                self.field(column, format!("a name of 1 to {MAX_NAME_BYTES} printable bytes"))
            );
        }
        Ok(name.to_owned())
    }

    pub(super) fn field(&self, column: &'static str, expected: impl Into<String>) -> TraceError {
        TraceError::Field {
            file: self.file.to_owned(),
            line: self.line,
            column,
            value: shortened(self.text(column)),
            expected: expected.into(),
        }
    }

    pub(super) fn contradiction(
        &self,
        columns: &'static str,
        problem: impl Into<String>,
    ) -> TraceError {
        let problem = problem.into();
        TraceError::Contradiction { file: self.file.to_owned(), line: self.line, columns, problem }
    }

    pub(super) fn unknown_model(&self, model: &str, known: String) -> TraceError {
        let model = shortened(model);
        TraceError::UnknownModel { file: self.file.to_owned(), line: self.line, model, known }
    }
}

/// Names for an error's end: `A10, G2 and T4`.
pub(super) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(shortened).collect();
    match names.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

fn whole(text: &str) -> Option<u64> {
    let (digits, fraction) = text.split_once('.').unwrap_or((text, "0"));
    // `parse` alone would let `+1` through.
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0');
    if is_plain && is_whole { digits.parse().ok() } else { None }
}

fn shortened(text: &str) -> String {
    let mut cut: String = text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        cut.push_str("...");
    }
    cut
}
