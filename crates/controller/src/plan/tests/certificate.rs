//! `imex.encryption`.

use jiff::Timestamp;
use octavo_api::imex::ImexIsolation;
use octavo_api::names::{CONDITION_CERTIFICATE_PROBLEM, SHARED_IMEX_DOMAIN};

use super::*;
use crate::config::Config;
use crate::store::{Fact, Key, Kind};
use crate::testing::{claim, domain, pod};
use crate::view::{CertificateSecret, DaemonPod, OwnedKind};
use crate::wanted::daemon_name;

fn encrypted() -> Config {
    let mut config = config();
    config.imex.encryption = true;
    config
}

fn encrypted_and_shared() -> Config {
    let mut config = encrypted();
    config.imex.isolation = ImexIsolation::Channel;
    config
}

fn key(kind: Kind, uid: &str) -> Key {
    Key { kind, namespace: "octavo".to_owned(), name: daemon_name(uid) }
}

fn secret(server: &Server, uid: &str) -> Option<CertificateSecret> {
    match server.fact(Kind::Secret, "octavo", &daemon_name(uid))? {
        Fact::Secret(secret) => Some(secret.clone()),
        _ => None,
    }
}

fn encrypted_pod(ip: &str) -> DaemonPod {
    DaemonPod { secret: Some(daemon_name("a")), ..pod("a", "n", ip) }
}

/// A domain with a daemon that has its certificate.
fn running() -> Server {
    let mut server = Server::default();
    server.encrypts = true;
    server.put_domain(domain("a"));
    server.put_node("n", Some("c"), None);
    server.put_claim(claim("a", "n"));
    settle_with(&mut server, "a", &encrypted());
    server.put_pod(encrypted_pod("1"));
    server
}

/// Status and reason of a condition of domain `a`.
fn condition(server: &Server, type_: &str) -> Option<String> {
    let status = server.domain("domain-a").unwrap().status.unwrap();
    let found = status.conditions.into_iter().find(|it| it.type_ == type_)?;
    Some(format!("{} {}", found.status, found.reason))
}

/// Dates a Secret back.
fn set_age(server: &mut Server, uid: &str, created: &str, expires: &str) -> Timestamp {
    let mut secret = secret(server, uid).unwrap();
    secret.created = Some(created.parse().unwrap());
    secret.expires = Some(expires.parse().unwrap());
    server.put(key(Kind::Secret, uid), Fact::Secret(secret));
    "2030-01-01T00:00:00Z".parse().unwrap()
}

/// The plan at a time.
fn plan_at(server: &Server, uid: &str, config: &Config, now: Timestamp) -> Plan {
    let mut view = observe_with(server, config).view(uid);
    view.now = now;
    plan(&view, config)
}

#[test]
fn daemons_get_one_certificate_which_their_daemon_set_owns() {
    let server = running();
    let secret = secret(&server, "a").unwrap();
    let set = server.objects[&key(Kind::DaemonSet, "a")].uid.clone();
    assert_eq!((secret.owner, secret.object.domain.as_deref()), (Some(set), Some("a")));
    let plan = plan_at(&server, "a", &encrypted(), Timestamp::UNIX_EPOCH);
    assert_eq!(plan, Plan::default());
    assert_eq!(condition(&server, CONDITION_CERTIFICATE_PROBLEM), None);
}

#[test]
fn without_encryption_there_is_no_certificate() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    settle(&mut server, "a");
    assert!(secret(&server, "a").is_none());
}

#[test]
fn a_secret_of_another_owner_is_left_alone_and_no_daemons_are_made() {
    let mut server = Server::default();
    server.put_domain(domain("a"));
    let object = crate::testing::object(OwnedKind::Secret, "octavo", &daemon_name("a"), None);
    let foreign = CertificateSecret {
        object,
        domain: "a".to_owned(),
        owner: None,
        created: None,
        expires: None,
    };
    server.put(key(Kind::Secret, "a"), Fact::Secret(foreign));
    let plan = settle_with(&mut server, "a", &encrypted());
    assert!(secret(&server, "a").unwrap().is_foreign());
    assert!(server.fact(Kind::DaemonSet, "octavo", &daemon_name("a")).is_none());
    assert_eq!(condition(&server, "Ready").unwrap(), "False CertificateNameTaken");
    let taken = "True CertificateNameTaken";
    assert_eq!(condition(&server, CONDITION_CERTIFICATE_PROBLEM).unwrap(), taken);
    assert_eq!(plan.warnings[0].reason, Reason::CertificateNameTaken);
    assert!(plan.warnings[0].note.contains("octavo/computedomain-daemon-a"), "{plan:?}");

    server.remove(&key(Kind::Secret, "a"));
    settle_with(&mut server, "a", &encrypted());
    assert!(!secret(&server, "a").unwrap().is_foreign());
    let good = "False CertificateGood";
    assert_eq!(condition(&server, CONDITION_CERTIFICATE_PROBLEM).unwrap(), good);
}

#[test]
fn a_lost_certificate_is_issued_again_once_no_daemon_has_it() {
    let mut server = running();
    server.remove(&key(Kind::Secret, "a"));
    settle_with(&mut server, "a", &encrypted());
    assert!(secret(&server, "a").is_none(), "further daemons wait");
    let lost = "True CertificateLost";
    assert_eq!(condition(&server, CONDITION_CERTIFICATE_PROBLEM).unwrap(), lost);
    // The pod of a daemon without an address waits for the Secret.
    server.put_pod(encrypted_pod(""));
    settle_with(&mut server, "a", &encrypted());
    assert!(secret(&server, "a").is_some());
}

#[test]
fn a_deleted_daemon_set_is_made_again_with_another_certificate() {
    let mut server = running();
    let before = server.objects[&key(Kind::Secret, "a")].uid.clone();
    server.remove(&key(Kind::DaemonSet, "a"));
    settle_with(&mut server, "a", &encrypted());
    // While its pods end there is neither: a new pod could get the old certificate.
    assert!(secret(&server, "a").is_none());
    assert!(server.fact(Kind::DaemonSet, "octavo", &daemon_name("a")).is_none());
    let pod = server.pods()[0].0.clone();
    server.remove(&pod);
    settle_with(&mut server, "a", &encrypted());
    assert_ne!(server.objects[&key(Kind::Secret, "a")].uid, before);
}

#[test]
fn a_deleted_daemon_of_a_lost_node_holds_up_nothing() {
    let mut server = running();
    let before = server.objects[&key(Kind::Secret, "a")].uid.clone();
    server.remove(&key(Kind::DaemonSet, "a"));
    server.put_pod(DaemonPod { is_deleting: true, ..encrypted_pod("1") });
    settle_with(&mut server, "a", &encrypted());
    assert!(secret(&server, "a").is_none(), "it may run still");
    server.put_pod(DaemonPod { is_deleting: true, is_lost: true, ..encrypted_pod("1") });
    settle_with(&mut server, "a", &encrypted());
    assert_ne!(server.objects[&key(Kind::Secret, "a")].uid, before);
}

#[test]
fn an_old_certificate_is_replaced_while_the_domain_has_no_daemons() {
    let mut server = running();
    let now = set_age(&mut server, "a", "2028-12-30T00:00:00Z", "2033-12-30T00:00:00Z");
    assert_eq!(plan_at(&server, "a", &encrypted(), now).writes, []);
    let pod = server.pods()[0].0.clone();
    server.remove(&pod);
    assert_eq!(plan_at(&server, "a", &encrypted(), now).writes, [], "a node has the label");
    let name = "claim-a-n".to_owned();
    server.remove(&Key { kind: Kind::Claim, namespace: "team".to_owned(), name });
    server.put_node("n", Some("c"), None);
    let writes = plan_at(&server, "a", &encrypted(), now).writes;
    assert!(
        matches!(&writes[..], [Write::Delete(object)] if object.kind == OwnedKind::Secret),
        "{writes:?}"
    );
    set_age(&mut server, "a", "2029-01-02T00:00:00Z", "2034-01-02T00:00:00Z");
    assert_eq!(plan_at(&server, "a", &encrypted(), now).writes, [], "it is young");
}

#[test]
fn the_end_of_a_certificate_is_announced() {
    let mut server = running();
    let now = set_age(&mut server, "a", "2025-03-01T00:00:00Z", "2030-03-01T00:00:00Z");
    let plan = plan_at(&server, "a", &encrypted(), now);
    assert_eq!(plan.warnings[0].reason, Reason::CertificateExpires);
    assert!(plan.warnings[0].note.contains("2030-03-01T00:00:00Z"), "{plan:?}");
    server.write(&plan.status.unwrap()).unwrap();
    let expires = "True CertificateExpires";
    assert_eq!(condition(&server, CONDITION_CERTIFICATE_PROBLEM).unwrap(), expires);
    assert_eq!(plan.writes, [], "daemons run");
}

#[test]
fn nothing_is_left_of_a_deleted_domain() {
    let mut server = running();
    server.delete_domain("domain-a");
    settle_with(&mut server, "a", &encrypted());
    assert!(secret(&server, "a").is_some(), "claims are allocated");
    let name = "claim-a-n".to_owned();
    server.remove(&Key { kind: Kind::Claim, namespace: "team".to_owned(), name });
    settle_with(&mut server, "a", &encrypted());
    let pod = server.pods()[0].0.clone();
    server.remove(&pod);
    settle_with(&mut server, "a", &encrypted());
    let left: Vec<_> = server.objects.keys().map(|key| key.name.as_str()).collect();
    assert_eq!(left, ["n"]);
}

/// Shared daemons, and a domain without members.
fn shared(config: &Config) -> Server {
    let mut server = Server::default();
    server.encrypts = config.imex.encryption;
    server.put_domain(domain("a"));
    server.put_node("n", Some("c"), None);
    settle_shared(&mut server, config);
    server
}

/// Everything that the controller and daemons do, until nothing happens.
fn settle_shared(server: &mut Server, config: &Config) {
    for _ in 0..20 {
        for uid in [SHARED_IMEX_DOMAIN, "a"] {
            settle_with(server, uid, config);
        }
        if !server.step_daemons(|| true) {
            return;
        }
    }
    panic!("the shared daemons do not settle");
}

#[test]
fn shared_daemons_start_again_with_another_setting_once_no_domain_has_pods() {
    let mut plain = encrypted_and_shared();
    plain.imex.encryption = false;
    let mut server = shared(&plain);
    server.put_claim(claim("a", "n"));
    settle_shared(&mut server, &plain);
    server.encrypts = true;
    settle_shared(&mut server, &encrypted_and_shared());
    assert!(!server.pods()[0].1.is_encrypted(), "a pod uses it");
    assert!(secret(&server, SHARED_IMEX_DOMAIN).is_none());

    let name = "claim-a-n".to_owned();
    server.remove(&Key { kind: Kind::Claim, namespace: "team".to_owned(), name });
    settle_shared(&mut server, &encrypted_and_shared());
    let pods = server.pods();
    assert!(pods[0].1.is_encrypted() && !pods[0].1.ip.is_empty(), "{pods:?}");
    assert!(secret(&server, SHARED_IMEX_DOMAIN).is_some());
}

#[test]
fn shared_daemons_start_again_with_another_certificate_once_it_is_old() {
    let config = encrypted_and_shared();
    let mut server = shared(&config);
    let now =
        set_age(&mut server, SHARED_IMEX_DOMAIN, "2028-12-30T00:00:00Z", "2030-02-01T00:00:00Z");
    server.put_claim(claim("a", "n"));
    settle_with(&mut server, "a", &config);
    assert_eq!(plan_at(&server, SHARED_IMEX_DOMAIN, &config, now).writes, []);
    let warnings = plan_at(&server, "a", &config, now).warnings;
    assert_eq!(warnings[0].reason, Reason::CertificateExpires, "the domain says it");

    let name = "claim-a-n".to_owned();
    server.remove(&Key { kind: Kind::Claim, namespace: "team".to_owned(), name });
    let [Write::Delete(set)] = &plan_at(&server, SHARED_IMEX_DOMAIN, &config, now).writes[..]
    else {
        panic!("the daemons stay")
    };
    assert_eq!(set.kind, OwnedKind::DaemonSet);
    let before = server.objects[&key(Kind::Secret, SHARED_IMEX_DOMAIN)].uid.clone();
    server.write(&Write::Delete(set.clone())).unwrap();
    settle_shared(&mut server, &config);
    assert_ne!(server.objects[&key(Kind::Secret, SHARED_IMEX_DOMAIN)].uid, before);
    assert!(!server.pods()[0].1.ip.is_empty());
}
