//! `imex.mode: hostManaged`.

use octavo_api::compute_domain::{ComputeDomainNode, ComputeDomainStatus, Readiness};
use octavo_api::imex::ImexMode;

use super::*;
use crate::config::Config;
use crate::store::{Fact, Key, Kind};
use crate::testing::{claim, domain, pod};

fn of_host() -> Config {
    let mut config = config();
    config.imex.mode = ImexMode::HostManaged;
    config
}

fn settle(server: &mut Server) {
    settle_with(server, "a", &of_host());
}

fn status(server: &Server) -> ComputeDomainStatus {
    server.domain("domain-a").unwrap().status.unwrap()
}

fn reasons(server: &Server) -> Vec<(String, String, String)> {
    let conditions = status(server).conditions.into_iter();
    conditions.map(|it| (it.type_, it.status, it.reason)).collect()
}

fn kinds(server: &Server) -> Vec<Kind> {
    server.objects.keys().map(|key| key.kind).collect()
}

#[test]
fn a_domain_is_ready_once_admitted_and_has_the_pods_template_alone() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    settle(&mut server);
    assert_eq!(kinds(&server), [Kind::Domain, Kind::Template]);
    assert!(server.fact(Kind::Template, "team", "template-a").is_some());
    assert_eq!((status(&server).status, status(&server).nodes), (Readiness::Ready, Vec::new()));
    let ready = |type_: &str| (type_.to_owned(), "True".to_owned(), "HostManaged".to_owned());
    assert_eq!(reasons(&server), [ready("Ready"), ready("MembersReady")]);
}

#[test]
fn members_are_ready_with_their_clique_and_without_an_index() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_node("n", Some("c"), None);
    server.put_node("m", None, None);
    for node in ["n", "m"] {
        server.put_claim(claim("a", node));
    }
    settle(&mut server);
    let node = |name: &str, clique: &str| ComputeDomainNode {
        name: name.to_owned(),
        clique_id: clique.to_owned(),
        status: Readiness::Ready,
        ..ComputeDomainNode::default()
    };
    assert_eq!(status(&server).nodes, [node("m", ""), node("n", "c")]);
    assert_eq!(server.node_label("n"), None);
    assert!(server.clique("a.c").is_none());
}

#[test]
fn the_daemons_of_an_earlier_setting_go_and_the_pods_template_stays() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_node("n", Some("c"), None);
    server.put_claim(claim("a", "n"));
    super::settle(&mut server, "a");
    server.put_pod(pod("a", "n", "1"));
    assert!(server.clique("a.c").is_some());
    settle(&mut server);
    assert_eq!(server.node_label("n"), None);
    let key = Key { kind: Kind::Pod, namespace: "octavo".to_owned(), name: "a-n".to_owned() };
    server.remove(&key);
    settle(&mut server);
    assert_eq!(kinds(&server), [Kind::Domain, Kind::Claim, Kind::Node, Kind::Template]);
    assert!(matches!(
        server.fact(Kind::Template, "team", "template-a"),
        Some(Fact::Template(object)) if object.is_of("a")
    ));
}

#[test]
fn a_deleted_domain_waits_for_its_members() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_claim(claim("a", "n"));
    settle(&mut server);
    server.delete_domain("domain-a");
    settle(&mut server);
    assert_eq!(kinds(&server), [Kind::Domain, Kind::Claim]);
    assert_eq!(reasons(&server)[0].2, "Deleting");
    let name = "claim-a-n".to_owned();
    server.remove(&Key { kind: Kind::Claim, namespace: "team".to_owned(), name });
    settle(&mut server);
    assert!(server.objects.is_empty());
}
