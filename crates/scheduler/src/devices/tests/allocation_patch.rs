//! What is written, compared with what kube-scheduler wrote for the same claims in a lab.

use k8s_openapi::api::resource::v1::ResourceClaim;
use octavo_kube_io::claims::allocation_to_api;
use serde_json::Value;

use super::fixtures::{PLAIN, cluster, extended_pod, meta, written_claims};
use crate::bind::WrittenAllocation;
use crate::devices::PodAllocation;
use octavo_kube_io::objects::{Delta, Pod, PodClaim, PodSpec};

/// The allocation in its API form, without IDs that change with each attempt.
fn in_api(written: &WrittenAllocation) -> Value {
    // Results and nodes are converted; configs and extras are kept.
    let api = allocation_to_api(&written.allocation, &ResourceClaim::default(), &[], |_| None);
    let mut api = serde_json::to_value(api).unwrap();
    if !written.config.is_empty() {
        api["devices"]["config"] = written.config.clone().into();
    }
    let results = api["devices"]["results"].as_array_mut().unwrap();
    for (result, extra) in results.iter_mut().zip(&written.extras) {
        for (name, value) in extra.as_object().unwrap() {
            result[name] = value.clone();
        }
    }
    without_identities(api)
}

fn without_identities(mut allocation: Value) -> Value {
    allocation.as_object_mut().unwrap().remove("allocationTimestamp");
    for result in allocation["devices"]["results"].as_array_mut().unwrap() {
        assert_eq!(result["shareID"].as_str().unwrap().len(), 36, "{result}");
        result["shareID"] = "".into();
    }
    allocation
}

fn on_the_node(pods: &[(Pod, Option<&octavo_kube_io::objects::Claim>)]) -> Vec<PodAllocation> {
    let mut devices = cluster(&[("dgx-h100-0", PLAIN)]);
    let mut pod_allocations = Vec::new();
    for (pod, claim) in pods {
        if let Some(claim) = claim {
            devices.apply_claims(&Delta::Upsert(std::sync::Arc::new((*claim).clone())));
        }
        let ask = devices.ask(pod).unwrap();
        let pod_allocation = devices.allocate(&ask, "dgx-h100-0", None).unwrap();
        devices.assume(&pod_allocation);
        pod_allocations.push(pod_allocation);
    }
    pod_allocations
}

#[test]
fn written_allocation_equals_kube_schedulers() {
    let claims = written_claims();
    let [(extended, of_extended), (own, of_own)] = claims.as_slice() else { panic!("{claims:?}") };
    assert!(extended.meta.name.name.starts_with("e-extended-resources-"));
    let mut wanted = octavo_kube_io::objects::Claim::clone(own);
    wanted.claim.allocation = None;
    let mut first = extended_pod("e", "nvidia.com/gpu", 2);
    let spec = std::sync::Arc::make_mut(&mut first.spec);
    spec.containers[0].requests.insert("cpu".to_owned(), "1".parse().unwrap());
    let mut second = spec.containers[0].clone();
    second.name = "d".to_owned();
    second.requests = [("nvidia.com/gpu".to_owned(), "1".parse().unwrap())].into();
    spec.containers.push(second);
    let name = Some(own.meta.name.name.to_string());
    let claims = vec![PodClaim { name: "g".to_owned(), claim: name, template: None }];
    let spec = std::sync::Arc::new(PodSpec { claims, ..PodSpec::default() });
    let second = Pod { meta: meta("p", "p"), spec, ..Pod::default() };

    let pod_allocations = on_the_node(&[(first, None), (second, Some(&wanted))]);

    let ours = pod_allocations[0].extended.as_ref().unwrap();
    assert_eq!(ours.claim.requests, extended.claim.requests);
    assert_eq!(in_api(&ours.allocation), without_identities(of_extended.clone()));
    let ours = pod_allocations[1].claims[0].allocation.as_ref().unwrap();
    assert_eq!(in_api(ours), without_identities(of_own.clone()));
    assert!(ours.config.len() > 4 && ours.extras[0]["tolerations"][0]["tolerationSeconds"] == 30);
}

#[test]
fn share_ids_are_stable_per_claim_version() {
    let names = |version: &str| {
        let (_, own) = (0, super::fixtures::pod("p", super::fixtures::whole(2)));
        let (pod, mut claim) = own;
        std::sync::Arc::make_mut(&mut claim).meta.version = version.into();
        let pod_allocations = on_the_node(&[(pod, Some(&claim))]);
        let written = pod_allocations[0].claims[0].allocation.clone().unwrap();
        let ids = written.allocation.results.into_iter().map(|result| result.share_id.unwrap());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(names("1"), names("1"));
    assert_ne!(names("1"), names("2"));
    assert_ne!(names("1")[0], names("1")[1]);
}
