//! Holders of devices, observed and assumed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{Claim, Delta, Kind, Pod};
use proptest::prelude::*;

use super::fixtures::{
    MIG, PLAIN, claim, cluster, deallocated, instances, of_version, pod, pod_ref, seen, shares,
    user, whole,
};
use crate::bind::ClaimVersions;
use crate::devices::{Ask, AskError, AskedClaim, Devices, Feasibility, HeldDevices, PodAllocation};

/// The pod that is allocating an ask's first claim.
fn allocating(ask: &Ask) -> Option<&str> {
    match &ask.claims[0] {
        AskedClaim::Allocated { allocating, .. } => allocating.as_deref(),
        AskedClaim::Wanted(_) => None,
    }
}

/// The version of a pod's claim in the result of its bind.
fn versions(own: &(Pod, Arc<Claim>), version: u64) -> ClaimVersions {
    [(own.1.uid(), version)].into()
}

/// A pod's claim as its operation wrote it.
fn written(own: &(Pod, Arc<Claim>), allocation: &PodAllocation, version: u64) -> Arc<Claim> {
    of_version(&seen(&allocation.claims[0], &pod_ref(&own.0)), version)
}

#[test]
fn assumed_allocation_is_held_until_its_version_is_observed_or_it_is_forgotten() {
    for is_observed_first in [false, true] {
        let mut devices = cluster(&[("n", PLAIN)]);
        let one = pod("one", whole(8));
        let allocation = devices.place(&one, "n").unwrap();
        let two = pod("two", whole(1));
        assert!(devices.place(&two, "n").is_none());
        if is_observed_first {
            devices.see(&written(&one, &allocation, 5));
            assert!(devices.is_assumed("one"), "its operation may still fail");
            assert!(devices.bound("one", versions(&one, 5)).is_empty());
        } else {
            devices.bound("one", versions(&one, 5));
            assert!(devices.is_assumed("one"));
            devices.see(&written(&one, &allocation, 5));
        }
        assert!(!devices.is_assumed("one"));
        assert!(devices.place(&two, "n").is_none());
        // Nothing is assumed any more.
        assert!(devices.forget("one").is_empty());
        assert!(devices.place(&two, "n").is_none());

        let touched = devices.see(&of_version(&deallocated(&one.1), 6));
        assert!(touched.holdings.contains("n"));
        assert!(devices.place(&two, "n").is_some());
        let touched = devices.forget("two");
        assert!(touched.holdings.contains("n"));
        assert!(devices.held("n").is_empty());
    }
}

/// An operation wrote version 3 and rolled back with version 4. The next wrote version 6. The watch
/// delivers all of it after the next operation was decided or has ended.
#[test]
fn stale_rollback_event_frees_nothing_of_the_next_bind() {
    for (nodes, has_ended) in [(["n", "n"], false), (["other", "n"], false), (["other", "n"], true)]
    {
        let mut devices = cluster(&[("n", PLAIN), ("other", PLAIN)]);
        let own = pod("one", whole(8));
        let first = devices.place(&own, nodes[0]).unwrap();
        devices.forget("one");
        let second = devices.place(&own, nodes[1]).unwrap();
        if has_ended {
            devices.bound("one", versions(&own, 6));
        }
        let two = pod("two", whole(1));
        devices.see(&written(&own, &first, 3));
        assert!(devices.place(&two, "n").is_none());
        // It may belong to another client by now, so it counts too.
        assert_eq!(devices.held(nodes[0]).len(), 1);
        assert!(devices.place(&two, nodes[0]).is_none());
        check(&devices, "n");
        devices.see(&of_version(&deallocated(&own.1), 4));
        assert!(devices.place(&two, "n").is_none());
        devices.see(&written(&own, &second, 6));
        let held = devices.held("n");
        assert_eq!((held.len(), held[0].parts.len(), held[0].is_assumed), (1, 8, false));
        assert_eq!(devices.is_assumed("one"), !has_ended);
        check(&devices, "n");
        // Its pod has ended.
        devices.forget("one");
        devices.see(&of_version(&deallocated(&own.1), 7));
        assert!(devices.place(&two, "n").is_some());
    }
}

#[test]
fn observed_allocation_replaces_the_assumed_one_when_accepted() {
    let mut devices = cluster(&[("n", PLAIN), ("other", PLAIN)]);
    let own = pod("one", whole(8));
    let first = devices.place(&own, "other").unwrap();
    devices.place(&own, "n").unwrap();
    devices.see(&written(&own, &first, 3));
    assert_eq!((devices.held("n").len(), devices.held("other").len()), (1, 1));
    assert!(devices.accept_observed("one").holdings.contains("n"));
    assert_eq!((devices.held("n").len(), devices.held("other").len()), (0, 1));
    assert!(!devices.is_assumed("one"));
}

#[test]
fn observed_allocation_is_accepted_later_too() {
    let mut devices = cluster(&[("n", PLAIN), ("other", PLAIN)]);
    let own = pod("one", whole(8));
    let first = devices.place(&own, "other").unwrap();
    devices.place(&own, "n").unwrap();
    assert!(devices.accept_observed("one").is_empty());
    assert!(devices.is_assumed("one"));
    assert!(devices.see(&written(&own, &first, 3)).holdings.contains("n"));
    assert_eq!((devices.held("n").len(), devices.held("other").len()), (0, 1));
    assert!(!devices.is_assumed("one"));
}

#[test]
fn shared_claim_uses_the_assumed_node_not_the_old_one() {
    let mut devices = cluster(&[("n", PLAIN), ("other", PLAIN)]);
    let own = pod("one", whole(1));
    let first = devices.place(&own, "other").unwrap();
    devices.place(&own, "n").unwrap();
    devices.see(&written(&own, &first, 3));
    let ask = devices.ask(&user("two", &own.1)).unwrap();
    assert_eq!(allocating(&ask), Some("one"));
    assert!(devices.is_allowed(&ask, "n") && !devices.is_allowed(&ask, "other"));
}

#[test]
fn hardware_or_class_change_invalidates_feasibility() {
    let mut devices = cluster(&[("n", PLAIN), ("other", PLAIN)]);
    let (pod, claim) = pod("one", whole(8));
    devices.see(&claim);
    let ask = devices.ask(&pod).unwrap();
    let find = |devices: &Devices| devices.feasibility(&ask, devices.request_key(&ask), "n");
    assert_eq!(find(&devices), Feasibility::Feasible { list_score: 0 });
    assert_eq!(
        (find(&devices), devices.times_asked()),
        (Feasibility::Feasible { list_score: 0 }, 1)
    );
    for slice in super::fixtures::slices(PLAIN, "n") {
        devices.apply_slices(&Delta::Delete(slice));
    }
    assert_eq!(find(&devices), Feasibility::Never);
    for slice in super::fixtures::slices(PLAIN, "n") {
        devices.apply_slices(&Delta::Upsert(slice));
    }
    assert_eq!(find(&devices), Feasibility::Feasible { list_score: 0 });
    for class in super::fixtures::classes() {
        devices.apply_classes(&Delta::Delete(class));
    }
    assert_eq!(find(&devices), Feasibility::Invalid);
}

#[test]
fn what_an_empty_node_serves_is_known_while_pods_come_and_go() {
    let mut devices = cluster(&[("n", PLAIN)]);
    let holder = pod("holder", whole(1));
    devices.place(&holder, "n").expect("a device");
    let all = pod("all", whole(8));
    let more = pod("more", whole(9));
    let [all, more] = [&all, &more].map(|(pod, claim)| {
        devices.see(claim);
        devices.ask(pod).unwrap()
    });
    let find = |devices: &Devices, ask| devices.feasibility(ask, devices.request_key(ask), "n");
    assert_eq!(find(&devices, &all), Feasibility::Taken);
    assert_eq!(find(&devices, &more), Feasibility::Never);
    devices.forget("holder");
    let asked = devices.times_asked();
    assert_eq!(find(&devices, &more), Feasibility::Never);
    assert_eq!(devices.times_asked(), asked, "nothing that left could have helped");
    assert_eq!(find(&devices, &all), Feasibility::Feasible { list_score: 0 });
    for slice in super::fixtures::slices(PLAIN, "n") {
        devices.apply_slices(&Delta::Delete(slice));
    }
    assert_eq!(find(&devices, &all), Feasibility::Never);
}

#[test]
fn reserved_devices_of_a_nominated_pod_are_given_to_no_other() {
    let mut devices = cluster(&[("n", PLAIN)]);
    let victim = pod("victim", whole(8));
    devices.place(&victim, "n").expect("all devices");
    let nominated = pod("nominated", whole(8));
    devices.see(&nominated.1);
    let ask = devices.ask(&nominated.0).unwrap();
    let leaving = ["victim".into()].into();
    let allocation = devices.allocate_after(&ask, "n", None, &leaving, &[]).unwrap();
    let other = pod("other", whole(1));
    devices.see(&other.1);
    let other = devices.ask(&other.0).unwrap();
    devices.reserve_nominated(&allocation);
    devices.forget("victim");
    assert!(devices.allocate(&other, "n", None).is_err());
    assert!(devices.allocate_after(&other, "n", None, &leaving, &[]).is_err());
    let lenders = ["nominated".into()].into();
    assert!(devices.allocate_lent(&other, "n", &allocation.parts, &lenders).is_ok());
    devices.release_nominated("nominated");
    assert!(devices.allocate(&other, "n", None).is_ok());
    assert!(
        devices
            .allocate_after(&other, "n", None, &leaving, std::slice::from_ref(&allocation))
            .is_err()
    );
}

#[test]
fn claims_of_other_schedulers_hold_devices() {
    let mut devices = cluster(&[("n", PLAIN)]);
    let theirs = super::fixtures::written_claims();
    let theirs: Vec<Arc<Claim>> = theirs
        .into_iter()
        .map(|(mut claim, _)| {
            let results = &mut Arc::make_mut(&mut claim).claim.allocation.as_mut().unwrap().results;
            for result in results {
                result.pool = "n".to_owned();
            }
            claim
        })
        .collect();
    devices.apply_claims(&Delta::Replace(Kind::default(), theirs));
    let held: usize = devices.held("n").iter().map(|held| held.parts.len()).sum();
    assert_eq!(held, 6);
    assert!(devices.place(&pod("mine", whole(3)), "n").is_none());
    assert!(devices.place(&pod("mine", whole(2)), "n").is_some());
    devices.apply_claims(&Delta::Replace(Kind::default(), Vec::new()));
    // The claim is gone, and with it what was assumed for it.
    assert!(devices.held("n").is_empty());
}

#[test]
fn observed_allocation_by_others_counts_beside_the_assumed_one() {
    let mut devices = cluster(&[("a", PLAIN), ("b", PLAIN)]);
    let one = pod("one", whole(1));
    let ours = devices.place(&one, "a").unwrap();
    let mut theirs = Claim::clone(&one.1);
    let mut allocation = ours.claims[0].allocation.clone().unwrap().allocation;
    allocation.results[0].pool = "b".to_owned();
    theirs.claim.allocation = Some(allocation);
    let touched = devices.see(&Arc::new(theirs));
    assert!(touched.holdings.contains("b"));
    assert_eq!((devices.held("a").len(), devices.held("b").len()), (1, 1));
    // Its operation fails with a conflict.
    assert!(devices.forget("one").holdings.contains("a"));
    assert!(devices.held("a").is_empty());
    assert_eq!(devices.held("b")[0].parts.len(), 1);
}

#[test]
fn shared_claim_has_at_most_256_consumers() {
    let mut devices = cluster(&[("a", PLAIN), ("b", PLAIN)]);
    let shared = claim("shared", whole(1));
    devices.see(&shared);
    let first = user("u0", &shared);
    let ask = devices.ask(&first).unwrap();
    let pod_allocation = devices.allocate(&ask, "b", None).unwrap();
    devices.assume(&pod_allocation);

    // In flight: other pods may follow to its node, after that operation.
    let second = user("u1", &shared);
    let ask = devices.ask(&second).unwrap();
    assert_eq!(allocating(&ask), Some("u0"));
    assert!(!devices.is_allowed(&ask, "a") && devices.is_allowed(&ask, "b"));
    assert!(!ask.demand.is_some() && ask.is_exact);
    assert!(devices.allocate(&ask, "a", None).is_err());

    devices.bound("u0", [(shared.uid(), 5)].into());
    devices.see(&of_version(&seen(&pod_allocation.claims[0], &pod_ref(&first)), 5));
    assert_eq!(devices.held_alone_by("b", "u0").len(), 1);
    for number in 1..256 {
        let pod = user(&format!("u{number}"), &shared);
        let ask = devices.ask(&pod).unwrap();
        assert_eq!(allocating(&ask), None);
        let pod_allocation = devices.allocate(&ask, "b", None).unwrap();
        assert!(pod_allocation.claims[0].allocation.is_none() && pod_allocation.parts.is_empty());
        devices.assume(&pod_allocation);
    }
    assert_eq!(devices.held_alone_by("b", "u0"), [], "no single pod owns it any more");
    let late = user("late", &shared);
    assert!(matches!(devices.ask(&late), Err(AskError::TooManyConsumers { .. })));
    // A pod that is reserved already stays a consumer.
    let AskedClaim::Allocated { is_reserved, .. } = &devices.ask(&first).unwrap().claims[0] else {
        panic!("it is allocated")
    };
    assert!(is_reserved);
    devices.forget("u7");
    assert!(devices.ask(&late).is_ok());
}

#[test]
fn observed_extended_claim_replaces_the_assumed_one() {
    let mut devices = cluster(&[("n", PLAIN)]);
    let pod = super::fixtures::extended_pod("e", "nvidia.com/gpu", 3);
    let ask = devices.ask(&pod).unwrap();
    let pod_allocation = devices.allocate(&ask, "n", None).unwrap();
    devices.assume(&pod_allocation);
    assert_eq!(devices.held("n").len(), 1);
    let mut made = claim("e-extended-resources-x", Vec::new());
    let extended = pod_allocation.extended.as_ref().unwrap();
    let object = Arc::make_mut(&mut made);
    object.is_extended = true;
    object.meta.owner =
        Some(octavo_kube_io::objects::Owner { uid: "e".into(), ..Default::default() });
    object.claim.allocation = Some(extended.allocation.allocation.clone());
    // The claim of an earlier operation says nothing about this one.
    devices.bound("e", [("other".into(), 3)].into());
    devices.see(&of_version(&made, 4));
    assert!(devices.is_assumed("e"));
    devices.bound("e", [(made.uid(), 5)].into());
    devices.see(&of_version(&made, 5));
    let held = devices.held("n");
    assert_eq!((held.len(), held[0].parts.len(), held[0].is_assumed), (1, 3, false));
    assert!(!devices.is_assumed("e"));
    assert!(matches!(devices.ask(&pod), Err(AskError::LeftFromEarlierAttempt(_))));
    devices.apply_claims(&Delta::Delete(made));
    assert!(devices.ask(&pod).is_ok() && devices.held("n").is_empty());
}

/// An event of one of a few pods.
#[derive(Clone, Copy, Debug)]
enum Event {
    Place,
    Forget,
    SeeAllocated,
    Bound,
    SeeDeallocated,
    ClaimGone,
}

fn requests(kind: usize) -> Vec<octavo_dra::Request> {
    match kind % 6 {
        0 => whole(1),
        1 => whole(3),
        2 => shares(1, "30", "30Gi"),
        3 => shares(2, "0", "1Gi"),
        4 => instances(2, "1g.10gb"),
        _ => instances(1, "3g.40gb"),
    }
}

/// No device is allocated twice, by the engine's count of the parts and by the names of whole
/// devices.
fn check(devices: &Devices, node: &str) {
    let gpus = devices.gpus(node).unwrap();
    let model = &devices.models()[usize::from(gpus.model.0)];
    let mut free = vec![octavo_engine::GpuFree::idle(model); gpus.devices.gpus.len()];
    let all = devices.held(node);
    for held in &all {
        for part in &held.parts {
            let gpu = &mut free[usize::from(part.gpu)];
            *gpu = gpu.without(part).unwrap_or_else(|| panic!("{part:?} twice: {gpu:?}"));
        }
    }
    // What one pod holds is found without reading the holdings of others.
    for pod in all.iter().flat_map(|held| &held.pods) {
        let is_own = |held: &&HeldDevices| held.pods.len() == 1 && held.pods.contains(pod);
        let own: Vec<HeldDevices> = all.iter().filter(is_own).cloned().collect();
        assert_eq!(devices.held_alone_by(node, pod), own);
    }
    assert_eq!(devices.held_alone_by(node, "nobody"), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn no_device_is_allocated_twice_under_any_event_order(
        events in prop::collection::vec((0_usize..12, 0_usize..6, 0_usize..2), 1..60)
    ) {
        let nodes = ["n0", "n1"];
        let mut devices = cluster(&[("n0", MIG), ("n1", PLAIN)]);
        let pods: Vec<(Pod, Arc<Claim>)> =
            (0..12).map(|number| pod(&format!("p{number}"), requests(number))).collect();
        // What is assumed per pod with whether its operation has ended, and its observed claim.
        let mut assumed: BTreeMap<usize, (PodAllocation, bool)> = BTreeMap::new();
        let mut observed: BTreeMap<usize, Arc<Claim>> = BTreeMap::new();
        let mut version = 0;
        for (number, event, node) in events {
            let event = [
                Event::Place, Event::Forget, Event::SeeAllocated, Event::Bound,
                Event::SeeDeallocated, Event::ClaimGone,
            ][event];
            version += 1;
            let own = &pods[number];
            match event {
                Event::Place if !assumed.contains_key(&number) && !observed.contains_key(&number) => {
                    if let Some(allocation) = devices.place(own, nodes[node]) {
                        assumed.insert(number, (allocation, false));
                    }
                }
                Event::Place => {}
                Event::Forget => {
                    assumed.remove(&number);
                    devices.forget(&own.0.meta.uid);
                }
                Event::SeeAllocated => {
                    if let Some((allocation, has_ended)) = assumed.get(&number)
                        && !observed.contains_key(&number)
                    {
                        let claim = written(own, allocation, version);
                        devices.see(&claim);
                        observed.insert(number, claim);
                        if *has_ended {
                            assumed.remove(&number);
                        }
                    }
                }
                Event::Bound => {
                    if let Some((_, has_ended)) = assumed.get_mut(&number) {
                        let seen = observed.get(&number);
                        let of = seen.map_or(version + 1, |claim| claim.meta.version_number().unwrap());
                        devices.bound(&own.0.meta.uid, versions(own, of));
                        *has_ended = true;
                        if seen.is_some() {
                            assumed.remove(&number);
                        }
                    }
                }
                Event::SeeDeallocated => {
                    if let Some(claim) = observed.remove(&number) {
                        devices.see(&of_version(&deallocated(&claim), version));
                    }
                }
                Event::ClaimGone => {
                    assumed.remove(&number);
                    observed.remove(&number);
                    devices.apply_claims(&Delta::Delete(Arc::clone(&own.1)));
                }
            }
            for node in nodes {
                check(&devices, node);
            }
            let held: usize = nodes.iter().map(|node| devices.held(node).len()).sum();
            let holders: BTreeSet<_> = assumed.keys().chain(observed.keys()).collect();
            prop_assert_eq!(held, holders.len());
        }
    }
}
