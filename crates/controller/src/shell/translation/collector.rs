//! Deletes templates that no pod has needed for a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use octavo_api::names::{ANNOTATION_LAST_USED, CONTROLLER, LABEL_COMPUTE_DOMAIN, LABEL_TRANSLATED};
use serde_json::json;

use crate::shell::leader::{Leader, LeaderError};
use crate::translation::usage::{Due, due};

/// Bounds of the time between two rounds, which is a quarter of the time to keep.
const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(10)];
/// Objects of one answer.
const PAGE: u32 = 500;

/// Collects templates while this process leads.
pub(super) struct Collector {
    pub(super) client: Client,
    pub(super) leader: Leader,
    /// How long templates stay without a pod.
    pub(super) keep: Duration,
}

/// A template that is old.
struct Old {
    template: PartialObjectMeta<ResourceClaimTemplate>,
    due: Due,
}

impl Collector {
    /// Collects without end.
    pub(super) async fn run(self) {
        let [shortest, longest] = INTERVALS;
        let mut rounds = tokio::time::interval((self.keep / 4).clamp(shortest, longest));
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            if !self.leader.is_leading() {
                continue;
            }
            match self.collect(Timestamp::now()).await {
                Ok(()) | Err(LeaderError::NotLeader) => {}
                Err(error) => {
                    tracing::warn!(%error, "claim templates cannot be collected; it is tried again");
                }
            }
        }
    }

    /// One round. Pods are read after the templates: a pod that is not there then was admitted after its template's time was
    /// renewed, and the version of the deletion fails. What cannot be done for a namespace or a template delays no other.
    pub(super) async fn collect(&self, now: Timestamp) -> Result<(), LeaderError> {
        for (namespace, old) in self.old(now).await? {
            let used = match self.used(&namespace).await {
                Ok(used) => used,
                Err(error) => {
                    tracing::warn!(%namespace, %error, "pods cannot be read, so no claim template is collected here; it is tried again");
                    continue;
                }
            };
            for old in old {
                let name = old.template.metadata.name.as_deref().unwrap_or_default();
                match self.finish(&namespace, &old, used.contains(name), now).await {
                    Ok(()) => {}
                    Err(LeaderError::NotLeader) => return Err(LeaderError::NotLeader),
                    Err(error) => {
                        tracing::warn!(%namespace, %name, %error, "a claim template cannot be renewed or deleted; it is tried again");
                    }
                }
            }
        }
        Ok(())
    }

    /// Renews a template that a pod needs, and deletes one that none has needed.
    async fn finish(
        &self,
        namespace: &str,
        old: &Old,
        is_used: bool,
        now: Timestamp,
    ) -> Result<(), LeaderError> {
        let templates: Api<ResourceClaimTemplate> = Api::namespaced(self.client.clone(), namespace);
        let metadata = &old.template.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        if is_used {
            let annotations = json!({ANNOTATION_LAST_USED: now.to_string()});
            let version = &metadata.resource_version;
            let patch =
                json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
            let manager = PatchParams {
                field_manager: Some(CONTROLLER.to_owned()),
                ..PatchParams::default()
            };
            let patch = Patch::Merge(&patch);
            let write = templates.patch_metadata(name, &manager, &patch);
            self.leader.write("renew-template", write).await?;
        } else if old.due == Due::Collection {
            let preconditions = Preconditions {
                uid: metadata.uid.clone(),
                resource_version: metadata.resource_version.clone(),
            };
            let delete = DeleteParams::default().preconditions(preconditions);
            let delete = templates.delete(name, &delete);
            if self.leader.write("collect-template", delete).await?.is_some() {
                tracing::info!(%namespace, %name, "no pod has needed this claim template; it is deleted");
            }
        }
        Ok(())
    }

    /// The templates of translated pods for which something is due, by namespace.
    async fn old(&self, now: Timestamp) -> kube::Result<BTreeMap<String, Vec<Old>>> {
        let templates: Api<ResourceClaimTemplate> = Api::all(self.client.clone());
        let mut by_namespace: BTreeMap<String, Vec<Old>> = BTreeMap::new();
        // One with both labels is a ComputeDomain's.
        let labels = format!("{LABEL_TRANSLATED}=true,!{LABEL_COMPUTE_DOMAIN}");
        let mut page = ListParams::default().labels(&labels).limit(PAGE);
        loop {
            let list = templates.list_metadata(&page).await?;
            for template in list.items {
                let annotations = template.metadata.annotations.as_ref();
                let last_used = annotations.and_then(|all| all.get(ANNOTATION_LAST_USED));
                let due = due(last_used.map(String::as_str), self.keep, now);
                let namespace = template.metadata.namespace.clone().unwrap_or_default();
                if due != Due::Nothing {
                    by_namespace.entry(namespace).or_default().push(Old { template, due });
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(by_namespace),
            }
        }
    }

    /// Names of the templates that pods of a namespace need. Pods that have ended need none.
    async fn used(&self, namespace: &str) -> kube::Result<BTreeSet<String>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut used = BTreeSet::new();
        let running = "status.phase!=Succeeded,status.phase!=Failed";
        let mut page = ListParams::default().fields(running).limit(PAGE);
        loop {
            let list = pods.list(&page).await?;
            for pod in list.items {
                let claims = pod.spec.and_then(|spec| spec.resource_claims).unwrap_or_default();
                used.extend(
                    claims.into_iter().filter_map(|claim| claim.resource_claim_template_name),
                );
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(used),
            }
        }
    }
}
