use std::collections::HashSet;
use std::sync::Arc;

use octavo_dra::{NodeOperator, NodeRequirement, NodeSelector, NodeSelectorTerm};
use octavo_kube_io::objects::{
    BindingMode, Node, NodeTaint, Owner, Pod, PodSpec, PodVolume, TaintEffect, Toleration,
    VolumeSource,
};

use super::fixtures::{claim, class, csi_claim, labels, node, pod, set_claim, using};
use crate::predicates::{NodeFilterKey, Unfit, Volumes};

fn check(pod: &Pod, node: &Node) -> Result<(), Unfit> {
    NodeFilterKey::of(pod, &Volumes::default()).check(node)
}

fn tolerating(operator: &str, value: &str) -> Pod {
    let (key, effect) = ("team".to_owned(), String::new());
    let toleration = Toleration {
        key,
        operator: operator.to_owned(),
        value: value.to_owned(),
        effect,
        seconds: None,
    };
    pod("p", PodSpec { tolerations: vec![toleration], ..PodSpec::default() })
}

fn tainted(value: &str, effect: TaintEffect) -> Node {
    let taint = NodeTaint { key: "team".to_owned(), value: value.to_owned(), effect };
    Node { taints: vec![taint], ..(*node("n", &[], &[])).clone() }
}

fn is_tolerated(operator: &str, value: &str, taint: &str) -> bool {
    let node = tainted(taint, TaintEffect::NoExecute);
    check(&tolerating(operator, value), &node).is_ok()
}

#[test]
fn every_toleration_operator_works() {
    assert!(is_tolerated("", "a", "a") && is_tolerated("Equal", "a", "a"));
    assert!(is_tolerated("Exists", "", "a") && !is_tolerated("Equal", "a", "b"));
    assert!(is_tolerated("Gt", "5", "10") && !is_tolerated("Gt", "10", "5"));
    assert!(is_tolerated("Lt", "-5", "-10") && !is_tolerated("Lt", "5", "5"));
    for (bound, taint) in [("05", "10"), ("5", "010"), ("+5", "10"), ("-0", "10"), ("5", "ten")] {
        assert!(!is_tolerated("Gt", bound, taint), "{bound} {taint}");
    }
    assert!(!is_tolerated("Like", "a", "a"));
    let soft = tainted("a", TaintEffect::PreferNoSchedule);
    assert_eq!(check(&pod("p", PodSpec::default()), &soft), Ok(()));
}

#[test]
fn a_cordon_is_a_taint_that_can_be_tolerated() {
    let cordoned = Node { is_unschedulable: true, ..(*node("n", &[], &[])).clone() };
    let check = |pod: &Pod| check(pod, &cordoned);
    assert_eq!(check(&pod("p", PodSpec::default())), Err(Unfit::Cordoned));
    let daemon = Toleration {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        operator: "Exists".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
        seconds: None,
    };
    let daemon = PodSpec { tolerations: vec![daemon], ..PodSpec::default() };
    assert_eq!(check(&pod("p", daemon)), Ok(()));
}

fn drawn(terms: &[&[(&str, NodeOperator, &[&str])]]) -> Pod {
    let term = |requirements: &&[(&str, NodeOperator, &[&str])]| {
        let requirement =
            |(key, operator, values): &(&str, NodeOperator, &[&str])| NodeRequirement {
                key: (*key).to_owned(),
                operator: *operator,
                values: values.iter().map(|value| (*value).to_owned()).collect(),
            };
        let (fields, labels) =
            requirements.iter().map(requirement).partition(|one| one.key.starts_with("metadata."));
        NodeSelectorTerm { labels, fields }
    };
    let node_affinity = Some(NodeSelector { terms: terms.iter().map(term).collect() });
    pod("p", PodSpec { node_affinity, ..PodSpec::default() })
}

#[test]
fn malformed_term_matches_nothing() {
    use NodeOperator::{Exists, Gt, In};
    let node = node("n", &[("size", "12"), ("zone", "a")], &[]);
    let check = |pod: &Pod| check(pod, &node).is_ok();
    assert!(check(&drawn(&[&[("size", Gt, &["9"])]])));
    assert!(!check(&drawn(&[&[("size", Gt, &["many"])]])));
    assert!(check(&drawn(&[&[("size", Gt, &["many"])], &[("zone", Exists, &[])]])));
    assert!(!check(&drawn(&[&[("zone", In, &["a", "-bad-"])]])));
    assert!(!check(&drawn(&[&[("Bad/zone", Exists, &[])]])));
    assert!(!check(&drawn(&[&[]])) && !check(&drawn(&[])));
    assert!(check(&drawn(&[&[("metadata.name", In, &["n"])]])));
    assert!(!check(&drawn(&[&[("metadata.name", In, &["n", "m"])]])));
}

#[test]
fn pods_of_one_template_have_equal_keys() {
    let volumes = Volumes::default();
    let spec = PodSpec { node_selector: labels(&[("zone", "a")]), ..PodSpec::default() };
    let (a, b) = (pod("a", spec.clone()), pod("b", spec.clone()));
    let other = pod("c", PodSpec { node_selector: labels(&[("zone", "b")]), ..spec });
    let keys: HashSet<_> =
        [a, b, other].iter().map(|pod| NodeFilterKey::of(pod, &volumes)).collect();
    assert_eq!(keys.len(), 2);
}

#[test]
fn a_key_changes_when_a_claim_is_bound() {
    let mut volumes = Volumes::default();
    let pod = using("p", "data");
    let missing = NodeFilterKey::of(&pod, &volumes);
    assert!(matches!(missing.pod_level_reason(), Some(Unfit::MissingClaim { .. })));
    set_claim(&mut volumes, claim("data", false, &[], "now"));
    class(&mut volumes, "now", BindingMode::Immediate);
    let unbound = NodeFilterKey::of(&pod, &volumes);
    assert!(matches!(unbound.pod_level_reason(), Some(Unfit::UnboundClaim)));
    csi_claim(&mut volumes, "data", "csi.example");
    let bound = NodeFilterKey::of(&pod, &volumes);
    assert_eq!(bound.check(&node("n", &[], &[])), Ok(()));
    assert!(missing != unbound && unbound != bound);
}

#[test]
fn claims_that_get_a_volume_everywhere_do_not_tell_pods_apart() {
    let mut volumes = Volumes::default();
    class(&mut volumes, "later", BindingMode::WaitForFirstConsumer);
    for name in ["one", "two"] {
        set_claim(&mut volumes, claim(name, false, &[], "later"));
    }
    let key = |claim: &str| NodeFilterKey::of(&using(claim, claim), &volumes);
    assert_eq!(key("one"), key("two"));
    assert_eq!(key("one").check(&node("n", &[], &[])), Ok(()));
}

#[test]
fn ephemeral_volume_needs_a_claim_owned_by_the_pod() {
    let volume = PodVolume { name: "data".to_owned(), source: VolumeSource::Ephemeral };
    let pod = pod("p", PodSpec { volumes: vec![volume], ..PodSpec::default() });
    let mut volumes = Volumes::default();
    csi_claim(&mut volumes, "p-data", "csi.example");
    let foreign = NodeFilterKey::of(&pod, &volumes);
    assert!(matches!(foreign.pod_level_reason(), Some(Unfit::ForeignClaim { .. })));
    let mut own = claim("p-data", true, &[], "disks");
    own.meta.owner = Some(Owner { uid: Arc::clone(&pod.meta.uid), ..Owner::default() });
    set_claim(&mut volumes, own);
    assert_eq!(NodeFilterKey::of(&pod, &volumes).pod_level_reason(), None);
}
