pub(crate) mod fake_api;
mod faults;
mod operations;
mod rbac_denials;
mod retries;
mod sharing;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use octavo_dra::{Allocation, AllocationResult, Count, DeviceRequest, Request, RequestMapping};
use octavo_kube_io::objects::{Consumer, Meta};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::Metrics;
use fake_api::{FakeApi, InjectedFault, has_finalizer, list};

const NODE: &str = "node-1";

/// A binder with a fake API server.
struct Harness {
    binder: Binder,
    metrics: Metrics,
    stop: CancellationToken,
}

impl Harness {
    fn new(api: &FakeApi) -> Self {
        Self::with(api, BinderOptions::default())
    }

    fn with(api: &FakeApi, options: BinderOptions) -> Self {
        let metrics = Metrics::new(&mut Registry::default());
        let stop = CancellationToken::new();
        let lease = api.clone();
        let leadership = Leadership::new(move || lease.lease());
        let client: Client = api.client();
        let binder = Binder::start(client, options, leadership, metrics.clone(), stop.clone());
        Self { binder, metrics, stop }
    }

    async fn send(&self, id: u64, task: OpKind) {
        self.binder.ops.send(WriteOp { id: OpId(id), kind: task }).await.unwrap();
    }

    async fn outcome(&mut self) -> OpResult {
        // Time is paused and advances only when nothing else can run, so this ends at once or not
        // at all.
        let ended = tokio::time::timeout(Duration::from_hours(1), self.binder.results.recv());
        ended.await.expect("an outcome").expect("a binder")
    }

    async fn carry_out(&mut self, task: OpKind) -> Result<(), Failure> {
        self.send(1, task).await;
        self.outcome().await.result.map(drop)
    }
}

fn pod_ref(name: &str) -> PodRef {
    PodRef { name: ObjectName::new("team", name), uid: format!("uid-{name}").into() }
}

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/team/pods/{name}")
}

fn claim_path(name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/{name}")
}

fn put_pod(api: &FakeApi, name: &str) -> PodRef {
    let pod = pod_ref(name);
    api.put(&pod_path(name), json!({"metadata": {"name": name, "uid": *pod.uid}, "spec": {}}));
    pod
}

/// Creates a claim, and returns it as a watch has it.
fn put_claim(api: &FakeApi, name: &str) -> Arc<Claim> {
    let uid = format!("uid-{name}");
    api.put(&claim_path(name), json!({"metadata": {"name": name, "uid": uid}, "spec": {}}));
    seen(api, name)
}

/// The claim as a watch would have it now.
fn seen(api: &FakeApi, name: &str) -> Arc<Claim> {
    let object = api.object(&claim_path(name)).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owner = object["metadata"]["ownerReferences"][0].clone();
    let results = list(&object["status"]["allocation"]["devices"]["results"]);
    let result = |result: &Value| device(&text(&result["request"]), &text(&result["device"]));
    let allocation = object["status"]["allocation"]
        .is_object()
        .then(|| Allocation { results: results.iter().map(result).collect(), nodes: None });
    let consumer = |consumer: &Value| Consumer {
        api_group: String::new(),
        resource: "pods".to_owned(),
        name: text(&consumer["name"]),
        uid: text(&consumer["uid"]).into(),
    };
    Arc::new(Claim {
        meta: Meta {
            name: ObjectName::new("team", name),
            uid: text(&object["metadata"]["uid"]).into(),
            version: text(&object["metadata"]["resourceVersion"]).into(),
            finalizers: list(&object["metadata"]["finalizers"]).iter().map(text).collect(),
            owner: owner.is_object().then(|| octavo_kube_io::objects::Owner {
                uid: text(&owner["uid"]).into(),
                ..Default::default()
            }),
            ..Meta::default()
        },
        claim: octavo_dra::Claim { allocation, ..Default::default() },
        reserved_for: list(&object["status"]["reservedFor"]).iter().map(consumer).collect(),
        is_extended: object["metadata"]["annotations"].is_object(),
        ..Claim::default()
    })
}

fn device(request: &str, device: &str) -> AllocationResult {
    AllocationResult {
        request: request.to_owned(),
        driver: "gpu.nvidia.com".to_owned(),
        pool: NODE.to_owned(),
        device: device.to_owned(),
        ..AllocationResult::default()
    }
}

fn allocation(devices: &[&str]) -> WrittenAllocation {
    let results = devices.iter().map(|name| device("gpu", name)).collect();
    let allocation = Allocation { results, nodes: None };
    WrittenAllocation { allocation, config: Vec::new(), extras: Vec::new() }
}

fn write(claim: &Arc<Claim>, devices: &[&str]) -> ClaimWrite {
    ClaimWrite { claim: Arc::clone(claim), allocation: Some(allocation(devices)) }
}

fn reserve_only(claim: &Arc<Claim>) -> ClaimWrite {
    ClaimWrite { claim: Arc::clone(claim), allocation: None }
}

fn bind(pod: &PodRef, claims: Vec<ClaimWrite>) -> Bind {
    Bind {
        pod: pod.clone(),
        node: NODE.into(),
        claims,
        extended: None,
        gang_placed: None,
        is_retry: false,
    }
}

fn extended(devices: &[&str]) -> ExtendedWrite {
    let request = "container-0-request-0";
    let asked = DeviceRequest {
        class: "gpu.nvidia.com".to_owned(),
        count: Count::Exactly(1),
        ..DeviceRequest::default()
    };
    let ask = octavo_dra::Ask::Exactly(asked);
    let mapping = RequestMapping {
        container: "main".to_owned(),
        resource: "nvidia.com/gpu".to_owned(),
        request: request.to_owned(),
    };
    let claim = ExtendedClaim {
        requests: vec![Request { name: request.to_owned(), ask }],
        mappings: vec![mapping],
    };
    ExtendedWrite { claim, allocation: allocation(devices) }
}

fn bound_to(api: &FakeApi, pod: &str) -> Option<String> {
    let object = api.object(&pod_path(pod))?;
    object["spec"]["nodeName"].as_str().map(str::to_owned)
}

fn is_taken(api: &FakeApi, claim: &str, pod: &PodRef) -> bool {
    let object = api.object(&claim_path(claim)).unwrap();
    let consumers = list(&object["status"]["reservedFor"]);
    has_finalizer(&object)
        && object["status"]["allocation"].is_object()
        && consumers.iter().any(|consumer| consumer["uid"] == *pod.uid)
}

/// Whether the claim has no trace of any operation.
fn is_clean(api: &FakeApi, claim: &str) -> bool {
    let Some(object) = api.object(&claim_path(claim)) else { return true };
    !has_finalizer(&object)
        && object["status"]["allocation"].is_null()
        && list(&object["status"]["reservedFor"]).is_empty()
}

/// Claims created for extended resources.
fn made(api: &FakeApi) -> Vec<String> {
    let paths = api.paths().into_iter().filter(|path| path.contains("-extended-resources-"));
    paths.map(|path| path.rsplit('/').next().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_plain_pod_costs_one_write() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    let mut harness = Harness::new(&api);
    assert_eq!(harness.carry_out(OpKind::Bind(bind(&pod, Vec::new()))).await, Ok(()));
    assert_eq!(bound_to(&api, "p").as_deref(), Some(NODE));
    assert_eq!(api.writes(), ["POST /api/v1/namespaces/team/pods/p/binding"]);
    assert_eq!(api.count(), 1, "no reads either");
    assert_eq!(harness.metrics.requests("pods/binding", "create"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_claim_costs_three_writes() {
    let api = FakeApi::default();
    let (pod, claim) = (put_pod(&api, "p"), put_claim(&api, "c"));
    let mut harness = Harness::new(&api);
    let mut taken = write(&claim, &["gpu-0"]);
    let given = taken.allocation.as_mut().unwrap();
    given.config = vec![json!({"source": "FromClass", "opaque": {"driver": "d"}})];
    given.extras = vec![json!({"tolerations": [{"operator": "Exists"}]})];
    assert_eq!(harness.carry_out(OpKind::Bind(bind(&pod, vec![taken]))).await, Ok(()));
    assert!(is_taken(&api, "c", &pod));
    let claim = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/c";
    let writes = [
        format!("PATCH {claim}"),
        format!("PATCH {claim}/status"),
        "POST /api/v1/namespaces/team/pods/p/binding".to_owned(),
    ];
    assert_eq!(api.writes(), writes);
    assert_eq!(api.count(), 3, "no reads either");
    let allocation = &api.object(&claim_path("c")).unwrap()["status"]["allocation"];
    let expected = json!({"devices": {
        "results": [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": "gpu-0",
            "tolerations": [{"operator": "Exists"}]}],
        "config": [{"source": "FromClass", "opaque": {"driver": "d"}}],
    }});
    assert_eq!(*allocation, expected);
    let bytes: Vec<usize> = api.seen().iter().map(|seen| seen.body.len()).collect();
    assert!(bytes[0] < 120 && bytes[1] < 450 && bytes[2] < 200, "{bytes:?}");
}

#[tokio::test(start_paused = true)]
async fn extended_resources_cost_four_writes() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    let mut harness = Harness::new(&api);
    let op = Bind { extended: Some(extended(&["gpu-0"])), ..bind(&pod, Vec::new()) };
    assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()));
    assert_eq!(api.writes().len(), 4, "{:?}", api.writes());
    assert_eq!(api.count(), 4, "no reads either");
    let name = made(&api).pop().unwrap();
    assert!(name.starts_with("p-extended-resources-") && name.len() == 26, "{name}");
    assert!(is_taken(&api, &name, &pod));
    let claim = api.object(&claim_path(&name)).unwrap();
    assert_eq!(claim["metadata"]["annotations"][responses::EXTENDED_ANNOTATION], "true");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], *pod.uid);
    assert_eq!(claim["metadata"]["ownerReferences"][0]["controller"], true);
    let status = &api.object(&pod_path("p")).unwrap()["status"]["extendedResourceClaimStatus"];
    let mapping = json!({"containerName": "main", "resourceName": "nvidia.com/gpu",
        "requestName": "container-0-request-0"});
    assert_eq!(*status, json!({"resourceClaimName": name, "requestMappings": [mapping]}));
}

#[tokio::test(start_paused = true)]
async fn existing_state_is_not_written_again() {
    let api = FakeApi::default();
    let (first, second) = (put_pod(&api, "p"), put_pod(&api, "q"));
    let claim = put_claim(&api, "c");
    api.edit(&claim_path("c"), |claim| {
        claim["metadata"]["finalizers"] = json!([responses::FINALIZER]);
    });
    let claim_now = seen(&api, "c");
    assert_ne!(claim.meta.version, claim_now.meta.version);
    let mut harness = Harness::new(&api);
    let op = bind(&first, vec![write(&claim_now, &["gpu-0"])]);
    assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()));
    assert_eq!(api.writes().len(), 2, "the finalizer was there");
    // A pod that joins writes only its reservation. So does one that is observed as reserved: the
    // claim may have been rolled back since.
    let op = bind(&second, vec![reserve_only(&seen(&api, "c"))]);
    assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()));
    assert_eq!(api.writes().len(), 4);
    assert!(is_taken(&api, "c", &first) && is_taken(&api, "c", &second));
    let third = put_pod(&api, "r");
    api.edit(&claim_path("c"), |claim| {
        claim["status"]["reservedFor"] = json!([{"resource": "pods", "name": "r", "uid": "uid-r"}]);
    });
    let op = bind(&third, vec![reserve_only(&seen(&api, "c"))]);
    assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()));
    assert_eq!(api.writes().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_bind_returns_the_versions_of_its_claims() {
    // The response to this request of each bind is lost.
    for lost in [None, Some(0), Some(1)] {
        let api = FakeApi::default();
        let claim = put_claim(&api, "c");
        let mut harness = Harness::new(&api);
        for (number, name) in ["p", "q", "r"].into_iter().enumerate() {
            let pod = put_pod(&api, name);
            let op = match number {
                0 => bind(&pod, vec![write(&claim, &["gpu-0"])]),
                1 => bind(&pod, vec![reserve_only(&seen(&api, "c"))]),
                _ => Bind { extended: Some(extended(&["gpu-1"])), ..bind(&pod, Vec::new()) },
            };
            if let Some(step) = lost {
                api.inject(api.count() + step, InjectedFault::LostAfter);
            }
            harness.send(1, OpKind::Bind(op)).await;
            let versions = harness.outcome().await.result.unwrap();
            let name = if number < 2 { "c".to_owned() } else { made(&api).pop().unwrap() };
            let written = seen(&api, &name);
            let version = written.meta.version_number().unwrap();
            assert_eq!(versions, [(written.uid(), version)].into(), "{lost:?}, {name}");
        }
    }
}
