//! A domain of devices whose records another program keeps.

use std::collections::{BTreeMap, BTreeSet};

use super::{Device, Domain};
use crate::budget::Breaker;
use crate::unit::DeviceId;

impl Domain {
    /// A domain with devices in their states and a circuit breaker, for one decision. Attempts are numbered from 1 on.
    pub fn restored(devices: BTreeMap<DeviceId, Device>, breaker: Breaker) -> Self {
        Self { devices, breaker, ..Self::default() }
    }

    /// Counts nodes that lose pods for other reasons in the budget of evictions.
    #[must_use]
    pub fn disturbed(self, nodes: BTreeSet<u32>) -> Self {
        Self { disturbed: nodes, ..self }
    }

    /// The circuit breaker.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }
}
