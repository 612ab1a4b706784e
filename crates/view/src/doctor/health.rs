//! GPUs that are out of service, as their agents say.

use kube::{Client, ResourceExt};
use octavo_api::NodeHealth;

use super::Finding;
use super::checks::CLUSTER;
use super::facts::Facts;
use crate::error::ViewError;
use crate::health::{NODE_HEALTHS, objects};

/// Reads how many GPUs of each node are in service. A cluster without the definition has no such answer.
pub(super) async fn read(client: &Client, facts: &mut Facts) -> Result<(), ViewError> {
    let found = objects::<NodeHealth>(client, NODE_HEALTHS).await.map(Option::unwrap_or_default);
    for health in facts.readable(NODE_HEALTHS, found)?.into_iter().flatten() {
        let name = health.name_any();
        if let Some(status) = health.status {
            facts.health.insert(name, (status.total - status.in_service, status.total));
        }
    }
    Ok(())
}

/// The finding about them, if there are any.
pub(super) fn check(facts: &Facts) -> Option<Finding> {
    let out: i64 = facts.health.values().map(|(out, _)| out).sum();
    let all: i64 = facts.health.values().map(|(_, all)| all).sum();
    let nodes = facts.health.values().filter(|(out, _)| *out > 0).count();
    let problem = format!("{out} of {all} GPUs are out of service, on {nodes} of the nodes");
    let remedy = "`octavo health` says why, and what each needs";
    (out > 0).then(|| Finding::warning(CLUSTER, problem, remedy))
}
