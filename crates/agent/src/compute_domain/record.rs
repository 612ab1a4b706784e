//! The record of a claim on channels or on a daemon.

use octavo_node::ClaimRef;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpointed, ClaimRecord};
use crate::node::PreparedDevice;

/// Persistent state of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DomainRecord {
    /// The claim.
    #[serde(with = "ClaimRecord")]
    pub(super) claim: ClaimRef,
    /// The boot in which the claim was prepared. No container outlives it.
    pub(super) boot_id: String,
    /// Whether the record was damaged: the claim may hold any device.
    pub(super) is_unresolved: bool,
    /// Held devices, in the allocation's order.
    pub(super) devices: Vec<HeldDomainDevice>,
}

/// A device that a claim holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HeldDomainDevice {
    /// Requests served by the device, without subrequests.
    pub(super) requests: Vec<String>,
    /// Pool.
    pub(super) pool: String,
    /// Name in the pool.
    pub(super) device: String,
    /// Share id, where claims share the device. Format 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) share_id: Option<String>,
    /// CDI names for the runtime. None for a channel without a fabric.
    pub(super) cdi_ids: Vec<String>,
    /// UID of the domain.
    pub(super) domain: String,
    /// What it is.
    pub(super) kind: DomainDevice,
}

/// A device of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum DomainDevice {
    /// Channels of the node's IMEX domain.
    Channels {
        /// Number of the first.
        first: u32,
        /// How many; 0 without a fabric.
        count: u32,
    },
    /// The place of the domain's daemon.
    Daemon {
        /// The node's clique; empty without a fabric.
        clique: String,
        /// Namespace of the domain.
        namespace: String,
        /// Name of the domain.
        name: String,
    },
}

/// How many devices claims hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DomainCounts {
    /// Allocated channels.
    pub(crate) channels: usize,
    /// Daemons.
    pub(crate) daemons: usize,
}

impl Checkpointed for DomainRecord {
    const NEWEST_VERSION: u64 = 2;

    fn version(&self) -> u64 {
        if self.devices.iter().any(|held| held.share_id.is_some()) { 2 } else { 1 }
    }

    fn claim(&self) -> &ClaimRef {
        &self.claim
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }
}

impl HeldDomainDevice {
    /// A device that a claim with a damaged record may hold.
    pub(super) fn possible(device: String) -> Self {
        Self {
            requests: Vec::new(),
            pool: String::new(),
            device,
            cdi_ids: Vec::new(),
            share_id: None,
            domain: String::new(),
            kind: DomainDevice::Channels { first: 0, count: 0 },
        }
    }
}

impl DomainRecord {
    /// Sets the number of the first channel, which the domain's status says.
    pub(super) fn set_channel(&mut self, channel: u32) {
        for held in &mut self.devices {
            if let DomainDevice::Channels { first, count: 1.. } = &mut held.kind {
                *first = channel;
            }
        }
    }

    /// The devices as reported to the kubelet.
    pub(super) fn prepared(&self) -> Vec<PreparedDevice> {
        let device = |held: &HeldDomainDevice| PreparedDevice {
            requests: held.requests.clone(),
            pool: held.pool.clone(),
            device: held.device.clone(),
            cdi_ids: held.cdi_ids.clone(),
            share_id: held.share_id.clone(),
        };
        self.devices.iter().map(device).collect()
    }
}
