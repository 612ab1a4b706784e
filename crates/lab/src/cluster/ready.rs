//! Waits until a lab is ready: every node Ready, and every agent's slices published.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{Api, ApiResource, ListParams};
use kube::core::{NotUsed, Object};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use serde::Deserialize;
use tokio::time::Instant;

use crate::cli::progress::Progress;

/// Field selector for the agents' slices.
const SLICES_OF_AGENTS: &str = "spec.driver=gpu.nvidia.com";

/// The parts of a slice that show whether its pool is complete.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceSpec {
    #[serde(default)]
    pub(crate) node_name: Option<String>,
    pub(crate) pool: Pool,
}

/// The pool of a slice.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pool {
    name: String,
    generation: i64,
    resource_slice_count: i64,
}

/// A slice without its devices.
pub(crate) type Slice = Object<SliceSpec, NotUsed>;

/// The condition to wait for.
pub(crate) struct Wanted {
    /// Nodes that must be Ready.
    pub(crate) nodes: BTreeSet<String>,
    /// Whether their slices must be published.
    pub(crate) slices: bool,
    /// Longest wait.
    pub(crate) timeout: Duration,
}

/// Waits for `wanted`. `check` is called twice a second and can end the wait with an error.
pub(crate) async fn wait(
    client: &kube::Client,
    wanted: &Wanted,
    progress: &Progress,
    check: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + wanted.timeout;
    let total = wanted.nodes.len();
    let mut nodes = watcher(
        Api::<Node>::all(client.clone()),
        watcher::Config::default().labels("octavo.dev/lab"),
    )
    .default_backoff()
    .boxed();
    let mut slices =
        watcher(slice_api(client), watcher::Config::default().fields(SLICES_OF_AGENTS))
            .default_backoff()
            .boxed();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let mut ready = BTreeSet::new();
    let mut pools = Pools::default();
    let mut account = false;
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    let mut ticks = 0_u32;
    loop {
        let covered = pools.count_complete(&wanted.nodes);
        let have_slices = !wanted.slices || covered == total;
        if account && ready.len() == total && have_slices {
            return Ok(());
        }
        tokio::select! {
            Some(event) = nodes.next() => if let Ok(event) = event {
                apply_node_event(event, &wanted.nodes, &mut ready);
            },
            Some(event) = slices.next() => if let Ok(event) = event {
                pools.apply(event);
            },
            _ = tick.tick() => {
                ticks += 1;
                // Pods are rejected until this service account exists.
                account = account || matches!(accounts.get_opt("default").await, Ok(Some(_)));
                if ticks.is_multiple_of(5) {
                    check()?;
                    progress.figure(&readiness_text(ready.len(), covered, total, wanted.slices));
                }
                if Instant::now() >= deadline {
                    bail!(
                        "the lab was not ready after {} s: {}{}",
                        wanted.timeout.as_secs(),
                        readiness_text(ready.len(), covered, total, wanted.slices),
                        if account { "" } else { ", no default service account" },
                    );
                }
            }
        }
    }
}

/// Lists the agents' slices, without their devices.
pub(crate) async fn list_slices(client: &kube::Client) -> anyhow::Result<Vec<Slice>> {
    let params = ListParams::default().fields(SLICES_OF_AGENTS);
    Ok(slice_api(client).list(&params).await.context("list the resource slices")?.items)
}

/// Whether a node's Ready condition is true.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

fn slice_api(client: &kube::Client) -> Api<Slice> {
    Api::all_with(client.clone(), &ApiResource::erase::<ResourceSlice>(&()))
}

fn readiness_text(ready: usize, covered: usize, total: usize, slices: bool) -> String {
    let nodes = format!("nodes {ready}/{total}");
    if slices { format!("{nodes}, slices {covered}/{total}") } else { nodes }
}

fn apply_node_event(event: Event<Node>, wanted: &BTreeSet<String>, ready: &mut BTreeSet<String>) {
    match event {
        Event::Init => ready.clear(),
        Event::InitDone => {}
        Event::Apply(node) | Event::InitApply(node) => {
            let is_ready = is_ready(&node);
            let Some(name) = node.metadata.name.filter(|name| wanted.contains(name)) else {
                return;
            };
            if is_ready {
                ready.insert(name);
            } else {
                ready.remove(&name);
            }
        }
        Event::Delete(node) => {
            if let Some(name) = node.metadata.name {
                ready.remove(&name);
            }
        }
    }
}

/// The observed slices by name.
#[derive(Default)]
struct Pools {
    slices: BTreeMap<String, SliceSpec>,
}

impl Pools {
    fn apply(&mut self, event: Event<Slice>) {
        match event {
            Event::Init => self.slices.clear(),
            Event::InitDone => {}
            Event::Apply(slice) | Event::InitApply(slice) => {
                if let Some(name) = slice.metadata.name {
                    self.slices.insert(name, slice.spec);
                }
            }
            Event::Delete(slice) => {
                if let Some(name) = slice.metadata.name {
                    self.slices.remove(&name);
                }
            }
        }
    }

    /// Number of `nodes` with a pool whose newest generation is complete.
    fn count_complete(&self, nodes: &BTreeSet<String>) -> usize {
        let mut newest: BTreeMap<(&str, &str), (i64, i64, i64)> = BTreeMap::new();
        for spec in self.slices.values() {
            let Some(node) = spec.node_name.as_deref().filter(|node| nodes.contains(*node)) else {
                continue;
            };
            let pool = &spec.pool;
            let entry = newest.entry((node, &pool.name)).or_insert((pool.generation, 0, 0));
            if pool.generation > entry.0 {
                *entry = (pool.generation, 0, 0);
            }
            if pool.generation == entry.0 {
                *entry = (entry.0, entry.1 + 1, pool.resource_slice_count);
            }
        }
        let complete = newest.iter().filter(|(_, (_, seen, count))| seen >= count);
        complete.map(|((node, _), _)| *node).collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, node: &str, generation: i64, count: i64) -> Slice {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": { "name": name },
            "spec": { "driver": "gpu.nvidia.com", "nodeName": node, "pool": {
                "name": node, "generation": generation, "resourceSliceCount": count,
            }, "devices": [{ "name": "gpu-0" }] },
        }))
        .unwrap()
    }

    #[test]
    fn a_pool_counts_once_its_newest_generation_is_there_in_full() {
        let nodes: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
        let mut pools = Pools::default();
        pools.apply(Event::Apply(slice("a-1", "a", 1, 2)));
        assert_eq!(pools.count_complete(&nodes), 0);
        pools.apply(Event::Apply(slice("a-2", "a", 1, 2)));
        pools.apply(Event::Apply(slice("c-1", "c", 1, 1)));
        assert_eq!(pools.count_complete(&nodes), 1);
        pools.apply(Event::Apply(slice("a-3", "a", 2, 2)));
        assert_eq!(pools.count_complete(&nodes), 0);
        pools.apply(Event::Apply(slice("a-1", "a", 2, 2)));
        pools.apply(Event::Apply(slice("b-1", "b", 7, 1)));
        assert_eq!(pools.count_complete(&nodes), 2);
        pools.apply(Event::Delete(slice("b-1", "b", 7, 1)));
        assert_eq!(pools.count_complete(&nodes), 1);
    }

    #[test]
    fn a_node_is_ready_while_its_condition_says_so() {
        let node = |status: &str| -> Node {
            serde_json::from_value(serde_json::json!({
                "metadata": { "name": "a" },
                "status": { "conditions": [{ "type": "Ready", "status": status }] },
            }))
            .unwrap()
        };
        let wanted = ["a".to_owned()].into();
        let mut ready = BTreeSet::new();
        apply_node_event(Event::InitApply(node("True")), &wanted, &mut ready);
        assert_eq!(ready.len(), 1);
        apply_node_event(Event::Apply(node("False")), &wanted, &mut ready);
        assert_eq!(ready.len(), 0);
        apply_node_event(Event::Apply(node("True")), &BTreeSet::new(), &mut ready);
        assert_eq!(ready.len(), 0);
    }
}
