//! A cluster for tests: objects go in, and write operations are carried out as an API server would
//! show them.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{
    Budget, Change, Claim, Delta, DeviceClass, Kind, Node, Pod, ResourceSlice, WatchedObject,
};
use serde_json::{Value, json};

use crate::bind::{Bind, ClaimVersions, Evict, Failure, FailureKind, OpKind, OpResult, WriteOp};
use crate::state::{Scheduler, SchedulerConfig};
use crate::status::StatusUpdate;

/// What a binding writes about a pod's gang.
pub(super) const GANG_PLACED: &str = "/metadata/annotations/octavo.dev~1gang-placed";

pub(super) struct Testbed {
    pub(super) scheduler: Scheduler,
    /// Pods as the API has them, by name.
    pub(super) pods: BTreeMap<String, Value>,
    pub(super) claims: BTreeMap<String, Value>,
    pub(super) reports: Vec<StatusUpdate>,
    now: u64,
}

pub(super) fn node(name: &str, cpu: u32) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"),
            "labels": {"kubernetes.io/hostname": name, "octavo.dev/scheduler": "octavo"},
        },
        "status": {
            "allocatable": {"cpu": cpu.to_string(), "memory": "64Gi", "pods": "110"},
            "capacity": {"cpu": cpu.to_string(), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

pub(super) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let mut at = &mut object;
    for step in parent.split('/').skip(1) {
        let step = step.replace("~1", "/");
        at = match at {
            Value::Array(list) => &mut list[step.parse::<usize>().expect("an index")],
            other => {
                if other.get(&step).is_none() {
                    other[&step] = json!({});
                }
                &mut other[&step]
            }
        };
    }
    at[key.replace("~1", "/")] = value;
    object
}

pub(super) fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "team", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "schedulerName": "octavo",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Pending"},
    })
}

pub(super) fn gpu_pod(name: &str, gpus: u32) -> Value {
    with(
        pod(name, "1"),
        "/spec/containers/0/resources/limits",
        json!({"nvidia.com/gpu": gpus.to_string()}),
    )
}

/// A node whose device plugin serves eight GPUs.
pub(super) fn plugin_node(name: &str) -> Value {
    let node = with(node(name, 64), "/status/allocatable/nvidia.com~1gpu", json!("8"));
    with(node, "/status/capacity/nvidia.com~1gpu", json!("8"))
}

pub(super) fn member(group: &str, name: &str, cpu: &str) -> Value {
    with(pod(name, cpu), "/metadata/labels", json!({"octavo.dev/pod-group": group}))
}

#[expect(clippy::needless_pass_by_value, reason = "written at the call by json!")]
pub(super) fn pod_group(name: &str, min: u32, topology: Value) -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "generation": 1},
        "spec": {"minMember": min, "topology": topology},
    })
}

#[expect(clippy::needless_pass_by_value, reason = "written at the call by json!")]
pub(super) fn budget(name: &str, labels: Value, allowed: i32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    })
}

/// Ends a pod.
pub(super) fn ended(testbed: &mut Testbed, name: &str) {
    let pod = with(testbed.pods[name].clone(), "/status/phase", json!("Succeeded"));
    testbed.pod(&pod);
}

/// Names of the pods that operations evict, sorted.
pub(super) fn evicted(ops: &[WriteOp]) -> Vec<String> {
    let evicts = ops.iter().filter_map(|op| match &op.kind {
        OpKind::Evict(evict) => Some(evict.pod.name.name.to_string()),
        _ => None,
    });
    let mut evicts: Vec<_> = evicts.collect();
    evicts.sort();
    evicts
}

impl Testbed {
    pub(super) fn new() -> Self {
        Self::with_config(SchedulerConfig::default())
    }

    pub(super) fn with_config(config: SchedulerConfig) -> Self {
        Self {
            scheduler: Scheduler::new(config),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            reports: Vec::new(),
            now: 0,
        }
    }

    pub(super) fn node(&mut self, value: &Value) {
        self.scheduler.apply(&Change::Node(Delta::Upsert(Arc::new(
            Node::from_value(value.clone()).expect("an object"),
        ))));
    }

    pub(super) fn pod(&mut self, value: &Value) {
        let name = value["metadata"]["name"].as_str().expect("a name").to_owned();
        self.pods.insert(name, value.clone());
        self.scheduler.apply(&Change::Pod(Delta::Upsert(Arc::new(
            Pod::from_value(value.clone()).expect("an object"),
        ))));
    }

    pub(super) fn drop_pod(&mut self, name: &str) {
        let value = self.pods.remove(name).expect("the pod");
        self.scheduler.apply(&Change::Pod(Delta::Delete(Arc::new(
            Pod::from_value(value.clone()).expect("an object"),
        ))));
    }

    pub(super) fn claim(&mut self, value: &Value) {
        let name = value["metadata"]["name"].as_str().expect("a name").to_owned();
        self.claims.insert(name, value.clone());
        self.scheduler.apply(&Change::Claim(Delta::Upsert(Arc::new(
            Claim::from_value(value.clone()).expect("an object"),
        ))));
    }

    pub(super) fn drop_node(&mut self, value: &Value) {
        let node = Node::from_value(value.clone()).expect("an object");
        self.scheduler.apply(&Change::Node(Delta::Delete(Arc::new(node))));
    }

    pub(super) fn drop_claim(&mut self, name: &str) {
        let value = self.claims.remove(name).expect("the claim");
        self.scheduler.apply(&Change::Claim(Delta::Delete(Arc::new(
            Claim::from_value(value).expect("an object"),
        ))));
    }

    /// Delivers a list of all claims.
    pub(super) fn all_claims(&mut self, values: &[Value]) {
        let claims = values
            .iter()
            .map(|value| Arc::new(Claim::from_value(value.clone()).expect("an object")));
        self.scheduler.apply(&Change::Claim(Delta::Replace(Kind::default(), claims.collect())));
    }

    pub(super) fn budget(&mut self, value: &Value) {
        let budget = Arc::new(Budget::from_value(value.clone()).expect("an object"));
        self.scheduler.apply(&Change::Budget(Delta::Upsert(budget)));
    }

    pub(super) fn drop_budget(&mut self, value: &Value) {
        let budget = Arc::new(Budget::from_value(value.clone()).expect("an object"));
        self.scheduler.apply(&Change::Budget(Delta::Delete(budget)));
    }

    pub(super) fn class(&mut self, value: &Value) {
        self.scheduler.apply(&Change::Class(Delta::Upsert(Arc::new(
            DeviceClass::from_value(value.clone()).expect("an object"),
        ))));
    }

    pub(super) fn slice(&mut self, value: &Value) {
        self.scheduler.apply(&Change::Slice(Delta::Upsert(Arc::new(
            ResourceSlice::from_value(value.clone()).expect("an object"),
        ))));
    }

    pub(super) fn object(&mut self, value: &Value) {
        self.scheduler.apply(&Change::Object(Delta::Upsert(Arc::new(
            WatchedObject::from_value(value.clone()).expect("an object"),
        ))));
    }

    /// Advances the clock, and decides.
    pub(super) fn after(&mut self, milliseconds: u64) -> Vec<WriteOp> {
        self.time(milliseconds);
        self.ops()
    }

    /// Advances the clock.
    pub(super) fn time(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.scheduler.tick(self.now);
    }

    /// Decides, searches for the hints that are due, and takes the write operations.
    pub(super) fn ops(&mut self) -> Vec<WriteOp> {
        while self.scheduler.decide() {}
        if let Some(search) = self.scheduler.due_hint_search() {
            self.scheduler.store_hint_result(&search.run());
        }
        self.reports.extend(self.scheduler.take_reports());
        self.scheduler.take_ops()
    }

    /// Decides, carries out all operations, and returns the bound pods with their nodes.
    pub(super) fn settle(&mut self) -> Vec<(String, String)> {
        let mut bound = Vec::new();
        for op in self.ops() {
            if let OpKind::Bind(bind) = &op.kind {
                bound.push((bind.pod.name.name.to_string(), bind.node.to_string()));
            }
            self.complete(&op);
        }
        bound.sort();
        bound
    }

    /// Carries out an operation, and delivers its effects and result.
    pub(super) fn complete(&mut self, op: &WriteOp) {
        let mut versions = ClaimVersions::new();
        match &op.kind {
            OpKind::Bind(bind) => versions = self.bind(bind),
            OpKind::Evict(Evict { pod, .. }) => {
                let name = pod.name.name.to_string();
                let value = self.pods[&name].clone();
                let value =
                    with(value, "/metadata/deletionTimestamp", json!("2026-01-01T00:01:00Z"));
                self.pod(&value);
            }
            OpKind::Nominate { pod, node } => {
                let name = pod.name.name.to_string();
                if let Some(value) = self.pods.get(&name) {
                    let node = node.as_deref();
                    self.pod(&with(value.clone(), "/status/nominatedNodeName", json!(node)));
                }
            }
            OpKind::RequestVolumes { .. } | OpKind::Rollback { .. } => {}
        }
        self.scheduler.complete_op(&OpResult { id: op.id, result: Ok(versions) });
    }

    fn bind(&mut self, bind: &Bind) -> ClaimVersions {
        let mut versions = ClaimVersions::new();
        for write in &bind.claims {
            let name = write.claim.meta.name.name.to_string();
            let mut claim = self.claims[&name].clone();
            if let Some(allocation) = &write.allocation {
                claim["status"]["allocation"] = allocation_json(&allocation.allocation);
            }
            claim["status"]["reservedFor"] = json!([
                {"resource": "pods", "name": &*bind.pod.name.name, "uid": &*bind.pod.uid}
            ]);
            let version = version(&claim) + 1;
            claim["metadata"]["resourceVersion"] = json!(version.to_string());
            versions.insert(write.claim.uid(), version);
            self.claim(&claim);
        }
        let name = bind.pod.name.name.to_string();
        let value = self.pods[&name].clone();
        let mut value = with(value, "/spec/nodeName", json!(&*bind.node));
        if let Some(gang) = &bind.gang_placed {
            value = with(value, GANG_PLACED, json!(&**gang));
        }
        self.pod(&with(value, "/status/phase", json!("Running")));
        versions
    }

    /// Delivers a failure as the result of an operation.
    pub(super) fn fail(&mut self, op: &WriteOp, kind: FailureKind) {
        let failure =
            Failure { step: "bind", message: "no".to_owned(), kind, unreleased: Vec::new() };
        self.scheduler.complete_op(&OpResult { id: op.id, result: Err(failure) });
    }

    /// The last reason reported for a pod.
    pub(super) fn reason(&self, pod: &str) -> Option<(&'static str, String)> {
        self.reports.iter().rev().find_map(|report| match report {
            StatusUpdate::PodUnschedulable { pod: who, status_text, .. }
                if &*who.name.name == pod =>
            {
                Some((status_text.reason, status_text.message.clone()))
            }
            _ => None,
        })
    }
}

/// `resourceVersion` of an object; 0 without one.
pub(super) fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.map_or(0, |version| version.parse().expect("a number"))
}

pub(super) fn allocation_json(allocation: &octavo_dra::Allocation) -> Value {
    let results: Vec<_> = allocation
        .results
        .iter()
        .map(|result| {
            let mut json = json!({
                "request": result.request, "driver": result.driver, "pool": result.pool,
                "device": result.device,
            });
            if let Some(share) = &result.share_id {
                json["shareID"] = json!(share);
                let consumed: BTreeMap<_, _> = result
                    .consumed
                    .iter()
                    .map(|(name, amount)| (name.clone(), amount.to_string()))
                    .collect();
                json["consumedCapacity"] = json!(consumed);
            }
            json
        })
        .collect();
    json!({"devices": {"results": results}})
}
