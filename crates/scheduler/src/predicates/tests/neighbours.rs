use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Kind, LabelSelector, Meta, Node, Pod, PodSpec};

use super::kit::{apart, claim, labels, meta, node, pod, set_claim, using};
use crate::predicates::{Neighbours, Unfit, Volumes};

fn rack(name: &str, rack: &str) -> Arc<Node> {
    node(name, &[("rack", rack)], &[])
}

fn lonely(name: &str) -> Pod {
    let anti_affinity = vec![apart("app", "web", "rack")];
    pod(name, PodSpec { anti_affinity, ..PodSpec::default() })
}

fn web(name: &str) -> Pod {
    let mut pod = pod(name, PodSpec::default());
    pod.meta.labels = labels(&[("app", "web")]);
    pod
}

fn is_free(neighbours: &Neighbours, pod: &Pod, node: &Node) -> bool {
    neighbours.away(pod, &Volumes::default()).check(node).is_ok()
}

#[test]
fn a_pod_that_wants_to_be_alone_keeps_others_out_of_its_rack() {
    let (a, b, c) = (rack("a", "1"), rack("b", "1"), rack("c", "2"));
    let mut neighbours = Neighbours::default();
    assert!(neighbours.apply(&Change::Node(Delta::Replace(
        Kind::default(),
        vec![Arc::clone(&a), Arc::clone(&b), Arc::clone(&c)]
    ))));
    neighbours.add(&lonely("l"), "a");
    let away = neighbours.away(&web("w"), &Volumes::default());
    let kept = Unfit::KeptAway { topology_key: "rack".to_owned(), value: "1".to_owned() };
    assert_eq!(away.check(&b), Err(kept));
    assert_eq!(away.check(&c), Ok(()));
    assert!(is_free(&neighbours, &pod("other", PodSpec::default()), &b));
    let mut elsewhere = web("w");
    elsewhere.meta.name.namespace = Arc::from("others");
    assert!(is_free(&neighbours, &elsewhere, &b));
}

#[test]
fn a_pod_that_moves_or_goes_is_forgotten_where_it_was() {
    let (a, c) = (rack("a", "1"), rack("c", "2"));
    let mut neighbours = Neighbours::default();
    for node in [&a, &c] {
        neighbours.set_node(node);
    }
    neighbours.add(&lonely("l"), "a");
    neighbours.add(&lonely("l"), "c");
    assert!(is_free(&neighbours, &web("w"), &a) && !is_free(&neighbours, &web("w"), &c));
    neighbours.add(&lonely("m"), "c");
    neighbours.remove("l");
    assert!(!is_free(&neighbours, &web("w"), &c));
    neighbours.remove("m");
    neighbours.remove("unknown");
    assert!(neighbours.away(&web("w"), &Volumes::default()).is_nowhere());
}

#[test]
fn a_node_that_changes_its_rack_takes_its_pods_along() {
    let mut neighbours = Neighbours::default();
    // The pod is known before its node is.
    neighbours.add(&lonely("l"), "a");
    assert!(is_free(&neighbours, &web("w"), &rack("b", "1")));
    neighbours.set_node(&rack("a", "1"));
    assert!(!is_free(&neighbours, &web("w"), &rack("b", "1")));
    neighbours.set_node(&rack("a", "2"));
    assert!(is_free(&neighbours, &web("w"), &rack("b", "1")));
    assert!(!is_free(&neighbours, &web("w"), &rack("b", "2")));
    neighbours.drop_node("a");
    assert!(neighbours.away(&web("w"), &Volumes::default()).is_nowhere());
}

#[test]
fn a_namespace_is_meant_by_its_labels() {
    let mut term = apart("app", "web", "rack");
    let selector = LabelSelector { labels: labels(&[("tier", "prod")]), expressions: Vec::new() };
    term.namespace_selector = Some(selector);
    let other = pod("l", PodSpec { anti_affinity: vec![term], ..PodSpec::default() });
    let mut neighbours = Neighbours::default();
    neighbours.set_node(&rack("a", "1"));
    neighbours.add(&other, "a");
    assert!(is_free(&neighbours, &web("w"), &rack("a", "1")));
    let team = Meta { labels: labels(&[("tier", "prod")]), ..meta("", "team") };
    assert!(neighbours.apply(&Change::Namespace(Delta::Upsert(Arc::new(team)))));
    assert!(!is_free(&neighbours, &web("w"), &rack("a", "1")));
}

#[test]
fn a_claim_for_one_pod_is_in_use_everywhere() {
    let mut volumes = Volumes::default();
    set_claim(&mut volumes, claim("data", true, &["ReadWriteOncePod"], "disks"));
    let mut neighbours = Neighbours::default();
    neighbours.add(&using("p", "data"), "a");
    let away = neighbours.away(&using("q", "data"), &volumes);
    assert!(matches!(away.check(&rack("z", "9")), Err(Unfit::ClaimInUse { .. })));
    neighbours.remove("p");
    assert!(neighbours.away(&using("q", "data"), &volumes).is_nowhere());
    set_claim(&mut volumes, claim("data", true, &["ReadWriteOnce"], "disks"));
    neighbours.add(&using("p", "data"), "a");
    assert!(neighbours.away(&using("q", "data"), &volumes).is_nowhere());
}
