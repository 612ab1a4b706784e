//! Nodes.

use serde::Deserialize;

use super::{Amounts, Reader, WatchedType, WireMeta};
use crate::objects::{Meta, Node, NodeTaint, TaintEffect};

#[derive(Debug, Deserialize)]
pub(crate) struct WireNode {
    #[serde(default)]
    metadata: WireMeta,
    spec: Option<WireSpec>,
    status: Option<WireStatus>,
}

#[derive(Debug, Default, Deserialize)]
struct WireSpec {
    unschedulable: Option<bool>,
    taints: Option<Vec<WireTaint>>,
}

#[derive(Debug, Deserialize)]
struct WireTaint {
    #[serde(default)]
    key: String,
    value: Option<String>,
    #[serde(default)]
    effect: String,
}

#[derive(Debug, Default, Deserialize)]
struct WireStatus {
    allocatable: Option<Amounts>,
    capacity: Option<Amounts>,
    conditions: Option<Vec<WireCondition>>,
}

#[derive(Debug, Deserialize)]
struct WireCondition {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
}

impl WatchedType for Node {
    type Wire = WireNode;

    fn read(wire: WireNode, reader: &mut Reader) -> Option<Self> {
        let (spec, status) = (wire.spec.unwrap_or_default(), wire.status.unwrap_or_default());
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.kind == "Ready");
        let taints = spec.taints.into_iter().flatten();
        Some(Self {
            meta: wire.metadata.read(reader),
            is_unschedulable: spec.unschedulable == Some(true),
            taints: taints.filter_map(|taint| taint.read(reader)).collect(),
            allocatable: reader.offered("status.allocatable", status.allocatable),
            capacity: reader.offered("status.capacity", status.capacity),
            is_ready: ready.and_then(|ready| match ready.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            }),
        })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl WireTaint {
    /// kube-scheduler and the kubelet ignore unknown effects.
    fn read(self, reader: &mut Reader) -> Option<NodeTaint> {
        let effect = match self.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            other => {
                let key = &self.key;
                reader.fault(format!("the taint {key} has the unknown effect {other:?}; ignored"));
                return None;
            }
        };
        Some(NodeTaint { key: self.key, value: self.value.unwrap_or_default(), effect })
    }
}
