//! Requests that were asked for, with what they mean on each node: looked at again only where hardware
//! changed.

mod budget;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use octavo_cel::SelectorCache;
use octavo_dra::DeviceRequest;
use octavo_engine::gpu::{ModelId, ModelSet};
use octavo_engine::shape::GpuDemand;
use rustc_hash::FxHashMap;

use super::Devices;
use super::fit::{Fit, Form, Kind, MOST_COST, MOST_COST_OF_ALL};
use budget::Budget;

/// Most forms that are kept; which one goes for another, [`Forms::make_room`] says.
const MOST: usize = 256;
/// Most forms of one ask: all of them have to be kept at once.
pub(super) const MOST_OF_ASK: usize = 64;
/// Forms that cost less than this to be read again go before others.
const CHEAP: u64 = MOST_COST / 100;
/// Rounds for which a form that is not read to its end is kept though nobody asks for it.
const PATIENCE: u64 = 64;

/// Forms by their text.
#[derive(Debug, Default)]
pub(super) struct Forms {
    selectors: SelectorCache,
    kept: FxHashMap<String, Kept>,
    uses: u64,
    /// The number of uses when the ask that is running began.
    ask: u64,
    round: u64,
    budget: Budget,
}

/// A form and what it means by node.
#[derive(Debug)]
struct Kept {
    form: Form,
    used: u64,
    used_in_round: u64,
    /// The change of hardware up to which it is known.
    revision: u64,
    /// The change of hardware up to which nothing is kept of nodes that changed.
    forgotten: u64,
    nodes: BTreeMap<Arc<str>, Known>,
    /// What it cost to find that out, of the nodes as they are.
    cost: u64,
    /// How many nodes of a model it means the same on; without a model the engine has no GPUs there.
    sums: BTreeMap<(Option<ModelId>, Fit), u32>,
    /// The most that was seen to be spent on a node.
    dearest: u64,
    /// The node at which its selectors cost too much.
    costly: Option<Costly>,
    /// Whether there are nodes at which it is not looked yet.
    is_unread: bool,
}

/// A node at which selectors cost too much. They are not run again while it is what it was and too much is left
/// of the others.
#[derive(Clone, Copy, Debug)]
struct Costly {
    /// The last change of its hardware.
    change: u64,
    dearness: Dearness,
    /// What they cost there at least.
    cost: u64,
}

/// What a form means on a node.
#[derive(Debug)]
struct Known {
    model: Option<ModelId>,
    fit: Fit,
    cost: u64,
}

/// Where selectors cost too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dearness {
    /// On the devices of one node.
    OnNode,
    /// On the devices of all nodes together.
    InAll,
}

impl fmt::Display for Dearness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnNode => write!(f, "{MOST_COST} units on the devices of one node"),
            Self::InAll => {
                write!(f, "{MOST_COST_OF_ALL} units on the devices of all nodes together")
            }
        }
    }
}

/// What a request means on the cluster: for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
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
pub(super) enum Unknown {
    /// Its selectors cost too much to be run on each device.
    Costly(Dearness),
    /// There are nodes at which it is not looked yet.
    Unread,
}

impl Forms {
    /// Forgets everything: classes or models are others.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// A round of decisions begins.
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
        self.budget.begin_round();
    }

    /// What selectors have cost since the last round began.
    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        self.budget.spent
    }

    /// An ask begins: what it uses is kept until the next one does.
    pub(super) fn begin_ask(&mut self) {
        self.ask = self.uses;
    }

    /// What a request means.
    pub(super) fn meaning(
        &mut self,
        devices: &Devices,
        request: &DeviceRequest,
    ) -> Result<Meaning, Unknown> {
        self.known(devices, request).map(Kept::meaning)
    }

    /// Nodes that have something that will do, whether it is free or not. `None`: that is not known.
    pub(super) fn nodes(
        &mut self,
        devices: &Devices,
        request: &DeviceRequest,
    ) -> Option<Vec<Arc<str>>> {
        let known = self.known(devices, request).ok()?;
        let has_some = |one: &Known| {
            !matches!(one.fit.kind, Kind::Nothing | Kind::AllClosed | Kind::Conditional)
        };
        let fitting = known.nodes.iter().filter(|(_, one)| has_some(one));
        Some(fitting.map(|(node, _)| Arc::clone(node)).collect())
    }

    fn known(&mut self, devices: &Devices, request: &DeviceRequest) -> Result<&Kept, Unknown> {
        let key = key(request);
        if self.kept.len() >= MOST && !self.kept.contains_key(&key) && !self.make_room() {
            return Err(Unknown::Unread);
        }
        self.uses += 1;
        let selectors = &self.selectors;
        let kept = self.kept.entry(key).or_insert_with(|| {
            let class = devices.classes.class(&request.class);
            let selectors = class.map(|class| {
                let all = class.selectors.iter().chain(&request.selectors);
                all.map(|expression| selectors.get(expression)).collect()
            });
            Kept::new(Form { request: request.clone(), selectors })
        });
        (kept.used, kept.used_in_round) = (self.uses, self.round);
        kept.catch_up(devices, &mut self.budget);
        match kept.costly {
            Some(costly) => Err(Unknown::Costly(costly.dearness)),
            None if kept.is_unread => Err(Unknown::Unread),
            None => Ok(kept),
        }
    }

    /// Takes one form out, if one may go: none that the ask that is running needs, nor one that is not read
    /// to its end and still asked for, or they would be begun anew for ever. Of the others one that is cheap
    /// to be read again, if there is one, or nothing is left to be spent; then the one that was not used
    /// longest.
    fn make_room(&mut self) -> bool {
        let may_go = |kept: &Kept| {
            let is_begun = kept.is_unread && kept.used_in_round + PATIENCE >= self.round;
            let is_kept_back = self.budget.is_spent() && !kept.is_cheap();
            kept.used <= self.ask && !is_begun && !is_kept_back
        };
        let others = self.kept.iter().filter(|(_, kept)| may_go(kept));
        let oldest = others.min_by_key(|(_, kept)| (!kept.is_cheap(), kept.used));
        let oldest = oldest.map(|(key, _)| key.clone());
        oldest.is_some_and(|key| self.kept.remove(&key).is_some())
    }
}

impl Kept {
    fn new(form: Form) -> Self {
        Self {
            form,
            used: 0,
            used_in_round: 0,
            revision: 0,
            forgotten: 0,
            nodes: BTreeMap::new(),
            cost: 0,
            sums: BTreeMap::new(),
            dearest: 0,
            costly: None,
            is_unread: false,
        }
    }

    fn is_cheap(&self) -> bool {
        self.cost < CHEAP && self.costly.is_none() && !self.is_unread
    }

    /// Looks at the nodes that changed since it was last asked.
    fn catch_up(&mut self, devices: &Devices, budget: &mut Budget) {
        self.is_unread = false;
        if self.revision == devices.revision {
            return;
        }
        // All that are not as they were first: what they cost once is no reason to refuse what there is.
        for (_, name) in devices.changes.range(self.forgotten + 1..) {
            self.forget(name);
        }
        self.forgotten = devices.revision;
        if let Some(costly) = self.costly {
            let is_too_much = match costly.dearness {
                Dearness::OnNode => true,
                Dearness::InAll => self.cost.saturating_add(costly.cost) > MOST_COST_OF_ALL,
            };
            if is_too_much && devices.changes.contains_key(&costly.change) {
                return;
            }
            self.costly = None;
        }
        let mut spent = 0;
        for (number, name) in devices.changes.range(self.revision + 1..) {
            if let Some(view) = devices.nodes.get(name) {
                let Some(of_node) = budget.of_node(spent, self.dearest) else {
                    self.is_unread = true;
                    return;
                };
                let of_all = MOST_COST_OF_ALL.saturating_sub(self.cost);
                let (fit, cost) = self.form.fit(view, &devices.pools, of_all.min(of_node));
                budget.spend(cost);
                spent += cost;
                self.dearest = self.dearest.max(cost);
                if fit.kind == Kind::Costly {
                    let dearness = if cost > MOST_COST {
                        Dearness::OnNode
                    } else if cost > of_all {
                        Dearness::InAll
                    } else {
                        self.is_unread = true;
                        return;
                    };
                    self.costly = Some(Costly { change: *number, dearness, cost });
                    return;
                }
                self.keep(name, Known { model: devices.model_of(name), fit, cost });
            }
            self.revision = *number;
        }
        self.revision = devices.revision;
    }

    fn keep(&mut self, node: &Arc<str>, known: Known) {
        if known.model.is_none() && matches!(known.fit.kind, Kind::Nothing | Kind::AllClosed) {
            if known.cost == 0 {
                return;
            }
        } else {
            *self.sums.entry((known.model, known.fit.clone())).or_insert(0) += 1;
        }
        self.cost += known.cost;
        self.nodes.insert(Arc::clone(node), known);
    }

    fn forget(&mut self, node: &str) {
        let Some(Known { model, fit, cost }) = self.nodes.remove(node) else { return };
        self.cost -= cost;
        let old = (model, fit);
        if let Some(nodes) = self.sums.get_mut(&old) {
            *nodes -= 1;
            if *nodes == 0 {
                self.sums.remove(&old);
            }
        }
    }

    fn meaning(&self) -> Meaning {
        let mut kinds: Vec<&Kind> = Vec::new();
        let mut models = ModelSet(0);
        let (mut is_exact, mut is_conditional, mut is_served) = (true, false, false);
        for (model, fit) in self.sums.keys() {
            is_conditional |= fit.kind == Kind::Conditional;
            if matches!(fit.kind, Kind::Nothing | Kind::AllClosed | Kind::Conditional) {
                continue;
            }
            is_served = true;
            let Some(model) = model else { continue };
            models = models.with(*model);
            is_exact &= fit.is_full;
            if !kinds.contains(&&fit.kind) {
                kinds.push(&fit.kind);
            }
        }
        // A model of which some nodes will do and others will not is not told by its name.
        let is_refused = |(model, fit): &(Option<ModelId>, Fit)| {
            let is_nothing = matches!(fit.kind, Kind::Nothing | Kind::Conditional);
            is_nothing && model.is_some_and(|model| models.has(model))
        };
        is_exact &= !self.sums.keys().any(is_refused);
        let demand = match kinds.as_slice() {
            [Kind::Whole] => Some(GpuDemand::Whole { count: 1 }),
            [Kind::Share { milli, memory_mib }] => {
                Some(GpuDemand::Share { count: 1, milli: *milli, memory_mib: *memory_mib })
            }
            [Kind::Mig(profile)] => Some(GpuDemand::Mig { count: 1, profile: Arc::clone(profile) }),
            // Nothing that there is will do: a demand that no model serves.
            [] if !is_served => Some(GpuDemand::Whole { count: 1 }),
            _ => None,
        };
        is_exact &= demand.is_some();
        let is_conditional = is_conditional && !is_served;
        Meaning { demand, models, is_exact, is_conditional }
    }
}

/// Of how many forms these requests are.
pub(super) fn count<'r>(requests: impl Iterator<Item = &'r DeviceRequest>) -> usize {
    requests.map(key).collect::<BTreeSet<_>>().len()
}

/// A text that is the same for requests that mean the same of one device.
fn key(request: &DeviceRequest) -> String {
    let mut key = request.class.clone();
    for selector in &request.selectors {
        let _ = write!(key, "\0s{selector}");
    }
    for (name, amount) in &request.capacity {
        let _ = write!(key, "\0c{name}={amount}");
    }
    for toleration in &request.tolerations {
        let (name, value) = (&toleration.key, &toleration.value);
        let _ = write!(key, "\0t{name:?}{value:?}{:?}", toleration.effect);
    }
    key
}
