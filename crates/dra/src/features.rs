//! Which optional parts of allocation are on: the feature gates of the cluster.

/// An optional part of allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Requests for administration (`DRAAdminAccess`).
    AdminAccess,
    /// Devices that must be made ready before a pod is bound (`DRADeviceBindingConditions` together
    /// with `DRAResourceClaimDeviceStatus`).
    BindingConditions,
    /// Devices that several claims share (`DRAConsumableCapacity`).
    ConsumableCapacity,
    /// Taints that keep claims away (`DRADeviceTaints`).
    DeviceTaints,
    /// Counters, and devices that say for themselves where they are (`DRAPartitionableDevices`).
    PartitionableDevices,
    /// Requests with alternatives (`DRAPrioritizedList`).
    PrioritizedList,
    /// No gate: doing as Kubernetes 1.36 does also where it breaks its own rule. It remembers for a
    /// "distinct" constraint one value for each request, so three devices of one request may
    /// repeat. For comparison with it, and to foretell what it does.
    UpstreamBugs,
}

/// The parts that are on. The default is Kubernetes 1.36 with its default gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Features(u8);

impl Features {
    /// These and one more.
    #[must_use]
    pub fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u8)
    }

    /// These without one.
    #[must_use]
    pub fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u8))
    }

    /// Whether a part is on.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }
}

impl Default for Features {
    fn default() -> Self {
        [
            Feature::AdminAccess,
            Feature::BindingConditions,
            Feature::ConsumableCapacity,
            Feature::DeviceTaints,
            Feature::PartitionableDevices,
            Feature::PrioritizedList,
        ]
        .into_iter()
        .fold(Self(0), Self::with)
    }
}
