use super::*;
use crate::store::{Fact, Kind};
use crate::testing::{claim, domain, object};
use crate::view::{Domain, OwnedKind};
use octavo_api::names::LABEL_COMPUTE_DOMAIN;

fn template(server: &Server) -> Option<OwnedObject> {
    match server.fact(Kind::Template, "team", "template-a")? {
        Fact::Template(object) => Some(object.clone()),
        _ => None,
    }
}

fn reason(server: &Server) -> String {
    let status = server.domain("domain-a").unwrap().status.unwrap();
    status.conditions.iter().find(|it| it.type_ == "Ready").unwrap().reason.clone()
}

#[test]
fn the_finalizer_comes_first_and_alone() {
    let mut server = Server::default();
    server.put_domain(Domain { finalizers: vec!["other".to_owned()], ..domain("a") });
    let plan = plan_of(&mut server, "a");
    assert!(plan.writes.len() == 1 && plan.status.is_none(), "{plan:?}");
    let Write::SetFinalizers { finalizers, .. } = &plan.writes[0] else { panic!("{plan:?}") };
    assert_eq!(finalizers, &["other", LABEL_COMPUTE_DOMAIN]);
}

#[test]
fn a_domain_gets_templates_and_daemons_and_then_nothing() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    let first = plan_of(&mut server, "a");
    let kinds: Vec<_> = first
        .writes
        .iter()
        .map(|write| match write {
            Write::Create(object) => object["kind"].as_str().unwrap().to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    // The DaemonSet waits for its template.
    assert_eq!(kinds, ["ResourceClaimTemplate", "ResourceClaimTemplate"]);
    settle(&mut server, "a");
    assert!(template(&server).is_some());
    let name = "computedomain-daemon-a";
    assert!(server.fact(Kind::Template, "octavo", name).is_some());
    assert!(server.fact(Kind::DaemonSet, "octavo", name).is_some());
    assert_eq!(plan_of(&mut server, "a"), Plan::default());
}

#[test]
fn a_template_of_another_owner_is_left_alone_and_named() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    for label in [None, Some("another-domain")] {
        server.put_template(object(OwnedKind::Template, "team", "template-a", label));
        let before = template(&server);
        let plan = settle(&mut server, "a");
        assert_eq!(template(&server), before);
        assert_eq!(reason(&server), "TemplateNameTaken");
        assert_eq!(plan.warnings[0].reason, Reason::TemplateNameTaken);
        assert!(plan.warnings[0].note.contains("template-a"));
    }
    server.remove(&crate::store::Key {
        kind: Kind::Template,
        namespace: "team".to_owned(),
        name: "template-a".to_owned(),
    });
    settle(&mut server, "a");
    assert!(template(&server).unwrap().is_of("a"));
    assert_eq!(reason(&server), "NoNodes");
}

#[test]
fn objects_of_nvidias_controller_are_made_again_without_its_finalizer() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    let finalizers = vec![LABEL_COMPUTE_DOMAIN.to_owned()];
    let old = object(OwnedKind::Template, "team", "template-a", Some("a"));
    server.put_template(OwnedObject { finalizers: finalizers.clone(), ..old });
    let writes = plan_of(&mut server, "a").writes;
    assert!(matches!(&writes[0], Write::DropFinalizer(object) if object.name == "template-a"));
    settle(&mut server, "a");
    assert!(template(&server).unwrap().hash.is_some());
}

#[test]
fn another_image_replaces_the_daemon_set_in_place() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    settle(&mut server, "a");
    let mut config = config();
    config.daemon.image = "newer".to_owned();
    let plan = plan(&observe(&server).view("a"), &config);
    let [write @ Write::ReplaceDaemonSet { object, .. }] = &plan.writes[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(object["metadata"]["name"], "computedomain-daemon-a");
    server.write(write).unwrap();
    let again = super::super::plan(&observe(&server).view("a"), &config);
    assert_eq!(again, Plan::default());
}

#[test]
fn an_object_that_is_being_deleted_is_waited_for() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    settle(&mut server, "a");
    let mut ours = template(&server).unwrap();
    (ours.is_deleting, ours.finalizers) = (true, vec!["other".to_owned()]);
    server.put_template(ours);
    assert_eq!(plan_of(&mut server, "a").writes, []);
}

#[test]
fn a_clique_is_made_with_its_first_member_and_labelled() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    server.put_node("n", Some("c.1"), None);
    server.put_node("m", Some("c.2"), None);
    settle(&mut server, "a");
    assert!(server.clique("a.c.1").is_none());
    server.put_claim(claim("a", "n"));
    settle(&mut server, "a");
    let clique = server.clique("a.c.1").unwrap();
    assert!(clique.object.is_of("a"));
    assert_eq!(clique.id_label.as_deref(), Some("c.1"));
    assert!(server.clique("a.c.2").is_none());
    // A daemon that is earlier than the controller makes it without labels.
    let bare = crate::view::Clique { id_label: None, ..clique.clone() };
    let key = crate::store::Key {
        kind: Kind::Clique,
        namespace: "octavo".to_owned(),
        name: "a.c.1".to_owned(),
    };
    // Nor does it count changes of indices.
    let uncounted = crate::view::Clique { index_changes: None, ..clique.clone() };
    let counted = crate::view::Clique { index_changes: Some(7), ..bare.clone() };
    for (found, count) in [(bare, 0), (uncounted, 0), (counted, 7)] {
        server.put(key.clone(), Fact::Clique(found));
        let writes = plan_of(&mut server, "a").writes;
        assert!(matches!(&writes[..], [Write::LabelClique { .. }]), "{writes:?}");
        settle(&mut server, "a");
        assert_eq!(server.clique("a.c.1").unwrap().index_changes, Some(count));
    }
}
