//! Requests that were asked for, with what they mean on each node: looked at again only where hardware
//! changed.

mod cost_budget;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use octavo_cel::SelectorCache;
use octavo_dra::DeviceRequest;
use octavo_engine::gpu::{ModelId, ModelSet};
use octavo_engine::shape::GpuDemand;
use rustc_hash::FxHashMap;

use super::Devices;
use super::fit::{CompiledRequest, Fit, FitKind, MAX_CLUSTER_COST, MAX_NODE_COST};
use cost_budget::CostBudget;

/// Most forms that are kept; which one goes for another, [`RequestCache::make_room`] says.
const MAX_REQUESTS: usize = 256;
/// Most forms of one ask: all of them have to be kept at once.
pub(super) const MAX_REQUESTS_PER_ASK: usize = 64;
/// Forms that cost less than this to be read again go before others.
const MAX_CHEAP_COST: u64 = MAX_NODE_COST / 100;
/// Rounds for which a form that is not read to its end is kept though nobody asks for it.
const MAX_IDLE_CYCLES: u64 = 64;

/// Forms by their text.
#[derive(Debug, Default)]
pub(super) struct RequestCache {
    selectors: SelectorCache,
    cached: FxHashMap<String, CachedRequest>,
    clock: u64,
    /// The number of uses when the ask that is running began.
    ask_start: u64,
    cycle: u64,
    budget: CostBudget,
}

/// A form and what it means by node.
#[derive(Debug)]
struct CachedRequest {
    request: CompiledRequest,
    last_used: u64,
    used_in_cycle: u64,
    /// The change of hardware up to which it is known.
    revision: u64,
    /// The change of hardware up to which nothing is kept of nodes that changed.
    pruned_revision: u64,
    nodes: BTreeMap<Arc<str>, NodeFit>,
    /// What it cost to find that out, of the nodes as they are.
    cost: u64,
    /// How many nodes of a model it means the same on; without a model the engine has no GPUs there.
    node_counts: BTreeMap<(Option<ModelId>, Fit), u32>,
    /// The most that was seen to be spent on a node.
    max_node_cost: u64,
    /// The node at which its selectors cost too much.
    over_limit: Option<OverLimit>,
    /// Whether there are nodes at which it is not looked yet.
    is_incomplete: bool,
}

/// A node at which selectors cost too much. They are not run again while it is what it was and too much is left
/// of the others.
#[derive(Clone, Copy, Debug)]
struct OverLimit {
    /// The last change of its hardware.
    change: u64,
    scope: CostLimitScope,
    /// What they cost there at least.
    cost: u64,
}

/// What a form means on a node.
#[derive(Debug)]
struct NodeFit {
    model: Option<ModelId>,
    fit: Fit,
    cost: u64,
}

/// Where selectors cost too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostLimitScope {
    /// On the devices of one node.
    OnNode,
    /// On the devices of all nodes together.
    InAll,
}

impl fmt::Display for CostLimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnNode => write!(f, "{MAX_NODE_COST} units on the devices of one node"),
            Self::InAll => {
                write!(f, "{MAX_CLUSTER_COST} units on the devices of all nodes together")
            }
        }
    }
}

/// What a request means on the cluster: for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResolvedDemand {
    /// The least that a node must have for it in the engine's picture: a demand for one. `None`:
    /// nothing can be said.
    pub(super) demand: Option<GpuDemand>,
    /// Models that will do. Of no meaning without a demand.
    pub(super) models: ModelSet,
    /// Whether the demand is all that matters on nodes of the engine's picture.
    pub(super) is_exact: bool,
    /// Whether any node has what will do, and all that have it want conditions met before a pod is bound.
    pub(super) is_conditional: bool,
}

/// Why it is not known what a request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// Its selectors cost too much to be run on each device.
    OverLimit(CostLimitScope),
    /// There are nodes at which it is not looked yet.
    NotEvaluated,
}

impl RequestCache {
    /// Forgets everything: classes or models are others.
    pub(super) fn clear(&mut self) {
        self.cached.clear();
    }

    /// A round of decisions begins.
    pub(super) fn begin_cycle(&mut self) {
        self.cycle += 1;
        self.budget.begin_cycle();
    }

    /// What selectors have cost since the last round began.
    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        self.budget.spent
    }

    /// An ask begins: what it uses is kept until the next one does.
    pub(super) fn begin_ask(&mut self) {
        self.ask_start = self.clock;
    }

    /// What a request means.
    pub(super) fn resolve(
        &mut self,
        devices: &Devices,
        request: &DeviceRequest,
    ) -> Result<ResolvedDemand, Unresolved> {
        self.evaluated(devices, request).map(CachedRequest::resolve)
    }

    /// Nodes that have something that will do, whether it is free or not. `None`: that is not known.
    pub(super) fn nodes(
        &mut self,
        devices: &Devices,
        request: &DeviceRequest,
    ) -> Option<Vec<Arc<str>>> {
        let evaluated = self.evaluated(devices, request).ok()?;
        let has_some = |one: &NodeFit| {
            !matches!(one.fit.kind, FitKind::NoMatch | FitKind::AllClosed | FitKind::Conditional)
        };
        let fitting = evaluated.nodes.iter().filter(|(_, one)| has_some(one));
        Some(fitting.map(|(node, _)| Arc::clone(node)).collect())
    }

    fn evaluated(
        &mut self,
        devices: &Devices,
        request: &DeviceRequest,
    ) -> Result<&CachedRequest, Unresolved> {
        let cache_key = cache_key(request);
        if self.cached.len() >= MAX_REQUESTS
            && !self.cached.contains_key(&cache_key)
            && !self.make_room()
        {
            return Err(Unresolved::NotEvaluated);
        }
        self.clock += 1;
        let selectors = &self.selectors;
        let cached = self.cached.entry(cache_key).or_insert_with(|| {
            let class = devices.classes.class(&request.class);
            let selectors = class.map(|class| {
                let all = class.selectors.iter().chain(&request.selectors);
                all.map(|expression| selectors.get(expression)).collect()
            });
            CachedRequest::new(CompiledRequest { request: request.clone(), selectors })
        });
        (cached.last_used, cached.used_in_cycle) = (self.clock, self.cycle);
        cached.catch_up(devices, &mut self.budget);
        match cached.over_limit {
            Some(over_limit) => Err(Unresolved::OverLimit(over_limit.scope)),
            None if cached.is_incomplete => Err(Unresolved::NotEvaluated),
            None => Ok(cached),
        }
    }

    /// Takes one form out, if one may go: none that the ask that is running needs, nor one that is not read
    /// to its end and still asked for, or they would be begun anew for ever. Of the others one that is cheap
    /// to be read again, if there is one, or nothing is left to be spent; then the one that was not used
    /// longest.
    fn make_room(&mut self) -> bool {
        let may_evict = |cached: &CachedRequest| {
            let is_in_progress =
                cached.is_incomplete && cached.used_in_cycle + MAX_IDLE_CYCLES >= self.cycle;
            let is_protected = self.budget.is_spent() && !cached.is_cheap();
            cached.last_used <= self.ask_start && !is_in_progress && !is_protected
        };
        let others = self.cached.iter().filter(|(_, cached)| may_evict(cached));
        let oldest = others.min_by_key(|(_, cached)| (!cached.is_cheap(), cached.last_used));
        let oldest = oldest.map(|(cache_key, _)| cache_key.clone());
        oldest.is_some_and(|cache_key| self.cached.remove(&cache_key).is_some())
    }
}

impl CachedRequest {
    fn new(request: CompiledRequest) -> Self {
        Self {
            request,
            last_used: 0,
            used_in_cycle: 0,
            revision: 0,
            pruned_revision: 0,
            nodes: BTreeMap::new(),
            cost: 0,
            node_counts: BTreeMap::new(),
            max_node_cost: 0,
            over_limit: None,
            is_incomplete: false,
        }
    }

    fn is_cheap(&self) -> bool {
        self.cost < MAX_CHEAP_COST && self.over_limit.is_none() && !self.is_incomplete
    }

    /// Looks at the nodes that changed since it was last asked.
    fn catch_up(&mut self, devices: &Devices, budget: &mut CostBudget) {
        self.is_incomplete = false;
        if self.revision == devices.revision {
            return;
        }
        // All that are not as they were first: what they cost once is no reason to refuse what there is.
        for (_, name) in devices.changes.range(self.pruned_revision + 1..) {
            self.forget(name);
        }
        self.pruned_revision = devices.revision;
        if let Some(over_limit) = self.over_limit {
            let is_too_much = match over_limit.scope {
                CostLimitScope::OnNode => true,
                CostLimitScope::InAll => {
                    self.cost.saturating_add(over_limit.cost) > MAX_CLUSTER_COST
                }
            };
            if is_too_much && devices.changes.contains_key(&over_limit.change) {
                return;
            }
            self.over_limit = None;
        }
        let mut spent = 0;
        for (number, name) in devices.changes.range(self.revision + 1..) {
            if let Some(view) = devices.nodes.get(name) {
                let Some(for_node) = budget.for_node(spent, self.max_node_cost) else {
                    self.is_incomplete = true;
                    return;
                };
                let of_all = MAX_CLUSTER_COST.saturating_sub(self.cost);
                let (fit, cost) = self.request.fit(view, &devices.pools, of_all.min(for_node));
                budget.spend(cost);
                spent += cost;
                self.max_node_cost = self.max_node_cost.max(cost);
                if fit.kind == FitKind::OverLimit {
                    let scope = if cost > MAX_NODE_COST {
                        CostLimitScope::OnNode
                    } else if cost > of_all {
                        CostLimitScope::InAll
                    } else {
                        self.is_incomplete = true;
                        return;
                    };
                    self.over_limit = Some(OverLimit { change: *number, scope, cost });
                    return;
                }
                self.keep(name, NodeFit { model: devices.model_of(name), fit, cost });
            }
            self.revision = *number;
        }
        self.revision = devices.revision;
    }

    fn keep(&mut self, node: &Arc<str>, evaluated: NodeFit) {
        if evaluated.model.is_none()
            && matches!(evaluated.fit.kind, FitKind::NoMatch | FitKind::AllClosed)
        {
            if evaluated.cost == 0 {
                return;
            }
        } else {
            *self.node_counts.entry((evaluated.model, evaluated.fit.clone())).or_insert(0) += 1;
        }
        self.cost += evaluated.cost;
        self.nodes.insert(Arc::clone(node), evaluated);
    }

    fn forget(&mut self, node: &str) {
        let Some(NodeFit { model, fit, cost }) = self.nodes.remove(node) else { return };
        self.cost -= cost;
        let old = (model, fit);
        if let Some(nodes) = self.node_counts.get_mut(&old) {
            *nodes -= 1;
            if *nodes == 0 {
                self.node_counts.remove(&old);
            }
        }
    }

    fn resolve(&self) -> ResolvedDemand {
        let mut kinds: Vec<&FitKind> = Vec::new();
        let mut models = ModelSet(0);
        let (mut is_exact, mut is_conditional, mut is_served) = (true, false, false);
        for (model, fit) in self.node_counts.keys() {
            is_conditional |= fit.kind == FitKind::Conditional;
            if matches!(fit.kind, FitKind::NoMatch | FitKind::AllClosed | FitKind::Conditional) {
                continue;
            }
            is_served = true;
            let Some(model) = model else { continue };
            models = models.with(*model);
            is_exact &= fit.covers_all;
            if !kinds.contains(&&fit.kind) {
                kinds.push(&fit.kind);
            }
        }
        // A model of which some nodes will do and others will not is not told by its name.
        let is_refused = |(model, fit): &(Option<ModelId>, Fit)| {
            let is_nothing = matches!(fit.kind, FitKind::NoMatch | FitKind::Conditional);
            is_nothing && model.is_some_and(|model| models.has(model))
        };
        is_exact &= !self.node_counts.keys().any(is_refused);
        let demand = match kinds.as_slice() {
            [FitKind::Whole] => Some(GpuDemand::Whole { count: 1 }),
            [FitKind::Share { milli, memory_mib }] => {
                Some(GpuDemand::Share { count: 1, milli: *milli, memory_mib: *memory_mib })
            }
            [FitKind::Mig(profile)] => {
                Some(GpuDemand::Mig { count: 1, profile: Arc::clone(profile) })
            }
            // Nothing that there is will do: a demand that no model serves.
            [] if !is_served => Some(GpuDemand::Whole { count: 1 }),
            _ => None,
        };
        is_exact &= demand.is_some();
        let is_conditional = is_conditional && !is_served;
        ResolvedDemand { demand, models, is_exact, is_conditional }
    }
}

/// Of how many forms these requests are.
pub(super) fn count<'r>(requests: impl Iterator<Item = &'r DeviceRequest>) -> usize {
    requests.map(cache_key).collect::<BTreeSet<_>>().len()
}

/// A text that is the same for requests that mean the same of one device.
fn cache_key(request: &DeviceRequest) -> String {
    let mut cache_key = request.class.clone();
    for selector in &request.selectors {
        let _ = write!(cache_key, "\0s{selector}");
    }
    for (name, amount) in &request.capacity {
        let _ = write!(cache_key, "\0c{name}={amount}");
    }
    for toleration in &request.tolerations {
        let (name, value) = (&toleration.key, &toleration.value);
        let _ = write!(cache_key, "\0t{name:?}{value:?}{:?}", toleration.effect);
    }
    cache_key
}
