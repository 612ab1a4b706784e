use super::*;
use crate::testing::{claim, domain};

fn labels(server: &mut Server, uid: &str) -> Vec<(String, Option<String>)> {
    let writes = plan_of(server, uid).writes.into_iter();
    let labels = writes.filter_map(|write| match write {
        Write::LabelNode { node, domain, .. } => Some((node, domain)),
        _ => None,
    });
    labels.collect()
}

fn given(node: &str, uid: &str) -> Vec<(String, Option<String>)> {
    vec![(node.to_owned(), Some(uid.to_owned()))]
}

#[test]
fn a_node_with_an_allocated_channel_gets_the_label() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_node("n", None, None);
    assert!(labels(&mut server, "a").is_empty());
    server.put_claim(claim("a", "n"));
    server.put_claim(claim("a", "node-that-is-unknown"));
    assert_eq!(labels(&mut server, "a"), given("n", "a"));
    settle(&mut server, "a");
    assert_eq!(server.node_label("n").as_deref(), Some("a"));
}

#[test]
fn a_label_without_claim_is_removed_or_goes_to_the_domain_with_one() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_domain(domain("b"));
    server.put_node("free", None, Some("a"));
    server.put_node("moved", None, Some("a"));
    server.put_claim(claim("b", "moved"));
    assert_eq!(labels(&mut server, "a"), [("free".to_owned(), None)]);
    assert_eq!(labels(&mut server, "b"), given("moved", "b"));
}

#[test]
fn of_two_domains_with_claims_the_present_one_keeps_the_node() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_domain(domain("b"));
    server.put_node("n", None, Some("b"));
    server.put_claim(claim("a", "n"));
    server.put_claim(claim("b", "n"));
    assert!(labels(&mut server, "a").is_empty());
    assert!(labels(&mut server, "b").is_empty());
    server.put_node("n", None, None);
    assert_eq!(labels(&mut server, "a"), given("n", "a"));
    assert!(labels(&mut server, "b").is_empty());
}

#[test]
fn the_label_of_a_domain_that_does_not_exist_goes_unless_a_claim_of_it_remains() {
    let mut server = Server::default();
    server.put_node("used", None, Some("gone"));
    server.put_node("free", None, Some("gone"));
    server.put_claim(claim("gone", "used"));
    assert_eq!(labels(&mut server, "gone"), [("free".to_owned(), None)]);
    // A domain that exists comes first.
    server.put_domain(domain("b"));
    server.put_claim(claim("b", "used"));
    assert_eq!(labels(&mut server, "b"), given("used", "b"));
}

#[test]
fn a_claim_of_another_namespace_is_no_member_and_is_warned_about() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_node("n", None, None);
    let mut foreign = claim("a", "n");
    foreign.namespace = "other".to_owned();
    foreign.is_annotated = false;
    server.put_claim(foreign);
    let plan = settle(&mut server, "a");
    assert_eq!(server.node_label("n"), None);
    assert_eq!(server.domain("domain-a").unwrap().status.unwrap().nodes, []);
    let [warning] = &plan.warnings[..] else { panic!("{:?}", plan.warnings) };
    assert_eq!(warning.reason, Reason::ForeignNamespace);
    assert!(
        matches!(&warning.regarding, Regarding::Claim { namespace, .. } if namespace == "other")
    );
    assert!(warning.note.contains("UID a") && warning.note.contains("namespace other"));
    assert!(!warning.note.contains("team") && !warning.note.contains("domain-a"));
    // It does not hold the node against a domain of its own.
    server.put_domain(domain("b"));
    server.put_claim(claim("b", "n"));
    assert_eq!(labels(&mut server, "b"), given("n", "b"));
}

#[test]
fn claims_without_annotation_get_it() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    let mut by_hand = claim("a", "n");
    by_hand.is_annotated = false;
    server.put_claim(by_hand);
    server.put_claim(claim("a", "m"));
    let writes = plan_of(&mut server, "a").writes;
    let annotated: Vec<_> = writes
        .iter()
        .filter_map(|write| match write {
            Write::AnnotateClaim { name, domain, .. } => Some((name.as_str(), domain.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(annotated, [("claim-a-n", "team/domain-a")]);
}
