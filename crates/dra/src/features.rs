//! Optional parts of allocation: the feature gates of the cluster.

/// An optional part of allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Requests for admin access (`DRAAdminAccess`).
    AdminAccess,
    /// Devices that must become ready before a pod is bound (`DRADeviceBindingConditions` together
    /// with `DRAResourceClaimDeviceStatus`).
    BindingConditions,
    /// Devices that several claims may share (`DRAConsumableCapacity`).
    ConsumableCapacity,
    /// Taints on devices (`DRADeviceTaints`).
    DeviceTaints,
    /// Counters, and node selection by device (`DRAPartitionableDevices`).
    PartitionableDevices,
    /// Requests with alternatives (`DRAPrioritizedList`).
    PrioritizedList,
    /// Not a gate: repeats Kubernetes 1.36 where it breaks its own rule, to compare with it and to
    /// predict it. A distinct constraint there remembers one value for each request, so devices of
    /// one request may repeat a value.
    UpstreamBugs,
}

/// The features that are on. The default is Kubernetes 1.36 with its default gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Features(u8);

impl Features {
    /// Adds a feature.
    #[must_use]
    pub fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u8)
    }

    /// Removes a feature.
    #[must_use]
    pub fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u8))
    }

    /// Whether a feature is on.
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
