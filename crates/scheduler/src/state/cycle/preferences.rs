//! What pods prefer, as penalties of nodes in the engine's requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_api::names::LABEL_CLIQUE;
use octavo_engine::NodeId;
use octavo_engine::objective::CostTerm;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_kube_io::objects::{Node, PodUid};

use crate::devices::{Ask, Feasibility};
use crate::predicates::{NodeFilterKey, Scores, has_preferences};
use crate::state::cache::Cache;
use crate::state::cycle::gang_request::GangRequest;

impl Cache {
    /// By how many points nodes are below the best one for a pod. Nodes that node rules or other
    /// pods exclude do not count, and for requests with alternatives nodes without devices. Empty if
    /// the policy does not compare preferences.
    pub(in crate::state) fn penalties(
        &self,
        uid: &PodUid,
        ask: &Ask,
        policy: &PlacementPolicy,
    ) -> Arc<BTreeMap<NodeId, u32>> {
        let Some(record) = self.pod(uid) else { return Arc::default() };
        let pod = &record.pod;
        let has_alternatives = ask.has_alternatives();
        let cliques = ask.domain().map(|domain| self.cliques_of_domain(domain)).unwrap_or_default();
        let is_any =
            has_alternatives || !cliques.is_empty() || has_preferences(pod, self.neighbours());
        if !policy.has(CostTerm::PreferencesMissed) || !is_any {
            return Arc::default();
        }
        let rules = match &record.node_mask {
            Some((_, rules, _)) => rules.clone(),
            None => NodeFilterKey::of(pod, self.volumes()),
        };
        let away = self.exclusions(uid);
        let nodes = self.nodes().values().map(|record| &record.node);
        let mut candidates: Vec<_> =
            nodes.filter(|node| rules.check(node).is_ok() && away.check(node).is_ok()).collect();
        let mut alternatives: Vec<i64> = Vec::new();
        if has_alternatives {
            let wish = self.devices().request_key(ask);
            candidates.retain(|node| {
                let found = self.devices().feasibility(ask, wish, &node.meta.name.name);
                let Feasibility::Feasible { list_score } = found else { return false };
                alternatives.push(i64::from(list_score));
                true
            });
        }
        let mut scores = Scores::of(pod, self.neighbours(), &rules, &candidates);
        if has_alternatives {
            scores.add_devices(&alternatives);
        }
        if !cliques.is_empty() {
            let is_near = |node: &&Arc<Node>| {
                node.meta.labels.get(LABEL_CLIQUE).is_some_and(|clique| cliques.contains(clique))
            };
            scores.add_domain(&candidates.iter().map(is_near).collect::<Vec<_>>());
        }
        let known = scores.penalties().filter_map(|(node, points)| {
            let id = self.engine().node(node)?;
            Some((id, points))
        });
        Arc::new(known.collect())
    }

    /// The NVLink cliques in which a `ComputeDomain` has nodes.
    fn cliques_of_domain(&self, domain: &str) -> BTreeSet<String> {
        let nodes = self.devices().domain_nodes(domain);
        let nodes = nodes.iter().filter_map(|name| self.nodes().get(name.as_str()));
        nodes.filter_map(|record| record.node.meta.labels.get(LABEL_CLIQUE).cloned()).collect()
    }

    /// Adds what the members of a gang prefer to its request. The first pending member of a group
    /// stands for all of them. Members of the same decision do not count for each other.
    pub(in crate::state) fn add_preferences(
        &self,
        request: &mut GangRequest,
        policy: &PlacementPolicy,
    ) {
        for number in 0..request.gang.groups.len() {
            let members = request.members_of_group(u32::try_from(number).unwrap_or(u32::MAX));
            let is_pending =
                |uid: &&PodUid| self.pod(uid).is_some_and(|record| record.place.is_none());
            let Some(first) = members.iter().find(is_pending) else { continue };
            let record = self.pod(first);
            let ask = record.and_then(|record| self.devices().ask(&record.pod).ok());
            let Some(ask) = ask else { continue };
            request.gang.groups[number].penalties = self.penalties(first, &ask, policy);
        }
    }
}
