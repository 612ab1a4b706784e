//! Waits until the pods of a release run, or are gone.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_view::ViewError;
use octavo_view::connect::Timeout;
use octavo_view::fetch::list;
use octavo_view::pod_trouble;
use tokio::time::{Instant, sleep};

use crate::owner::{Release, of_release};
use crate::progress::{few, report};

/// Interval of looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// How many pods of a workload are as they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ready {
    up: i32,
    wanted: i32,
    /// Whether the controller has seen the newest version, and all pods have it.
    is_current: bool,
}

impl Ready {
    fn is_done(self) -> bool {
        self.is_current && self.up >= self.wanted
    }
}

/// Waits until all pods run, and says how many do. Returns whether they do within the limit.
///
/// # Errors
///
/// The cluster cannot be read.
pub(crate) async fn wait(
    client: &Client,
    release: &Release,
    limit: Timeout,
) -> Result<bool, ViewError> {
    let deadline = limit.0.map(|limit| Instant::now() + limit);
    let mut shown = BTreeMap::new();
    loop {
        let found = read(client, release).await?;
        for (workload, state) in &found {
            if shown.insert(workload.clone(), *state) != Some(*state) {
                let Ready { up, wanted, .. } = state;
                report(&format!("{workload}: {up} of {wanted} pods are ready"));
            }
        }
        if found.values().all(|state| state.is_done()) {
            return Ok(true);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            report_late(client, release).await?;
            return Ok(false);
        }
        sleep(INTERVAL).await;
    }
}

/// Waits until no pod of the release is left: an agent removes its files when it ends. Returns those that are left at the limit.
///
/// # Errors
///
/// The cluster cannot be read.
pub(crate) async fn wait_gone(
    client: &Client,
    release: &Release,
    limit: Timeout,
) -> Result<Vec<String>, ViewError> {
    let deadline = limit.0.map(|limit| Instant::now() + limit);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &release.namespace);
    loop {
        let left = list("pods", &pods, labelled(release)).await?;
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if left.is_empty() || is_late {
            return Ok(left.into_iter().filter_map(|pod| pod.metadata.name).collect());
        }
        sleep(INTERVAL).await;
    }
}

fn labelled(release: &Release) -> ListParams {
    ListParams::default().labels(&of_release(release))
}

async fn read(client: &Client, release: &Release) -> Result<BTreeMap<String, Ready>, ViewError> {
    let (client, namespace) = (|| client.clone(), &release.namespace);
    let sets: Api<DaemonSet> = Api::namespaced(client(), namespace);
    let deployments: Api<Deployment> = Api::namespaced(client(), namespace);
    let mut found = BTreeMap::new();
    for set in list("daemonsets", &sets, labelled(release)).await? {
        found.insert(
            format!("DaemonSet {}", set.metadata.name.clone().unwrap_or_default()),
            of_set(&set),
        );
    }
    for deployment in list("deployments", &deployments, labelled(release)).await? {
        found.insert(
            format!("Deployment {}", deployment.metadata.name.clone().unwrap_or_default()),
            of_deployment(&deployment),
        );
    }
    Ok(found)
}

fn of_set(set: &DaemonSet) -> Ready {
    let status = set.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    // Pods of the strategy OnDelete get a new version when a person deletes them.
    let strategy =
        set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref());
    let is_new = strategy == Some("OnDelete")
        || status.updated_number_scheduled.unwrap_or_default() >= wanted;
    let is_seen = status.observed_generation >= set.metadata.generation;
    Ready { up: status.number_ready, wanted, is_current: is_seen && is_new }
}

fn of_deployment(deployment: &Deployment) -> Ready {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let (all, new) =
        (status.replicas.unwrap_or_default(), status.updated_replicas.unwrap_or_default());
    // As `kubectl rollout status`: no pod of an earlier version counts.
    let is_new = new >= wanted && all <= new;
    let is_seen = status.observed_generation >= deployment.metadata.generation;
    let up = status.available_replicas.unwrap_or_default();
    Ready { up, wanted, is_current: is_seen && is_new }
}

/// Names the pods that do not run, and why.
async fn report_late(client: &Client, release: &Release) -> Result<(), ViewError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &release.namespace);
    let mut late: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in list("pods", &pods, labelled(release)).await? {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
        if !is_ready {
            let why = pod_trouble::trouble(&pod).unwrap_or_else(|| "not ready".to_owned());
            late.entry(why).or_default().push(pod.metadata.name.unwrap_or_default());
        }
    }
    for (why, pods) in late {
        report(&format!("{}: {why}", few(pods.iter().map(String::as_str))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(strategy: &str, status: &serde_json::Value) -> Ready {
        let object = json!({
            "metadata": {"generation": 2},
            "spec": {
                "selector": {}, "template": {}, "updateStrategy": {"type": strategy},
            },
            "status": status,
        });
        of_set(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_daemon_set_is_ready_with_its_newest_pods() {
        let status = |generation: i64, updated: i32, ready: i32| {
            json!({
                "observedGeneration": generation, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
                "numberMisscheduled": 0, "updatedNumberScheduled": updated, "numberReady": ready,
            })
        };
        assert!(set("RollingUpdate", &status(2, 3, 3)).is_done());
        assert!(!set("RollingUpdate", &status(1, 3, 3)).is_done(), "the new version is not seen");
        assert!(!set("RollingUpdate", &status(2, 1, 3)).is_done(), "two pods are old");
        assert!(!set("RollingUpdate", &status(2, 3, 2)).is_done());
        assert!(set("OnDelete", &status(2, 0, 3)).is_done(), "people replace its pods");
    }
}
