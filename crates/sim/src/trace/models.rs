//! Which names of GPU models a pod may write.

use std::collections::BTreeSet;

use super::table::{Row, list};
use super::{NodeRow, TraceError};

/// GPU models that a pod list may name even if no node has them: those of openb and its simulator,
/// and NVIDIA's data centre products since.
///
/// A list for a whole cluster is often replayed on a part of it. A pod that needs `G3` is then
/// valid: no node fits, and the pod is skipped. A name that is neither here nor on a node is most
/// likely a typing error. It would silently skip pods too, so it is reported as an error.
pub const KNOWN_MODELS: [&str; 32] = [
    "1080", "2080", "3090", "4090", "A10", "A100", "A16", "A2", "A30", "A40", "A800", "B200",
    "B300", "G1", "G2", "G3", "GB200", "GB300", "H100", "H20", "H200", "H800", "L4", "L40", "L40S",
    "M40", "P100", "P4", "T4", "V100", "V100M16", "V100M32",
];

pub(super) struct Models<'a>(BTreeSet<&'a str>);

impl<'a> Models<'a> {
    pub(super) fn of(nodes: &'a [NodeRow]) -> Self {
        Self(nodes.iter().filter(|node| node.gpus > 0).map(|node| node.model.as_str()).collect())
    }

    /// The alternatives of `A|B`, sorted, each once.
    pub(super) fn alternatives(&self, row: &Row<'_>) -> Result<Vec<String>, TraceError> {
        let spec = row.text("gpu_spec");
        if spec.is_empty() {
            return Ok(Vec::new());
        }
        let mut models = BTreeSet::new();
        for model in spec.split('|').map(str::trim) {
            if model.is_empty() {
                return Err(row.field("gpu_spec", "GPU models separated by |, such as T4|P100"));
            }
            if !self.0.contains(model) && !KNOWN_MODELS.contains(&model) {
                return Err(row.unknown_model(model, list(self.0.iter().copied())));
            }
            models.insert(model.to_owned());
        }
        Ok(models.into_iter().collect())
    }
}
