use serde::de::DeserializeOwned;

use crate::snapshot::{ClaimSource, ExtendedResource, PodClaim};

fn object<K: DeserializeOwned>(yaml: &str) -> K {
    serde_saphyr::from_str(yaml).unwrap()
}

#[test]
fn a_claim_keeps_requests_allocation_consumers_and_conditions() {
    let (name, claim) = super::claim(object(
        r#"
metadata: {name: train, namespace: team}
spec:
  devices:
    requests:
    - name: big
      exactly:
        deviceClassName: gpu.nvidia.com
        selectors: [{cel: {expression: "true"}}]
        tolerations: [{operator: Exists}]
    - name: either
      firstAvailable:
      - {name: all, deviceClassName: gpu.nvidia.com, allocationMode: All}
      - {name: two, deviceClassName: mig.nvidia.com, count: 2}
status:
  allocation:
    allocationTimestamp: "2026-01-05T10:00:00Z"
    devices:
      results:
      - {request: big, driver: gpu.nvidia.com, pool: n, device: gpu-0, adminAccess: true}
  reservedFor:
  - {resource: pods, name: p, uid: u}
  - {apiGroup: example.com, resource: others, name: o, uid: v}
  devices:
  - driver: gpu.nvidia.com
    pool: n
    device: gpu-0
    conditions:
    - {type: Ready, status: "False", reason: No, message: words, lastTransitionTime: "2026-01-05T10:00:00Z"}
"#,
    ));
    assert_eq!(name.to_string(), "team/train");
    let big = &claim.requests[0].alternatives[0];
    assert_eq!((big.count, big.tolerates, &*big.selectors[0]), (Some(1), true, "true"));
    let either: Vec<_> =
        claim.requests[1].alternatives.iter().map(|ask| (&*ask.class, ask.count)).collect();
    assert_eq!(either, [("gpu.nvidia.com", None), ("mig.nvidia.com", Some(2))]);
    let allocation = claim.allocation.unwrap();
    assert_eq!(allocation.at.unwrap().to_string(), "2026-01-05T10:00:00Z");
    assert!(allocation.devices[0].admin_access);
    assert_eq!(claim.reserved_for, ["p"]);
    assert_eq!(claim.devices[0].conditions[0].message, "words");
}

#[test]
fn a_pod_keeps_its_claims_limits_and_condition() {
    let pod = super::pod(object(
        r#"
metadata: {name: p, namespace: team, creationTimestamp: "2026-01-05T10:00:00Z"}
spec:
  schedulerName: default-scheduler
  schedulingGates: [{name: example.com/wait}]
  resourceClaims:
  - {name: a, resourceClaimName: shared}
  - {name: b, resourceClaimTemplateName: t}
  - {name: c, resourceClaimTemplateName: unneeded}
  - {name: d, resourceClaimTemplateName: late}
  containers:
  - name: main
    resources: {limits: {nvidia.com/gpu: "2", cpu: "1", ephemeral-storage: 1Gi, hugepages-2Mi: 2Mi, kubernetes.io/batch-cpu: "1"}}
  - name: other
    resources: {limits: {deviceclass.resource.kubernetes.io/gpu.nvidia.com: "1", nvidia.com/gpu: "0"}}
status:
  phase: Pending
  resourceClaimStatuses:
  - {name: b, resourceClaimName: p-b-x7}
  - {name: c}
  extendedResourceClaimStatus: {resourceClaimName: p-ext, requestMappings: []}
  conditions:
  - {type: PodScheduled, status: "False", reason: Unschedulable, message: words}
"#,
    ));
    let claim = |name: &str, source, claim: Option<&str>| PodClaim {
        name: name.to_owned(),
        source,
        claim: claim.map(str::to_owned),
    };
    let template = |name: &str| ClaimSource::ResourceClaimTemplate(name.to_owned());
    assert_eq!(
        pod.claims,
        [
            claim("a", ClaimSource::ResourceClaim("shared".to_owned()), Some("shared")),
            claim("b", template("t"), Some("p-b-x7")),
            claim("d", template("late"), None),
        ]
    );
    let limit = |container: &str, resource: &str, count| ExtendedResource {
        container: container.to_owned(),
        init: false,
        resource: resource.to_owned(),
        count,
    };
    assert_eq!(
        pod.extended,
        [
            limit("main", "nvidia.com/gpu", 2),
            limit("other", "deviceclass.resource.kubernetes.io/gpu.nvidia.com", 1),
        ]
    );
    assert_eq!(pod.extended_claim.as_deref(), Some("p-ext"));
    assert_eq!(pod.scheduled.unwrap().reason, "Unschedulable");
    assert_eq!((pod.gates, pod.node), (vec!["example.com/wait".to_owned()], None));
}

#[test]
fn an_event_of_either_api_has_a_time_a_source_and_a_count() {
    let old = super::event(object(
        r#"
metadata: {}
involvedObject: {}
type: Warning
reason: FailedScheduling
source: {component: default-scheduler}
count: 4
lastTimestamp: "2026-01-05T10:00:00Z"
"#,
    ));
    assert_eq!((&*old.source, old.count), ("default-scheduler", 4));
    assert_eq!(old.last_seen.unwrap().to_string(), "2026-01-05T10:00:00Z");
    let new = super::event(object(
        r#"
metadata: {}
involvedObject: {}
reportingComponent: kubelet
eventTime: "2026-01-05T10:00:00.000000Z"
series: {count: 7, lastObservedTime: "2026-01-05T11:00:00.000000Z"}
"#,
    ));
    assert_eq!((&*new.source, new.count), ("kubelet", 7));
    assert_eq!(new.last_seen.unwrap().to_string(), "2026-01-05T11:00:00Z");
}

#[test]
fn nodes_are_ready_only_when_they_say_so() {
    let node = |status: &str| {
        super::node(object(&format!(
            "metadata: {{name: n}}\nspec: {{unschedulable: true}}\nstatus: {{conditions: \
             [{{type: Ready, status: \"{status}\"}}]}}"
        )))
        .1
    };
    assert!(node("True").ready && node("True").cordoned);
    assert!(!node("Unknown").ready);
}

#[test]
fn a_node_tells_what_device_plugins_serve_there() {
    let (_, node) = super::node(object(
        "metadata: {name: n}\nstatus: {allocatable: {cpu: '8', hugepages-2Mi: '0', rdma/hca: '4', \
         nvidia.com/gpu: '0'}}",
    ));
    assert_eq!(node.plugin_resources.into_iter().collect::<Vec<_>>(), ["rdma/hca"]);
}

#[test]
fn a_class_keeps_its_extended_resource_and_selectors() {
    let (name, class) = super::class(object(
        "metadata: {name: c}\nspec: {extendedResourceName: nvidia.com/gpu, selectors: [{cel: \
         {expression: 'true'}}]}",
    ));
    assert_eq!((&*name, class.extended_resource.as_deref()), ("c", Some("nvidia.com/gpu")));
    assert_eq!(class.selectors, ["true"]);
}
