//! A cluster and a pod, in the scheduler's form and in the API's.

use std::collections::BTreeMap;

use octavo_dra::{ContainerKind, NodeRequirement, NodeSelector, NodeSelectorTerm, Quantity};
use octavo_kube_io::objects::{
    AffinityTerm, BindingMode, Container, CsiCapacity, CsiDriver, CsiNode, LabelSelector, Meta,
    Node, PersistentVolume, Pod, PodSpec, PodVolume, ReadError, Requests, Spread, StorageClass,
    VolumeClaim, VolumeSource, WHOLE_POD,
};
use serde_json::{Map, Value, json};

/// A cluster, and a pod to schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    pub(crate) nodes: Vec<Node>,
    /// Names and labels of namespaces.
    pub(crate) namespaces: Vec<Meta>,
    /// Pods that have a node.
    pub(crate) placed: Vec<Pod>,
    pub(crate) claims: Vec<VolumeClaim>,
    pub(crate) volumes: Vec<PersistentVolume>,
    pub(crate) classes: Vec<StorageClass>,
    pub(crate) csi_nodes: Vec<CsiNode>,
    pub(crate) drivers: Vec<CsiDriver>,
    pub(crate) capacities: Vec<CsiCapacity>,
    pub(crate) pod: Pod,
}

impl Case {
    /// The question for kube-scheduler.
    pub(crate) fn question(&self) -> Value {
        json!({
            "nodes": list(&self.nodes, node),
            "namespaces": list(&self.namespaces, |meta| json!({ "metadata": metadata(meta) })),
            "pods": list(&self.placed, pod),
            "volumeClaims": list(&self.claims, claim),
            "volumes": list(&self.volumes, volume),
            "storageClasses": list(&self.classes, class),
            "csiNodes": list(&self.csi_nodes, csi_node),
            "csiDrivers": list(&self.drivers, driver),
            "csiStorageCapacities": list(&self.capacities, capacity),
            "pod": pod(&self.pod),
        })
    }
}

impl Case {
    /// The case, read back from the API's JSON.
    pub(crate) fn read(mut question: Value) -> Self {
        let mut list = |of: &str| match question[of].take() {
            Value::Array(all) => all,
            other => panic!("{of}: {other}"),
        };
        Self {
            nodes: read(list("nodes"), Node::from_value),
            namespaces: read(list("namespaces"), Meta::from_value),
            placed: read(list("pods"), Pod::from_value),
            claims: read(list("volumeClaims"), VolumeClaim::from_value),
            volumes: read(list("volumes"), PersistentVolume::from_value),
            classes: read(list("storageClasses"), StorageClass::from_value),
            csi_nodes: read(list("csiNodes"), CsiNode::from_value),
            drivers: read(list("csiDrivers"), CsiDriver::from_value),
            capacities: read(list("csiStorageCapacities"), CsiCapacity::from_value),
            pod: Pod::from_value(question["pod"].take()).unwrap(),
        }
    }
}

fn read<T>(all: Vec<Value>, one: impl Fn(Value) -> Result<T, ReadError>) -> Vec<T> {
    all.into_iter().map(|value| one(value).unwrap()).collect()
}

fn list<T>(all: &[T], write: impl Fn(&T) -> Value) -> Value {
    all.iter().map(write).collect()
}

fn metadata(meta: &Meta) -> Value {
    let owner = meta.owner.as_ref().map(|owner| {
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": &*owner.uid, "controller": true }])
    });
    json!({
        "namespace": &*meta.name.namespace,
        "name": &*meta.name.name,
        "uid": &*meta.uid,
        "labels": meta.labels,
        "annotations": meta.annotations,
        "ownerReferences": owner.unwrap_or_default(),
        "deletionTimestamp": meta.deleted.map(|_| "2030-01-01T00:00:00Z"),
    })
}

fn amounts(list: &BTreeMap<String, Quantity>) -> Value {
    list.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect()
}

fn node(node: &Node) -> Value {
    let taints = list(
        &node.taints,
        |taint| json!({ "key": taint.key, "value": taint.value, "effect": format!("{:?}", taint.effect) }),
    );
    json!({
        "metadata": metadata(&node.meta),
        "spec": { "unschedulable": node.is_unschedulable, "taints": taints },
        "status": { "allocatable": amounts(&node.allocatable) },
    })
}

fn pod(pod: &Pod) -> Value {
    let spec = &pod.spec;
    let of = |is_init: bool| -> Vec<Value> {
        let all = spec.containers.iter();
        all.filter(|one| (one.kind != ContainerKind::Main) == is_init).map(container).collect()
    };
    let tolerations = list(
        &spec.tolerations,
        |one| json!({ "key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect }),
    );
    let resources =
        (!spec.pod_requests.is_empty()).then(|| json!({ "requests": amounts(&spec.pod_requests) }));
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    json!({
        "metadata": metadata(&pod.meta),
        "spec": {
            "nodeName": pod.node.as_deref().unwrap_or_default(),
            "initContainers": of(true),
            "containers": of(false),
            "resources": resources,
            "overhead": amounts(&spec.overhead),
            "nodeSelector": spec.node_selector,
            "tolerations": tolerations,
            "volumes": list(&spec.volumes, pod_volume),
            "topologySpreadConstraints": list(&spec.spread, spread),
            "affinity": {
                "nodeAffinity": {
                    required: spec.node_affinity.as_ref().map(selector),
                    preferred: list(&spec.preferred_nodes, preferred_node),
                },
                "podAffinity": {
                    required: list(&spec.affinity, affinity),
                    preferred: weighted(spec, 1),
                },
                "podAntiAffinity": {
                    required: list(&spec.anti_affinity, affinity),
                    preferred: weighted(spec, -1),
                },
            },
        },
        "status": status(pod),
    })
}

/// The resize status of a pod. An allocated amount below the request is from an infeasible resize.
fn status(pod: &Pod) -> Value {
    let mut is_infeasible = false;
    let mut state = |name: &str, asked: &Requests, is_granted: bool| {
        let held = pod.held.get(name)?;
        let is_less =
            |(name, held): (&String, &Quantity)| asked.get(name).is_some_and(|asked| held < asked);
        is_infeasible |= held.iter().any(is_less);
        let mut has = asked.clone();
        has.extend(held.clone());
        Some(if is_granted {
            json!({ "name": name, "allocatedResources": amounts(&has), "resources": {} })
        } else {
            json!({ "name": name, "resources": { "requests": amounts(&has) } })
        })
    };
    let mut of = |is_init: bool| -> Vec<Value> {
        let all =
            pod.spec.containers.iter().filter(|one| (one.kind != ContainerKind::Main) == is_init);
        all.filter_map(|one| state(&one.name, &one.requests, is_init)).collect()
    };
    let (init, main) = (of(true), of(false));
    let whole = state(WHOLE_POD, &pod.spec.pod_requests, false).unwrap_or_default();
    let infeasible =
        json!([{ "type": "PodResizePending", "status": "True", "reason": "Infeasible" }]);
    json!({
        "conditions": if is_infeasible { infeasible } else { json!([]) },
        "initContainerStatuses": init,
        "containerStatuses": main,
        "resources": whole["resources"],
    })
}

fn container(container: &Container) -> Value {
    let ports = list(&container.ports, |port| {
        json!({
            "hostIP": port.ip, "protocol": port.protocol,
            "hostPort": port.port, "containerPort": 8080,
        })
    });
    let restart = (container.kind == ContainerKind::Sidecar).then_some("Always");
    json!({
        "name": container.name,
        "restartPolicy": restart,
        "resources": { "requests": amounts(&container.requests) },
        "ports": ports,
    })
}

fn pod_volume(volume: &PodVolume) -> Value {
    let (kind, source) = match &volume.source {
        VolumeSource::Claim(name) => ("persistentVolumeClaim", json!({ "claimName": name })),
        VolumeSource::Ephemeral => ("ephemeral", json!({})),
        VolumeSource::Csi(driver) => ("csi", json!({ "driver": driver })),
        VolumeSource::Exclusive(kind, id, is_read_only) => {
            let source = match &**kind {
                "gcePersistentDisk" => json!({ "pdName": id, "readOnly": is_read_only }),
                "awsElasticBlockStore" => json!({ "volumeID": id, "readOnly": true }),
                "iscsi" => json!({
                    "iqn": id, "readOnly": is_read_only, "targetPortal": "", "lun": 0,
                }),
                _ => json!({
                    "monitors": ["m"], "pool": "rbd", "image": id, "readOnly": is_read_only,
                }),
            };
            (&**kind, source)
        }
    };
    let mut written = Map::new();
    written.insert("name".to_owned(), volume.name.clone().into());
    written.insert(kind.to_owned(), source);
    written.into()
}

fn selector(selector: &NodeSelector) -> Value {
    json!({ "nodeSelectorTerms": list(&selector.terms, selector_term) })
}

fn selector_term(term: &NodeSelectorTerm) -> Value {
    let requirement = |one: &NodeRequirement| json!({ "key": one.key, "operator": format!("{:?}", one.operator), "values": one.values });
    json!({
        "matchExpressions": list(&term.labels, requirement),
        "matchFields": list(&term.fields, requirement),
    })
}

fn preferred_node((weight, term): &(i32, NodeSelectorTerm)) -> Value {
    json!({ "weight": weight, "preference": selector_term(term) })
}

/// Preferred affinity (sign 1) or anti-affinity (sign -1).
fn weighted(spec: &PodSpec, sign: i32) -> Value {
    let all = spec.preferred_affinity.iter().filter(|(weight, _)| weight.signum() == sign);
    all.map(|(weight, term)| json!({ "weight": weight * sign, "podAffinityTerm": affinity(term) }))
        .collect()
}

fn affinity(term: &AffinityTerm) -> Value {
    json!({
        "labelSelector": term.selector.as_ref().map(label_selector),
        "namespaces": term.namespaces,
        "namespaceSelector": term.namespace_selector.as_ref().map(label_selector),
        "topologyKey": term.topology_key,
    })
}

fn spread(spread: &Spread) -> Value {
    let policy = |is_honored| if is_honored { "Honor" } else { "Ignore" };
    json!({
        "topologyKey": spread.topology_key,
        "whenUnsatisfiable": if spread.is_hard { "DoNotSchedule" } else { "ScheduleAnyway" },
        "maxSkew": spread.max_skew,
        "minDomains": (spread.min_domains > 1).then_some(spread.min_domains),
        "labelSelector": spread.selector.as_ref().map(label_selector),
        "matchLabelKeys": spread.match_label_keys,
        "nodeAffinityPolicy": policy(spread.honors_affinity),
        "nodeTaintsPolicy": policy(spread.honors_taints),
    })
}

fn label_selector(selector: &LabelSelector) -> Value {
    let expressions = list(
        &selector.expressions,
        |one| json!({ "key": one.key, "operator": one.operator, "values": one.values }),
    );
    json!({ "matchLabels": selector.labels, "matchExpressions": expressions })
}

fn claim(claim: &VolumeClaim) -> Value {
    let mut metadata = metadata(&claim.meta);
    let phase = if claim.volume.is_some() { "Bound" } else { "Pending" };
    if claim.volume.is_some() {
        metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
    }
    json!({
        "metadata": metadata,
        "spec": {
            "volumeName": claim.volume,
            "storageClassName": claim.class,
            "accessModes": claim.access_modes,
            "resources": { "requests": claim.requested.map(storage) },
            "selector": claim.selector.as_ref().map(label_selector),
            "volumeMode": volume_mode(claim.is_block),
        },
        "status": { "phase": phase },
    })
}

fn storage(bytes: i128) -> Value {
    json!({ "storage": bytes.to_string() })
}

fn volume_mode(is_block: bool) -> &'static str {
    if is_block { "Block" } else { "Filesystem" }
}

fn volume(volume: &PersistentVolume) -> Value {
    let csi = volume.csi.as_ref();
    let csi = csi.map(|(driver, handle)| json!({ "driver": driver, "volumeHandle": handle }));
    let other = csi.is_none().then(|| json!({ "path": "/data" }));
    let reserved = volume.claim.as_ref().map(
        |(name, uid)| json!({ "namespace": &*name.namespace, "name": &*name.name, "uid": &**uid }),
    );
    json!({
        "metadata": metadata(&volume.meta),
        "spec": {
            "csi": csi,
            "hostPath": other,
            "nodeAffinity": { "required": volume.node_affinity.as_ref().map(selector) },
            "capacity": storage(volume.capacity),
            "accessModes": volume.access_modes,
            "storageClassName": volume.class.clone().unwrap_or_default(),
            "volumeMode": volume_mode(volume.is_block),
            "claimRef": reserved,
        },
        "status": { "phase": if volume.is_available { "Available" } else { "Bound" } },
    })
}

fn driver(driver: &CsiDriver) -> Value {
    json!({
        "metadata": metadata(&driver.meta),
        "spec": { "storageCapacity": driver.has_capacity },
    })
}

fn capacity(capacity: &CsiCapacity) -> Value {
    json!({
        "metadata": metadata(&capacity.meta),
        "storageClassName": capacity.class,
        "nodeTopology": capacity.nodes.as_ref().map(label_selector),
        "capacity": capacity.most.map(|most| most.to_string()),
    })
}

fn class(class: &StorageClass) -> Value {
    let mode = match class.binding {
        BindingMode::Immediate => "Immediate",
        BindingMode::WaitForFirstConsumer => "WaitForFirstConsumer",
    };
    let topologies = list(&class.allowed_topologies, |labels| {
        let label = |(key, values): &(String, Vec<String>)| json!({ "key": key, "values": values });
        json!({ "matchLabelExpressions": list(labels, label) })
    });
    json!({
        "metadata": metadata(&class.meta),
        "provisioner": class.provisioner,
        "volumeBindingMode": mode,
        "allowedTopologies": topologies,
    })
}

fn csi_node(node: &CsiNode) -> Value {
    let driver = |(name, limit): (&String, &Option<u32>)| json!({ "name": name, "nodeID": "n", "topologyKeys": [], "allocatable": { "count": limit } });
    let drivers: Vec<Value> = node.limits.iter().map(driver).collect();
    json!({ "metadata": metadata(&node.meta), "spec": { "drivers": drivers } })
}
