use std::collections::BTreeMap;

use octavo_api::compute_domain::{ComputeDomainDaemon, Readiness};

use super::*;
use crate::store::{Fact, Key, Kind};
use crate::testing::{claim, domain, pod};

/// A domain whose members, in one clique, have written their entries.
fn with_entries(nodes: &[&str]) -> Server {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    for node in nodes {
        join(&mut server, node);
    }
    settle(&mut server, "a");
    for node in nodes {
        enter(&mut server, node);
    }
    server
}

fn join(server: &mut Server, node: &str) {
    server.put_node(node, Some("c"), None);
    server.put_claim(claim("a", node));
}

fn enter(server: &mut Server, node: &str) {
    server.put_pod(pod("a", node, node));
    change(server, |daemons| {
        daemons.push(ComputeDomainDaemon {
            node_name: node.to_owned(),
            ip_address: node.to_owned(),
            clique_id: "c".to_owned(),
            index: None,
            status: Readiness::NotReady,
        });
    });
}

fn leave(server: &mut Server, node: &str) {
    server.remove(&key(Kind::Claim, "team", &format!("claim-a-{node}")));
}

fn end_pod(server: &mut Server, node: &str) {
    server.remove(&key(Kind::Pod, "octavo", &format!("a-{node}")));
}

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn change(server: &mut Server, change: impl FnOnce(&mut Vec<ComputeDomainDaemon>)) {
    let mut clique = server.clique("a.c").unwrap();
    change(&mut clique.daemons);
    server.put(key(Kind::Clique, "octavo", "a.c"), Fact::Clique(clique));
}

fn indices(server: &Server) -> BTreeMap<String, Option<i64>> {
    let daemons = server.clique("a.c").unwrap().daemons.into_iter();
    daemons.map(|daemon| (daemon.node_name, daemon.index)).collect()
}

fn wanted(pairs: &[(&str, Option<i64>)]) -> BTreeMap<String, Option<i64>> {
    pairs.iter().map(|(node, index)| ((*node).to_owned(), *index)).collect()
}

#[test]
fn waiting_nodes_get_the_lowest_free_indices_in_order_of_names() {
    let mut server = with_entries(&["m", "z", "b"]);
    settle(&mut server, "a");
    assert_eq!(indices(&server), wanted(&[("b", Some(0)), ("m", Some(1)), ("z", Some(2))]));
}

#[test]
fn a_node_without_entry_waits_for_its_daemon() {
    let mut server = with_entries(&["b"]);
    join(&mut server, "c");
    let writes = plan_of(&mut server, "a").writes;
    let given = writes.iter().find_map(|write| match write {
        Write::AssignIndices { changes, .. } => Some(changes.clone()),
        _ => None,
    });
    let change = IndexChange { position: 0, node: "b".to_owned(), index: Some(0) };
    assert_eq!(given, Some(vec![change]));
}

#[test]
fn an_index_is_free_only_when_its_node_is_no_member_and_its_daemon_is_gone() {
    let mut server = with_entries(&["b", "c"]);
    settle(&mut server, "a");
    join(&mut server, "a");
    enter(&mut server, "a");
    leave(&mut server, "b");
    settle(&mut server, "a");
    let before = wanted(&[("a", Some(2)), ("b", Some(0)), ("c", Some(1))]);
    assert_eq!(indices(&server), before);
    end_pod(&mut server, "b");
    settle(&mut server, "a");
    assert_eq!(indices(&server), wanted(&[("a", Some(2)), ("c", Some(1))]));
    join(&mut server, "d");
    enter(&mut server, "d");
    settle(&mut server, "a");
    assert_eq!(indices(&server)["d"], Some(0));
}

#[test]
fn a_member_without_daemon_keeps_entry_and_index() {
    let mut server = with_entries(&["b"]);
    settle(&mut server, "a");
    end_pod(&mut server, "b");
    settle(&mut server, "a");
    assert_eq!(indices(&server), wanted(&[("b", Some(0))]));
}

#[test]
fn further_nodes_get_no_index_and_the_domain_says_so() {
    let mut server = with_entries(&["a", "b", "c", "d", "e", "f"]);
    let plan = settle(&mut server, "a");
    assert_eq!((indices(&server)["d"], indices(&server)["e"]), (Some(3), None));
    assert_eq!(plan.warnings[0].reason, Reason::CliqueFull);
    let ready = server.domain("domain-a").unwrap().status.unwrap().conditions[0].clone();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "CliqueFull"));
    assert!(ready.message.contains("e, f"), "{}", ready.message);
    leave(&mut server, "b");
    end_pod(&mut server, "b");
    settle(&mut server, "a");
    assert_eq!((indices(&server)["e"], indices(&server)["f"]), (Some(1), None));
}

#[test]
fn of_two_equal_indices_a_member_keeps_it() {
    let mut server = with_entries(&["b", "c"]);
    enter(&mut server, "a-guest");
    change(&mut server, |daemons| daemons.iter_mut().for_each(|daemon| daemon.index = Some(3)));
    settle(&mut server, "a");
    let after = wanted(&[("a-guest", None), ("b", Some(3)), ("c", Some(0))]);
    assert_eq!(indices(&server), after);
}

#[test]
fn an_entry_that_changed_meanwhile_is_not_removed() {
    let mut server = with_entries(&["b", "c"]);
    settle(&mut server, "a");
    leave(&mut server, "b");
    end_pod(&mut server, "b");
    let plan = plan_of(&mut server, "a");
    let removal = plan.writes.iter().find(|write| matches!(write, Write::RemoveEntries { .. }));
    change(&mut server, |daemons| daemons.rotate_left(1));
    server.write(removal.unwrap()).unwrap_err();
    assert_eq!(indices(&server).len(), 2);
}

#[test]
fn an_index_decided_on_older_indices_is_refused_and_other_writes_do_not_disturb_it() {
    let mut server = with_entries(&["b"]);
    let plan = plan_of(&mut server, "a");
    let assignment = plan.writes.iter().find(|it| matches!(it, Write::AssignIndices { .. }));
    let older = assignment.unwrap();
    join(&mut server, "a");
    enter(&mut server, "a");
    server.clone().write(older).unwrap();
    settle(&mut server, "a");
    assert_eq!(indices(&server), wanted(&[("a", Some(0)), ("b", Some(1))]));
    server.write(older).unwrap_err();
}

#[test]
fn the_entry_in_a_clique_that_the_node_left_is_removed_once_it_is_in_another() {
    let mut server = with_entries(&["b"]);
    settle(&mut server, "a");
    server.put_node("b", Some("d"), Some("a"));
    settle(&mut server, "a");
    assert_eq!(indices(&server).len(), 1);
    let mut other = server.clique("a.d").unwrap();
    other.daemons = server.clique("a.c").unwrap().daemons;
    (other.daemons[0].index, other.daemons[0].ip_address) = (None, "new".to_owned());
    server.put_pod(pod("a", "b", "new"));
    server.put(key(Kind::Clique, "octavo", "a.d"), Fact::Clique(other));
    settle(&mut server, "a");
    assert_eq!(indices(&server).len(), 0);
    assert_eq!(server.clique("a.d").unwrap().daemons[0].index, Some(0));
}
