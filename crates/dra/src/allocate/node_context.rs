//! A node with its candidate devices, in search order.

use std::ops::Range;

use super::error::{AllocateError, DeviceRef};
use super::mismatch::Mismatch;
use super::plan::Alternative;
use super::{Allocator, capacity, taints, verdict_cache};
use crate::features::Feature;
use crate::node::Node;
use crate::pools::{DeviceId, NodePool, NodePoolsError, PoolState, Published, is_reachable};
use crate::slice::NodeScope;

/// A node, its pools and their devices.
pub(super) struct NodeContext<'s, 'a> {
    pub(super) allocator: &'s Allocator<'a>,
    pub(super) node: &'s Node,
    pub(super) pools: Vec<NodePool>,
    /// Devices of ready pools, in search order.
    pub(super) candidates: Vec<Candidate>,
    /// The candidates of each pool.
    pub(super) candidates_by_pool: Vec<Range<usize>>,
}

/// A device that the search may try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Index of the device.
    pub(super) device: usize,
    /// Index of its pool generation.
    pub(super) generation: usize,
    /// Its identity.
    pub(super) id: DeviceId,
}

impl<'s, 'a> NodeContext<'s, 'a> {
    pub(super) fn new(allocator: &'s Allocator<'a>, node: &'s Node) -> Result<Self, AllocateError> {
        let inventory = &allocator.inventory;
        let pools = inventory.node_pools(node).map_err(|NodePoolsError { slice, error }| {
            AllocateError::NodeSelector { slice, error }
        })?;
        let mut context =
            Self { allocator, node, pools, candidates: Vec::new(), candidates_by_pool: Vec::new() };
        for pool in &context.pools {
            let first = context.candidates.len();
            if pool.is_ready() {
                let devices =
                    pool.slices.iter().flat_map(|&slice| inventory.devices_of[slice].clone());
                context.candidates.extend(devices.map(|device| {
                    let id = inventory.published(device).id;
                    Candidate { device, generation: pool.generation, id }
                }));
            }
            context.candidates_by_pool.push(first..context.candidates.len());
        }
        Ok(context)
    }

    /// Keeps only the devices for which `is_eligible(driver, pool, name)` is true.
    pub(super) fn restricted_to(mut self, is_eligible: &dyn Fn(&str, &str, &str) -> bool) -> Self {
        let inventory = &self.allocator.inventory;
        let mut candidates = Vec::with_capacity(self.candidates.len());
        for range in &mut self.candidates_by_pool {
            let first = candidates.len();
            candidates.extend(self.candidates[range.clone()].iter().copied().filter(|candidate| {
                let published = inventory.published(candidate.device);
                let slice = inventory.slices[published.slice];
                is_eligible(&slice.driver, &slice.pool, &published.device.name)
            }));
            *range = first..candidates.len();
        }
        self.candidates = candidates;
        self
    }

    /// The device as its slice publishes it.
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

    /// Whether several claims may hold shares of a device.
    pub(super) fn is_shareable(&self, device: usize) -> bool {
        self.has(Feature::ConsumableCapacity) && self.published(device).device.allow_multiple
    }

    /// Whether a feature is on.
    pub(super) fn has(&self, feature: Feature) -> bool {
        self.allocator.features.has(feature)
    }

    /// Checks the selectors of class and request, and that the node can reach the device.
    pub(super) fn check_selectors(
        &self,
        wanted: &'s Alternative<'s>,
        device: usize,
    ) -> Result<(), Mismatch<'s>> {
        let Allocator { inventory, slice_index, .. } = self.allocator;
        let published = self.published(device);
        if !self.has(Feature::BindingConditions) && !published.device.binding_conditions.is_empty()
        {
            return Err(Mismatch::FeatureOff(Feature::BindingConditions));
        }
        let of_class = wanted.class_selectors.iter().map(|one| (Some(wanted.class), one));
        let own = wanted.selectors.iter().map(|one| (None, one));
        for (class, verdicts) in of_class.chain(own) {
            let expression = verdicts.expression.as_str();
            match slice_index.verdict_cache.verdict(inventory, verdicts, device) {
                Ok(true) => {}
                Ok(false) => return Err(Mismatch::Selector { class, expression }),
                Err(error) => {
                    let error = verdict_cache::for_device(error, &published.device.name);
                    return Err(Mismatch::Cel { class, error });
                }
            }
        }
        let slice = inventory.slices[published.slice];
        if slice.nodes == NodeScope::PerDevice {
            let scope = published.device.nodes.as_ref();
            match scope.map(|scope| is_reachable(scope, self.node)) {
                Some(Ok(true)) => {}
                Some(Err(error)) => return Err(Mismatch::NodeSelector(&slice.name, error)),
                Some(Ok(false)) | None => return Err(Mismatch::OtherNode),
            }
        }
        Ok(())
    }

    /// Checks the capacity that allocated claims and the `extra` billionths of a partial allocation
    /// leave.
    pub(super) fn check_capacity(
        &self,
        wanted: &'s Alternative<'s>,
        device: usize,
        extra: impl Fn(&str) -> i128,
    ) -> Result<(), Mismatch<'s>>
    where
        'a: 's,
    {
        if !self.has(Feature::ConsumableCapacity) {
            return Ok(());
        }
        let published = self.published(device);
        let usage = self.allocator.allocated.of(published.id);
        let used = |name: &str| {
            let held = usage.and_then(|usage| usage.used.get(name)).copied().unwrap_or(0);
            held.saturating_add(extra(name))
        };
        capacity::check(published.device, &wanted.ask.capacity, used).map_err(Mismatch::Capacity)
    }

    /// Checks that the request tolerates the device's taints.
    pub(super) fn check_taints(
        &self,
        wanted: &'s Alternative<'s>,
        device: usize,
    ) -> Result<(), Mismatch<'s>>
    where
        'a: 's,
    {
        let taint = taints::untolerated(self.published(device).device, &wanted.ask.tolerations);
        match taint.filter(|_| self.has(Feature::DeviceTaints)) {
            Some(taint) => Err(Mismatch::Taint(taint)),
            None => Ok(()),
        }
    }

    /// The first pool of the node that contradicts itself, as an error.
    pub(super) fn invalid_pool(&self) -> Option<AllocateError> {
        self.pools.iter().find_map(|pool| match &pool.state {
            PoolState::Invalid(defect) => {
                let pool = self.allocator.inventory.pool_ref_of(pool.generation);
                Some(AllocateError::InvalidPool { pool, defect: defect.clone() })
            }
            _ => None,
        })
    }
}
