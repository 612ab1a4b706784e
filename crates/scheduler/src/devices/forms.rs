//! Requests that were asked for, with what they mean on each node: looked at again only where hardware
//! changed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use octavo_dra::DeviceRequest;
use octavo_dra::cel::Selectors;
use octavo_engine::gpu::{ModelId, ModelSet};
use octavo_engine::shape::GpuDemand;
use rustc_hash::FxHashMap;

use super::Devices;
use super::fit::{Fit, Form, Kind};

/// Most forms that are kept; the one that was not used longest goes.
const MOST: usize = 256;

/// Forms by their text.
#[derive(Debug, Default)]
pub(super) struct Forms {
    selectors: Selectors,
    kept: FxHashMap<String, Kept>,
    uses: u64,
}

/// A form and what it means by node.
#[derive(Debug)]
struct Kept {
    form: Form,
    used: u64,
    /// The change of hardware up to which it is known.
    revision: u64,
    nodes: BTreeMap<Arc<str>, (Option<ModelId>, Fit)>,
    /// How many nodes of a model it means the same on; without a model the engine has no GPUs there.
    sums: BTreeMap<(Option<ModelId>, Fit), u32>,
    /// The change of hardware that brought devices on which its selectors cost too much. They are not run
    /// again while that is the last change of its node.
    costly_since: Option<u64>,
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
    /// Whether its selectors cost too much to be looked at on each node.
    pub(super) is_costly: bool,
}

impl Forms {
    /// Forgets everything: classes or models are others.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// What a request means.
    pub(super) fn meaning(&mut self, devices: &Devices, request: &DeviceRequest) -> Meaning {
        self.known(devices, request).meaning()
    }

    /// Nodes that have something that will do, whether it is free or not.
    pub(super) fn nodes(&mut self, devices: &Devices, request: &DeviceRequest) -> Vec<Arc<str>> {
        let known = self.known(devices, request);
        let has_some =
            |fit: &Fit| !matches!(fit.kind, Kind::Nothing | Kind::AllClosed | Kind::Conditional);
        let fitting = known.nodes.iter().filter(|(_, (_, fit))| has_some(fit));
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
                sums: BTreeMap::new(),
                costly_since: None,
            }
        });
        kept.used = self.uses;
        kept.catch_up(devices);
        kept
    }
}

impl Kept {
    /// Looks at the nodes that changed since it was last asked.
    fn catch_up(&mut self, devices: &Devices) {
        if self.revision == devices.revision {
            return;
        }
        if let Some(change) = self.costly_since {
            if devices.changes.contains_key(&change) {
                return;
            }
            self.costly_since = None;
        }
        let changed = devices.changes.range(self.revision + 1..);
        for (number, name) in changed {
            if let Some(old) = self.nodes.remove(name)
                && let Some(nodes) = self.sums.get_mut(&old)
            {
                *nodes -= 1;
                if *nodes == 0 {
                    self.sums.remove(&old);
                }
            }
            let Some(view) = devices.nodes.get(name) else { continue };
            let new = (devices.model_of(name), self.form.fit(view, &devices.pools));
            if new.1.kind == Kind::Costly {
                self.costly_since = Some(*number);
                return;
            }
            if new.0.is_none() && matches!(new.1.kind, Kind::Nothing | Kind::AllClosed) {
                continue;
            }
            *self.sums.entry(new.clone()).or_insert(0) += 1;
            self.nodes.insert(Arc::clone(name), new);
        }
        self.revision = devices.revision;
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
        Meaning { demand, models, is_exact, is_conditional, is_costly: self.costly_since.is_some() }
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
