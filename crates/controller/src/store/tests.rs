mod facts;

use super::*;
use crate::testing::{Server, claim, domain, object, pod, read};
use crate::view::OwnedKind;

fn uids(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|uid| (*uid).to_owned()).collect()
}

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn observed(version: u64, uid: &str, label: Option<&str>) -> Observed {
    Observed {
        key: key(Kind::Node, "", "n"),
        uid: uid.to_owned(),
        resource_version: version.to_string(),
        fact: Some(Fact::Node { clique: None, label: label.map(str::to_owned), is_lost: false }),
    }
}

fn label(store: &Store) -> Option<String> {
    match &store.node("n")?.fact {
        Fact::Node { label, .. } => label.clone(),
        _ => None,
    }
}

/// The store after all changes, and which domains the last ones concern.
fn changed(store: &mut Store, server: &mut Server) -> BTreeSet<String> {
    let events = std::mem::take(&mut server.events).into_values().flatten();
    events.flat_map(|change| store.apply(change)).collect()
}

#[test]
fn an_older_version_does_not_undo_a_newer_one() {
    let mut store = read([]);
    assert_eq!(store.apply_own(Change::Put(observed(10, "u", Some("a")))), uids(&["a"]));
    assert_eq!(store.apply(Change::Put(observed(9, "u", None))), uids(&[]));
    assert_eq!(label(&store).as_deref(), Some("a"));
    // 11 comes after 10 and 9, though not as text.
    assert_eq!(store.apply(Change::Put(observed(11, "u", None))), uids(&["a"]));
    assert_eq!(label(&store), None);
}

#[test]
fn a_change_that_does_not_matter_concerns_no_domain_and_updates_the_version() {
    let mut store = read([Change::Put(observed(1, "u", Some("a")))]);
    assert_eq!(store.apply(Change::Put(observed(3, "u", Some("a")))), uids(&[]));
    // One between the two is older.
    assert_eq!(store.apply(Change::Put(observed(2, "u", None))), uids(&[]));
    assert_eq!(label(&store).as_deref(), Some("a"));
}

#[test]
fn what_a_write_deleted_does_not_return_with_an_older_event() {
    let mut store = read([Change::Put(observed(1, "u", Some("a")))]);
    assert_eq!(store.apply_own(Change::Gone(observed(1, "u", None))), uids(&["a"]));
    store.apply(Change::Put(observed(2, "u", Some("a"))));
    assert_eq!(label(&store), None);
    // Another object of the same name is not that one, and the late event of the deletion is not its own.
    store.apply(Change::Put(observed(5, "v", Some("b"))));
    store.apply(Change::Gone(observed(3, "u", None)));
    assert_eq!(label(&store).as_deref(), Some("b"));
}

#[test]
fn a_list_removes_what_it_lacks_and_keeps_what_was_written_meanwhile() {
    let mut server = Server::default();
    server.put_claim(claim("a", "old"));
    let mut store = read(server.events.remove(&Kind::Claim).unwrap());
    store.apply(Change::Begin(Kind::Claim));
    server.put_claim(claim("b", "new"));
    store.apply_own(server.events.remove(&Kind::Claim).unwrap().remove(0));
    assert_eq!(store.apply(Change::End(Kind::Claim)), uids(&["a"]));
    assert_eq!(store.all_uids(), uids(&["b"]));
}

#[test]
fn nothing_is_complete_before_every_kind_was_listed() {
    let mut store = Store::default();
    for kind in KINDS {
        assert!(!store.is_complete());
        store.apply(Change::Begin(kind));
        store.apply(Change::End(kind));
    }
    assert!(store.is_complete());
}

#[test]
fn a_change_concerns_the_domains_of_its_node_clique_label_and_name() {
    let (mut server, mut store) = (Server::default(), read([]));
    server.put_domain(domain("a"));
    server.put_domain(domain("b"));
    server.put_node("n", Some("c"), None);
    server.put_node("m", Some("c"), None);
    server.put_claim(claim("a", "n"));
    assert_eq!(changed(&mut store, &mut server), uids(&["a", "b"]));
    server.put_claim(claim("b", "m"));
    assert_eq!(changed(&mut store, &mut server), uids(&["a", "b"]));
    server.put_pod(pod("a", "n", "1"));
    assert_eq!(changed(&mut store, &mut server), uids(&["a"]));
    server.put_node("x", None, Some("old"));
    assert_eq!(changed(&mut store, &mut server), uids(&["old"]));
    server.put_node("x", None, Some("new"));
    assert_eq!(changed(&mut store, &mut server), uids(&["new", "old"]));
    server.put_template(object(OwnedKind::Template, "team", "template-b", None));
    assert_eq!(changed(&mut store, &mut server), uids(&["b"]));
    // The status of a domain concerns it alone; its end, its neighbours.
    let changed_status = crate::view::Domain { num_nodes: 3, ..server.domain("domain-a").unwrap() };
    server.put_domain(changed_status);
    assert_eq!(changed(&mut store, &mut server), uids(&["a"]));
    server.remove(&key(Kind::Domain, "team", "domain-a"));
    assert_eq!(changed(&mut store, &mut server), uids(&["a", "b"]));
    server.put_domain(domain("a"));
    assert_eq!(changed(&mut store, &mut server), uids(&["a", "b"]));
}

#[test]
fn a_daemon_is_lost_with_its_node() {
    let node = |is_lost| Observed {
        fact: Some(Fact::Node { clique: None, label: Some("a".to_owned()), is_lost }),
        ..observed(if is_lost { 2 } else { 1 }, "u", None)
    };
    let daemon = Observed {
        key: key(Kind::Pod, "octavo-system", "d"),
        uid: "p".to_owned(),
        resource_version: "1".to_owned(),
        fact: Some(Fact::Pod(pod("a", "n", "ip"))),
    };
    let mut store = read([Change::Put(node(false)), Change::Put(daemon)]);
    assert!(!store.view("a").pods[0].is_lost);
    assert_eq!(store.apply(Change::Put(node(true))), uids(&["a"]));
    assert!(store.view("a").pods[0].is_lost);
    // The node is removed before its pod.
    store.apply(Change::Gone(node(true)));
    assert!(store.view("a").pods[0].is_lost);
}
