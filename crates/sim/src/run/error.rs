use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::faults::args::FaultsError;
use crate::generate::args::GenerateCommandError;
use crate::replay::{Policy, ReplayError};
use crate::report::args::ReportError;
use crate::trace::TraceError;
use crate::whatif::args::WhatifCommandError;

/// Why a command of the simulator failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// A list cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Nothing could be run.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// `octavo sim report` failed.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// `octavo sim generate` failed.
    #[error(transparent)]
    Generate(#[from] GenerateCommandError),
    /// `octavo sim faults` failed.
    #[error(transparent)]
    Faults(#[from] FaultsError),
    /// `octavo sim whatif` or `octavo sim verify` failed.
    #[error(transparent)]
    Whatif(#[from] WhatifCommandError),
    /// A file cannot be written.
    #[error("{} cannot be written; check the path and its permissions", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The report could not be written to standard output.
    #[error("the report could not be written")]
    Output(#[from] io::Error),
    /// The report could not be put into JSON.
    #[error("the report could not be written as JSON")]
    Json(#[from] serde_json::Error),
    /// The validator rejected some runs. Their figures were printed but prove nothing.
    #[error(
        "{wrong} of {runs} runs are invalid: {policy} with seed {seed}: {violation}; this is a \
         defect of the policy, report it"
    )]
    Invalid {
        /// Number of invalid runs.
        wrong: usize,
        /// Number of all runs.
        runs: usize,
        /// Policy of the first of them.
        policy: Policy,
        /// Its seed.
        seed: i64,
        /// The violation.
        violation: String,
    },
}

impl SimError {
    pub(super) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }

    /// Whether the command line is invalid, independent of the files' content.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Replay(error) => error.is_usage(),
            Self::Report(error) => error.is_usage(),
            Self::Generate(error) => error.is_usage(),
            Self::Faults(error) => error.is_usage(),
            Self::Whatif(error) => error.is_usage(),
            Self::Trace(_)
            | Self::File { .. }
            | Self::Output(_)
            | Self::Json(_)
            | Self::Invalid { .. } => false,
        }
    }

    /// The error of writing to standard output, if that was the cause.
    pub fn output(&self) -> Option<&io::Error> {
        match self {
            Self::Output(error)
            | Self::Report(ReportError::Output(error))
            | Self::Generate(GenerateCommandError::Output(error))
            | Self::Faults(FaultsError::Output(error))
            | Self::Whatif(WhatifCommandError::Output(error)) => Some(error),
            Self::Report(ReportError::Replay(error)) => error.output(),
            _ => None,
        }
    }
}
