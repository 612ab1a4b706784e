//! A node with the devices that may be tried for it, in order.

use std::ops::Range;

use super::obstacle::Obstacle;
use super::plan::Alternative;
use super::refusal::{DeviceRef, Refusal};
use super::{Allocator, capacity, selection, taints};
use crate::features::Feature;
use crate::node::Node;
use crate::pools::{DeviceId, GatherError, NodePool, PoolState, Published, is_reachable};
use crate::slice::NodeScope;

/// A node, its pools and their devices.
pub(super) struct Scene<'s, 'a> {
    pub(super) allocator: &'s Allocator<'a>,
    pub(super) node: &'s Node,
    pub(super) pools: Vec<NodePool>,
    /// Devices of pools that are ready, in the order in which they are tried.
    pub(super) candidates: Vec<Candidate>,
    /// The candidates of each pool.
    pub(super) of_pool: Vec<Range<usize>>,
}

/// A device that may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The device, as an index.
    pub(super) device: usize,
    /// Its pool's generation, as an index.
    pub(super) edition: usize,
    /// Its identity.
    pub(super) id: DeviceId,
}

impl<'s, 'a> Scene<'s, 'a> {
    pub(super) fn new(allocator: &'s Allocator<'a>, node: &'s Node) -> Result<Self, Refusal> {
        let inventory = &allocator.inventory;
        let pools = inventory
            .pools_of(node)
            .map_err(|GatherError { slice, error }| Refusal::NodeSelector { slice, error })?;
        let mut scene =
            Self { allocator, node, pools, candidates: Vec::new(), of_pool: Vec::new() };
        for pool in &scene.pools {
            let first = scene.candidates.len();
            if pool.is_ready() {
                let devices =
                    pool.slices.iter().flat_map(|&slice| inventory.devices_of[slice].clone());
                scene.candidates.extend(devices.map(|device| {
                    let id = inventory.published(device).id;
                    Candidate { device, edition: pool.edition, id }
                }));
            }
            scene.of_pool.push(first..scene.candidates.len());
        }
        Ok(scene)
    }

    /// The same with fewer devices: those that are meant, by driver, pool and name.
    pub(super) fn narrowed(mut self, is_meant: &dyn Fn(&str, &str, &str) -> bool) -> Self {
        let inventory = &self.allocator.inventory;
        let mut candidates = Vec::with_capacity(self.candidates.len());
        for range in &mut self.of_pool {
            let first = candidates.len();
            candidates.extend(self.candidates[range.clone()].iter().copied().filter(|candidate| {
                let published = inventory.published(candidate.device);
                let slice = inventory.slices[published.slice];
                is_meant(&slice.driver, &slice.pool, &published.device.name)
            }));
            *range = first..candidates.len();
        }
        self.candidates = candidates;
        self
    }

    /// What is published of a device.
    pub(super) fn published(&self, device: usize) -> Published<'a> {
        self.allocator.inventory.published(device)
    }

    /// The driver of a device.
    pub(super) fn driver(&self, device: usize) -> &'a str {
        let inventory = &self.allocator.inventory;
        &inventory.slices[inventory.published(device).slice].driver
    }

    /// The name of a device.
    pub(super) fn device_ref(&self, device: usize) -> DeviceRef {
        let inventory = &self.allocator.inventory;
        let published = inventory.published(device);
        let slice = inventory.slices[published.slice];
        DeviceRef {
            driver: slice.driver.clone(),
            pool: slice.pool.clone(),
            device: published.device.name.clone(),
        }
    }

    /// Whether several claims may be given a device at once.
    pub(super) fn is_shareable(&self, device: usize) -> bool {
        self.has(Feature::ConsumableCapacity) && self.published(device).device.allow_multiple
    }

    /// Whether a feature is on.
    pub(super) fn has(&self, feature: Feature) -> bool {
        self.allocator.features.has(feature)
    }

    /// Whether the class and the request want a device and the node can reach it.
    pub(super) fn select(
        &self,
        wanted: &'s Alternative<'s>,
        device: usize,
    ) -> Result<(), Obstacle<'s>> {
        let Allocator { inventory, survey, .. } = self.allocator;
        let published = self.published(device);
        if !self.has(Feature::BindingConditions) && !published.device.binding_conditions.is_empty()
        {
            return Err(Obstacle::FeatureOff(Feature::BindingConditions));
        }
        let of_class = wanted.class_selectors.iter().map(|one| (Some(wanted.class), one));
        let own = wanted.selectors.iter().map(|one| (None, one));
        for (class, verdicts) in of_class.chain(own) {
            let expression = verdicts.expression.as_str();
            match survey.selection.verdict(inventory, verdicts, device) {
                Ok(true) => {}
                Ok(false) => return Err(Obstacle::Selector { class, expression }),
                Err(error) => {
                    let error = selection::said_of(error, &published.device.name);
                    return Err(Obstacle::Cel { class, error });
                }
            }
        }
        let slice = inventory.slices[published.slice];
        if slice.nodes == NodeScope::PerDevice {
            let scope = published.device.nodes.as_ref();
            match scope.map(|scope| is_reachable(scope, self.node)) {
                Some(Ok(true)) => {}
                Some(Err(error)) => return Err(Obstacle::NodeSelector(&slice.name, error)),
                Some(Ok(false)) | None => return Err(Obstacle::OtherNode),
            }
        }
        Ok(())
    }

    /// Whether a device has what is asked of its capacity, beside what claims have and what `extra`
    /// is taken tentatively.
    pub(super) fn measure(
        &self,
        wanted: &'s Alternative<'s>,
        device: usize,
        extra: impl Fn(&str) -> i128,
    ) -> Result<(), Obstacle<'s>>
    where
        'a: 's,
    {
        if !self.has(Feature::ConsumableCapacity) {
            return Ok(());
        }
        let published = self.published(device);
        let holding = self.allocator.holdings.of(published.id);
        let used = |name: &str| {
            let held = holding.and_then(|holding| holding.used.get(name)).copied().unwrap_or(0);
            held.saturating_add(extra(name))
        };
        capacity::check(published.device, &wanted.ask.capacity, used).map_err(Obstacle::Capacity)
    }

    /// Whether the request tolerates a device's taints.
    pub(super) fn tolerate(
        &self,
        wanted: &'s Alternative<'s>,
        device: usize,
    ) -> Result<(), Obstacle<'s>>
    where
        'a: 's,
    {
        let taint = taints::untolerated(self.published(device).device, &wanted.ask.tolerations);
        match taint.filter(|_| self.has(Feature::DeviceTaints)) {
            Some(taint) => Err(Obstacle::Taint(taint)),
            None => Ok(()),
        }
    }

    /// The first pool of the node that contradicts itself.
    pub(super) fn invalid_pool(&self) -> Option<Refusal> {
        self.pools.iter().find_map(|pool| match &pool.state {
            PoolState::Invalid(defect) => {
                let pool = self.allocator.inventory.pool_ref_of(pool.edition);
                Some(Refusal::InvalidPool { pool, defect: defect.clone() })
            }
            _ => None,
        })
    }
}
