//! Pods.

mod status;
mod volume;

use serde::Deserialize;

use super::affinity::{self, WireAffinity, WireSpread};
use super::{Amounts, Reader, WatchedType, WireMeta, filled};
use crate::objects::{
    Container, ContainerKind, HostPort, Meta, Pod, PodClaim, PodSpec, Requests, Toleration,
};
use status::WireStatus;
use volume::WireVolume;

/// Scheduler of pods that name none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;

#[derive(Debug, Deserialize)]
pub(crate) struct WirePod {
    #[serde(default)]
    metadata: WireMeta,
    spec: Option<WireSpec>,
    status: Option<WireStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    scheduler_name: Option<String>,
    node_name: Option<String>,
    priority: Option<i32>,
    preemption_policy: Option<String>,
    init_containers: Option<Vec<WireContainer>>,
    containers: Option<Vec<WireContainer>>,
    resources: Option<WireResources>,
    overhead: Option<Amounts>,
    node_selector: Option<std::collections::BTreeMap<String, String>>,
    affinity: Option<WireAffinity>,
    topology_spread_constraints: Option<Vec<WireSpread>>,
    tolerations: Option<Vec<WireToleration>>,
    volumes: Option<Vec<WireVolume>>,
    resource_claims: Option<Vec<WireClaim>>,
    scheduling_gates: Option<Vec<WireNamed>>,
    host_network: Option<bool>,
    scheduling_group: Option<WireGroup>,
    termination_grace_period_seconds: Option<i64>,
    active_deadline_seconds: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    #[serde(default)]
    name: String,
    restart_policy: Option<String>,
    resources: Option<WireResources>,
    ports: Option<Vec<WirePort>>,
}

#[derive(Debug, Default, Deserialize)]
struct WireResources {
    limits: Option<Amounts>,
    requests: Option<Amounts>,
    claims: Option<Vec<WireContainerClaim>>,
}

#[derive(Debug, Deserialize)]
struct WireContainerClaim {
    #[serde(default)]
    name: String,
    request: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePort {
    container_port: Option<i64>,
    host_port: Option<i64>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
    protocol: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireToleration {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
    toleration_seconds: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireClaim {
    #[serde(default)]
    name: String,
    resource_claim_name: Option<String>,
    resource_claim_template_name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WireNamed {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireGroup {
    pod_group_name: Option<String>,
}

impl WatchedType for Pod {
    type Wire = WirePod;

    fn read(wire: WirePod, reader: &mut Reader) -> Option<Self> {
        let mut spec = wire.spec.unwrap_or_default();
        let node = filled(spec.node_name.take()).map(|node| reader.shared(&node).into());
        let spec = spec.read(reader);
        let mut pod = Self {
            meta: wire.metadata.read(reader),
            spec: reader.spec(spec),
            node,
            ..Self::default()
        };
        wire.status.unwrap_or_default().read(&mut pod, reader);
        Some(pod)
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl WireSpec {
    fn read(self, reader: &mut Reader) -> PodSpec {
        let is_host_network = self.host_network == Some(true);
        let mut containers = Vec::new();
        for container in self.init_containers.into_iter().flatten() {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            let kind = if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init };
            containers.push(container.read(kind, is_host_network, reader));
        }
        for container in self.containers.into_iter().flatten() {
            containers.push(container.read(ContainerKind::Main, is_host_network, reader));
        }
        let pod_resources = self.resources.unwrap_or_default();
        let mut spec = PodSpec {
            scheduler: filled(self.scheduler_name).unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned()),
            priority: self.priority.unwrap_or(0),
            may_preempt: self.preemption_policy.as_deref() != Some("Never"),
            containers,
            pod_requests: pod_resources.requests("spec.resources", reader).0,
            overhead: reader.asked("spec.overhead", self.overhead),
            node_selector: self.node_selector.unwrap_or_default(),
            spread: self.topology_spread_constraints.map(read_all).unwrap_or_default(),
            tolerations: self.tolerations.map(read_all).unwrap_or_default(),
            volumes: Vec::new(),
            claims: self.resource_claims.map(read_all).unwrap_or_default(),
            gates: self.scheduling_gates.into_iter().flatten().map(|gate| gate.name).collect(),
            is_host_network,
            group: self.scheduling_group.and_then(|group| filled(group.pod_group_name)),
            grace_seconds: self.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE),
            active_deadline_seconds: self.active_deadline_seconds,
            ..PodSpec::default()
        };
        let volumes = self.volumes.into_iter().flatten();
        spec.volumes = volumes.filter_map(WireVolume::read).collect();
        if let Some(affinity) = self.affinity {
            affinity::read(affinity, &mut spec, reader);
        }
        spec
    }
}

impl WireContainer {
    fn read(self, kind: ContainerKind, is_host_network: bool, reader: &mut Reader) -> Container {
        let of = format!("container {}", self.name);
        let (requests, claims) = self.resources.unwrap_or_default().requests(&of, reader);
        let ports = self.ports.into_iter().flatten();
        let ports = ports.filter_map(|port| port.read(is_host_network)).collect();
        Container { name: self.name, kind, requests, ports, claims }
    }
}

impl WireResources {
    /// Requests, with limits where a request is missing, and the claims that the container uses.
    fn requests(self, of: &str, reader: &mut Reader) -> (Requests, Vec<(String, Option<String>)>) {
        let mut asked = self.limits.unwrap_or_default();
        asked.extend(self.requests.unwrap_or_default());
        let claims = self.claims.into_iter().flatten();
        let claims = claims.map(|claim| (claim.name, filled(claim.request))).collect();
        (reader.asked(of, Some(asked)), claims)
    }
}

impl WirePort {
    /// With host network the container port is the host port, as the API server writes it, too.
    fn read(self, is_host_network: bool) -> Option<HostPort> {
        let host = self.host_port.filter(|port| *port != 0);
        let port = host.or(self.container_port.filter(|_| is_host_network))?;
        Some(HostPort {
            ip: filled(self.host_ip).unwrap_or_else(|| "0.0.0.0".to_owned()),
            protocol: filled(self.protocol).unwrap_or_else(|| "TCP".to_owned()),
            port: u16::try_from(port).ok().filter(|port| *port != 0)?,
        })
    }
}

/// Reads a list.
fn read_all<W, T>(list: Vec<W>) -> Vec<T>
where
    T: From<W>,
{
    list.into_iter().map(T::from).collect()
}

impl From<WireSpread> for crate::objects::Spread {
    fn from(wire: WireSpread) -> Self {
        wire.read()
    }
}

impl From<WireToleration> for Toleration {
    fn from(wire: WireToleration) -> Self {
        Self {
            key: wire.key.unwrap_or_default(),
            operator: wire.operator.unwrap_or_default(),
            value: wire.value.unwrap_or_default(),
            effect: wire.effect.unwrap_or_default(),
            seconds: wire.toleration_seconds,
        }
    }
}

impl From<WireClaim> for PodClaim {
    fn from(wire: WireClaim) -> Self {
        Self {
            name: wire.name,
            claim: filled(wire.resource_claim_name),
            template: filled(wire.resource_claim_template_name),
        }
    }
}
