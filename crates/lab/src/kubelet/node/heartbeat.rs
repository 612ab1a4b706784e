//! Registers a node with the API server and renews its status and Lease.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::kubelet::device_manager::resources::Counts;
use crate::kubelet::node::Node;
use crate::kubelet::node::object;
use crate::kubelet::node::shown_devices::ShownDevices;
use crate::kubelet::settings::Settings;
use crate::kubelet::{ApiError, backoff, within};

/// Registers the node, then renews its Lease and status until the node's shutdown. `permits` bounds
/// the number of concurrent registrations.
pub(crate) async fn run(node: &Node, settings: &Settings, permits: &Semaphore) {
    let (since, mut attempt) = (Timestamp::now(), 0);
    let mut shown = ShownDevices::new(node);
    let uid = loop {
        let permit = permits.acquire().await;
        let counts = shown.wanted();
        let registered = register(node, since, settings, &counts).await;
        drop(permit);
        match registered {
            Ok(uid) => {
                shown.written(counts);
                break uid;
            }
            Err(error) => {
                tracing::debug!(node = node.name, %error, "node not registered yet");
                tokio::time::sleep(backoff(attempt, &node.name)).await;
                attempt += 1;
            }
        }
    };
    tracing::debug!(node = node.name, "node registered");
    let interval = Duration::from_secs(settings.lease_seconds.into());
    let mut round = 0_u32;
    let mut due = Instant::now() + first_pause(interval, &node.name);
    loop {
        // One after the other: no write of older numbers can overtake one of newer ones.
        tokio::select! {
            () = sleep_until(due) => {}
            () = shown.is_outdated() => {
                shown.write(node).await;
                continue;
            }
        }
        round += 1;
        let mut result = renew_lease(node, settings, uid.as_deref()).await;
        let rounds = (settings.status_seconds / settings.lease_seconds.max(1)).max(1);
        if result.is_ok() && round.is_multiple_of(u32::from(rounds)) {
            let counts = shown.wanted();
            result = patch_status(node, since, &counts).await;
            if result.is_ok() {
                shown.written(counts);
            }
        }
        if let Err(error) = result {
            tracing::warn!(node = node.name, %error, "heartbeat failed");
        }
        due = Instant::now() + interval;
    }
}

/// Updates the existing Node, or creates one that is ready from the start; then takes the Lease.
/// Returns the Node's UID. The likely case comes first: with hundreds of nodes every failed call
/// delays the others.
async fn register(
    node: &Node,
    since: Timestamp,
    settings: &Settings,
    counts: &Counts,
) -> Result<Option<String>, ApiError> {
    let api: Api<NodeObject> = Api::all(node.client.clone());
    let object = object::node(&node.name, node.machine.as_ref(), node.address, since, counts);
    let labels = json!({"metadata": {"labels": object.metadata.labels}});
    let params = PatchParams::default();
    let uid = match within(api.patch_metadata(&node.name, &params, &Patch::Merge(&labels))).await {
        Ok(merged) => {
            patch_status(node, since, counts).await?;
            merged.uid()
        }
        Err(ApiError::Kube(kube::Error::Api(status))) if status.code == 404 => {
            within(api.create(&PostParams::default(), &object)).await?.uid()
        }
        Err(error) => return Err(error),
    };
    take_lease(node, settings, uid.as_deref()).await?;
    Ok(uid)
}

async fn patch_status(node: &Node, since: Timestamp, counts: &Counts) -> Result<(), ApiError> {
    let api: Api<NodeObject> = Api::all(node.client.clone());
    let (machine, now) = (node.machine.as_ref(), Timestamp::now());
    let status = object::status(&node.name, machine, node.address, (since, now), counts);
    let patch = Patch::Strategic(json!({"status": status}));
    within(api.patch_status(&node.name, &PatchParams::default(), &patch)).await.map(drop)
}

/// Creates the Lease, or renews the one of an earlier process.
async fn take_lease(node: &Node, settings: &Settings, uid: Option<&str>) -> Result<(), ApiError> {
    match within(leases(node).create(&PostParams::default(), &lease(node, settings, uid))).await {
        Err(ApiError::Kube(kube::Error::Api(status))) if status.code == 409 => {
            renew_lease(node, settings, uid).await
        }
        result => result.map(drop),
    }
}

async fn renew_lease(node: &Node, settings: &Settings, uid: Option<&str>) -> Result<(), ApiError> {
    let lease = lease(node, settings, uid);
    let patch = Patch::Merge(json!({"spec": lease.spec}));
    match within(leases(node).patch_metadata(&node.name, &PatchParams::default(), &patch)).await {
        Err(ApiError::Kube(kube::Error::Api(status))) if status.code == 404 => {
            within(leases(node).create(&PostParams::default(), &lease)).await.map(drop)
        }
        result => result.map(drop),
    }
}

fn leases(node: &Node) -> Api<Lease> {
    Api::namespaced(node.client.clone(), "kube-node-lease")
}

fn lease(node: &Node, settings: &Settings, uid: Option<&str>) -> Lease {
    // As in the kubelet, a node may miss three renewals.
    let seconds = i32::from(settings.lease_seconds).saturating_mul(4);
    object::lease(&node.name, uid.map(ToOwned::to_owned), seconds, Timestamp::now())
}

/// Spreads the renewals of all nodes over the interval.
fn first_pause(interval: Duration, name: &str) -> Duration {
    interval.mul_f64(crate::kubelet::unit_hash(name))
}
