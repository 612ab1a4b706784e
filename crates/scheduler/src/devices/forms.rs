//! Requests that were asked for, with what they mean on each node: looked at again only where hardware
//! changed.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use octavo_dra::DeviceRequest;
use octavo_dra::cel::Selectors;
use octavo_engine::gpu::{ModelId, ModelSet};
use octavo_engine::shape::GpuDemand;
use rustc_hash::FxHashMap;

use super::Devices;
use super::fit::{Fit, Form, Kind, MOST_COST, MOST_COST_OF_ALL};

/// Most forms that are kept; the one that was not used longest goes.
const MOST: usize = 256;

/// What selectors may cost between two looks at what has changed, about. The rest is found out later, so that
/// nobody's many selectors hold up the decisions on others.
const MOST_COST_OF_ROUND: u64 = MOST_COST;
/// What they may cost for one ask all the same when others have used that up: a few nodes that changed are
/// looked at whoever else asks.
const COST_OF_ASK: u64 = MOST_COST / 100;

/// Forms by their text.
#[derive(Debug, Default)]
pub(super) struct Forms {
    selectors: Selectors,
    kept: FxHashMap<String, Kept>,
    uses: u64,
    /// What selectors may cost yet in this round; `None`: there are no rounds.
    left: Option<u64>,
}

/// A form and what it means by node.
#[derive(Debug)]
struct Kept {
    form: Form,
    used: u64,
    /// The change of hardware up to which it is known.
    revision: u64,
    nodes: BTreeMap<Arc<str>, Known>,
    /// What it cost to find that out, of the nodes as they are.
    cost: u64,
    /// How many nodes of a model it means the same on; without a model the engine has no GPUs there.
    sums: BTreeMap<(Option<ModelId>, Fit), u32>,
    /// The change of hardware that brought devices on which its selectors cost too much. They are not run
    /// again while that is the last change of its node.
    costly_since: Option<(u64, Dearness)>,
    /// Whether there are nodes at which it is not looked yet.
    is_unread: bool,
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
    /// Where its selectors cost too much to be run on each device.
    pub(super) costly: Option<Dearness>,
    /// Whether there are nodes at which it is not looked yet: nothing of this holds before.
    pub(super) is_unread: bool,
}

impl Forms {
    /// Forgets everything: classes or models are others.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// A round of decisions begins.
    pub(super) fn begin_round(&mut self) {
        self.left = Some(MOST_COST_OF_ROUND);
    }

    /// What a request means.
    pub(super) fn meaning(&mut self, devices: &Devices, request: &DeviceRequest) -> Meaning {
        self.known(devices, request).meaning()
    }

    /// Nodes that have something that will do, whether it is free or not.
    pub(super) fn nodes(&mut self, devices: &Devices, request: &DeviceRequest) -> Vec<Arc<str>> {
        let known = self.known(devices, request);
        let has_some = |one: &Known| {
            !matches!(one.fit.kind, Kind::Nothing | Kind::AllClosed | Kind::Conditional)
        };
        let fitting = known.nodes.iter().filter(|(_, one)| has_some(one));
        fitting.map(|(node, _)| Arc::clone(node)).collect()
    }

    fn known(&mut self, devices: &Devices, request: &DeviceRequest) -> &Kept {
        let key = key(request);
        self.uses += 1;
        if self.kept.len() >= MOST && !self.kept.contains_key(&key) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.kept.remove(&oldest);
            }
        }
        let selectors = &self.selectors;
        let kept = self.kept.entry(key).or_insert_with(|| {
            let class = devices.classes.class(&request.class);
            let selectors = class.map(|class| {
                let all = class.selectors.iter().chain(&request.selectors);
                all.map(|expression| selectors.get(expression)).collect()
            });
            Kept {
                form: Form { request: request.clone(), selectors },
                used: 0,
                revision: 0,
                nodes: BTreeMap::new(),
                cost: 0,
                sums: BTreeMap::new(),
                costly_since: None,
                is_unread: false,
            }
        });
        kept.used = self.uses;
        kept.catch_up(devices, &mut self.left);
        kept
    }
}

impl Kept {
    /// Looks at the nodes that changed since it was last asked.
    fn catch_up(&mut self, devices: &Devices, left: &mut Option<u64>) {
        self.is_unread = false;
        if self.revision == devices.revision {
            return;
        }
        if let Some((change, _)) = self.costly_since {
            if devices.changes.contains_key(&change) {
                return;
            }
            self.costly_since = None;
        }
        let changed = devices.changes.range(self.revision + 1..);
        let mut spent = 0;
        for (number, name) in changed {
            if *left == Some(0) && spent >= COST_OF_ASK {
                self.is_unread = true;
                return;
            }
            self.forget(name);
            if let Some(view) = devices.nodes.get(name) {
                let of_all = MOST_COST_OF_ALL.saturating_sub(self.cost);
                let (fit, cost) = self.form.fit(view, &devices.pools, of_all.min(MOST_COST));
                *left = left.map(|left| left.saturating_sub(cost));
                spent += cost;
                if fit.kind == Kind::Costly {
                    let dearness =
                        if cost > MOST_COST { Dearness::OnNode } else { Dearness::InAll };
                    self.costly_since = Some((*number, dearness));
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
        let costly = self.costly_since.map(|(_, dearness)| dearness);
        Meaning { demand, models, is_exact, is_conditional, costly, is_unread: self.is_unread }
    }
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
