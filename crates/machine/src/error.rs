use std::path::PathBuf;

/// Why a machine description or state could not be read, checked or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The file could not be opened, read or replaced.
    #[error("{action} {}", path.display())]
    Io {
        /// What was being done to the file, as a verb: `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The text is not a machine description; the message shows line and column.
    #[error("not a machine description: {0}")]
    Parse(String),
    /// The text is not a machine state.
    #[error("not a machine state: {0}")]
    ParseState(#[from] serde_json::Error),
    /// The description is well formed but describes an impossible machine.
    #[error("impossible machine: {field}: {problem}")]
    Invalid {
        /// Path of the field, as `gpus[3].pci`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}
