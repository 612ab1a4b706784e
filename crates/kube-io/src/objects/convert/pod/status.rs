//! The status of a pod.

use octavo_dra::{Quantity, RequestMapping};
use serde::Deserialize;

use super::super::{Amounts, Reader, filled};
use crate::objects::{ExtendedClaimStatus, Phase, Pod, Requests, ScheduledCondition, WHOLE_POD};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireStatus {
    phase: Option<String>,
    nominated_node_name: Option<String>,
    conditions: Option<Vec<WireCondition>>,
    resource_claim_statuses: Option<Vec<WireClaimStatus>>,
    extended_resource_claim_status: Option<WireExtended>,
    init_container_statuses: Option<Vec<WireContainerStatus>>,
    container_statuses: Option<Vec<WireContainerStatus>>,
    allocated_resources: Option<Amounts>,
    resources: Option<WireHeld>,
}

#[derive(Debug, Deserialize)]
struct WireCondition {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireClaimStatus {
    #[serde(default)]
    name: String,
    resource_claim_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireExtended {
    #[serde(default)]
    resource_claim_name: String,
    request_mappings: Option<Vec<WireMapping>>,
}

#[derive(Debug, Deserialize)]
struct WireMapping {
    #[serde(default, rename = "containerName")]
    container: String,
    #[serde(default, rename = "resourceName")]
    resource: String,
    #[serde(default, rename = "requestName")]
    request: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainerStatus {
    #[serde(default)]
    name: String,
    allocated_resources: Option<Amounts>,
    resources: Option<WireHeld>,
}

#[derive(Debug, Deserialize)]
struct WireHeld {
    requests: Option<Amounts>,
}

impl WireStatus {
    pub(super) fn read(self, pod: &mut Pod, reader: &mut Reader) {
        pod.phase = match self.phase.as_deref() {
            None | Some("" | "Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            Some("Unknown") => Phase::Unknown,
            Some(other) => {
                reader.fault(format!("the phase {other:?} is unknown; treated as Unknown"));
                Phase::Unknown
            }
        };
        pod.nominated_node =
            filled(self.nominated_node_name).map(|node| reader.shared(&node).into());
        let mut conditions = self.conditions.unwrap_or_default().into_iter();
        let resize = conditions.as_slice().iter().find(|one| one.kind == "PodResizePending");
        let is_infeasible = resize.is_some_and(|one| one.reason.as_deref() == Some("Infeasible"));
        let scheduled = conditions.find(|condition| condition.kind == "PodScheduled");
        pod.scheduled = scheduled.map(|condition| ScheduledCondition {
            is_true: condition.status == "True",
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
        });
        let claims = self.resource_claim_statuses.into_iter().flatten();
        pod.claims = claims.map(|claim| (claim.name, filled(claim.resource_claim_name))).collect();
        pod.extended_claim = self.extended_resource_claim_status.map(WireExtended::read);
        let init = self.init_container_statuses.into_iter().flatten();
        let whole = WireContainerStatus {
            name: WHOLE_POD.to_owned(),
            allocated_resources: self.allocated_resources,
            resources: self.resources,
        };
        let containers = init.chain(self.container_statuses.into_iter().flatten());
        for status in containers.chain([whole]) {
            status.note_held(pod, is_infeasible, reader);
        }
    }
}

impl WireExtended {
    fn read(self) -> ExtendedClaimStatus {
        let mappings = self.request_mappings.into_iter().flatten();
        let mapping = |mapping: WireMapping| RequestMapping {
            container: mapping.container,
            resource: mapping.resource,
            request: mapping.request,
        };
        ExtendedClaimStatus {
            claim: self.resource_claim_name,
            mappings: mappings.map(mapping).collect(),
        }
    }
}

impl WireContainerStatus {
    /// Records the amounts that replace requests, as kube-scheduler does
    /// (`k8s.io/component-helpers/resource`, `determineEffectiveRequests`). Usually there are none,
    /// and nothing is stored.
    fn note_held(self, pod: &mut Pod, is_infeasible: bool, reader: &mut Reader) {
        // Before the kubelet has reported `resources`, `allocatedResources` says nothing either.
        let Some(resources) = self.resources else { return };
        let asked = if self.name == WHOLE_POD {
            &pod.spec.pod_requests
        } else {
            let mut containers = pod.spec.containers.iter();
            let Some(own) = containers.find(|one| one.name == self.name) else { return };
            &own.requests
        };
        let mut held = Requests::new();
        for amounts in [resources.requests, self.allocated_resources] {
            for (name, amount) in reader.offered("status of a container", amounts) {
                let most = held.entry(name).or_insert(amount);
                *most = (*most).max(amount);
            }
        }
        for (name, asked) in asked {
            let least = if is_infeasible { Quantity::ZERO } else { *asked };
            let most = held.entry(name.clone()).or_insert(least);
            *most = (*most).max(least);
        }
        held.retain(|name, amount| *amount != asked.get(name).copied().unwrap_or(Quantity::ZERO));
        if !held.is_empty() {
            pod.held.insert(self.name, held);
        }
    }
}
