//! Which layout a name means.

use std::io;
use std::path::{Path, PathBuf};

use octavo_api::mig_config::{self, BuiltinLayout, BuiltinLayoutError, MigLayouts};
use serde_json::Value;

use super::wanted::NamedLayout;

/// Why a name means no layout.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayoutProblem {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is no YAML, or a layout is wrong.
    #[error("{}: {message}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// Neither the file nor a rule has it.
    #[error(
        "the layout that the label nvidia.com/mig.config names is unknown: {source}; the config file has {known}"
    )]
    Unknown {
        /// Why it is none of those without a file.
        source: BuiltinLayoutError,
        /// Names of the file.
        known: String,
    },
}

/// The layout with a name: of the file, or else computed.
///
/// # Errors
///
/// There is none, or the file is wrong.
pub(crate) fn layout(file: Option<&Path>, name: &str) -> Result<NamedLayout, LayoutProblem> {
    let mut layouts = file.map(read).transpose()?.unwrap_or_default();
    if let Some(layout) = layouts.remove(name) {
        return Ok(NamedLayout::OfFile(layout));
    }
    name.parse::<BuiltinLayout>().map(NamedLayout::Builtin).map_err(|source| {
        let known: Vec<&str> = layouts.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        LayoutProblem::Unknown { source, known }
    })
}

fn read(path: &Path) -> Result<MigLayouts, LayoutProblem> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LayoutProblem::Read { path: path.to_owned(), source })?;
    let invalid = |message: String| LayoutProblem::Invalid { path: path.to_owned(), message };
    let value: Value = serde_saphyr::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    mig_config::decode(&value).map_err(|error| invalid(error.to_string()))
}
