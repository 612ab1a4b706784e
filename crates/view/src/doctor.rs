//! `octavo doctor`: what keeps GPUs of a cluster from use, each finding with its remedy.
//!
//! | module | purpose |
//! |---|---|
//! | `facts` | reads [`Facts`] from the API server |
//! | `checks` | pure functions from facts to findings |
//! | `domains` | facts and checks of `ComputeDomains` |
//! | `health` | GPUs that are out of service |
//! | `node_problems` | what the agents say of their nodes |
//! | `probe` | runs a pod on each node: checks of the host that only a container sees |

mod checks;
mod domains;
mod facts;
mod health;
mod node_problems;
mod probe;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use octavo_term::{RowStyle, paint};
use serde::Serialize;

pub use checks::check;
pub use domains::DomainFacts;
pub use facts::{AgentPod, DeviceTaint, Facts, GPU_LABELS, GpuNode, read};
pub use node_problems::NodeProblem;
pub use probe::{ProbeOptions, probe};

/// Findings about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorReport {
    /// The findings, errors first, then in order of subject.
    pub findings: Vec<Finding>,
    /// Nodes with GPUs.
    pub nodes: usize,
    /// Nodes on which a probe pod ran and saw its GPU.
    pub probed: usize,
    /// What was looked at of `ComputeDomains`; empty if the cluster is too old.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub compute_domains: String,
}

/// The result of the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The findings, in any order.
    pub findings: Vec<Finding>,
    /// What was looked at of `ComputeDomains`; empty if the cluster is too old.
    pub compute_domains: String,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about: `cluster`, or `node NAME`.
    pub subject: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// Pods with GPUs do not start, or may harm one another.
    Error,
    /// Something may go wrong, or a feature is not available.
    Warning,
}

impl DoctorReport {
    /// A report with sorted findings.
    pub fn new(checked: Checked, nodes: usize, probed: usize) -> Self {
        let Checked { mut findings, compute_domains } = checked;
        findings.sort();
        findings.dedup();
        Self { findings, nodes, probed, compute_domains }
    }

    /// Whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// The report for people.
    pub fn text(&self, colour: bool) -> String {
        let mut text = String::new();
        for Finding { severity, subject, problem, remedy } in &self.findings {
            let (word, style) = match severity {
                Severity::Error => ("error", RowStyle::Strong),
                Severity::Warning => ("warning", RowStyle::Warn),
            };
            let line = paint(&format!("{word}: {subject}: {problem}"), style, colour);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}\n  remedy: {remedy}");
        }
        if !self.compute_domains.is_empty() {
            let _ = writeln!(text, "ComputeDomains: {}", self.compute_domains);
        }
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let _ = write!(text, "errors: {errors}, warnings: {warnings}, GPU nodes: {}", self.nodes);
        if self.probed > 0 {
            let _ = write!(text, ", with a container that saw its GPU: {}", self.probed);
        }
        text.push('\n');
        text
    }
}

impl Finding {
    /// An error about a subject.
    pub(crate) fn error(subject: &str, problem: impl Into<String>, remedy: &str) -> Self {
        Self::new(Severity::Error, subject, problem, remedy)
    }

    /// A warning about a subject.
    pub(crate) fn warning(subject: &str, problem: impl Into<String>, remedy: &str) -> Self {
        Self::new(Severity::Warning, subject, problem, remedy)
    }

    fn new(severity: Severity, subject: &str, problem: impl Into<String>, remedy: &str) -> Self {
        let (subject, remedy) = (subject.to_owned(), remedy.to_owned());
        Self { severity, subject, problem: problem.into(), remedy }
    }
}

/// The subject of a finding about a node.
pub(crate) fn node(name: &str) -> String {
    format!("node {name}")
}
