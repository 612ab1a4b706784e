//! Which devices a container gets (pure). The order of the checks, and the texts, are the kubelet's.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::allocations::{Allocations, ContainerKey};
use super::resources::{DeviceId, ResourceName, Resources};

/// Devices of init containers that later containers of their pod take first, by resource.
pub(crate) type Reusable = BTreeMap<ResourceName, BTreeSet<DeviceId>>;

/// What a container asks of a resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// The container.
    pub(crate) key: ContainerKey<'a>,
    /// The resource.
    pub(crate) resource: &'a str,
    /// Number of devices.
    pub(crate) count: usize,
    /// Whether the container already ran when this process started.
    pub(crate) is_running: bool,
}

/// The choice of a container's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The container has its devices already, or needs none.
    Nothing,
    /// These, without asking the plugin.
    Fixed(BTreeSet<DeviceId>),
    /// Some of these.
    Among(Candidates),
}

/// Devices of which a container gets some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// Devices that the container gets in any case.
    pub(crate) taken: BTreeSet<DeviceId>,
    /// Devices that nothing has: at least `missing`.
    pub(crate) free: BTreeSet<DeviceId>,
    /// How many of the free devices it gets.
    pub(crate) missing: usize,
}

/// A container cannot have its devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// The container has another number of devices than it asks for.
    #[error(
        "pod {pod:?} container {container:?} changed request for resource {resource:?} from {from} to {to}"
    )]
    Changed { pod: String, container: String, resource: String, from: usize, to: usize },
    /// The resource was allocated once, and no plugin serves it.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// The plugin lists no healthy device.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    /// A device that the container has is unhealthy now.
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    Unhealthy(String),
    /// Too few devices are free.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    TooFew { resource: String, requested: usize, available: usize },
}

/// The resources of plugins that a container asks for, with their numbers. Resources that the pod has by a claim are left out.
pub(crate) fn wishes<P: Clone>(
    pod: &Pod,
    container: &Container,
    resources: &Resources<P>,
    allocations: &Allocations,
) -> Vec<(ResourceName, usize)> {
    let limits = container.resources.iter().flat_map(|it| it.limits.iter().flatten());
    let of_plugins = limits.filter(|(name, _)| {
        let is_plugins = resources.has(name) || allocations.in_use(name).is_some();
        is_plugins && !is_by_claim(pod, &container.name, name)
    });
    of_plugins.filter_map(|(name, quantity)| Some((name.clone(), whole(quantity)?))).collect()
}

/// Chooses the devices of a container, as far as the plugin is not to be asked.
pub(crate) fn choose<P: Clone>(
    wish: Wish<'_>,
    resources: &Resources<P>,
    allocations: &Allocations,
    reusable: &Reusable,
) -> Result<Choice, ChoiceError> {
    let Wish { key, resource, count, is_running } = wish;
    let held = allocations.devices(key, resource);
    if let Some(held) = held.as_ref().filter(|held| held.len() != count) {
        return Err(ChoiceError::Changed {
            pod: key.pod.to_owned(),
            container: key.container.to_owned(),
            resource: resource.to_owned(),
            from: held.len(),
            to: count,
        });
    }
    // It has what it needs, though the plugin may not be back yet.
    if is_running {
        return Ok(Choice::Nothing);
    }
    let healthy = resources.healthy(resource);
    let healthy = healthy.ok_or_else(|| ChoiceError::Unregistered(resource.to_owned()))?;
    if healthy.is_empty() {
        return Err(ChoiceError::NoneHealthy(resource.to_owned()));
    }
    if held.as_ref().is_some_and(|held| !held.is_subset(&healthy)) {
        return Err(ChoiceError::Unhealthy(resource.to_owned()));
    }
    if held.is_some() || count == 0 {
        return Ok(Choice::Nothing);
    }
    let reused = reusable.get(resource).into_iter().flatten();
    let taken: BTreeSet<DeviceId> = reused.take(count).cloned().collect();
    if taken.len() == count {
        return Ok(Choice::Fixed(taken));
    }
    let in_use = allocations.in_use(resource).unwrap_or_default();
    let free: BTreeSet<DeviceId> = healthy.difference(&in_use).cloned().collect();
    let missing = count - taken.len();
    if free.len() < missing {
        let (resource, available) = (resource.to_owned(), free.len());
        return Err(ChoiceError::TooFew { resource, requested: missing, available });
    }
    Ok(Choice::Among(Candidates { taken, free, missing }))
}

impl Candidates {
    /// All devices from which the plugin may choose.
    pub(crate) fn available(&self) -> Vec<DeviceId> {
        self.free.union(&self.taken).cloned().collect()
    }

    /// The devices of the container: those that the plugin prefers first.
    pub(crate) fn complete(self, preferred: &[DeviceId]) -> BTreeSet<DeviceId> {
        let is_free = |id: &&DeviceId| self.free.contains(*id);
        let mut chosen = BTreeSet::new();
        for id in preferred.iter().filter(is_free).chain(&self.free) {
            if chosen.len() < self.missing {
                chosen.insert(id.clone());
            }
        }
        chosen.extend(self.taken);
        chosen
    }
}

/// Notes what later containers of a pod may take of a container's devices: all of an init container's, which ends before
/// they start, and none of others'.
pub(crate) fn pass_on(
    reusable: &mut Reusable,
    key: ContainerKey<'_>,
    ends: bool,
    all: &Allocations,
) {
    for (resource, allocated) in all.of_container(key).into_iter().flatten() {
        let devices = reusable.entry(resource.clone()).or_default();
        if ends {
            devices.extend(allocated.ids());
        } else {
            for id in allocated.ids() {
                devices.remove(&id);
            }
        }
    }
}

/// Whether a container has a resource by the claim that the scheduler made for it.
fn is_by_claim(pod: &Pod, container: &str, resource: &str) -> bool {
    let status = pod.status.as_ref().and_then(|it| it.extended_resource_claim_status.as_ref());
    let mut mappings = status.into_iter().flat_map(|status| &status.request_mappings);
    mappings.any(|it| it.container_name == container && it.resource_name == resource)
}

/// A whole number, in the forms that the API server writes.
fn whole(quantity: &Quantity) -> Option<usize> {
    let text = quantity.0.as_str();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let factor: usize = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests;
