use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Kind, LabelSelector, Meta, Node, Pod, PodSpec};

use super::fixtures::{apart, claim, labels, meta, node, pod, set_claim, using};
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
    neighbours.exclusions(pod, &Volumes::default()).check(node).is_ok()
}

#[test]
fn anti_affinity_excludes_other_pods_from_the_rack() {
    let (a, b, c) = (rack("a", "1"), rack("b", "1"), rack("c", "2"));
    let mut neighbours = Neighbours::default();
    assert!(neighbours.apply(&Change::Node(Delta::Replace(
        Kind::default(),
        vec![Arc::clone(&a), Arc::clone(&b), Arc::clone(&c)]
    ))));
    neighbours.add(&Arc::new(lonely("l")), "a");
    let exclusions = neighbours.exclusions(&web("w"), &Volumes::default());
    assert_eq!(exclusions.check(&b), Err(Unfit::AntiAffinity));
    assert_eq!(exclusions.check(&c), Ok(()));
    assert!(is_free(&neighbours, &pod("other", PodSpec::default()), &b));
    let mut elsewhere = web("w");
    elsewhere.meta.name.namespace = Arc::from("others");
    assert!(is_free(&neighbours, &elsewhere, &b));
}

#[test]
fn moved_or_removed_pod_no_longer_excludes() {
    let (a, c) = (rack("a", "1"), rack("c", "2"));
    let mut neighbours = Neighbours::default();
    for node in [&a, &c] {
        neighbours.set_node(node);
    }
    neighbours.add(&Arc::new(lonely("l")), "a");
    neighbours.add(&Arc::new(lonely("l")), "c");
    assert!(is_free(&neighbours, &web("w"), &a) && !is_free(&neighbours, &web("w"), &c));
    neighbours.add(&Arc::new(lonely("m")), "c");
    neighbours.remove("l");
    assert!(!is_free(&neighbours, &web("w"), &c));
    neighbours.remove("m");
    neighbours.remove("unknown");
    assert!(neighbours.exclusions(&web("w"), &Volumes::default()).is_empty());
}

#[test]
fn relabelled_node_moves_its_exclusions() {
    let mut neighbours = Neighbours::default();
    // The pod is observed before its node.
    neighbours.add(&Arc::new(lonely("l")), "a");
    assert!(is_free(&neighbours, &web("w"), &rack("b", "1")));
    neighbours.set_node(&rack("a", "1"));
    assert!(!is_free(&neighbours, &web("w"), &rack("b", "1")));
    neighbours.set_node(&rack("a", "2"));
    assert!(is_free(&neighbours, &web("w"), &rack("b", "1")));
    assert!(!is_free(&neighbours, &web("w"), &rack("b", "2")));
    neighbours.drop_node("a");
    assert!(neighbours.exclusions(&web("w"), &Volumes::default()).is_empty());
}

#[test]
fn namespace_selector_matches_namespace_labels() {
    let mut term = apart("app", "web", "rack");
    let selector = LabelSelector { labels: labels(&[("tier", "prod")]), expressions: Vec::new() };
    term.namespace_selector = Some(selector);
    let other = pod("l", PodSpec { anti_affinity: vec![term], ..PodSpec::default() });
    let mut neighbours = Neighbours::default();
    neighbours.set_node(&rack("a", "1"));
    neighbours.add(&Arc::new(other), "a");
    assert!(is_free(&neighbours, &web("w"), &rack("a", "1")));
    let team = Meta { labels: labels(&[("tier", "prod")]), ..meta("", "team") };
    assert!(neighbours.apply(&Change::Namespace(Delta::Upsert(Arc::new(team)))));
    assert!(!is_free(&neighbours, &web("w"), &rack("a", "1")));
}

#[test]
fn read_write_once_pod_claim_is_in_use_on_all_nodes() {
    let mut volumes = Volumes::default();
    set_claim(&mut volumes, claim("data", true, &["ReadWriteOncePod"], "disks"));
    let mut neighbours = Neighbours::default();
    neighbours.add(&Arc::new(using("p", "data")), "a");
    let exclusions = neighbours.exclusions(&using("q", "data"), &volumes);
    assert!(matches!(exclusions.check(&rack("z", "9")), Err(Unfit::ClaimInUse)));
    neighbours.remove("p");
    assert!(neighbours.exclusions(&using("q", "data"), &volumes).is_empty());
    set_claim(&mut volumes, claim("data", true, &["ReadWriteOnce"], "disks"));
    neighbours.add(&Arc::new(using("p", "data")), "a");
    assert!(neighbours.exclusions(&using("q", "data"), &volumes).is_empty());
}
