//! Requests with their results on each node. A node is evaluated again only after its hardware
//! changed.

mod cost_budget;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use octavo_cel::SelectorCache;
use octavo_dra::DeviceRequest;
use octavo_engine::gpu::{ModelId, ModelSet};
use octavo_engine::shape::GpuDemand;
use octavo_kube_io::objects::NodeName;

use super::Devices;
use super::fit::{CompiledRequest, Fit, FitKind, MAX_CLUSTER_COST, MAX_NODE_COST};
use cost_budget::CostBudget;

/// Most requests that are kept. [`RequestCache::make_room`] chooses the one to evict.
const MAX_REQUESTS: usize = 256;
/// Most distinct requests of one ask, all of which must be kept at once.
pub(super) const MAX_REQUESTS_PER_ASK: usize = 64;
/// Requests that cost less than this to evaluate again are evicted before others.
const MAX_CHEAP_COST: u64 = MAX_NODE_COST / 100;
/// Cycles for which an incomplete request is kept without being asked for.
const MAX_IDLE_CYCLES: u64 = 64;

/// Requests by their text.
#[derive(Debug, Default)]
pub(super) struct RequestCache {
    selectors: SelectorCache,
    cached: HashMap<String, CachedRequest>,
    clock: u64,
    /// The clock when the current ask began.
    ask_start: u64,
    cycle: u64,
    budget: CostBudget,
}

/// A request and its results by node.
#[derive(Debug)]
struct CachedRequest {
    request: CompiledRequest,
    last_used: u64,
    used_in_cycle: u64,
    /// The hardware change up to which it is evaluated.
    revision: u64,
    /// The hardware change up to which results of changed nodes are removed.
    pruned_revision: u64,
    nodes: BTreeMap<NodeName, NodeFit>,
    /// The cost of the current results.
    cost: u64,
    /// Nodes per model and result. Without a model the engine has no GPUs there.
    node_counts: BTreeMap<(Option<ModelId>, Fit), u32>,
    /// The highest cost of a node so far.
    max_node_cost: u64,
    /// The node at which the cost limit was exceeded.
    over_limit: Option<OverLimit>,
    /// Whether nodes are left to evaluate.
    is_incomplete: bool,
}

/// A node at which selectors exceeded the cost limit. They do not run again until its hardware
/// changes, or the other nodes get cheap enough.
#[derive(Clone, Copy, Debug)]
struct OverLimit {
    /// The node's last hardware change.
    change: u64,
    scope: CostLimitScope,
    /// Their least cost there.
    cost: u64,
}

/// A request's result on a node.
#[derive(Debug)]
struct NodeFit {
    model: Option<ModelId>,
    fit: Fit,
    cost: u64,
}

/// The scope of the cost limit that selectors exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostLimitScope {
    /// The devices of one node.
    OnNode,
    /// The devices of all nodes together.
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

/// What one device of a request means on the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResolvedDemand {
    /// The least that a node must have, for a count of one. `None` if nothing can be said.
    pub(super) demand: Option<GpuDemand>,
    /// Models that match. Without a demand it has no meaning.
    pub(super) models: ModelSet,
    /// Whether the demand is exact on nodes with modeled GPUs.
    pub(super) is_exact: bool,
    /// Whether nodes have matching devices, but only ones with binding conditions.
    pub(super) is_conditional: bool,
}

/// Why a request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// Its selectors cost too much to run on each device.
    OverLimit(CostLimitScope),
    /// Nodes are left to evaluate.
    NotEvaluated,
}

impl RequestCache {
    /// Forgets everything, after classes or models changed.
    pub(super) fn clear(&mut self) {
        self.cached.clear();
    }

    /// Starts a scheduling cycle.
    pub(super) fn begin_cycle(&mut self) {
        self.cycle += 1;
        self.budget.begin_cycle();
    }

    /// What selectors have cost in this cycle.
    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        self.budget.spent
    }

    /// Starts an ask. What it uses is kept until the next one starts.
    pub(super) fn begin_ask(&mut self) {
        self.ask_start = self.clock;
    }

    /// The request's demand.
    pub(super) fn resolve(
        &mut self,
        devices: &Devices,
        request: &DeviceRequest,
    ) -> Result<ResolvedDemand, Unresolved> {
        self.evaluated(devices, request).map(CachedRequest::resolve)
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
            let mut request = request.clone();
            request.tolerations.push(devices.own_toleration.clone());
            CachedRequest::new(CompiledRequest { request, selectors })
        });
        (cached.last_used, cached.used_in_cycle) = (self.clock, self.cycle);
        cached.catch_up(devices, &mut self.budget);
        match cached.over_limit {
            Some(over_limit) => Err(Unresolved::OverLimit(over_limit.scope)),
            None if cached.is_incomplete => Err(Unresolved::NotEvaluated),
            None => Ok(cached),
        }
    }

    /// Evicts one request, if one may be evicted. Requests of the current ask stay. So do
    /// incomplete ones that are still asked for: otherwise their evaluation would start over for
    /// ever. Cheap requests are evicted first, and they alone once the budget is spent. Among
    /// equals the least recently used one is evicted.
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

    /// Evaluates the nodes that changed since the last time.
    fn catch_up(&mut self, devices: &Devices, budget: &mut CostBudget) {
        self.is_incomplete = false;
        if self.revision == devices.revision {
            return;
        }
        // Results of changed nodes are removed first: their old cost must not count against the
        // limit.
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

    fn keep(&mut self, node: &NodeName, evaluated: NodeFit) {
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
        self.nodes.insert(node.clone(), evaluated);
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
        // The model's name does not tell nodes that match from those that do not.
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
            // No device matches: a demand that no model serves.
            [] if !is_served => Some(GpuDemand::Whole { count: 1 }),
            _ => None,
        };
        is_exact &= demand.is_some();
        let is_conditional = is_conditional && !is_served;
        ResolvedDemand { demand, models, is_exact, is_conditional }
    }
}

/// How many distinct requests these are.
pub(super) fn count<'r>(requests: impl Iterator<Item = &'r DeviceRequest>) -> usize {
    requests.map(cache_key).collect::<BTreeSet<_>>().len()
}

/// A text that is equal for requests that mean the same for one device.
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
