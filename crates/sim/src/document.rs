//! Documents on disk: clusters, gangs, policies and records, as JSON or YAML by the file's name.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A document format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFormat {
    /// JSON, indented.
    Json,
    /// YAML.
    Yaml,
}

/// Why a document cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The file name has no extension for JSON or YAML.
    #[error("{}: unknown file extension; use .json, .yaml or .yml", .path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// A file that cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has other content than expected.
    #[error("{}: is not a valid {what}: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
        /// The error, with line and column.
        problem: String,
    },
    /// A file that cannot be written.
    #[error("{}: cannot be written: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The value has no representation in this format.
    #[error("cannot be written as {form:?}: {problem}")]
    Encode {
        /// The form.
        form: DocumentFormat,
        /// Why.
        problem: String,
    },
}

impl DocumentError {
    /// Whether the file name on the command line is invalid, independent of the file's content.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Extension { .. } => true,
            Self::Read { .. } | Self::Content { .. } | Self::Write { .. } | Self::Encode { .. } => {
                false
            }
        }
    }
}

impl DocumentFormat {
    /// The format that the file name's extension names.
    pub fn of(path: &Path) -> Result<Self, DocumentError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => Ok(Self::Json),
            Some("yaml" | "yml") => Ok(Self::Yaml),
            _ => Err(DocumentError::Extension { path: path.to_owned() }),
        }
    }
}

/// Reads a document. Error messages call its content `what`.
pub fn read<T: DeserializeOwned>(path: &Path, what: &'static str) -> Result<T, DocumentError> {
    let form = DocumentFormat::of(path)?;
    let content = |problem| DocumentError::Content { path: path.to_owned(), what, problem };
    let bytes =
        fs::read(path).map_err(|source| DocumentError::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8(bytes).map_err(|error| content(error.to_string()))?;
    parse(&text, form).map_err(content)
}

/// Parses a document from text. Errors give line and column.
pub fn parse<T: DeserializeOwned>(text: &str, form: DocumentFormat) -> Result<T, String> {
    match form {
        DocumentFormat::Json => serde_json::from_str(text).map_err(|error| error.to_string()),
        // The reader's budget is for text from strangers; a large cluster's document is longer.
        DocumentFormat::Yaml => {
            let options = serde_saphyr::options! { budget: None };
            serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
        }
    }
}

/// The text of a document. It ends with a line feed.
pub fn text<T: Serialize>(value: &T, form: DocumentFormat) -> Result<String, DocumentError> {
    let failed = |problem| DocumentError::Encode { form, problem };
    let mut text = match form {
        DocumentFormat::Json => {
            serde_json::to_string_pretty(value).map_err(|e| failed(e.to_string()))?
        }
        DocumentFormat::Yaml => {
            serde_saphyr::to_string(value).map_err(|e| failed(e.to_string()))?
        }
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Writes a document.
pub fn write<T: Serialize>(value: &T, path: &Path) -> Result<(), DocumentError> {
    write_text(&text(value, DocumentFormat::of(path)?)?, path)
}

/// Writes any text.
pub fn write_text(text: &str, path: &Path) -> Result<(), DocumentError> {
    fs::write(path, text).map_err(|source| DocumentError::Write { path: path.to_owned(), source })
}
