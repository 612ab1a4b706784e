use serde_json::json;

use super::*;

fn pod() -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"},
        "spec": {
            "resourceClaims": [
                {"name": "own", "resourceClaimTemplateName": "t"},
                {"name": "shared", "resourceClaimName": "shared-claim"},
                {"name": "none", "resourceClaimTemplateName": "t"},
            ],
            "containers": [
                {"name": "a", "resources": {"claims": [{"name": "own", "request": "gpu"}, {"name": "shared"}]}},
                {"name": "b", "resources": {"requests": {"nvidia.com/gpu": "1"}}},
                {"name": "c"},
            ],
        },
        "status": {
            "resourceClaimStatuses": [
                {"name": "own", "resourceClaimName": "p-own-x"},
                {"name": "none"},
            ],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "p-extended",
                "requestMappings": [
                    {"containerName": "b", "resourceName": "nvidia.com/gpu", "requestName": "container-1-request-0"},
                ],
            },
        },
    }))
    .unwrap()
}

fn claim(owner: &str, reserved: &str) -> ResourceClaim {
    serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "name": "p-own-x", "namespace": "ns", "uid": "claim-uid",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}],
        },
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"},
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1"},
                {"request": "nic", "driver": "nic.example.com", "pool": "n", "device": "nic-0"},
            ]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": reserved}],
        },
    }))
    .unwrap()
}

#[test]
fn a_pod_names_generated_direct_and_extended_claims() {
    let named: Vec<_> = claims_of(&pod()).unwrap().into_iter().map(|c| (c.name, c.owned)).collect();
    let expected = [("p-own-x", true), ("shared-claim", false), ("p-extended", false)];
    assert_eq!(named, expected.map(|(name, owned)| (name.to_owned(), owned)));
}

#[test]
fn a_claim_that_is_not_created_yet_is_waited_for() {
    let mut pod = pod();
    pod.status.as_mut().unwrap().resource_claim_statuses = None;
    assert_eq!(claims_of(&pod), Err(ClaimProblem::NotCreated("ns/p".to_owned())));
}

#[test]
fn usable_claim_lists_its_drivers() {
    let named = NamedClaim { name: "p-own-x".to_owned(), owned: true };
    let usable = check(&pod(), &named, &claim("pod-uid", "pod-uid")).unwrap();
    assert_eq!(usable.drivers.len(), 2);
    assert_eq!(usable.uid, "claim-uid");
}

#[test]
fn claims_of_others_unreserved_or_unallocated_are_refused() {
    let named = NamedClaim { name: "p-own-x".to_owned(), owned: true };
    assert!(matches!(
        check(&pod(), &named, &claim("other", "pod-uid")),
        Err(ClaimProblem::NotOwned(..))
    ));
    assert!(matches!(
        check(&pod(), &named, &claim("pod-uid", "other")),
        Err(ClaimProblem::NotReserved { .. })
    ));
    let mut bare = claim("pod-uid", "pod-uid");
    bare.status.as_mut().unwrap().allocation = None;
    assert!(matches!(check(&pod(), &named, &bare), Err(ClaimProblem::NotAllocated(_))));
}

#[test]
fn a_container_gets_only_the_requests_that_it_names() {
    let pod = pod();
    let requests: Vec<Vec<_>> = pod
        .spec
        .as_ref()
        .unwrap()
        .containers
        .iter()
        .map(|container| {
            requests_of(&pod, container).into_iter().map(|r| (r.claim, r.request)).collect()
        })
        .collect();
    let gpu = Some("gpu".to_owned());
    assert_eq!(requests[0], [("p-own-x".to_owned(), gpu), ("shared-claim".to_owned(), None)]);
    assert_eq!(requests[1], [("p-extended".to_owned(), Some("container-1-request-0".to_owned()))]);
    assert!(requests[2].is_empty());
}
