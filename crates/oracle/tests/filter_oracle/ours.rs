//! Our answer, and what differs from kube-scheduler's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{Change, Delta, Kind};
use octavo_scheduler::predicates::{
    Capacity, Footprint, Neighbours, StaticKey, Unfit, Usage, Volumes, check_room, check_static,
};

use crate::case::Case;
use crate::oracle::{Answer, Refusal};

/// All that we have against each node, by node.
pub(crate) type Ours = BTreeMap<String, Vec<Unfit>>;

/// What our predicates say.
pub(crate) fn decide(case: &Case) -> Ours {
    let mut volumes = Volumes::default();
    for change in [
        Change::VolumeClaim(all(&case.claims)),
        Change::Volume(all(&case.volumes)),
        Change::StorageClass(all(&case.classes)),
        Change::CsiNode(all(&case.csi_nodes)),
    ] {
        volumes.apply(&change);
    }
    let mut neighbours = Neighbours::default();
    neighbours.apply(&Change::Namespace(all(&case.namespaces)));
    neighbours.apply(&Change::Node(all(&case.nodes)));
    let mut usages: BTreeMap<&str, Usage> = BTreeMap::new();
    let newcomer = Footprint::of(&case.pod);
    for pod in &case.placed {
        let node = pod.node.as_deref().unwrap();
        // Decided otherwise at first, and beside somebody who did not stay: no trace of it is left.
        neighbours.add(pod, &case.nodes[0].meta.name.name);
        neighbours.add(&case.pod, node);
        neighbours.add(pod, node);
        let usage = usages.entry(node).or_default();
        usage.add(&newcomer);
        usage.add(&Footprint::of(pod));
        usage.remove(&newcomer);
    }
    neighbours.remove(&case.pod.meta.uid);
    let key = StaticKey::of(&case.pod, &volumes);
    let away = neighbours.away(&case.pod, &volumes);
    let mut ours = Ours::new();
    for node in &case.nodes {
        let mut reasons: Vec<_> = key.reasons(node).collect();
        let first = reasons.first().cloned().map_or(Ok(()), Err);
        assert_eq!(check_static(&case.pod, node, &volumes), first);
        let usage = usages.remove(&*node.meta.name.name).unwrap_or_default();
        let room = check_room(&newcomer, &Capacity::of(node), &usage, &volumes, |_| false);
        reasons.extend(room.err().into_iter().flatten());
        assert_eq!(away.check(node).err(), away.reasons(node).next());
        reasons.extend(away.reasons(node));
        ours.insert(node.meta.name.name.to_string(), reasons);
    }
    ours
}

fn all<T: Clone>(list: &[T]) -> Delta<T> {
    Delta::All(Kind::default(), list.iter().cloned().map(Arc::new).collect())
}

/// What differs, in words; nothing where both agree on every node and on every filter's reason.
pub(crate) fn differences(ours: &Ours, theirs: &Answer) -> Vec<String> {
    if let Some(refused) = &theirs.refused {
        // What is found out before the nodes is found out by whichever filter comes first.
        let agrees = |reasons: &Vec<Unfit>| {
            reasons.iter().any(|unfit| unfit.is_of_pod() || *unfit == Unfit::Affinity)
        };
        let wrong = ours.iter().filter(|(_, reasons)| !agrees(reasons));
        return wrong
            .map(|(node, reasons)| format!("{node}: {reasons:?}, theirs for all: {refused:?}"))
            .collect();
    }
    let mut differences = Vec::new();
    for (node, reasons) in ours {
        let Some(theirs) = theirs.nodes.get(node) else {
            differences.push(format!("{node}: no answer"));
            continue;
        };
        if !is_same(reasons, theirs) {
            differences.push(format!("{node}: {reasons:?}, theirs: {theirs:?}"));
        }
    }
    differences
}

fn is_same(ours: &[Unfit], theirs: &[Refusal]) -> bool {
    let filters: BTreeSet<_> = ours.iter().map(Unfit::filter).collect();
    filters == theirs.iter().map(|refusal| &*refusal.plugin).collect()
        && theirs.iter().all(|refusal| has_same_reasons(ours, refusal))
}

/// Whether our reasons of a filter are theirs, in their words.
fn has_same_reasons(ours: &[Unfit], theirs: &Refusal) -> bool {
    let of_filter = || ours.iter().filter(|unfit| unfit.filter() == theirs.plugin);
    // A node that takes no pods at all is no node where a pod's leaving would help.
    let is_full = of_filter().any(|unfit| matches!(unfit, Unfit::Pods { capacity: 0 }));
    let is_final = of_filter().any(|unfit| !unfit.is_of_neighbours());
    if !is_full && is_final != theirs.is_final {
        return false;
    }
    // Of a taint we say which; which nodes are chosen by name is found out earlier there; a volume
    // that does not exist is of the pod here and of the node there.
    let is_worded_otherwise = theirs.plugin == "TaintToleration"
        || theirs.reasons.iter().any(|reason| reason == "not chosen")
        || of_filter().any(|unfit| matches!(unfit, Unfit::MissingVolume { .. }));
    let texts: BTreeSet<_> = of_filter().map(ToString::to_string).collect();
    let mut said: BTreeSet<_> = theirs.reasons.iter().cloned().collect();
    if theirs.plugin == "VolumeRestrictions" && texts.len() > said.len() {
        // Theirs ends at the disk.
        said.extend(texts.iter().filter(|text| text.contains("ReadWriteOncePod")).cloned());
    }
    is_worded_otherwise || texts == said
}
