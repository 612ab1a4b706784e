use octavo_api::Condition;
use octavo_api::compute_domain::{ComputeDomainDaemon, ComputeDomainStatus, Readiness};

use super::*;
use crate::store::{Fact, Key, Kind};
use crate::testing::{claim, domain, pod};
use crate::view::{DaemonPod, Domain};

fn status(server: &Server, name: &str) -> ComputeDomainStatus {
    server.domain(name).unwrap().status.unwrap()
}

fn condition(server: &Server, type_: &str) -> Condition {
    let status = status(server, "domain-a");
    status.conditions.into_iter().find(|condition| condition.type_ == type_).unwrap()
}

fn enter(server: &mut Server, node: &str, status: Readiness) {
    let mut clique = server.clique("a.c").unwrap();
    clique.daemons.retain(|daemon| daemon.node_name != node);
    clique.daemons.push(ComputeDomainDaemon {
        node_name: node.to_owned(),
        ip_address: format!("ip-{node}"),
        clique_id: "c".to_owned(),
        index: None,
        status,
    });
    let key = Key { kind: Kind::Clique, namespace: "octavo".to_owned(), name: "a.c".to_owned() };
    server.put(key, Fact::Clique(clique));
    server.put_pod(pod("a", node, &format!("ip-{node}")));
}

fn two_nodes(num_nodes: i64) -> Server {
    let mut server = Server::default();
    server.put_domain(Domain { num_nodes, ..domain("a") });
    for node in ["n", "m"] {
        server.put_node(node, Some("c"), None);
        server.put_claim(claim("a", node));
    }
    settle(&mut server, "a");
    server
}

#[test]
fn a_domain_without_nodes_is_not_ready() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    settle(&mut server, "a");
    assert_eq!(status(&server, "domain-a").status, Readiness::NotReady);
    for type_ in ["Ready", "MembersReady"] {
        let found = condition(&server, type_);
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "NoNodes"));
        assert_eq!(found.observed_generation, Some(1));
    }
    assert_eq!(status(&server, "domain-a").conditions.len(), 2);
}

#[test]
fn nodes_are_sorted_and_have_what_their_entries_say() {
    let mut server = two_nodes(0);
    let waiting = status(&server, "domain-a");
    assert_eq!(waiting.nodes[0].name, "m");
    assert_eq!(waiting.nodes[0].clique_id, "c");
    assert_eq!((waiting.nodes[0].index, waiting.nodes[0].status), (None, Readiness::NotReady));
    enter(&mut server, "n", Readiness::Ready);
    settle(&mut server, "a");
    let one = status(&server, "domain-a");
    assert_eq!((one.nodes[1].ip_address.as_str(), one.nodes[1].index), ("ip-n", Some(0)));
    assert_eq!(one.status, Readiness::NotReady);
    assert_eq!(condition(&server, "Ready").reason, "NodesNotReady");
    let message = condition(&server, "MembersReady").message;
    assert!(message.starts_with("1 of 2 nodes are not ready: m."), "{message}");
    enter(&mut server, "m", Readiness::Ready);
    settle(&mut server, "a");
    assert_eq!(status(&server, "domain-a").status, Readiness::Ready);
    assert_eq!(condition(&server, "Ready").reason, "AllNodesReady");
}

#[test]
fn the_time_of_a_condition_changes_with_its_status_only() {
    let mut server = two_nodes(0);
    let before = condition(&server, "Ready");
    assert!(!before.last_transition_time.is_empty());
    enter(&mut server, "n", Readiness::Ready);
    settle(&mut server, "a");
    let same = condition(&server, "Ready");
    assert_ne!(same.message, before.message);
    assert_eq!(same.last_transition_time, before.last_transition_time);
    enter(&mut server, "m", Readiness::Ready);
    settle(&mut server, "a");
    assert_ne!(condition(&server, "Ready").last_transition_time, before.last_transition_time);
}

#[test]
fn fewer_nodes_than_asked_for_concern_ready_alone() {
    let mut server = two_nodes(3);
    enter(&mut server, "n", Readiness::Ready);
    enter(&mut server, "m", Readiness::Ready);
    settle(&mut server, "a");
    assert_eq!(status(&server, "domain-a").status, Readiness::NotReady);
    let ready = condition(&server, "Ready");
    assert_eq!(ready.reason, "FewerNodesThanNumNodes");
    assert!(ready.message.starts_with("2 of 3 nodes"), "{}", ready.message);
    assert_eq!(condition(&server, "MembersReady").status, "True");
}

#[test]
fn a_node_without_fabric_is_as_ready_as_its_daemons_pod() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_node("n", None, None);
    server.put_claim(claim("a", "n"));
    settle(&mut server, "a");
    assert_eq!(status(&server, "domain-a").nodes[0].status, Readiness::NotReady);
    server.put_pod(pod("a", "n", "10.0.0.1"));
    settle(&mut server, "a");
    let node = status(&server, "domain-a").nodes[0].clone();
    assert_eq!((node.ip_address.as_str(), node.clique_id.as_str()), ("10.0.0.1", ""));
    assert_eq!((node.index, node.status), (None, Readiness::Ready));
}

#[test]
fn the_entry_of_an_earlier_daemon_does_not_make_a_node_ready() {
    let mut server = two_nodes(0);
    enter(&mut server, "n", Readiness::Ready);
    for lost in [
        pod("a", "n", "another-address"),
        DaemonPod { is_lost: true, ..pod("a", "n", "ip-n") },
        DaemonPod { is_deleting: true, ..pod("a", "n", "ip-n") },
    ] {
        server.put_pod(lost);
        settle(&mut server, "a");
        assert_eq!(status(&server, "domain-a").nodes[1].status, Readiness::NotReady);
    }
}

#[test]
fn a_message_has_five_names_at_most() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    for number in 0..8 {
        server.put_claim(claim("a", &format!("n{number}")));
    }
    settle(&mut server, "a");
    let message = condition(&server, "Ready").message;
    assert!(
        message.contains("8 of 8 nodes are not ready: n0, n1, n2, n3, n4 and 3 more."),
        "{message}"
    );
}

#[test]
fn a_shared_clique_names_the_other_domain_until_it_leaves() {
    let mut server = two_nodes(0);
    server.put_domain(domain("b"));
    server.put_node("k", Some("c"), None);
    server.put_claim(claim("b", "k"));
    settle(&mut server, "a");
    let shared = condition(&server, "SharedClique");
    assert_eq!((shared.status.as_str(), shared.reason.as_str()), ("True", "OtherDomain"));
    assert!(shared.message.contains("team/domain-b"), "{}", shared.message);
    // Domains of other namespaces are counted.
    server.put_domain(Domain { namespace: "secret".to_owned(), ..domain("c") });
    server.put_node("l", Some("c"), None);
    server.put_claim(ChannelClaim { namespace: "secret".to_owned(), ..claim("c", "l") });
    settle(&mut server, "a");
    let message = condition(&server, "SharedClique").message;
    assert!(message.ends_with("team/domain-b, and 1 of other namespaces."), "{message}");
    for (namespace, name) in [("team", "claim-b-k"), ("secret", "claim-c-l")] {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        server.remove(&Key { kind: Kind::Claim, namespace, name });
    }
    settle(&mut server, "a");
    assert_eq!(condition(&server, "SharedClique").status, "False");
}

#[test]
fn conditions_of_other_programs_stay() {
    let mut server = two_nodes(0);
    let mut domain = server.domain("domain-a").unwrap();
    let other = Condition {
        type_: "Quota".to_owned(),
        status: "True".to_owned(),
        last_transition_time: "then".to_owned(),
        ..Condition::default()
    };
    domain.status.as_mut().unwrap().conditions.insert(0, other.clone());
    server.put_domain(domain);
    settle(&mut server, "a");
    assert_eq!(condition(&server, "Quota"), other);
}
