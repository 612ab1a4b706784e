use super::*;
use crate::store::{Key, Kind};
use crate::testing::{claim, domain, object, pod};
use crate::view::OwnedKind;

fn running() -> Server {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_node("n", Some("c"), None);
    server.put_claim(claim("a", "n"));
    settle(&mut server, "a");
    server.put_pod(pod("a", "n", "1"));
    server
}

fn remove(server: &mut Server, kind: Kind, namespace: &str, name: &str) {
    server.remove(&Key { kind, namespace: namespace.to_owned(), name: name.to_owned() });
}

#[test]
fn while_claims_are_allocated_only_the_pods_template_goes() {
    let mut server = running();
    server.delete_domain("domain-a");
    settle(&mut server, "a");
    assert!(server.fact(Kind::Template, "team", "template-a").is_none());
    assert!(server.fact(Kind::Template, "octavo", "computedomain-daemon-a").is_some());
    assert!(server.fact(Kind::DaemonSet, "octavo", "computedomain-daemon-a").is_some());
    assert_eq!(server.node_label("n").as_deref(), Some("a"));
    let domain = server.domain("domain-a").unwrap();
    assert!(domain.has_finalizer());
    let ready = domain.status.unwrap().conditions[0].clone();
    assert_eq!((ready.reason.as_str(), ready.observed_generation), ("Deleting", Some(2)));
    assert!(ready.message.contains('n'), "{}", ready.message);
}

#[test]
fn the_end_comes_in_order_and_the_finalizer_is_last() {
    let mut server = running();
    server.delete_domain("domain-a");
    remove(&mut server, Kind::Claim, "team", "claim-a-n");
    let mut order = Vec::new();
    for _ in 0..20 {
        let plan = plan_of(&mut server, "a");
        if let [write, ..] = &plan.writes[..] {
            order.push(match write {
                Write::LabelNode { .. } => "label",
                Write::Delete(OwnedObject { kind: OwnedKind::DaemonSet, .. }) => "daemons",
                Write::Delete(OwnedObject { kind: OwnedKind::Template, .. }) => "templates",
                Write::Delete(OwnedObject { kind: OwnedKind::Clique, .. }) => "cliques",
                Write::SetFinalizers { .. } => "finalizer",
                other => panic!("{other:?}"),
            });
            plan.writes.iter().for_each(|write| drop(server.write(write).unwrap()));
        } else if !server.pods().is_empty() {
            // A running daemon would write its entry again, so the cliques wait for it.
            assert_eq!(order.last(), Some(&"templates"));
            remove(&mut server, Kind::Pod, "octavo", "a-n");
        }
    }
    assert_eq!(order, ["label", "daemons", "templates", "cliques", "finalizer"]);
    assert_eq!(server.objects.len(), 1, "{:?}", server.objects.keys());
}

#[test]
fn finalizers_of_others_stay() {
    let mut server = Server::default();
    let mut shared = domain("a");
    shared.finalizers.push("other".to_owned());
    server.put_domain(shared);
    server.delete_domain("domain-a");
    settle(&mut server, "a");
    assert_eq!(server.domain("domain-a").unwrap().finalizers, ["other"]);
}

#[test]
fn objects_of_a_domain_that_does_not_exist_are_removed() {
    let mut server = running();
    server.put_template(object(OwnedKind::Template, "team", "free", None));
    remove(&mut server, Kind::Domain, "team", "domain-a");
    // The pods of a domain that was removed by force run on.
    settle(&mut server, "a");
    assert!(server.fact(Kind::Template, "team", "template-a").is_none());
    assert!(server.fact(Kind::DaemonSet, "octavo", "computedomain-daemon-a").is_some());
    assert_eq!(server.node_label("n").as_deref(), Some("a"));
    remove(&mut server, Kind::Claim, "team", "claim-a-n");
    settle(&mut server, "a");
    remove(&mut server, Kind::Pod, "octavo", "a-n");
    settle(&mut server, "a");
    assert_eq!(server.node_label("n"), None);
    let left: Vec<_> = server.objects.keys().map(|key| key.name.as_str()).collect();
    assert_eq!(left, ["n", "free"]);
}
