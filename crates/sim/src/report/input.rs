//! Inputs of a page: the JSON and the curves that `octavo sim replay` writes. Fresh runs pass
//! through the same formats, so that saved and fresh runs look the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::metrics::summary::Spread;
use crate::output::{API_VERSION, Report};
use crate::replay::ReplayResults;

/// The content of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The replay's report.
    pub(super) saved: SavedReport,
    /// Curves of the runs; none if they were not saved.
    pub(super) curves: Vec<Curve>,
    /// The command line that makes the page again.
    pub(super) command: String,
}

/// The curve of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Name of the policy.
    pub policy: String,
    /// What the policy knew about future pods, or empty.
    pub popularity: String,
    /// The seed.
    pub seed: i64,
    /// Its points in order.
    pub samples: Vec<Sample>,
}

/// A point of a curve; ratios of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Sample {
    /// Seconds, where the run has times.
    pub time_s: Option<f64>,
    /// Wanted GPUs, as a ratio of all GPUs.
    pub wanted: f64,
    /// Allocated GPUs, as a ratio of all GPUs.
    pub allocated: f64,
    /// Fragments, of all that is free.
    pub fragmentation: Option<f64>,
}

/// Why no page can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is no report.
    #[error(
        "{} is not an output of `octavo sim replay --format json`: {problem}",
        path.display()
    )]
    Report {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: String,
    },
    /// A file that has no curves.
    #[error("{} is not an output of `octavo sim replay --curve`: {problem}", path.display())]
    Curves {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: String,
    },
    /// Curves of other runs.
    #[error(
        "the curves lack the run of {policy} with seed {seed}; use both files of the same replay"
    )]
    OtherRuns {
        /// A policy of the report.
        policy: String,
        /// Its seed.
        seed: i64,
    },
    /// The report of this moment could not be taken over: a defect.
    #[error("the report could not be written")]
    Json(#[from] serde_json::Error),
}

/// The report that `octavo sim replay --format json` writes, as far as the page shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct SavedReport {
    #[serde(rename = "apiVersion")]
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) nodes_file: String,
    pub(super) pods_file: String,
    pub(super) order: String,
    pub(super) inflate: Option<f64>,
    pub(super) departures: bool,
    pub(super) runs: Vec<SavedRun>,
    pub(super) policies: Vec<SavedPolicy>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct SavedRun {
    pub(super) policy: String,
    pub(super) popularity: Option<String>,
    pub(super) seed: i64,
    pub(super) nodes: u64,
    pub(super) gpus: u64,
    pub(super) pods: u64,
    pub(super) allocated_ratio: f64,
    pub(super) skipped: u64,
    pub(super) refused: u64,
    pub(super) first_skip: Option<f64>,
    pub(super) accepted: BTreeMap<String, SavedClass>,
    pub(super) placement_hash: String,
    pub(super) valid: bool,
    pub(super) violation: Option<String>,
}

/// Placed and skipped pods of a class in a run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct SavedClass {
    pub(super) arrived: u64,
    pub(super) ratio: Option<f64>,
    pub(super) first_skip: Option<f64>,
}

/// A policy over its seeds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct SavedPolicy {
    pub(super) policy: String,
    pub(super) popularity: Option<String>,
    pub(super) runs: usize,
    pub(super) valid_runs: usize,
    pub(super) figures: BTreeMap<String, SavedSpread>,
    pub(super) published: Option<f64>,
}

/// Mean and spread.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct SavedSpread {
    pub(super) mean: f64,
    pub(super) sd: f64,
    pub(super) runs: usize,
}

impl From<Spread> for SavedSpread {
    fn from(spread: Spread) -> Self {
        Self { mean: spread.mean, sd: spread.sd, runs: spread.runs }
    }
}

/// A line of the file of curves.
#[derive(Debug, Deserialize)]
struct CurveRow {
    policy: String,
    popularity: String,
    seed: i64,
    time_s: Option<f64>,
    wanted: f64,
    allocated: f64,
    fragmentation: Option<f64>,
}

impl Input {
    /// From runs of this moment.
    pub fn of(
        report: &Report<'_>,
        outcome: &ReplayResults,
        command: String,
    ) -> Result<Self, InputError> {
        // Through JSON text, so that numbers have the same last digits as in a saved report.
        let saved = serde_json::from_str(&report.json()?)?;
        // As the file of curves has them, without the detour over a file.
        let mut text = Vec::new();
        crate::output::write_curves(outcome, &mut text)
            .map_err(|source| InputError::Read { path: PathBuf::from("curves"), source })?;
        let curves = curves(&text[..], Path::new("curves"))?;
        Self { saved, curves, command }.checked()
    }

    /// From files that a replay has written.
    pub fn read(report: &Path, curve: Option<&Path>, command: String) -> Result<Self, InputError> {
        let wrong = |problem| InputError::Report { path: report.to_owned(), problem };
        let open = |path: &Path| {
            let unread = |source| InputError::Read { path: path.to_owned(), source };
            std::fs::read(path).map_err(unread)
        };
        let saved: SavedReport =
            serde_json::from_slice(&open(report)?).map_err(|error| wrong(error.to_string()))?;
        if saved.api_version != API_VERSION || saved.kind != "Replay" {
            let found = format!("it is {} {}", saved.api_version, saved.kind);
            return Err(wrong(format!("{found}, not {API_VERSION} Replay")));
        }
        if saved.runs.is_empty() {
            return Err(wrong("it has no runs".to_owned()));
        }
        let curves = match curve {
            Some(path) => curves(&open(path)?[..], path)?,
            None => Vec::new(),
        };
        Self { saved, curves, command }.checked()
    }

    fn checked(self) -> Result<Self, InputError> {
        let has_curve = |run: &&SavedRun| {
            self.curves.iter().any(|curve| {
                curve.policy == run.policy
                    && curve.seed == run.seed
                    && curve.popularity == run.popularity.as_deref().unwrap_or_default()
            })
        };
        match self.saved.runs.iter().find(|run| !has_curve(run)) {
            Some(run) if !self.curves.is_empty() => {
                Err(InputError::OtherRuns { policy: run.policy.clone(), seed: run.seed })
            }
            _ => Ok(self),
        }
    }
}

fn curves(text: &[u8], path: &Path) -> Result<Vec<Curve>, InputError> {
    let wrong = |error: csv::Error| InputError::Curves {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let mut curves: Vec<Curve> = Vec::new();
    for line in csv::Reader::from_reader(text).deserialize() {
        let CurveRow { policy, popularity, seed, time_s, wanted, allocated, fragmentation } =
            line.map_err(wrong)?;
        let is_last = |curve: &&mut Curve| {
            curve.policy == policy && curve.popularity == popularity && curve.seed == seed
        };
        let sample = Sample { time_s, wanted, allocated, fragmentation };
        match curves.last_mut().filter(is_last) {
            Some(curve) => curve.samples.push(sample),
            None => curves.push(Curve { policy, popularity, seed, samples: vec![sample] }),
        }
    }
    Ok(curves)
}
