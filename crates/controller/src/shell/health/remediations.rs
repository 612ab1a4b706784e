//! Makes and deletes the objects by which another program reboots nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use octavo_api::names::LABEL_REMEDIATION;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::round::Finding;
use crate::health::remediation::{OfPolicy, Remediations};
use crate::shell::leader::{Leader, LeaderError};

/// Time between two looks at the objects while a policy has a template.
const INTERVAL: Duration = Duration::from_secs(10);

/// Makes objects while this process leads.
pub(super) struct Remediator {
    client: Client,
    leader: Leader,
    findings: mpsc::Sender<Finding>,
    /// Resources of kinds that were found, by API version and kind.
    kinds: BTreeMap<(String, String), (ApiResource, Scope)>,
}

/// Why objects of a policy are not as they should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemediationError {
    /// The cluster does not serve a kind, or it cannot be asked.
    #[error("the kind {kind} of {api_version} is not served: {}", words(source))]
    Kind {
        kind: String,
        api_version: String,
        #[source]
        source: kube::Error,
    },
    /// The template cannot be read.
    #[error("cannot get the template {name}: {}{}", words(source), hint(source))]
    Template {
        name: String,
        #[source]
        source: kube::Error,
    },
    /// The template has no spec for objects.
    #[error("the template {0} has no spec.template.spec")]
    NoSpec(String),
    /// Another program has an object of the node.
    #[error("{0} exists, and is not of this policy; delete it, or wait until its owner does")]
    Taken(String),
    /// The other program gave up.
    #[error("{name} reports Succeeded=False: {message}")]
    Failed { name: String, message: String },
    /// A read or a write failed.
    #[error("cannot write objects of the template: {}{}", words(source), hint(source))]
    Api {
        #[from]
        source: kube::Error,
    },
    /// A write was not done.
    #[error(transparent)]
    Leader(LeaderError),
}

impl RemediationError {
    /// Whether the cluster does not serve the kind.
    fn is_not_served(&self) -> bool {
        match self {
            Self::Kind { source: kube::Error::Discovery(_), .. } => true,
            Self::Kind { source: kube::Error::Api(status), .. }
            | Self::Api { source: kube::Error::Api(status) } => status.code == 404,
            _ => false,
        }
    }
}

impl Remediator {
    pub(super) fn new(client: Client, leader: Leader, findings: mpsc::Sender<Finding>) -> Self {
        Self { client, leader, findings, kinds: BTreeMap::new() }
    }

    /// Goes on until the rounds end.
    pub(super) async fn run(mut self, mut wanted: watch::Receiver<Remediations>) {
        loop {
            let all = wanted.borrow_and_update().clone();
            for (policy, of_policy) in &all {
                let problem = match self.sync(of_policy).await {
                    Ok(0) if !of_policy.is_in_use => {
                        let template = of_policy.template.clone();
                        let _ =
                            self.findings.send(Finding::Cleared(policy.clone(), template)).await;
                        continue;
                    }
                    Ok(_) => None,
                    // Another process leads, and looks.
                    Err(RemediationError::Leader(_)) => continue,
                    Err(error) => {
                        let reason = match error {
                            RemediationError::Failed { .. } => "RemediationFailed",
                            _ => "TemplateProblem",
                        };
                        Some((reason, error.to_string()))
                    }
                };
                // The rounds may have ended.
                let _ = self.findings.send(Finding::Template(policy.clone(), problem)).await;
            }
            let changed = wanted.changed();
            let changed = if all.is_empty() {
                changed.await
            } else {
                tokio::time::timeout(INTERVAL, changed).await.unwrap_or(Ok(()))
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Deletes what should not exist any more, then makes what should. A node whose object is being deleted waits. Returns how many objects
    /// there were, or the last problem.
    pub(super) async fn sync(&mut self, wanted: &OfPolicy) -> Result<usize, RemediationError> {
        if !self.leader.is_leading() {
            return Err(RemediationError::Leader(LeaderError::NotLeader));
        }
        let template = &wanted.template;
        let found = match self.objects(wanted).await {
            // A kind that is gone has no objects.
            Err(error) if !wanted.is_in_use && error.is_not_served() => return Ok(0),
            found => found?,
        };
        let (objects, found) = found;
        let mut problem = Ok(());
        let mut known = BTreeSet::new();
        for object in found {
            let is_own = object.owner_references().iter().any(|owner| owner.uid == wanted.uid);
            let (name, is_leaving) =
                (object.name_any(), object.metadata.deletion_timestamp.is_some());
            if !is_own {
                continue;
            }
            let attempt = object.labels().get(LABEL_REMEDIATION).and_then(|it| it.parse().ok());
            let mut attempts =
                [&wanted.nodes, &wanted.stays].into_iter().filter_map(|it| it.get(&name));
            let is_wanted = attempts.any(|wanted| Some(*wanted) == attempt);
            if !is_wanted
                && !is_leaving
                && let Err(error) = self.delete(&objects, &object).await
            {
                problem = Err(error);
            }
            if let Some(error) = failure(&object, template.object_kind()).filter(|_| is_wanted) {
                problem = Err(error);
            }
            known.insert(name);
        }
        if !wanted.is_in_use {
            return problem.map(|()| known.len());
        }
        // The template is read even if nothing is to be made, so that a mistake shows before it matters.
        let spec = self.spec(wanted).await?;
        for (node, attempt) in wanted.nodes.iter().filter(|(node, _)| !known.contains(*node)) {
            let object = object(wanted, node, *attempt, &spec);
            let object: DynamicObject =
                serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
            let params = PostParams::default();
            let write = objects.create(&params, &object);
            match self.leader.write("remediation", write).await.map_err(unpacked) {
                Ok(Some(_)) => {
                    tracing::info!(%node, kind = template.object_kind(), attempt, "another program is asked to reboot a node");
                }
                Ok(None) => {
                    let name = format!("{} {}/{node}", template.object_kind(), template.namespace);
                    problem = Err(RemediationError::Taken(name));
                }
                // One node that is refused holds up no other.
                Err(error) => problem = Err(error),
            }
        }
        problem.map(|()| known.len())
    }

    /// The objects of all policies that exist.
    async fn objects(
        &mut self,
        wanted: &OfPolicy,
    ) -> Result<(Api<DynamicObject>, Vec<DynamicObject>), RemediationError> {
        let template = &wanted.template;
        let objects = self.api(&template.api_version, template.object_kind(), wanted).await?;
        let labelled = ListParams::default().labels(LABEL_REMEDIATION);
        let found = objects.list(&labelled).await?.items;
        Ok((objects, found))
    }

    async fn delete(
        &self,
        objects: &Api<DynamicObject>,
        object: &DynamicObject,
    ) -> Result<(), RemediationError> {
        let uid = object.metadata.uid.clone();
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        let name = object.name_any();
        let write = objects.delete(&name, &params);
        self.leader.write("remediation", write).await.map(drop).map_err(unpacked)
    }

    /// The spec of objects, from the template.
    async fn spec(&mut self, wanted: &OfPolicy) -> Result<Value, RemediationError> {
        let template = &wanted.template;
        let templates = self.api(&template.api_version, &template.kind, wanted).await?;
        let name = format!("{} {}/{}", template.kind, template.namespace, template.name);
        let found = templates.get(&template.name).await;
        let found =
            found.map_err(|source| RemediationError::Template { name: name.clone(), source })?;
        let spec = found.data.pointer("/spec/template/spec").cloned();
        spec.filter(Value::is_object).ok_or(RemediationError::NoSpec(name))
    }

    /// The API of a kind, in the namespace of the template if it has namespaces.
    async fn api(
        &mut self,
        api_version: &str,
        kind: &str,
        wanted: &OfPolicy,
    ) -> Result<Api<DynamicObject>, RemediationError> {
        let key = (api_version.to_owned(), kind.to_owned());
        let (resource, scope) = if let Some(known) = self.kinds.get(&key) {
            known.clone()
        } else {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let gvk = GroupVersionKind::gvk(group, version, kind);
            let found = discovery::pinned_kind(&self.client, &gvk).await;
            let (resource, capabilities) = found.map_err(|source| RemediationError::Kind {
                kind: kind.to_owned(),
                api_version: api_version.to_owned(),
                source,
            })?;
            self.kinds.entry(key).or_insert((resource, capabilities.scope)).clone()
        };
        let client = self.client.clone();
        Ok(match scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => {
                Api::namespaced_with(client, &wanted.template.namespace, &resource)
            }
        })
    }
}

/// An object for a node, as medik8s' own operator makes it.
fn object(wanted: &OfPolicy, node: &str, attempt: u64, spec: &Value) -> Value {
    let template = &wanted.template;
    json!({
        "apiVersion": template.api_version,
        "kind": template.object_kind(),
        "metadata": {
            "name": node,
            "namespace": template.namespace,
            "labels": {LABEL_REMEDIATION: attempt.to_string()},
            "annotations": {
                "remediation.medik8s.io/node-name": node,
                "remediation.medik8s.io/template-name": template.name,
            },
            "ownerReferences": [{
                "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy",
                "name": wanted.name, "uid": wanted.uid, "controller": false,
            }],
        },
        "spec": spec,
    })
}

/// What an object says of a remedy that did not succeed.
fn failure(object: &DynamicObject, kind: &str) -> Option<RemediationError> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let failed =
        conditions.iter().find(|it| it["type"] == "Succeeded" && it["status"] == "False")?;
    Some(RemediationError::Failed {
        name: format!("{kind} {}", object.name_any()),
        message: failed["message"].as_str().unwrap_or_default().to_owned(),
    })
}

fn unpacked(error: LeaderError) -> RemediationError {
    match error {
        LeaderError::Api(error) => error.into(),
        other => RemediationError::Leader(other),
    }
}

/// What the API server says, without the rest of its answer.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// What to do about an error.
fn hint(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            "; give the controller this right by `health.remediationRules` of the chart"
        }
        _ => "",
    }
}
