//! The resources of a node's plugins: their devices, which of them are healthy, and how many the Node's status shows (pure).

use std::collections::{BTreeMap, BTreeSet};

/// Name of a resource, such as `nvidia.com/gpu`.
pub(crate) type ResourceName = String;
/// Id of a device, unique within its resource.
pub(crate) type DeviceId = String;

/// Number of devices of each resource, as in the Node's status.
pub(crate) type Counts = BTreeMap<ResourceName, Count>;

/// Number of devices of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// All devices.
    pub(crate) capacity: usize,
    /// Healthy devices.
    pub(crate) allocatable: usize,
}

/// A device, as its plugin lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    /// Whether the plugin says that containers may get it.
    pub(crate) is_healthy: bool,
    /// NUMA nodes near it.
    pub(crate) numa_nodes: Vec<i64>,
}

/// Resources by name, with the plugins (`P`) that serve them.
#[derive(Debug)]
pub(crate) struct Resources<P> {
    resources: BTreeMap<ResourceName, Resource<P>>,
    registrations: u64,
}

#[derive(Debug)]
struct Resource<P> {
    devices: Listing,
    /// `None`: the plugin has ended, and may come back.
    plugin: Option<P>,
    /// Number of the plugin's registration; later ones are higher.
    registration: u64,
}

/// What is known of a resource's devices.
#[derive(Debug)]
enum Listing {
    /// The plugin has never sent its list.
    Awaited,
    /// The last list.
    Listed(BTreeMap<DeviceId, Device>),
    /// The last list of a plugin that has ended. No device may be given out.
    Ended(BTreeMap<DeviceId, Device>),
    /// The plugin has been away for so long that its resource counts as none of a plugin.
    Forgotten,
}

impl<P> Default for Resources<P> {
    fn default() -> Self {
        Self { resources: BTreeMap::new(), registrations: 0 }
    }
}

impl<P: Clone> Resources<P> {
    /// Resources that an earlier process knew: without devices until their plugins register again.
    pub(crate) fn known(names: impl IntoIterator<Item = ResourceName>) -> Self {
        let resource = |name| {
            let devices = Listing::Ended(BTreeMap::new());
            (name, Resource { devices, plugin: None, registration: 0 })
        };
        Self { resources: names.into_iter().map(resource).collect(), registrations: 0 }
    }

    /// Notes the plugin of a resource, which takes the place of an earlier one. Returns the number of the registration.
    pub(crate) fn connected(&mut self, resource: &str, plugin: P) -> u64 {
        self.registrations += 1;
        let known = self.resources.entry(resource.to_owned()).or_insert(Resource {
            devices: Listing::Awaited,
            plugin: None,
            registration: 0,
        });
        known.plugin = Some(plugin);
        known.registration = self.registrations;
        self.registrations
    }

    /// Takes the list of a plugin. Returns whether the plugin still serves the resource.
    pub(crate) fn list(
        &mut self,
        resource: &str,
        registration: u64,
        devices: BTreeMap<DeviceId, Device>,
    ) -> bool {
        let known = self.current(resource, registration);
        known.map(|known| known.devices = Listing::Listed(devices)).is_some()
    }

    /// Notes the end of a plugin: its devices stay, and none may be given out. Returns whether it served the resource.
    pub(crate) fn disconnected(&mut self, resource: &str, registration: u64) -> bool {
        let Some(known) = self.current(resource, registration) else { return false };
        known.plugin = None;
        if let Listing::Listed(devices) = &mut known.devices {
            known.devices = Listing::Ended(std::mem::take(devices));
        }
        true
    }

    /// Forgets a resource whose plugin has not come back. Returns whether that was so.
    pub(crate) fn forget(&mut self, resource: &str, registration: u64) -> bool {
        let known = self.current(resource, registration).filter(|known| known.plugin.is_none());
        known.map(|known| known.devices = Listing::Forgotten).is_some()
    }

    fn current(&mut self, resource: &str, registration: u64) -> Option<&mut Resource<P>> {
        self.resources.get_mut(resource).filter(|known| known.registration == registration)
    }

    /// The plugin of a resource, while it is connected.
    pub(crate) fn plugin(&self, resource: &str) -> Option<P> {
        self.resources.get(resource)?.plugin.clone()
    }

    /// Names of resources whose devices are known. Some may have none.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.listed().map(|(name, _)| name)
    }

    /// Whether a resource is one of a plugin.
    pub(crate) fn has(&self, resource: &str) -> bool {
        self.listing(resource).is_some()
    }

    /// A device of a resource, if it is still listed.
    pub(crate) fn device(&self, resource: &str, id: &str) -> Option<&Device> {
        self.listing(resource)?.devices()?.get(id)
    }

    /// Devices that containers may get; `None`: the resource is none of a plugin.
    pub(crate) fn healthy(&self, resource: &str) -> Option<BTreeSet<DeviceId>> {
        let listing = self.listing(resource)?;
        Some(listing.healthy().map(|(id, _)| id.clone()).collect())
    }

    /// All healthy devices, with the names of their resources.
    pub(crate) fn all_healthy(&self) -> impl Iterator<Item = (&ResourceName, &DeviceId, &Device)> {
        self.listed()
            .flat_map(|(name, it)| it.healthy().map(move |(id, device)| (name, id, device)))
    }

    /// What the Node's status shows. A forgotten resource counts 0: without an entry it would be one of the whole cluster.
    pub(crate) fn counts(&self) -> Counts {
        let resources = self.resources.iter();
        let counted = resources.filter(|(_, it)| !matches!(it.devices, Listing::Awaited));
        let count = |listing: &Listing| Count {
            capacity: listing.devices().map_or(0, BTreeMap::len),
            allocatable: listing.healthy().count(),
        };
        counted.map(|(name, it)| (name.clone(), count(&it.devices))).collect()
    }

    fn listing(&self, resource: &str) -> Option<&Listing> {
        let listing = &self.resources.get(resource)?.devices;
        listing.devices().map(|_| listing)
    }

    fn listed(&self) -> impl Iterator<Item = (&ResourceName, &Listing)> {
        let all = self.resources.iter().map(|(name, resource)| (name, &resource.devices));
        all.filter(|(_, listing)| listing.devices().is_some())
    }
}

impl Listing {
    fn devices(&self) -> Option<&BTreeMap<DeviceId, Device>> {
        match self {
            Self::Listed(devices) | Self::Ended(devices) => Some(devices),
            Self::Awaited | Self::Forgotten => None,
        }
    }

    fn healthy(&self) -> impl Iterator<Item = (&DeviceId, &Device)> {
        let devices = match self {
            Self::Listed(devices) => Some(devices),
            Self::Ended(_) | Self::Awaited | Self::Forgotten => None,
        };
        devices.into_iter().flatten().filter(|(_, device)| device.is_healthy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(healths: &[(&str, bool)]) -> BTreeMap<DeviceId, Device> {
        let device = |(id, is_healthy): &(&str, bool)| {
            ((*id).to_owned(), Device { is_healthy: *is_healthy, numa_nodes: Vec::new() })
        };
        healths.iter().map(device).collect()
    }

    fn counted(resources: &Resources<&str>) -> Vec<(String, usize, usize)> {
        let counts = resources.counts().into_iter();
        counts.map(|(name, count)| (name, count.capacity, count.allocatable)).collect()
    }

    #[test]
    fn capacity_counts_all_devices_and_allocatable_the_healthy_ones() {
        let mut resources = Resources::default();
        let registration = resources.connected("a/gpu", "plugin");
        assert_eq!(counted(&resources), [], "nothing is listed yet");
        assert!(!resources.has("a/gpu"));
        assert!(resources.list("a/gpu", registration, devices(&[("0", true), ("1", false)])));
        assert_eq!(counted(&resources), [("a/gpu".to_owned(), 2, 1)]);
        assert_eq!(resources.healthy("a/gpu"), Some(["0".to_owned()].into()));
        assert!(resources.list("a/gpu", registration, devices(&[])));
        assert_eq!(counted(&resources), [("a/gpu".to_owned(), 0, 0)]);
        assert!(resources.has("a/gpu"));
    }

    #[test]
    fn devices_of_an_ended_plugin_are_not_given_out_until_it_is_forgotten() {
        let mut resources = Resources::default();
        let registration = resources.connected("a/gpu", "plugin");
        resources.list("a/gpu", registration, devices(&[("0", true), ("1", true)]));
        assert!(!resources.forget("a/gpu", registration), "it is connected");
        assert!(resources.disconnected("a/gpu", registration));
        assert_eq!(counted(&resources), [("a/gpu".to_owned(), 2, 0)]);
        assert_eq!(resources.healthy("a/gpu"), Some(BTreeSet::new()));
        assert_eq!(resources.all_healthy().count(), 0);
        assert_eq!(resources.plugin("a/gpu"), None);
        assert!(resources.forget("a/gpu", registration));
        assert_eq!(counted(&resources), [("a/gpu".to_owned(), 0, 0)]);
        assert!(!resources.has("a/gpu"));
    }

    #[test]
    fn a_plugin_that_registers_again_is_not_disturbed_by_the_end_of_its_predecessor() {
        let mut resources = Resources::default();
        let old = resources.connected("a/gpu", "old");
        let new = resources.connected("a/gpu", "new");
        assert!(resources.list("a/gpu", new, devices(&[("0", true)])));
        assert!(!resources.list("a/gpu", old, devices(&[])));
        assert!(!resources.disconnected("a/gpu", old) && !resources.forget("a/gpu", old));
        assert_eq!(counted(&resources), [("a/gpu".to_owned(), 1, 1)]);
        assert_eq!(resources.plugin("a/gpu"), Some("new"));
    }

    #[test]
    fn after_a_restart_resources_have_no_devices_until_they_are_listed() {
        let mut resources = Resources::known(["a/gpu".to_owned()]);
        assert_eq!(counted(&resources), [("a/gpu".to_owned(), 0, 0)]);
        assert_eq!(resources.healthy("a/gpu"), Some(BTreeSet::new()));
        let registration = resources.connected("a/gpu", "plugin");
        assert_eq!(counted(&resources), [("a/gpu".to_owned(), 0, 0)]);
        resources.list("a/gpu", registration, devices(&[("0", true)]));
        assert_eq!(counted(&resources), [("a/gpu".to_owned(), 1, 1)]);
    }
}
