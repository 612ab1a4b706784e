//! Our predicates' result, and its differences from kube-scheduler's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Kind, Node, NodeName};
use octavo_scheduler::predicates::{
    Capacity, Neighbours, NodeFilterKey, PodRequests, Scores, Unfit, Usage, Volumes,
    check_resource_fit, has_preferences,
};

use crate::case::Case;
use crate::oracle::{Answer, Refusal};

/// Our result.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ours {
    /// All reasons against each node, by node.
    pub(crate) reasons: BTreeMap<String, Vec<Unfit>>,
    /// Weighted scores of feasible nodes, by plugin and node.
    pub(crate) scores: BTreeMap<String, BTreeMap<String, i64>>,
}

/// The result of our predicates.
pub(crate) fn decide(case: &Case) -> Ours {
    let mut volumes = Volumes::default();
    for change in [
        Change::VolumeClaim(all(&case.claims)),
        Change::Volume(all(&case.volumes)),
        Change::StorageClass(all(&case.classes)),
        Change::CsiNode(all(&case.csi_nodes)),
        Change::CsiDriver(all(&case.drivers)),
        Change::CsiCapacity(all(&case.capacities)),
    ] {
        volumes.apply(&change);
    }
    let mut neighbours = Neighbours::default();
    neighbours.apply(&Change::Namespace(all(&case.namespaces)));
    neighbours.apply(&Change::Node(all(&case.nodes)));
    let mut usages: BTreeMap<&str, Usage> = BTreeMap::new();
    let requests = PodRequests::of(&case.pod);
    for pod in &case.placed {
        let node = pod.node.as_deref().unwrap();
        // Each pod is first added to another node, and beside a pod that leaves again: no trace may
        // remain.
        let newcomer = Arc::new(case.pod.clone());
        let pod = &Arc::new(pod.clone());
        // Half of the pods are counted as they come.
        if pod.meta.name.name.ends_with(['1', '3']) {
            let _ = neighbours.exclusions(&case.pod, &volumes);
        }
        neighbours.add(pod, &case.nodes[0].meta.name.name);
        neighbours.add(&newcomer, node);
        neighbours.add(pod, node);
        let usage = usages.entry(node).or_default();
        usage.add(&requests);
        usage.add(&PodRequests::of(pod));
        usage.remove(&requests);
    }
    neighbours.remove(&case.pod.meta.uid);
    let key = NodeFilterKey::of(&case.pod, &volumes);
    let exclusions = neighbours.exclusions(&case.pod, &volumes);
    let mut ours = Ours::default();
    for node in &case.nodes {
        let mut reasons: Vec<_> = key.reasons(node).collect();
        let first = reasons.first().cloned().map_or(Ok(()), Err);
        assert_eq!(key.check(node), first);
        let usage = usages.remove(&*node.meta.name.name).unwrap_or_default();
        let fit = check_resource_fit(&requests, &Capacity::of(node), &usage, &volumes, |_| false);
        reasons.extend(fit.err().into_iter().flatten());
        assert_eq!(exclusions.check(node).err(), exclusions.reasons(node).next());
        reasons.extend(exclusions.reasons(node));
        ours.reasons.insert(node.meta.name.name.to_string(), reasons);
    }
    ours.scores = scores(case, &ours, &neighbours, &key);
    ours
}

fn scores(
    case: &Case,
    ours: &Ours,
    neighbours: &Neighbours,
    key: &NodeFilterKey,
) -> BTreeMap<String, BTreeMap<String, i64>> {
    let nodes: Vec<_> = case.nodes.iter().cloned().map(Arc::new).collect();
    let is_feasible = |node: &&Arc<Node>| ours.reasons[&*node.meta.name.name].is_empty();
    let candidates: Vec<_> = nodes.iter().filter(is_feasible).collect();
    let scores = Scores::of(&case.pod, neighbours, key, &candidates);
    if !has_preferences(&case.pod, neighbours) {
        assert_eq!(scores.penalties().count(), 0);
    }
    let of_plugin = |(plugin, scores): (&str, _)| {
        let scores =
            Iterator::map(scores, |(node, score): (&NodeName, i64)| (node.to_string(), score));
        (plugin.to_owned(), scores.collect())
    };
    scores.by_plugin().map(of_plugin).collect()
}

/// Plugins whose scores differ from kube-scheduler's. Only differences between nodes count, and
/// plugins with equal scores for all nodes say nothing.
fn score_differences(ours: &Ours, theirs: &Answer) -> Vec<String> {
    let telling = |scores: &BTreeMap<String, BTreeMap<String, i64>>| {
        let mut scores = scores.clone();
        scores.retain(|_, nodes| nodes.values().collect::<BTreeSet<_>>().len() > 1);
        scores
    };
    let (ours, mut theirs) = (telling(&ours.scores), telling(&theirs.scores));
    let mut differences = Vec::new();
    for (plugin, ours) in ours {
        let theirs = theirs.remove(&plugin);
        if theirs.as_ref() != Some(&ours) {
            differences.push(format!("{plugin}: {ours:?}, theirs: {theirs:?}"));
        }
    }
    differences.extend(
        theirs.into_iter().map(|(plugin, theirs)| format!("{plugin}: none, theirs: {theirs:?}")),
    );
    differences
}

fn all<T: Clone>(list: &[T]) -> Delta<T> {
    Delta::Replace(Kind::default(), list.iter().cloned().map(Arc::new).collect())
}

/// The differences in words; empty if both agree on every node and every filter's reason.
pub(crate) fn differences(ours: &Ours, theirs: &Answer) -> Vec<String> {
    if let Some(refused) = &theirs.refused {
        // A reason found before any node is checked may come from either filter.
        let agrees = |reasons: &Vec<Unfit>| {
            reasons.iter().any(|unfit| is_pod_level(unfit) || *unfit == Unfit::Affinity)
        };
        let wrong = ours.reasons.iter().filter(|(_, reasons)| !agrees(reasons));
        return wrong
            .map(|(node, reasons)| format!("{node}: {reasons:?}, theirs for all: {refused:?}"))
            .collect();
    }
    let mut differences = Vec::new();
    for (node, reasons) in &ours.reasons {
        let Some(theirs) = theirs.nodes.get(node) else {
            differences.push(format!("{node}: no answer"));
            continue;
        };
        if !is_same(reasons, theirs) {
            differences.push(format!("{node}: {reasons:?}, theirs: {theirs:?}"));
        }
    }
    if differences.is_empty() {
        differences = score_differences(ours, theirs);
    }
    differences
}

/// The filter of kube-scheduler that gives a reason.
pub(crate) fn filter_of(unfit: &Unfit) -> &'static str {
    match unfit {
        Unfit::Cordoned => "NodeUnschedulable",
        Unfit::OtherNode => "NodeName",
        Unfit::Taint { .. } => "TaintToleration",
        Unfit::Affinity => "NodeAffinity",
        Unfit::Port => "NodePorts",
        Unfit::Pods { .. } | Unfit::Insufficient { .. } => "NodeResourcesFit",
        Unfit::Disk | Unfit::ClaimInUse => "VolumeRestrictions",
        Unfit::VolumeLimit { .. } => "NodeVolumeLimits",
        Unfit::VolumeZone => "VolumeZone",
        Unfit::AntiAffinity | Unfit::OwnAntiAffinity | Unfit::NoPodNear => "InterPodAffinity",
        Unfit::Spread | Unfit::SpreadLabel => "PodTopologySpread",
        _ => "VolumeBinding",
    }
}

/// Whether a reason concerns the pod alone, so that no node could help.
fn is_pod_level(unfit: &Unfit) -> bool {
    matches!(
        unfit,
        Unfit::MissingClaim { .. }
            | Unfit::DeletedClaim { .. }
            | Unfit::ForeignClaim { .. }
            | Unfit::UnboundClaim
            | Unfit::MissingVolume { .. }
    )
}

fn is_same(ours: &[Unfit], theirs: &[Refusal]) -> bool {
    let filters: BTreeSet<_> = ours.iter().map(filter_of).collect();
    filters == theirs.iter().map(|refusal| &*refusal.plugin).collect()
        && theirs.iter().all(|refusal| has_same_reasons(ours, refusal))
}

/// Whether our reasons of a filter equal theirs.
fn has_same_reasons(ours: &[Unfit], theirs: &Refusal) -> bool {
    let of_filter = || ours.iter().filter(|unfit| filter_of(unfit) == theirs.plugin);
    // Evicting pods does not help on a node that allows no pods at all.
    let is_full = of_filter().any(|unfit| matches!(unfit, Unfit::Pods { capacity: 0 }));
    let is_final = of_filter().any(|unfit| !unfit.could_preemption_help());
    if !is_full && is_final != theirs.is_final {
        return false;
    }
    // We name the taint. kube-scheduler finds nodes chosen by name earlier. A missing volume is a
    // reason of the pod here, and of the node there.
    let is_worded_otherwise = theirs.plugin == "TaintToleration"
        || theirs.reasons.iter().any(|reason| reason == "not chosen")
        || of_filter().any(|unfit| matches!(unfit, Unfit::MissingVolume { .. }));
    let texts: BTreeSet<_> = of_filter().map(ToString::to_string).collect();
    let mut their_texts: BTreeSet<_> = theirs.reasons.iter().cloned().collect();
    if theirs.plugin == "VolumeRestrictions" && texts.len() > their_texts.len() {
        // Theirs stops at the disk.
        their_texts.extend(texts.iter().filter(|text| text.contains("ReadWriteOncePod")).cloned());
    }
    is_worded_otherwise || texts == their_texts
}
