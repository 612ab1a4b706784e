//! Snapshots for tests, from a few readable lines.
//!
//! ```text
//! node  dgx-0 gpus=8 product=H100 memory=81559Mi [notready] [cordoned] [plugin=rdma/hca]
//! taint dgx-0/gpu-3 gpu.nvidia.com/xid=79:NoSchedule
//! mig   dgx-0/gpu-9-mig-1g10gb-19-0 parent=GPU-9 profile=1g.10gb memory=9984Mi [uuid=MIG-1] [productName=H100]
//! class gpu.nvidia.com extended=nvidia.com/gpu
//! claim team/train class=gpu.nvidia.com count=2 on=dgx-0/gpu-0,dgx-0/gpu-1 for=train at=2026-01-05T10:00:00Z
//! when  team/train device.attributes["gpu.nvidia.com"].productName == "H100"
//! says  team/train dgx-0/gpu-0 Ready=False:NotYetSupported the words
//! pod   team/train phase=Running node=dgx-0 gpu=train other=@template made=template:train-xyz limit=nvidia.com/gpu:1
//! cond  team/train False Unschedulable the scheduler's words
//! event Warning FailedScheduling default-scheduler the words
//! warns dgx-0 GpuUnhealthy the words
//! template team/one-gpu
//! gap   claimsElsewhere the words
//! ```
//!
//! An underscore in a value stands for a blank.

mod input;

use std::collections::BTreeMap;

pub(crate) use input::allocator_input;
use jiff::Timestamp;
use octavo_dra::AttributeValue;
use octavo_dra::Quantity;
use octavo_dra::slice::{Capacity, Device, DeviceTaint, TaintEffect};

use crate::explain::Event;
use crate::snapshot::{
    AllocatedDevice, Allocation, Claim, ClaimSource, Class, ClusterSnapshot, Condition, DRIVER,
    DeviceStatus, ExtendedResource, Gap, GapKind, Node, ObjectName, Pod, PodClaim, Pool, Request,
    RequestAlternative,
};

/// The current time in tests.
pub(crate) fn now() -> Timestamp {
    "2026-01-05T12:00:00Z".parse().unwrap()
}

/// Parses a fixture. Panics on unknown input: a fixture is part of its test.
pub(crate) fn snapshot(text: &str) -> ClusterSnapshot {
    read(text).0
}

/// Reads a fixture with its events.
pub(crate) fn read(text: &str) -> (ClusterSnapshot, Vec<Event>) {
    let mut snapshot = ClusterSnapshot::default();
    let mut events = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (kind, rest) = cut(line);
        match kind {
            "node" => node(&mut snapshot, rest),
            "taint" => taint(&mut snapshot, rest),
            "mig" => mig(&mut snapshot, rest),
            "class" => class(&mut snapshot, rest),
            "claim" => claim(&mut snapshot, rest),
            "when" => {
                let (name, selector) = cut(rest);
                let claim = snapshot.claims.get_mut(&object(name)).unwrap();
                claim.requests[0].alternatives[0].selectors.push(selector.to_owned());
            }
            "made" => {
                let (name, rest) = cut(rest);
                let (place, uuid) = cut(rest);
                let place = object(place);
                snapshot.claims.get_mut(&object(name)).unwrap().devices.push(DeviceStatus {
                    driver: DRIVER.to_owned(),
                    pool: place.namespace,
                    device: place.name,
                    share_id: None,
                    uuid: Some(uuid.to_owned()),
                    conditions: Vec::new(),
                });
            }
            "says" => device_status(&mut snapshot, rest),
            "pod" => pod(&mut snapshot, rest),
            "cond" => {
                let (name, rest) = cut(rest);
                let (status, rest) = cut(rest);
                let (reason, message) = cut(rest);
                let found = condition("PodScheduled", status, reason, message);
                snapshot.pods.get_mut(&object(name)).unwrap().scheduled = Some(found);
            }
            "event" => events.push(event(rest)),
            "warns" => {
                let (node, rest) = cut(rest);
                let (reason, message) = cut(rest);
                let found = event(&format!("Warning {reason} octavo.dev/agent {message}"));
                snapshot.node_warnings.entry(node.to_owned()).or_default().push(found);
            }
            "template" => {
                snapshot.templates.insert(object(rest));
            }
            "gap" => {
                let (kind, message) = cut(rest);
                let kind = match kind {
                    "nodes" => GapKind::Nodes,
                    "slices" => GapKind::Slices,
                    "claimsElsewhere" => GapKind::ClaimsElsewhere,
                    "classes" => GapKind::Classes,
                    "unreadable" => GapKind::Unreadable,
                    other => panic!("no gap {other:?}"),
                };
                snapshot.gaps.push(Gap { kind, message: message.to_owned() });
            }
            other => panic!("no line {other:?} in fixtures"),
        }
    }
    (snapshot, events)
}

fn node(snapshot: &mut ClusterSnapshot, rest: &str) {
    let (name, rest) = cut(rest);
    let values = values(rest);
    let ready = !values.contains_key("notready");
    let cordoned = values.contains_key("cordoned");
    if !values.contains_key("gone") {
        let plugin_resources = values.get("plugin").cloned().into_iter().collect();
        snapshot.nodes.insert(name.to_owned(), Node { ready, cordoned, plugin_resources });
    }
    let gpus: usize = values["gpus"].parse().unwrap();
    let device = |index: usize| Device {
        name: format!("gpu-{index}"),
        attributes: BTreeMap::from([
            ("type".to_owned(), AttributeValue::String("gpu".to_owned())),
            ("uuid".to_owned(), AttributeValue::String(format!("GPU-{name}-{index}"))),
            ("productName".to_owned(), AttributeValue::String(values["product"].clone())),
        ]),
        capacity: BTreeMap::from([
            ("memory".to_owned(), Capacity::whole(values["memory"].parse().unwrap())),
            ("compute".to_owned(), Capacity::whole(Quantity::decimal(100))),
        ]),
        ..Device::default()
    };
    let slices_announced = values.get("slices").map_or(1, |count| count.parse().unwrap());
    let pool = Pool {
        node: name.to_owned(),
        generation: 1,
        slices_announced,
        slices_seen: 1,
        devices: (0..gpus).map(device).collect(),
    };
    snapshot.pools.insert(name.to_owned(), pool);
}

fn taint(snapshot: &mut ClusterSnapshot, rest: &str) {
    let (place, taint) = cut(rest);
    let place = object(place);
    let (key, effect) = taint.split_once(':').unwrap();
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    let effect = match effect {
        "None" => TaintEffect::None,
        "NoSchedule" => TaintEffect::NoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        other => panic!("no effect {other:?}"),
    };
    let pool = snapshot.pools.get_mut(&place.namespace).unwrap();
    let device = pool.devices.iter_mut().find(|device| device.name == place.name).unwrap();
    device.taints.push(DeviceTaint { key: key.to_owned(), value: value.to_owned(), effect });
}

fn mig(snapshot: &mut ClusterSnapshot, rest: &str) {
    let (place, rest) = cut(rest);
    let place = object(place);
    let values = values(rest);
    let attributes = [("type", "mig"), ("parentUUID", &values["parent"])];
    let optional = ["uuid", "productName"];
    let optional = optional.into_iter().filter_map(|name| Some((name, values.get(name)?.as_str())));
    let text = |value: &str| AttributeValue::String(value.to_owned());
    snapshot.pools.get_mut(&place.namespace).unwrap().devices.push(Device {
        name: place.name,
        attributes: attributes
            .into_iter()
            .chain([("profile", values["profile"].as_str())])
            .chain(optional)
            .map(|(name, value)| (name.to_owned(), text(value)))
            .collect(),
        capacity: [("memory".to_owned(), Capacity::whole(values["memory"].parse().unwrap()))]
            .into(),
        ..Device::default()
    });
}

fn class(snapshot: &mut ClusterSnapshot, rest: &str) {
    let (name, rest) = cut(rest);
    let extended_resource = values(rest).remove("extended");
    snapshot.classes.insert(name.to_owned(), Class { selectors: Vec::new(), extended_resource });
}

fn claim(snapshot: &mut ClusterSnapshot, rest: &str) {
    let (name, rest) = cut(rest);
    let values = values(rest);
    let list = |key: &str| -> Vec<String> {
        values.get(key).map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
    };
    let count = values.get("count").map_or("1", String::as_str);
    let ask = RequestAlternative {
        class: values["class"].clone(),
        count: (count != "all").then(|| count.parse().unwrap()),
        tolerates: values.contains_key("tolerates"),
        admin_access: values.contains_key("admin"),
        ..RequestAlternative::default()
    };
    let devices: Vec<AllocatedDevice> = list("on")
        .iter()
        .map(|place| AllocatedDevice {
            request: "gpu".to_owned(),
            driver: DRIVER.to_owned(),
            pool: object(place).namespace,
            device: object(place).name,
            share_id: values.get("share").cloned(),
            consumed: ["memory", "compute"]
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), values.get(*name)?.parse().unwrap())))
                .collect(),
            admin_access: ask.admin_access,
        })
        .collect();
    let at = values.get("at").map(|at| at.parse().unwrap());
    let found = Claim {
        requests: vec![Request { name: "gpu".to_owned(), alternatives: vec![ask] }],
        allocation: (!devices.is_empty()).then_some(Allocation { devices, at }),
        reserved_for: list("for"),
        ..Claim::default()
    };
    snapshot.claims.insert(object(name), found);
}

fn device_status(snapshot: &mut ClusterSnapshot, rest: &str) {
    let (name, rest) = cut(rest);
    let (place, rest) = cut(rest);
    let (condition_text, message) = cut(rest);
    let (kind, condition_text) = condition_text.split_once('=').unwrap();
    let (status, reason) = condition_text.split_once(':').unwrap();
    let place = object(place);
    snapshot.claims.get_mut(&object(name)).unwrap().devices.push(DeviceStatus {
        driver: DRIVER.to_owned(),
        pool: place.namespace,
        device: place.name,
        share_id: None,
        uuid: None,
        conditions: vec![condition(kind, status, reason, message)],
    });
}

fn pod(snapshot: &mut ClusterSnapshot, rest: &str) {
    let (name, rest) = cut(rest);
    let mut values = values(rest);
    let mut take = |key: &str| values.remove(key);
    let made = take("made");
    let mut pod = Pod {
        phase: take("phase").unwrap(),
        node: take("node"),
        scheduler: take("scheduler").unwrap_or_else(|| "default-scheduler".to_owned()),
        created: take("created").map(|at| at.parse().unwrap()),
        gates: take("gate").into_iter().collect(),
        extended_claim: take("extendedclaim"),
        ..Pod::default()
    };
    if let Some(limit) = take("limit") {
        let (resource, count) = limit.split_once(':').unwrap();
        pod.extended.push(ExtendedResource {
            container: "main".to_owned(),
            init: false,
            resource: resource.to_owned(),
            count: count.parse().unwrap(),
        });
    }
    for (name, value) in values {
        let (source, claim) = match value.strip_prefix('@') {
            Some(template) => {
                let made =
                    made.as_ref().and_then(|made| made.strip_prefix(&format!("{template}:")));
                (ClaimSource::ResourceClaimTemplate(template.to_owned()), made.map(str::to_owned))
            }
            None => (ClaimSource::ResourceClaim(value.clone()), Some(value)),
        };
        pod.claims.push(PodClaim { name, source, claim });
    }
    snapshot.pods.insert(object(name), pod);
}

fn event(rest: &str) -> Event {
    let (kind, rest) = cut(rest);
    let (reason, rest) = cut(rest);
    let (source, message) = cut(rest);
    Event {
        last_seen: Some("2026-01-05T11:58:00Z".parse().unwrap()),
        source: source.to_owned(),
        kind: kind.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        count: 3,
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// `key=value` words; a word without a value is a flag.
fn values(rest: &str) -> BTreeMap<String, String> {
    rest.split_whitespace()
        .map(|word| word.split_once('=').unwrap_or((word, "")))
        .map(|(key, value)| (key.to_owned(), value.replace('_', " ")))
        .collect()
}

/// Parses `NAMESPACE/NAME`, or a pool and a device.
pub(crate) fn object(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectName::new(namespace, name)
}

fn cut(text: &str) -> (&str, &str) {
    let (word, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    (word, rest.trim())
}
