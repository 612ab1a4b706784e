//! `imex.isolation: channel`.

use octavo_api::compute_domain::{
    ComputeDomainAllocationMode, ComputeDomainChannelNumber, ComputeDomainStatus, Readiness,
};
use octavo_api::imex::ImexIsolation;
use octavo_api::names::SHARED_IMEX_DOMAIN;

use super::*;
use crate::config::Config;
use crate::store::{Fact, Key, Kind};
use crate::testing::{claim, domain};
use crate::view::Domain;

fn shared() -> Config {
    let mut config = config();
    config.imex.isolation = ImexIsolation::Channel;
    config
}

/// Two nodes in clique `c`, one in `d`, and one without a fabric.
fn nodes() -> Server {
    let mut server = Server::default();
    for (node, clique) in [("n", Some("c")), ("m", Some("c")), ("k", Some("d")), ("f", None)] {
        server.put_node(node, clique, None);
    }
    server
}

/// Lets the daemons and the plans of all domains come to an end.
fn settle(server: &mut Server) {
    for _ in 0..20 {
        for uid in observe_with(server, &shared()).all_uids() {
            settle_with(server, &uid, &shared());
        }
        if !server.step_daemons(|| true) {
            return;
        }
    }
    panic!("the daemons do not come to an end");
}

fn status(server: &Server, uid: &str) -> ComputeDomainStatus {
    server.domain(&format!("domain-{uid}")).unwrap().status.unwrap()
}

fn channels(server: &Server, uid: &str) -> Vec<(String, u32)> {
    let channels = status(server, uid).channels.into_iter();
    channels.map(|channel| (channel.clique_id, channel.channel)).collect()
}

fn ready(server: &Server, uid: &str) -> (String, String) {
    let condition = status(server, uid).conditions.remove(0);
    (condition.status, condition.reason)
}

fn leave(server: &mut Server, uid: &str, node: &str) {
    let name = format!("claim-{uid}-{node}");
    server.remove(&Key { kind: Kind::Claim, namespace: "team".to_owned(), name });
}

/// Writes the status that an earlier controller may have left.
fn stale(server: &mut Server, uid: &str, channel: u32) {
    let mut domain = server.domain(&format!("domain-{uid}")).unwrap();
    let channel = ComputeDomainChannelNumber { clique_id: "c".to_owned(), channel };
    domain.status.get_or_insert_default().channels = vec![channel];
    server.put_domain(domain);
}

fn created(uid: &str, created: &str) -> Domain {
    Domain { created: created.to_owned(), ..domain(uid) }
}

#[test]
fn daemons_run_on_all_nodes_with_a_clique_and_outlive_domains() {
    let mut server = nodes();
    settle(&mut server);
    let name = format!("computedomain-daemon-{SHARED_IMEX_DOMAIN}");
    assert!(server.fact(Kind::Template, "octavo", &name).is_some());
    assert!(server.fact(Kind::DaemonSet, "octavo", &name).is_some());
    let entries = |server: &Server, clique: &str| {
        let clique = server.clique(&format!("{SHARED_IMEX_DOMAIN}.{clique}")).unwrap();
        let entries = clique.daemons.into_iter();
        entries.map(|it| (it.node_name, it.index, it.status)).collect::<Vec<_>>()
    };
    let ready = |node: &str, index| (node.to_owned(), Some(index), Readiness::Ready);
    let before = [ready("m", 0), ready("n", 1)];
    assert_eq!(entries(&server, "c"), before);
    assert_eq!(entries(&server, "d"), [ready("k", 0)]);
    server.put_domain(domain("a"));
    server.put_claim(claim("a", "n"));
    settle(&mut server);
    leave(&mut server, "a", "n");
    server.delete_domain("domain-a");
    settle(&mut server);
    assert_eq!(entries(&server, "c"), before);
}

#[test]
fn a_domain_has_no_daemons_labels_or_cliques_of_its_own() {
    let mut server = nodes();
    server.put_domain(domain("a"));
    server.put_claim(claim("a", "n"));
    settle(&mut server);
    assert!(server.fact(Kind::DaemonSet, "octavo", "computedomain-daemon-a").is_none());
    assert!(server.clique("a.c").is_none());
    assert_eq!(server.node_label("n"), None);
    let node = status(&server, "a").nodes.remove(0);
    assert_eq!((node.index, node.status), (Some(1), Readiness::Ready));
    assert!(node.ip_address.starts_with("address-"), "that of the clique's daemon");
    assert_eq!(ready(&server, "a"), ("True".to_owned(), "AllNodesReady".to_owned()));
}

#[test]
fn domains_have_a_channel_each_in_every_clique_of_their_members() {
    let mut server = nodes();
    for uid in ["a", "b"] {
        server.put_domain(domain(uid));
    }
    for (uid, node) in [("a", "n"), ("b", "n"), ("b", "k"), ("b", "f")] {
        server.put_claim(claim(uid, node));
    }
    settle(&mut server);
    assert_eq!(channels(&server, "a"), [("c".to_owned(), 0)]);
    assert_eq!(channels(&server, "b"), [("c".to_owned(), 1), ("d".to_owned(), 0)]);
    assert!(!status(&server, "a").conditions.iter().any(|it| it.type_ == "SharedClique"));
    assert_eq!(ready(&server, "b").0, "True", "a node without a fabric needs no channel");
    // It is kept while a member remains, and free for others then.
    server.put_claim(claim("b", "m"));
    leave(&mut server, "b", "n");
    leave(&mut server, "a", "n");
    settle(&mut server);
    assert_eq!((channels(&server, "a"), channels(&server, "b")[0].1), (Vec::new(), 1));
    server.put_domain(domain("z"));
    server.put_claim(claim("z", "n"));
    settle(&mut server);
    assert_eq!(channels(&server, "z"), [("c".to_owned(), 0)]);
}

#[test]
fn two_plans_at_the_same_time_do_not_give_one_channel_twice() {
    let mut server = nodes();
    for uid in ["a", "b"] {
        server.put_domain(domain(uid));
        server.put_claim(claim(uid, "n"));
    }
    let mut store = observe_with(&server, &shared());
    let decided = ["a", "b"].map(|uid| {
        let view = store.view(uid);
        let plan = plan(&view, &shared());
        store.decide(uid, plan.channels(&view));
        plan.channels(&view)[0].channel
    });
    assert_eq!(decided, [0, 1]);
    // A plan that is made again keeps what it decided.
    let view = store.view("b");
    assert_eq!(plan(&view, &shared()).channels(&view)[0].channel, 1);
    store.forget_decisions();
    let view = store.view("b");
    assert_eq!(plan(&view, &shared()).channels(&view)[0].channel, 0);
}

#[test]
fn of_two_equal_channels_that_without_a_started_pod_moves() {
    let mut server = nodes();
    server.put_domain(created("young", "2"));
    server.put_claim(claim("young", "n"));
    settle(&mut server);
    server.put_domain(created("old", "1"));
    server.put_claim(claim("old", "m"));
    stale(&mut server, "old", 0);
    settle(&mut server);
    assert_eq!(channels(&server, "young"), [("c".to_owned(), 0)], "its pods have it");
    assert_eq!(channels(&server, "old"), [("c".to_owned(), 1)]);
}

#[test]
fn of_two_equal_channels_with_started_pods_the_later_one_lets_new_pods_wait() {
    let mut server = nodes();
    for (uid, age, node) in [("old", "1", "n"), ("young", "2", "m")] {
        server.put_domain(created(uid, age));
        server.put_claim(claim(uid, node));
    }
    settle(&mut server);
    stale(&mut server, "young", 0);
    settle(&mut server);
    assert_eq!(ready(&server, "old").0, "True");
    assert_eq!(ready(&server, "young"), ("False".to_owned(), "ChannelConflict".to_owned()));
    let young = status(&server, "young");
    assert!(young.conditions[0].message.contains("team/domain-old"), "{young:?}");
    assert_eq!((channels(&server, "young")[0].1, young.nodes[0].status), (0, Readiness::NotReady));
}

#[test]
fn all_channels_are_refused() {
    let mut server = nodes();
    let allocation_mode = ComputeDomainAllocationMode::All;
    server.put_domain(Domain { allocation_mode, ..domain("a") });
    server.put_claim(claim("a", "n"));
    settle(&mut server);
    assert_eq!(ready(&server, "a"), ("False".to_owned(), "AllNotWithChannels".to_owned()));
    assert_eq!((channels(&server, "a"), status(&server, "a").nodes[0].index), (Vec::new(), None));
}

#[test]
fn a_member_whose_label_is_gone_keeps_the_channel() {
    let mut server = nodes();
    for uid in ["a", "b"] {
        server.put_domain(domain(uid));
    }
    server.put_claim(claim("a", "n"));
    settle(&mut server);
    // As while the driver is unloaded.
    server.put_node("n", None, None);
    server.put_claim(claim("b", "m"));
    settle(&mut server);
    assert_eq!(
        (channels(&server, "a"), channels(&server, "b")[0].1),
        (vec![("c".to_owned(), 0)], 1)
    );
    assert_eq!(status(&server, "a").nodes[0].status, Readiness::NotReady);
}

#[test]
fn a_full_clique_is_named_by_the_domains_that_wait() {
    let mut server = nodes();
    server.put_domain(domain("a"));
    for number in 0..4 {
        server.put_node(&format!("x{number}"), Some("d"), None);
    }
    settle(&mut server);
    server.put_claim(claim("a", "x3"));
    settle(&mut server);
    assert_eq!(ready(&server, "a"), ("False".to_owned(), "CliqueFull".to_owned()));
}

#[test]
fn the_object_of_a_clique_without_nodes_goes() {
    let mut server = nodes();
    settle(&mut server);
    server.put_node("k", None, None);
    settle(&mut server);
    assert!(server.clique(&format!("{SHARED_IMEX_DOMAIN}.d")).is_none());
    assert!(server.clique(&format!("{SHARED_IMEX_DOMAIN}.c")).is_some());
}

#[test]
fn what_domains_share_goes_with_the_setting() {
    let mut server = nodes();
    server.put_domain(domain("a"));
    settle(&mut server);
    for _ in 0..9 {
        super::settle(&mut server, SHARED_IMEX_DOMAIN);
        super::settle(&mut server, "a");
        server.step_daemons(|| true);
    }
    let is_shared = |fact: &Fact| match fact {
        Fact::Template(object) | Fact::DaemonSet(object) => object.is_of(SHARED_IMEX_DOMAIN),
        Fact::Clique(clique) => clique.object.is_of(SHARED_IMEX_DOMAIN),
        Fact::Pod(pod) => pod.domain == SHARED_IMEX_DOMAIN,
        _ => false,
    };
    assert!(!server.objects.values().any(|it| it.fact.as_ref().is_some_and(is_shared)));
    assert!(server.fact(Kind::DaemonSet, "octavo", "computedomain-daemon-a").is_some());
}
