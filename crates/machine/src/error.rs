use std::path::PathBuf;

/// A machine description or state could not be read, checked or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The file could not be opened, read or replaced.
    #[error("{action} {}", path.display())]
    Io {
        /// The failed action on the file, as a verb: `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
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
        /// Path of the field: `gpus[3].pci`.
        field: String,
        /// The problem of the field.
        problem: String,
    },
}
