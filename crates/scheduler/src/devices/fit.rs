//! What a request means on one node, in the engine's terms.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_cel::{COST_LIMIT, CelError, DeviceView, Selector};
use octavo_dra::{Device, DeviceRequest, DeviceTaint, PoolRef, Quantity, TaintEffect, Toleration};
use octavo_engine::devices::Role;
use octavo_engine::gpu::WHOLE;

use super::nodes::{GpuSource, NodeGpus, NodeView, is_own_taint};
use super::pools::Pools;

const MIB: i128 = 1 << 20;
/// What the selectors of one request may cost on all devices of a node together, in the units of Kubernetes:
/// as much as the API lets them cost on one (`CELSelectorExpressionMaxCost` of `resource.k8s.io`). Whoever
/// decides for a whole cluster is held up by each of them, and no real selector costs a hundredth of it.
pub(super) const MAX_NODE_COST: u64 = COST_LIMIT;
/// What they may cost on all devices of the cluster together: a hundred units on each of 100,000 devices, of
/// which a comparison of an attribute takes three or four.
pub(super) const MAX_CLUSTER_COST: u64 = 10 * COST_LIMIT;
const NANOS_PER_TENTH_PERCENT: i128 = 100_000_000;

/// What a request means on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fit {
    /// Which devices will do.
    pub(super) kind: FitKind,
    /// Whether all that are open of the kind will do, so that the engine may choose.
    pub(super) covers_all: bool,
}

/// Which devices of a node will do for a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FitKind {
    /// None of those that are open, and some are.
    NoMatch,
    /// None is open of the GPUs that there are: nothing can be told of the model.
    AllClosed,
    /// Devices that wait for conditions before a pod is bound, which is not done here.
    Conditional,
    /// The selectors cost more than was left for them: it was not found out.
    OverLimit,
    /// Whole GPUs.
    Whole,
    /// Parts of GPUs.
    Share {
        /// Thousandths of compute.
        milli: u16,
        /// MiB.
        memory_mib: u32,
    },
    /// Places for instances of a profile.
    Mig(Arc<str>),
    /// Devices that the engine does not picture, also or alone; or the node has to be asked.
    Other,
}

/// A request with its selectors compiled.
#[derive(Debug)]
pub(super) struct CompiledRequest {
    /// What is asked for; how many is of no meaning here.
    pub(super) request: DeviceRequest,
    /// Class's and own. `None`: there is no such class.
    pub(super) selectors: Option<Vec<Result<Arc<Selector>, CelError>>>,
}

/// How many devices of a kind will do.
#[derive(Default)]
struct Count {
    /// So many, and they are free to take.
    accepted: usize,
    /// Others of the kind, open as well, will not.
    rejected: usize,
}

impl CompiledRequest {
    /// What it means on a node, and what it cost to find that out: `limit` at the most, and one more run of a
    /// selector.
    pub(super) fn fit(&self, node: &NodeView, pools: &Pools, limit: u64) -> (Fit, u64) {
        let gpus = node.gpus.as_ref().ok().and_then(Option::as_ref);
        let mut tally = DeviceTally::default();
        let mut cost = 0;
        for name in &node.pools {
            let Some(pool) = pools.pool(name) else { continue };
            let newest = pool.slices().map(|slice| slice.generation).max();
            for slice in pool.slices().filter(|slice| Some(slice.generation) == newest) {
                for device in &slice.devices {
                    let role = gpus.and_then(|gpus| role(gpus, name, device));
                    let is_wanted = self.selects(device, &slice.driver, &mut cost, limit);
                    if cost > limit {
                        return (Fit { kind: FitKind::OverLimit, covers_all: false }, cost);
                    }
                    self.count(device, is_wanted, role, gpus, &mut tally);
                }
            }
        }
        (tally.fit(gpus), cost)
    }

    fn count(
        &self,
        device: &Device,
        is_wanted: Option<bool>,
        role: Option<Role<'_>>,
        gpus: Option<&NodeGpus>,
        tally: &mut DeviceTally,
    ) {
        let gpu = role.map(|role| match role {
            Role::Gpu { gpu } | Role::MigInstance { gpu, .. } => gpu,
        });
        let is_closed = gpu.zip(gpus).is_some_and(|(gpu, gpus)| {
            gpus.devices.gpus.get(usize::from(gpu)).is_some_and(|gpu| gpu.is_closed)
        });
        if let (Some(Role::Gpu { .. }), false) = (role, is_closed) {
            tally.open_gpus += 1;
        }
        let Some(is_wanted) = is_wanted else {
            tally.is_other = true;
            return;
        };
        let consumed =
            is_wanted
            .then(|| octavo_dra::consumed_capacity(device, &self.request.capacity))
            .flatten();
        let Some(consumed) = consumed else {
            if !is_closed {
                tally.reject(role);
            }
            return;
        };
        if !device.binding_conditions.is_empty() {
            tally.is_conditional = true;
            tally.reject(role);
            return;
        }
        let stands = |taint: &&DeviceTaint| {
            taint.effect != TaintEffect::None
                && !is_own_taint(taint)
                && !self.request.tolerations.iter().any(|one| tolerates(one, taint))
        };
        let is_tainted = device.taints.iter().any(|taint| stands(&taint));
        match role {
            _ if is_closed => tally.is_other |= !is_tainted,
            None => tally.is_other |= !is_tainted,
            Some(_) if is_tainted => tally.reject(role),
            Some(Role::Gpu { .. }) => tally.accept_gpu(device, &consumed),
            Some(Role::MigInstance { profile, .. }) => {
                tally.places.entry(profile.into()).or_default().accepted += 1;
            }
        }
    }

    /// Whether class and request want a device; `None` where a selector cannot say, or it costs more than `limit`.
    fn selects(&self, device: &Device, driver: &str, cost: &mut u64, limit: u64) -> Option<bool> {
        // An unknown class is said by name when the claim is looked at.
        let Some(selectors) = &self.selectors else { return Some(false) };
        for selector in selectors {
            let selector = selector.as_ref().ok()?;
            if !selector.matches_with_cost(DeviceView { driver, device }, cost).ok()? {
                return Some(false);
            }
            if *cost > limit {
                return None;
            }
        }
        Some(true)
    }
}

/// What is seen of a node's devices.
#[derive(Default)]
struct DeviceTally {
    open_gpus: usize,
    gpus: Count,
    /// What a claim takes of a GPU, and whether it takes the same of all.
    consumes: Option<FitKind>,
    consumption_differs: bool,
    places: BTreeMap<Arc<str>, Count>,
    is_other: bool,
    is_conditional: bool,
}

impl DeviceTally {
    /// A device that is open will not do.
    fn reject(&mut self, role: Option<Role<'_>>) {
        match role {
            Some(Role::Gpu { .. }) => self.gpus.rejected += 1,
            Some(Role::MigInstance { profile, .. }) => {
                self.places.entry(profile.into()).or_default().rejected += 1;
            }
            None => {}
        }
    }

    fn accept_gpu(&mut self, device: &Device, consumed: &BTreeMap<&str, Quantity>) {
        let consumes = consumes(device, consumed);
        self.consumption_differs |=
            self.consumes.as_ref().is_some_and(|before| *before != consumes);
        self.consumes = Some(consumes);
        self.gpus.accepted += 1;
    }

    fn fit(self, gpus: Option<&NodeGpus>) -> Fit {
        let mut profiles = self.places.iter().filter(|(_, count)| count.accepted > 0);
        let (profile, more) = (profiles.next(), profiles.next());
        let of = |kind, covers_all| Fit { kind, covers_all };
        match (self.consumes, profile, more) {
            _ if self.is_other || self.consumption_differs => of(FitKind::Other, false),
            (Some(kind), None, None) => of(kind, self.gpus.rejected == 0),
            (None, Some((profile, count)), None) => {
                // GPUs of one node may be cut and others not: the engine knows a model alone.
                let model = gpus.and_then(|gpus| gpus.devices.model.profile(profile));
                let places = model.map_or(0, |profile| profile.starts.len()) * self.open_gpus;
                of(
                    FitKind::Mig(Arc::clone(profile)),
                    count.rejected == 0 && count.accepted == places,
                )
            }
            (None, None, _) if self.is_conditional => of(FitKind::Conditional, false),
            (None, None, _) if self.open_gpus == 0 => of(FitKind::AllClosed, true),
            (None, None, _) => of(FitKind::NoMatch, true),
            _ => of(FitKind::Other, false),
        }
    }
}

/// What a device is to the engine.
fn role<'g>(gpus: &'g NodeGpus, pool: &PoolRef, device: &Device) -> Option<Role<'g>> {
    match &gpus.source {
        GpuSource::Pool(pool_ref) if pool_ref == pool => gpus.devices.role(&device.name),
        _ => None,
    }
}

/// What a claim takes of a GPU: all of it, or a part that the engine can count exactly.
fn consumes(device: &Device, consumed: &BTreeMap<&str, Quantity>) -> FitKind {
    if !device.allow_multiple {
        return FitKind::Whole;
    }
    let all = device.capacity.get("memory").map_or(0, |memory| memory.value.value() / MIB);
    let Some(memory) = consumed.get("memory") else { return FitKind::Other };
    if memory.value() / MIB >= all {
        return FitKind::Whole;
    }
    let is_counted = |name: &&&str| matches!(**name, "memory" | "compute");
    let is_more = consumed.keys().filter(is_counted).count() < consumed.len();
    let compute = consumed.get("compute").map(|compute| compute.nanos());
    let (Some(compute), false) = (compute, is_more) else { return FitKind::Other };
    let milli = u16::try_from(compute / NANOS_PER_TENTH_PERCENT).unwrap_or(u16::MAX);
    let memory_mib = u32::try_from(memory.value() / MIB).unwrap_or(u32::MAX);
    let is_even = compute % NANOS_PER_TENTH_PERCENT == 0
        && memory.is_whole()
        && memory.value() % MIB == 0
        && memory_mib > 0;
    // All of the compute and not all of the memory is beyond the engine: it lets nobody in beside.
    if is_even && milli < WHOLE { FitKind::Share { milli, memory_mib } } else { FitKind::Other }
}

fn tolerates(toleration: &Toleration, taint: &DeviceTaint) -> bool {
    toleration.effect.is_none_or(|effect| effect == taint.effect)
        && toleration.key.as_ref().is_none_or(|key| *key == taint.key)
        && toleration.value.as_ref().is_none_or(|value| *value == taint.value)
}
