//! `octavo driver`: lets the agents of nodes close the driver, or open it again.
//!
//! The label [`LABEL_DRIVER_RELEASED`] of a node asks its agent. The taints of the node's devices tell what the agent did.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use octavo_api::names::{
    DRIVER_RELEASED, LABEL_DRIVER_RELEASED, MISSING_MODULE_PREFIX, TAINT_DRIVER_UNAVAILABLE,
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connect::Timeout;
use crate::error::ViewError;
use crate::fetch::list;
use crate::snapshot::DRIVER;

/// How often the slices of a node are read while its agent works.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What an agent is to do with its node's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverState {
    /// Hold nothing of it.
    Released,
    /// Have it open.
    InUse,
}

/// Sets or removes the label of the nodes. Nothing is changed if one of them does not exist.
pub async fn set_label(
    client: &Client,
    nodes: &BTreeSet<String>,
    wanted: DriverState,
) -> Result<(), ViewError> {
    let api: Api<Node> = Api::all(client.clone());
    for node in nodes {
        let found = api.get_metadata_opt(node).await.map_err(|e| ViewError::api("nodes", e))?;
        if found.is_none() {
            return Err(ViewError::UnknownNode { node: node.clone() });
        }
    }
    let value = (wanted == DriverState::Released).then_some("true");
    let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL_DRIVER_RELEASED: value}}}));
    let params = PatchParams::default();
    for node in nodes {
        let patched = api.patch_metadata(node, &params, &patch);
        patched.await.map_err(|error| ViewError::api("nodes", error))?;
    }
    Ok(())
}

/// Waits until the agents of all nodes have done so. Returns the nodes whose agents have not after the limit, each with
/// what is known of it. A request that fails is repeated until then.
pub async fn wait(
    client: &Client,
    nodes: &BTreeSet<String>,
    wanted: DriverState,
    limit: Timeout,
) -> BTreeMap<String, String> {
    let deadline = limit.0.map(|limit| Instant::now() + limit);
    let mut late: BTreeMap<String, String> =
        nodes.iter().map(|node| (node.clone(), "its devices were not read".to_owned())).collect();
    let finish = async {
        while !late.is_empty() {
            let asked: Vec<String> = late.keys().cloned().collect();
            for node in asked {
                match Devices::read(client, &node).await.map(|devices| devices.problem(wanted)) {
                    Ok(None) => late.remove(&node),
                    Ok(Some(problem)) => late.insert(node, problem),
                    Err(error) => late.insert(node, error.to_string()),
                };
            }
            if !late.is_empty() {
                sleep(POLL_INTERVAL).await;
            }
        }
    };
    match deadline {
        Some(deadline) => {
            // The nodes that are late then are the answer.
            let _ = timeout_at(deadline, finish).await;
        }
        None => finish.await,
    }
    late
}

/// The pods, as `namespace/name`, that have devices of the nodes. Their processes hold the driver.
pub async fn holders(
    client: &Client,
    nodes: &BTreeSet<String>,
) -> Result<BTreeSet<String>, ViewError> {
    let claims: Api<ResourceClaim> = Api::all(client.clone());
    let claims = list("resourceclaims", &claims, ListParams::default()).await?;
    let mut pods = BTreeSet::new();
    for claim in claims {
        let Some(status) = claim.status else { continue };
        let devices = status.allocation.and_then(|allocation| allocation.devices);
        let mut results = devices.and_then(|devices| devices.results).into_iter().flatten();
        if !results.any(|result| result.driver == DRIVER && nodes.contains(&result.pool)) {
            continue;
        }
        let namespace = claim.metadata.namespace.unwrap_or_default();
        let users = status.reserved_for.into_iter().flatten();
        let users = users.filter(|user| user.resource == "pods");
        pods.extend(users.map(|user| format!("{namespace}/{}", user.name)));
    }
    Ok(pods)
}

/// How many devices a node publishes, and how many of them say that the driver is not in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Devices {
    all: usize,
    released: usize,
    unavailable: usize,
    /// A kernel module that is not loaded.
    missing_module: Option<String>,
}

impl Devices {
    async fn read(client: &Client, node: &str) -> Result<Self, ViewError> {
        let slices: Api<ResourceSlice> = Api::all(client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let slices = list("resourceslices", &slices, params).await?;
        let ours = slices.into_iter().map(|slice| slice.spec).filter(|spec| spec.driver == DRIVER);
        let mut found = Self::default();
        for device in ours.flat_map(|spec| spec.devices.unwrap_or_default()) {
            let mut taints = device.taints.unwrap_or_default().into_iter();
            let taint = taints.find(|taint| taint.key == TAINT_DRIVER_UNAVAILABLE);
            found.all += 1;
            found.unavailable += usize::from(taint.is_some());
            let value = taint.and_then(|taint| taint.value);
            found.released += usize::from(value.as_deref() == Some(DRIVER_RELEASED));
            let module =
                value.as_deref().and_then(|value| value.strip_prefix(MISSING_MODULE_PREFIX));
            found.missing_module = module.map(str::to_owned).or(found.missing_module);
        }
        Ok(found)
    }

    /// Why the agent is not there yet; `None` if it is.
    fn problem(self, wanted: DriverState) -> Option<String> {
        let Self { all, released, unavailable, missing_module } = self;
        match wanted {
            // An agent publishes after it has opened the driver, so nothing is known of its absence.
            _ if all == 0 => Some("no device is published".to_owned()),
            DriverState::Released if released == all => None,
            DriverState::Released => {
                Some(format!("{} of {all} devices are not released", all - released))
            }
            DriverState::InUse if unavailable == 0 => None,
            DriverState::InUse if released > 0 => Some(
                "its driver is still released: GPU Operator may pause it by nvidia.com/gpu.deploy.*"
                    .to_owned(),
            ),
            DriverState::InUse if missing_module.is_some() => missing_module
                .map(|module| format!("a kernel module is not loaded: `modprobe {module}` on the node")),
            DriverState::InUse => {
                Some(format!("the driver of {unavailable} of {all} devices is unavailable"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
