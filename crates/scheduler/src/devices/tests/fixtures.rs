//! Small clusters: nodes as the agent publishes them in a lab, claims, pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1 as api;
use octavo_dra::{Count, DeviceRequest, Quantity, Request};
use octavo_kube_io::claims::{claim_from_api, class_from_api};
use octavo_kube_io::objects::{
    Claim, ClaimConfig, Consumer, Container, Delta, DeviceClass, Kind, Meta, Node, ObjectName,
    Owner, Pod, PodClaim, PodSpec, ResourceSlice,
};
use serde_json::Value;

use crate::bind::{ClaimWrite, PodRef};
use crate::devices::{Devices, Feasibility, Invalidation, PodAllocation};

/// The slices of a node with eight H100.
pub(super) const PLAIN: &str = include_str!("../fixture/slices.json");
/// The same with MIG on the first three GPUs.
pub(super) const MIXED: &str = include_str!("../fixture/slices-mig.json");
/// Those three GPUs alone.
pub(super) const MIG: &str = "mig";
const CLASSES: &str = include_str!("../fixture/classes.json");
const CLAIMS: &str = include_str!("../fixture/claims.json");
const FIXTURE_NODE: &str = "dgx-h100-0";

/// The slices of a node.
pub(super) fn slices(fixture: &str, node: &str) -> Vec<Arc<ResourceSlice>> {
    if fixture == MIG {
        let is_cut = |device: &octavo_dra::Device| !device.consumes.is_empty();
        let cut = |slice: &Arc<ResourceSlice>| changed(slice, |slice| slice.devices.retain(is_cut));
        return slices(MIXED, node).iter().map(cut).collect();
    }
    let text = fixture.replace(FIXTURE_NODE, node);
    let slices: Vec<api::ResourceSlice> = serde_json::from_str(&text).unwrap();
    let slice = |slice: &api::ResourceSlice| {
        let name = slice.metadata.name.clone().unwrap();
        let meta = Meta { name: ObjectName::new("", name), ..Meta::default() };
        Arc::new(ResourceSlice { meta, slice: octavo_kube_io::slices::from_api(slice).unwrap() })
    };
    slices.iter().map(slice).collect()
}

/// One slice with something changed.
pub(super) fn changed(
    slice: &ResourceSlice,
    change: impl FnOnce(&mut octavo_dra::Slice),
) -> Arc<ResourceSlice> {
    let mut slice = slice.clone();
    change(&mut slice.slice);
    Arc::new(slice)
}

/// The classes of the lab.
pub(super) fn classes() -> Vec<Arc<DeviceClass>> {
    let classes: Vec<api::DeviceClass> = serde_json::from_str(CLASSES).unwrap();
    let class = |class: &api::DeviceClass| {
        let name = class.metadata.name.clone().unwrap();
        let config = class.spec.config.iter().flatten().map(|config| {
            let opaque = config.opaque.as_ref().unwrap();
            (Vec::new(), opaque.driver.clone(), opaque.parameters.0.clone())
        });
        Arc::new(DeviceClass {
            meta: Meta { name: ObjectName::new("", name), ..Meta::default() },
            class: class_from_api(class).unwrap(),
            config: config.map(config_of).collect(),
        })
    };
    classes.iter().map(class).collect()
}

/// The claims that kube-scheduler allocated in the lab, with what it wrote.
pub(super) fn written_claims() -> Vec<(Arc<Claim>, Value)> {
    let claims: Vec<api::ResourceClaim> = serde_json::from_str(CLAIMS).unwrap();
    let claim = |claim: &api::ResourceClaim| {
        let config = claim.spec.devices.iter().flat_map(|devices| devices.config.iter().flatten());
        let config = config.map(|config| {
            let opaque = config.opaque.as_ref().unwrap();
            let requests = config.requests.clone().unwrap_or_default();
            (requests, opaque.driver.clone(), opaque.parameters.0.clone())
        });
        let read = claim_from_api(claim).unwrap();
        let claim_read = Claim {
            meta: meta(&read.name, &read.uid),
            config: config.map(config_of).collect(),
            claim: read,
            ..Claim::default()
        };
        let status = claim.status.as_ref().unwrap();
        (Arc::new(claim_read), serde_json::to_value(&status.allocation).unwrap())
    };
    claims.iter().map(claim).collect()
}

fn config_of((requests, driver, parameters): (Vec<String>, String, Value)) -> ClaimConfig {
    ClaimConfig { requests, driver, parameters }
}

pub(super) fn meta(name: &str, uid: &str) -> Meta {
    Meta { name: ObjectName::new("ns", name), uid: uid.into(), ..Meta::default() }
}

/// Devices of nodes with these fixtures.
pub(super) fn cluster(nodes: &[(&str, &str)]) -> Devices {
    let mut devices = Devices::default();
    devices.apply_classes(&Delta::Replace(Kind::default(), classes()));
    let slices = nodes.iter().flat_map(|(name, fixture)| slices(fixture, name)).collect();
    devices.apply_slices(&Delta::Replace(Kind::default(), slices));
    for (name, _) in nodes {
        devices.apply_nodes(&Delta::Upsert(node(name, &[])));
    }
    devices
}

/// A node that serves amounts.
pub(super) fn node(name: &str, allocatable: &[(&str, i64)]) -> Arc<Node> {
    let amount = |(name, amount): &(&str, i64)| ((*name).to_owned(), Quantity::decimal(*amount));
    let mut meta = meta(name, name);
    meta.name.namespace = "".into();
    let allocatable = allocatable.iter().map(amount).collect();
    Arc::new(Node { meta, allocatable, ..Node::default() })
}

/// A request for devices of a class.
pub(super) fn request(name: &str, class: &str, count: u64) -> Request {
    let ask = DeviceRequest {
        class: class.to_owned(),
        count: Count::Exactly(count),
        ..DeviceRequest::default()
    };
    Request { name: name.to_owned(), ask: octavo_dra::Ask::Exactly(ask) }
}

/// A request with something changed.
pub(super) fn with(mut request: Request, change: impl FnOnce(&mut DeviceRequest)) -> Request {
    let octavo_dra::Ask::Exactly(ask) = &mut request.ask else { panic!("a list") };
    change(ask);
    request
}

pub(super) fn whole(count: u64) -> Vec<Request> {
    vec![request("gpu", "gpu.nvidia.com", count)]
}

/// A GPU that a selector matches.
pub(super) fn selecting(expression: &str) -> Vec<Request> {
    let selectors = vec![expression.to_owned()];
    vec![with(request("gpu", "gpu.nvidia.com", 1), |ask| ask.selectors = selectors)]
}

/// Shares with this compute in percent and this memory.
pub(super) fn shares(count: u64, compute: &str, memory: &str) -> Vec<Request> {
    let amounts: BTreeMap<_, _> = [("compute", compute), ("memory", memory)]
        .map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()))
        .into();
    vec![with(request("part", "gpu.nvidia.com", count), |ask| ask.capacity = amounts)]
}

/// MIG instances of a profile.
pub(super) fn instances(count: u64, profile: &str) -> Vec<Request> {
    let selector = format!("device.attributes['gpu.nvidia.com'].profile == '{profile}'");
    vec![with(request("mig", "mig.nvidia.com", count), |ask| ask.selectors = vec![selector])]
}

/// A pod with one claim of its own, from a template, and the claim.
pub(super) fn pod(name: &str, requests: Vec<Request>) -> (Pod, Arc<Claim>) {
    let claim_name = format!("{name}-claim");
    let owner = Owner { name: name.to_owned(), uid: name.into(), ..Owner::default() };
    let mut claim = claim(&claim_name, requests);
    Arc::make_mut(&mut claim).meta.owner = Some(owner);
    let spec = PodSpec { claims: vec![from_template("c")], ..PodSpec::default() };
    let claims = [("c".to_owned(), Some(claim_name))].into();
    (Pod { meta: meta(name, name), spec: Arc::new(spec), claims, ..Pod::default() }, claim)
}

pub(super) fn from_template(name: &str) -> PodClaim {
    PodClaim { name: name.to_owned(), claim: None, template: Some("t".to_owned()) }
}

/// A pod that uses a claim by name.
pub(super) fn user(name: &str, claim: &Claim) -> Pod {
    let claim = Some(claim.meta.name.name.to_string());
    let claims = vec![PodClaim { name: "c".to_owned(), claim, template: None }];
    let spec = Arc::new(PodSpec { claims, ..PodSpec::default() });
    Pod { meta: meta(name, name), spec, ..Pod::default() }
}

/// A pod whose container requests `count` of a resource.
pub(super) fn extended_pod(name: &str, resource: &str, count: i64) -> Pod {
    let container = Container {
        name: "main".to_owned(),
        kind: octavo_dra::ContainerKind::Main,
        requests: [(resource.to_owned(), Quantity::decimal(count))].into(),
        ports: Vec::new(),
        claims: Vec::new(),
    };
    let spec = Arc::new(PodSpec { containers: vec![container], ..PodSpec::default() });
    Pod { meta: meta(name, name), spec, ..Pod::default() }
}

/// A claim of these requests; its UID is its name.
pub(super) fn claim(name: &str, requests: Vec<Request>) -> Arc<Claim> {
    let claim = octavo_dra::Claim {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        requests,
        ..octavo_dra::Claim::default()
    };
    Arc::new(Claim { meta: meta(name, name), claim, ..Claim::default() })
}

/// The claim as observed once an allocation is written.
pub(super) fn seen(write: &ClaimWrite, pod: &PodRef) -> Arc<Claim> {
    let mut claim = Claim::clone(&write.claim);
    if let Some(written) = &write.allocation {
        claim.claim.allocation = Some(written.allocation.clone());
    }
    let uid = Arc::clone(pod.uid.as_arc());
    let name = pod.name.name.to_string();
    claim.reserved_for.push(Consumer {
        resource: "pods".to_owned(),
        name,
        uid,
        ..Consumer::default()
    });
    Arc::new(claim)
}

/// The claim as observed once it is deallocated.
pub(super) fn deallocated(claim: &Claim) -> Arc<Claim> {
    let mut claim = claim.clone();
    claim.claim.allocation = None;
    claim.reserved_for.clear();
    Arc::new(claim)
}

/// The claim with another `resourceVersion`.
pub(super) fn of_version(claim: &Claim, version: u64) -> Arc<Claim> {
    let mut claim = claim.clone();
    claim.meta.version = version.to_string().into();
    Arc::new(claim)
}

pub(super) fn pod_ref(pod: &Pod) -> PodRef {
    PodRef { name: pod.meta.name.clone(), uid: pod.uid() }
}

impl Devices {
    pub(super) fn see(&mut self, claim: &Arc<Claim>) -> Invalidation {
        self.apply_claims(&Delta::Upsert(Arc::clone(claim)))
    }

    /// Adds a pod's claim, and decides and assumes it on a node.
    pub(super) fn place(
        &mut self,
        (pod, claim): &(Pod, Arc<Claim>),
        node: &str,
    ) -> Option<PodAllocation> {
        self.see(claim);
        let ask = self.ask(pod).unwrap();
        // A cached result must equal the current one.
        let found = self.feasibility(&ask, self.request_key(&ask), node);
        let pod_allocation = self.allocate(&ask, node, None);
        assert_eq!(
            matches!(found, Feasibility::Feasible { .. }),
            pod_allocation.is_ok(),
            "{found:?}, but {pod_allocation:?}"
        );
        let pod_allocation = pod_allocation.ok()?;
        self.assume(&pod_allocation);
        Some(pod_allocation)
    }
}
