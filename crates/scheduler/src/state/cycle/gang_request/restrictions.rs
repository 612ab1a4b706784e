//! What earlier attempts of a decision have shown: nodes that fail for pods, and how many members of
//! a subgroup fit one node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::gang::NodeLimit;
use octavo_engine::plan::Placed;
use octavo_engine::solve::NodeSet;
use octavo_engine::{Gang, NodeId, Plan};
use octavo_kube_io::objects::PodUid;

use super::GangRequest;

/// Nodes that failed for pods, by pod UID.
pub(in crate::state) type RuledOutNodes = BTreeMap<PodUid, Arc<NodeSet>>;

/// A place of a plan that would not serve its pod.
#[derive(Debug)]
pub(in crate::state) struct FailedPlace {
    pub(in crate::state) uid: PodUid,
    pub(in crate::state) node: NodeId,
    /// The pods of the plan that would fit there before it.
    pub(in crate::state) fitting: Vec<PodUid>,
}

/// Nodes with a known number of places for members of a class, at most. With more, the least of
/// these numbers holds on all nodes: many groups make a search slow.
const MAX_COUNTED_NODES: usize = 16;

/// What the next request of a decision must respect.
#[derive(Clone, Debug, Default)]
pub(in crate::state) struct Restrictions {
    /// Nodes that have no place for a pod.
    closed: RuledOutNodes,
    classes: Vec<CountedClass>,
    /// Closed nodes, and nodes of which other members of the class may have the places.
    ruled_out: RuledOutNodes,
}

/// Members with equal requests, and how many of them nodes have places for.
#[derive(Clone, Debug)]
struct CountedClass {
    members: Vec<PodUid>,
    most: BTreeMap<NodeId, u32>,
}

impl Restrictions {
    /// Without these nodes.
    pub(in crate::state) fn without(ruled_out: RuledOutNodes) -> Self {
        Self { closed: ruled_out.clone(), classes: Vec::new(), ruled_out }
    }

    /// The nodes that a pod may not have.
    pub(in crate::state) fn ruled_out(&self, uid: &PodUid) -> Option<&Arc<NodeSet>> {
        self.ruled_out.get(uid)
    }

    /// Adds the limit of a member, which holds on all nodes.
    pub(super) fn add_limit(&self, uid: &PodUid, limits: &mut Vec<NodeLimit>) {
        let class = self.classes.iter().find(|class| class.members.contains(uid));
        if let Some(most) = class.and_then(CountedClass::most_on_all) {
            // Far from the numbers of host ports. Groups with the same limit compete for the same.
            limits.push(NodeLimit { over: u32::MAX - most, most });
        }
    }

    /// Notes that a node has places for only some members of a class: those of `place.fitting`.
    /// `classmates` are the class, if it is new.
    fn count(&mut self, place: &FailedPlace, classmates: &[PodUid]) {
        let FailedPlace { uid, node, fitting } = place;
        let known = self.classes.iter().position(|class| class.members.contains(uid));
        let index = known.unwrap_or_else(|| {
            let members = classmates.to_vec();
            self.classes.push(CountedClass { members, most: BTreeMap::new() });
            self.classes.len() - 1
        });
        let class = &mut self.classes[index];
        let alike = fitting.iter().filter(|other| class.members.contains(other)).count();
        let alike = u32::try_from(alike).unwrap_or(u32::MAX);
        if alike == 0 {
            rule_out(&mut self.closed, &class.members, *node);
            class.most.remove(node);
        } else {
            let most = class.most.entry(*node).or_insert(alike);
            *most = (*most).min(alike);
        }
    }

    fn share_places(&mut self) {
        self.ruled_out.clone_from(&self.closed);
        for class in &self.classes {
            class.share_places(&mut self.ruled_out);
        }
    }
}

impl CountedClass {
    /// The members that each node may have, if too many nodes are counted.
    fn most_on_all(&self) -> Option<u32> {
        self.most.values().min().copied().filter(|_| self.most.len() > MAX_COUNTED_NODES)
    }

    /// Gives the places of each counted node to as many members, in turn. It is ruled out for the
    /// others. As members are equal, a plan that the places allow stays possible. The last members
    /// come first: the engine places those that have fewer nodes before them.
    fn share_places(&self, ruled_out: &mut RuledOutNodes) {
        if self.most_on_all().is_some() {
            return;
        }
        let count = self.members.len();
        let mut end = count;
        for (node, most) in &self.most {
            let most = usize::try_from(*most).unwrap_or(count).min(count);
            let others = (0..count - most).map(|offset| &self.members[(end + offset) % count]);
            rule_out(ruled_out, &others.cloned().collect::<Vec<_>>(), *node);
            end = (end + count - most) % count;
        }
    }
}

impl GangRequest {
    /// The request of a pod in no gang.
    pub(in crate::state) fn of_pod(
        uid: &PodUid,
        gang: &Gang,
        forbidden: NodeSet,
        has_uncounted: bool,
    ) -> Self {
        Self {
            gang: gang.clone(),
            pinned: Vec::new(),
            ranks: vec![uid.clone()],
            forbidden,
            incomplete: Vec::new(),
            caveats: BTreeSet::new(),
            shares_claim: false,
            has_uncounted,
        }
    }

    /// Forbids nodes to the groups alone, so that other pods may be moved there.
    pub(in crate::state) fn forbid_by_group(&mut self) {
        let forbidden = std::mem::take(&mut self.forbidden);
        for group in &mut self.gang.groups {
            group.forbidden.extend(&forbidden);
        }
    }

    /// The pods that get places by a plan.
    pub(in crate::state) fn members_of(&self, plan: &Plan) -> Vec<(PodUid, Placed)> {
        let member =
            |placed: &Placed| Some((self.ranks.get(placed.rank as usize)?.clone(), placed.clone()));
        plan.placements.iter().filter_map(member).collect()
    }

    /// Restricts the next request after places of a plan have failed.
    pub(in crate::state) fn restrict(
        &self,
        restrictions: &mut Restrictions,
        failed: &[FailedPlace],
    ) {
        for place in failed {
            let groups = 0..u32::try_from(self.gang.groups.len()).unwrap_or(u32::MAX);
            let mut groupmates = groups.map(|group| self.members_of_group(group));
            let groupmates = groupmates.find(|members| members.contains(&place.uid));
            restrictions.count(place, groupmates.unwrap_or_default());
        }
        restrictions.share_places();
    }
}

/// Records that a node failed for these pods.
pub(in crate::state) fn rule_out(ruled_out: &mut RuledOutNodes, uids: &[PodUid], node: NodeId) {
    let mut last: Option<(Option<Arc<NodeSet>>, Arc<NodeSet>)> = None;
    for uid in uids {
        let before = ruled_out.get(uid).cloned();
        // Usually all of them share one set of nodes.
        let after = match &last {
            Some((last_before, after))
                if last_before.as_ref().map(Arc::as_ptr) == before.as_ref().map(Arc::as_ptr) =>
            {
                Arc::clone(after)
            }
            _ => {
                let mut nodes = before.as_deref().cloned().unwrap_or_default();
                nodes.insert(node);
                Arc::new(nodes)
            }
        };
        ruled_out.insert(uid.clone(), Arc::clone(&after));
        last = Some((before, after));
    }
}
