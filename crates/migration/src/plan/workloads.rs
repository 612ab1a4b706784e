//! Workloads for HAMi and KAI Scheduler: what `octavo migrate manifests` would make of them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::cluster::Cluster;
use super::components::component;
use super::object::{controller, namespace};
use super::webhook::{Webhook, webhook};
use crate::report::Outcome;
use crate::workload::translate_document;
use crate::{Options, Refusal};

/// A workload for HAMi or KAI Scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPlan {
    /// The object: `Deployment team-a/infer`.
    pub object: String,
    /// Its pods that were read, where the object itself was not.
    #[serde(skip_serializing_if = "is_zero")]
    pub pods: usize,
    /// What becomes of each field. Empty if something is refused.
    pub changes: Vec<String>,
    /// What is refused, each with reason and remedy.
    pub refusals: Vec<String>,
    /// What the translation webhook would do with its pods. Absent where the API server serves no claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

/// Kinds whose objects are read. Pods of other kinds stand for their objects.
const READ: [&str; 6] = ["CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"];

/// The workloads that need a translation.
pub(super) fn workloads(cluster: &Cluster, options: &Options) -> Vec<WorkloadPlan> {
    let mut plans = Vec::new();
    let translated = |object: &Value, owner: Option<&str>| {
        let plan = translated(object, options, owner)?;
        let webhook = cluster.serves_dra.then(|| webhook(object, options));
        Some(WorkloadPlan { webhook, ..plan })
    };
    for object in &cluster.workloads {
        let is_made = controller(object).is_some_and(|(kind, _)| READ.contains(&kind));
        if !is_made && component(object).is_none() {
            plans.extend(translated(object, None));
        }
    }
    // Pods of one owner are alike: the first stands for all.
    let mut by_owner: BTreeMap<String, (usize, Option<WorkloadPlan>)> = BTreeMap::new();
    for pod in cluster.pods.iter().filter(|pod| component(pod).is_none()) {
        match controller(pod) {
            Some((kind, _)) if READ.contains(&kind) => {}
            None => plans.extend(translated(pod, None)),
            Some((kind, name)) => {
                let owner = format!("{kind} {}/{name}", namespace(pod));
                let entry = by_owner
                    .entry(owner.clone())
                    .or_insert_with(|| (0, translated(pod, Some(&owner))));
                entry.0 += 1;
            }
        }
    }
    for (pods, plan) in by_owner.into_values() {
        plans.extend(plan.map(|plan| WorkloadPlan { pods, ..plan }));
    }
    plans.sort_by(|one, other| one.object.cmp(&other.object));
    plans
}

/// The plan of an object, `None` if nothing in it is HAMi's or KAI's.
fn translated(object: &Value, options: &Options, owner: Option<&str>) -> Option<WorkloadPlan> {
    let translated = translate_document(object, options);
    let first = translated.entries.first()?.object.clone();
    let mut plan = WorkloadPlan {
        object: owner.map_or(first, str::to_owned),
        pods: 0,
        changes: Vec::new(),
        refusals: Vec::new(),
        webhook: None,
    };
    for entry in translated.entries {
        match entry.outcome {
            Outcome::Changed(change) => plan.changes.push(change.to_string()),
            Outcome::Refused(refusal) => plan.refusals.push(refused(&refusal)),
            Outcome::Left(left) => plan.changes.push(left),
        }
    }
    Some(plan)
}

fn refused(refusal: &Refusal) -> String {
    format!("{refusal} ({})", refusal.reason)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
