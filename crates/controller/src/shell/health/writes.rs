//! The writes of a round, each for the version on which it was decided.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use octavo_api::names::{HEALTH_CONTROLLER, TAINT_MAINTENANCE};
use octavo_api::{HealthPolicy, Maintenance, NodeHealth};
use serde_json::{Value, json};

use crate::health::facts::{self, Change, SeenHealth, Version};
use crate::health::maintenance::WorkStatus;
use crate::health::plan::{NodeOrders, PolicyStatus};
use crate::shell::leader::{Leader, LeaderError};

/// A write of a round.
pub(super) enum Write {
    /// Orders of a node.
    Orders(NodeOrders),
    /// The status of a policy.
    Status(Box<PolicyStatus>),
    /// The status of work on nodes.
    Work(Box<WorkStatus>),
    /// The taint of a node on which work is in progress: whether it is to have it.
    Taint(String, bool),
}

/// Does a write. The object that results, or `None` if it has changed or gone since it was read.
pub(super) async fn send(
    client: &Client,
    leader: &Leader,
    write: Write,
) -> Result<Option<Change>, LeaderError> {
    let params = PatchParams::apply(HEALTH_CONTROLLER).force();
    match write {
        Write::Orders(NodeOrders { node, version, devices, .. }) => {
            let body = body::<NodeHealth>(&node, &version, "spec", &json!({"devices": devices}));
            let api: Api<SeenHealth> = Api::all(client.clone());
            let patch = Patch::Apply(&body);
            let written = leader.write("node-health", api.patch(&node, &params, &patch)).await?;
            Ok(written.map(|object| Change::Put(node, facts::health(object))))
        }
        Write::Status(status) => {
            let PolicyStatus { name, version, status } = *status;
            let body = body::<HealthPolicy>(&name, &version, "status", &json!(status));
            let api = api::<HealthPolicy>(client);
            let patch = Patch::Apply(&body);
            let write = api.patch_status(&name, &params, &patch);
            let written = leader.write("health-policy-status", write).await?;
            Ok(written.map(|object| Change::Put(name, facts::policy(&object))))
        }
        Write::Work(status) => {
            let WorkStatus { name, version, status } = *status;
            let body = body::<Maintenance>(&name, &version, "status", &json!(status));
            let api = api::<Maintenance>(client);
            let patch = Patch::Apply(&body);
            let write = api.patch_status(&name, &params, &patch);
            let written = leader.write("maintenance-status", write).await?;
            Ok(written.map(|object| Change::Put(name, facts::maintenance(&object))))
        }
        Write::Taint(node, is_wanted) => taint(client, leader, node, is_wanted).await,
    }
}

/// The taint of a node. Others have taints in the same list: it is written if it still is as it was read.
async fn taint(
    client: &Client,
    leader: &Leader,
    node: String,
    is_wanted: bool,
) -> Result<Option<Change>, LeaderError> {
    if !leader.is_leading() {
        return Err(LeaderError::NotLeader);
    }
    let api = api::<Node>(client);
    let Some(object) = api.get_opt(&node).await? else { return Ok(None) };
    let found = object.data["spec"]["taints"].clone();
    let has_it = |taint: &Value| {
        let text = |name: &str| taint[name].as_str().unwrap_or_default();
        facts::is_of_maintenance(text("key"), text("effect"))
    };
    let taints = found.as_array().cloned().unwrap_or_default();
    let mut wanted: Vec<Value> = taints.into_iter().filter(|taint| !has_it(taint)).collect();
    if is_wanted {
        wanted.push(json!({"key": TAINT_MAINTENANCE, "effect": "NoSchedule"}));
    }
    let patch = json!([
        {"op": "test", "path": "/spec/taints", "value": found},
        {"op": "add", "path": "/spec/taints", "value": wanted},
    ]);
    let patch: Patch<()> =
        Patch::Json(serde_json::from_value(patch).map_err(kube::Error::SerdeError)?);
    let params =
        PatchParams { field_manager: Some(HEALTH_CONTROLLER.to_owned()), ..PatchParams::default() };
    let written = match leader.write("node-taint", api.patch(&node, &params, &patch)).await {
        // A `test` that fails is an invalid request.
        Err(LeaderError::Api(kube::Error::Api(status))) if status.code == 422 => None,
        written => written?,
    };
    let Some(object) = written else { return Ok(None) };
    let object = serde_json::to_value(object).and_then(serde_json::from_value);
    Ok(Some(Change::Put(node, facts::node(&object.map_err(kube::Error::SerdeError)?))))
}

/// The objects of a kind as they are.
pub(super) fn api<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

/// A part of an object in server-side apply, for the version on which it was decided.
pub(super) fn body<K: Resource<DynamicType = ()>>(
    name: &str,
    version: &Version,
    part: &str,
    value: &Value,
) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "uid": version.uid, "resourceVersion": version.resource},
        part: value,
    })
}
