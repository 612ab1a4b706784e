//! Evaluates a request on one node, in the engine's terms.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_cel::{COST_LIMIT, CelError, DeviceView, Selector};
use octavo_dra::{Device, DeviceRequest, DeviceTaint, PoolRef, Quantity, TaintEffect, Toleration};
use octavo_engine::devices::Role;
use octavo_engine::gpu::WHOLE;

use super::nodes::{GpuSource, NodeGpus, NodeView};
use super::pools::Pools;

const MIB: i128 = 1 << 20;
/// Most that the selectors of one request may cost on all devices of a node, in Kubernetes' CEL
/// cost units. It is the API's limit for a single device (`CELSelectorExpressionMaxCost` of
/// `resource.k8s.io`). Selectors run on the decision thread of the whole cluster, and no realistic
/// one costs a hundredth of it.
pub(super) const MAX_NODE_COST: u64 = COST_LIMIT;
/// Most that they may cost on all devices of the cluster: a hundred units on each of 100,000
/// devices. Comparing an attribute costs three or four.
pub(super) const MAX_CLUSTER_COST: u64 = 10 * COST_LIMIT;
const NANOS_PER_TENTH_PERCENT: i128 = 100_000_000;

/// A request's result on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fit {
    /// Which devices will do.
    pub(super) kind: FitKind,
    /// Whether all open devices of the kind match, so that the engine may choose among them.
    pub(super) covers_all: bool,
}

/// Which devices of a node match a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FitKind {
    /// None of the open devices, though there are some.
    NoMatch,
    /// All GPUs of the node are closed, so nothing is known about the model.
    AllClosed,
    /// Devices with binding conditions, which this scheduler does not wait for.
    Conditional,
    /// The selectors exceeded their cost limit, so the result is unknown.
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
    /// Placements of instances of a profile.
    Mig(Arc<str>),
    /// Devices that the engine does not model are among the matches, or only the allocator can
    /// tell.
    Other,
}

/// A request with its selectors compiled.
#[derive(Debug)]
pub(super) struct CompiledRequest {
    /// The request, with a toleration of Octavo's own taint; its count is ignored.
    pub(super) request: DeviceRequest,
    /// Selectors of the class and the request. `None` if the class does not exist.
    pub(super) selectors: Option<Vec<Result<Arc<Selector>, CelError>>>,
}

/// How many devices of a kind match.
#[derive(Default)]
struct Count {
    /// Open devices that match.
    accepted: usize,
    /// Open devices that do not match.
    rejected: usize,
}

impl CompiledRequest {
    /// The result on a node, and its cost. The cost may exceed `limit` by one run of a selector.
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
        let consumed = is_wanted
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
                && !self.request.tolerations.iter().any(|toleration| tolerates(toleration, taint))
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

    /// Whether class and request select a device. `None` if a selector fails or the cost exceeds
    /// `limit`.
    fn selects(&self, device: &Device, driver: &str, cost: &mut u64, limit: u64) -> Option<bool> {
        // An unknown class is reported by name when the claim is checked.
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

/// Counts over a node's devices.
#[derive(Default)]
struct DeviceTally {
    open_gpus: usize,
    gpus: Count,
    /// What a claim takes of a GPU, and whether that differs between GPUs.
    consumes: Option<FitKind>,
    consumption_differs: bool,
    places: BTreeMap<Arc<str>, Count>,
    is_other: bool,
    is_conditional: bool,
}

impl DeviceTally {
    /// Counts an open device that does not match.
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
                // MIG may be enabled on some GPUs of a node only, but the engine has one model for
                // all.
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

/// What a claim takes of a GPU: all of it, or a share that the engine can count exactly.
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
    // The engine would place nothing beside a share with all of the compute and part of the memory,
    // though best-effort shares fit there. So only the allocator decides.
    if is_even && milli < WHOLE { FitKind::Share { milli, memory_mib } } else { FitKind::Other }
}

pub(super) fn tolerates(toleration: &Toleration, taint: &DeviceTaint) -> bool {
    toleration.effect.is_none_or(|effect| effect == taint.effect)
        && toleration.key.as_ref().is_none_or(|key| *key == taint.key)
        && toleration.value.as_ref().is_none_or(|value| *value == taint.value)
}
