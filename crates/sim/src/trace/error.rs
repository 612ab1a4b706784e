/// Why a list could not be read. Lines are counted from 1, the header's line included.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be opened or read.
    #[error("{file}: cannot be read; check the path and its permissions")]
    Io {
        /// The file.
        file: String,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The file has no header, or no rows below it.
    #[error("{file}: lists no {what}; expected a line of column names, then one line for each")]
    Empty {
        /// The file.
        file: String,
        /// The missing content: `nodes` or `pods`.
        what: &'static str,
    },
    /// The header lacks a column.
    #[error(
        "{file}: line {line}: has no column `{column}`, only {found}; columns are found by name"
    )]
    MissingColumn {
        /// The file.
        file: String,
        /// The header's line.
        line: u64,
        /// The column that every list of its kind has.
        column: &'static str,
        /// The existing columns.
        found: String,
    },
    /// The header names a column twice.
    #[error("{file}: line {line}: has the column `{column}` twice; keep one of them")]
    DuplicateColumn {
        /// The file.
        file: String,
        /// The header's line.
        line: u64,
        /// The column.
        column: String,
    },
    /// A line is not a row of the table.
    #[error("{file}: line {line}: {problem}")]
    Row {
        /// The file.
        file: String,
        /// First line of the row.
        line: u64,
        /// The error and the expected content.
        problem: String,
    },
    /// A field has a value that its column does not allow.
    #[error("{file}: line {line}, column {column}: `{value}` is not {expected}")]
    Field {
        /// The file.
        file: String,
        /// First line of the row.
        line: u64,
        /// The column.
        column: &'static str,
        /// The value, shortened, with control characters escaped.
        value: String,
        /// The expected value.
        expected: String,
    },
    /// Two rows have the same name.
    #[error(
        "{file}: line {line}, column {column}: `{name}` is on line {first} already; names are unique"
    )]
    DuplicateName {
        /// The file.
        file: String,
        /// The later line.
        line: u64,
        /// The column of names.
        column: &'static str,
        /// The name.
        name: String,
        /// The earlier line.
        first: u64,
    },
    /// Two fields of a row contradict each other.
    #[error("{file}: line {line}, columns {columns}: {problem}")]
    Contradiction {
        /// The file.
        file: String,
        /// First line of the row.
        line: u64,
        /// The columns.
        columns: &'static str,
        /// The contradiction and the possible values.
        problem: String,
    },
    /// A pod names an unknown GPU model, most likely a typing error.
    #[error(
        "{file}: line {line}, column gpu_spec: no GPU is called `{model}`; the nodes have {known}"
    )]
    UnknownModel {
        /// The file.
        file: String,
        /// First line of the row.
        line: u64,
        /// The model.
        model: String,
        /// The models of the nodes.
        known: String,
    },
}
