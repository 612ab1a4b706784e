//! The minimum of gangs in the condition `MembersReady`.

use std::collections::BTreeSet;

use octavo_api::Condition;
use octavo_api::imex::ImexMode;
use octavo_kube_io::objects::{Meta, ObjectName, WatchedObject};
use serde_json::json;

use super::*;
use crate::config::Config;
use crate::gangs::{GangKind, GangName, PodGang};
use crate::store::{self, Change};
use crate::testing::{claim, domain};
use crate::view::{ChannelClaim, ClaimPod};

/// Nodes are ready at once here, so only gangs count.
fn of_host() -> Config {
    let mut config = config();
    config.imex.mode = ImexMode::HostManaged;
    config
}

fn pod(number: usize) -> ClaimPod {
    let name = format!("p{number}");
    ClaimPod { uid: format!("uid-{name}"), namespace: "team".to_owned(), name }
}

/// A domain with a claim on each of so many nodes, each of a pod of its own.
fn domain_with_pods(count: usize) -> Server {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    for number in 0..count {
        let claim = claim("a", &format!("n{number}"));
        server.put_claim(ChannelClaim { pods: vec![pod(number)], ..claim });
    }
    server
}

fn gang(minimum: Option<u32>) -> PodGang {
    let (namespace, name) = ("team".to_owned(), "train".to_owned());
    PodGang { name: GangName { kind: GangKind::PodGroup, namespace, name }, minimum }
}

fn pod_read(number: usize, gang: Option<PodGang>) -> Change {
    Change::PodRead { uid: pod(number).uid, gang }
}

/// The object of the gang.
fn group(minimum: u32) -> Change {
    let meta = Meta { name: ObjectName::new("team", "train"), ..Meta::default() };
    let object = WatchedObject {
        api_version: "octavo.dev/v1alpha1".to_owned(),
        kind: "PodGroup".to_owned(),
        meta,
        spec: json!({"minMember": minimum}),
        ..WatchedObject::default()
    };
    Change::Put(store::gang(&object).unwrap())
}

/// The condition after a plan; `None` if the plan has no status.
fn members_ready(store: &Store) -> Option<Condition> {
    let Some(Write::SetStatus { status, .. }) = plan(&store.view("a"), &of_host()).status else {
        return None;
    };
    let mut conditions = status.conditions.into_iter();
    conditions.find(|condition| condition.type_ == "MembersReady")
}

#[test]
fn members_are_not_ready_while_a_gang_lacks_pods_with_a_channel() {
    let mut server = domain_with_pods(2);
    let mut store = observe_with(&server, &of_host());
    store.apply(group(3));
    for number in 0..2 {
        store.apply(pod_read(number, Some(gang(None))));
    }
    let condition = members_ready(&store).unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "GangIncomplete"));
    assert_eq!(condition.message, "2 of 3 pods of PodGroup team/train have a channel.");
    let ready = plan(&store.view("a"), &of_host()).status.unwrap();
    let Write::SetStatus { status, .. } = ready else { panic!() };
    assert_eq!(status.conditions[0].status, "True", "Ready is of the nodes alone");
    server.events.clear();
    server.put_claim(ChannelClaim { pods: vec![pod(2)], ..claim("a", "n2") });
    let concerned: BTreeSet<String> =
        server.events.into_values().flatten().flat_map(|change| store.apply(change)).collect();
    assert!(concerned.contains("a"));
    assert_eq!(members_ready(&store), None, "the pod is being read");
    assert!(store.apply(pod_read(2, Some(gang(None)))).contains("a"));
    assert_eq!(members_ready(&store).unwrap().reason, "HostManaged");
}

#[test]
fn a_minimum_that_changes_concerns_the_domains_of_its_pods() {
    let mut store = observe_with(&domain_with_pods(2), &of_host());
    for number in 0..2 {
        store.apply(pod_read(number, Some(gang(None))));
    }
    // A gang that is not known has no minimum.
    assert_eq!(members_ready(&store).unwrap().reason, "HostManaged");
    assert!(store.apply(group(5)).contains("a"));
    assert_eq!(members_ready(&store).unwrap().reason, "GangIncomplete");
    assert!(store.apply(group(2)).contains("a"));
    assert_eq!(members_ready(&store).unwrap().reason, "HostManaged");
}

#[test]
fn the_pods_own_number_counts_and_pods_of_no_gang_do_not() {
    let mut store = observe_with(&domain_with_pods(3), &of_host());
    store.apply(pod_read(0, None));
    for number in 1..3 {
        store.apply(pod_read(number, Some(gang(Some(4)))));
    }
    let message = members_ready(&store).unwrap().message;
    assert!(message.starts_with("2 of 4 pods"), "{message}");
}

#[test]
fn a_pod_is_read_once_and_forgotten_with_its_last_claim() {
    let mut server = domain_with_pods(1);
    let mut store = observe_with(&server, &of_host());
    assert_eq!(store.take_unread(), [pod(0)]);
    store.apply(pod_read(0, None));
    server.events.clear();
    let claim = ChannelClaim { pods: vec![pod(0)], ..claim("a", "n0") };
    server.put_claim(ChannelClaim { is_annotated: false, ..claim.clone() });
    server.put_claim(ChannelClaim { name: "another".to_owned(), ..claim });
    for change in std::mem::take(&mut server.events).into_values().flatten() {
        store.apply(change);
    }
    assert_eq!(store.take_unread(), []);
    assert!(!store.view("a").is_reading);
}
