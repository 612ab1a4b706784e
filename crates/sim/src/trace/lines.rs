//! Splits a file into lines and fields. A row is one line: no value of these lists contains a line
//! break. An unclosed quote therefore spoils its own line only, not the following lines.

use std::io::{BufRead, BufReader, Read};

use csv::{ReaderBuilder, StringRecord, Trim};

use super::TraceError;

/// Bytes of a line above which the file is no list.
const MAX_LINE_BYTES: u64 = 1 << 20;

pub(super) struct Lines<R> {
    reader: BufReader<R>,
    file: String,
    /// The last line that was read, counted from 1.
    pub(super) line: u64,
    bytes: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(super) fn of(reader: R, file: &str) -> Self {
        Self { reader: BufReader::new(reader), file: file.to_owned(), line: 0, bytes: Vec::new() }
    }

    /// The next line's fields, past comments and empty lines.
    pub(super) fn next(&mut self) -> Result<Option<StringRecord>, TraceError> {
        loop {
            self.bytes.clear();
            let mut limited = (&mut self.reader).take(MAX_LINE_BYTES);
            let read = limited.read_until(b'\n', &mut self.bytes);
            let read = read.map_err(|source| TraceError::Io { file: self.file.clone(), source })?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            if read as u64 == MAX_LINE_BYTES && !self.bytes.ends_with(b"\n") {
                return Err(self.wrong(format!("is longer than {MAX_LINE_BYTES} bytes")));
            }
            let text = std::str::from_utf8(&self.bytes).map_err(|error| {
                let byte = error.valid_up_to() + 1;
                self.wrong(format!("is not UTF-8 text from byte {byte} on; save the list as UTF-8"))
            })?;
            // Some editors write a byte order mark at the start of a file.
            let text = text.strip_prefix('\u{feff}').filter(|_| self.line == 1).unwrap_or(text);
            let text = text.trim();
            if !text.is_empty() && !text.starts_with('#') {
                return self.cut(text).map(Some);
            }
        }
    }

    fn cut(&self, text: &str) -> Result<StringRecord, TraceError> {
        if text.contains('\r') {
            let problem = "has a bare carriage return; save the list with line feeds";
            return Err(self.wrong(problem.to_owned()));
        }
        if text.bytes().filter(|byte| *byte == b'"').count() % 2 == 1 {
            return Err(self.wrong("has a quote that is not closed".to_owned()));
        }
        // A line without quotes needs no CSV parser. Setting up csv's reader costs more than
        // splitting a hundred such lines.
        if !text.contains('"') {
            return Ok(text.split(',').map(str::trim).collect());
        }
        let mut record = StringRecord::new();
        ReaderBuilder::new()
            .has_headers(false)
            .trim(Trim::All)
            .buffer_capacity(text.len())
            .from_reader(text.as_bytes())
            .read_record(&mut record)
            .map_err(|error| self.wrong(format!("is not CSV: {error}")))?;
        Ok(record)
    }

    fn wrong(&self, problem: String) -> TraceError {
        TraceError::Row { file: self.file.clone(), line: self.line, problem }
    }
}
