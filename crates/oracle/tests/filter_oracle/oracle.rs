//! kube-scheduler's own filters.

use std::collections::BTreeMap;
use std::path::Path;

use octavo_oracle::Oracle;
use serde::Deserialize;

use crate::case::Case;

/// Its answer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    /// Why no node fits, found before any is checked.
    pub(crate) refused: Option<Refusal>,
    /// Each filter's reasons against a node, by node.
    #[serde(default)]
    pub(crate) nodes: BTreeMap<String, Vec<Refusal>>,
    /// Weighted scores of feasible nodes, by plugin and node.
    #[serde(default)]
    pub(crate) scores: BTreeMap<String, BTreeMap<String, i64>>,
}

/// One filter's reasons against a node.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refusal {
    pub(crate) plugin: String,
    pub(crate) reasons: Vec<String>,
    /// Whether evicting other pods cannot help.
    #[serde(default)]
    pub(crate) is_final: bool,
}

/// A `control-plane filter-oracle`.
pub(crate) struct Filters(Oracle);

impl Filters {
    pub(crate) fn start(program: &Path) -> Self {
        Self(Oracle::start(program, "filter-oracle").unwrap())
    }

    /// kube-scheduler's result for a case.
    pub(crate) fn decide(&mut self, seed: u64, case: &Case) -> Answer {
        self.0.ask(&seed.to_string(), &case.question()).unwrap()
    }
}
