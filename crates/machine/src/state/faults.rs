//! Faults of a GPU's links, clocks and resets, and of network cards.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// `NVLink`s of a GPU. Counters are since the driver was loaded or the GPU was reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NvLinkState {
    /// Numbers of the links that are not active.
    pub inactive: BTreeSet<u32>,
    /// Errors of flits' and data's checksums, of all links together.
    pub crc_errors: u64,
    /// Replays, of all links together.
    pub replays: u64,
    /// Recoveries, of all links together.
    pub recoveries: u64,
}

/// The `PCIe` link of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PcieState {
    /// Generation of the link now; `None`: the model's.
    pub generation: Option<u32>,
    /// Lanes of the link now; `None`: 16.
    pub width: Option<u32>,
    /// Replays since the driver was loaded or the GPU was reset.
    pub replays: u32,
    /// Fatal errors since the node was started (`aer_dev_fatal`).
    pub fatal_errors: u32,
}

/// The port of a network card. Counters are since the card's driver was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NicState {
    /// Whether it is down.
    pub is_down: bool,
    /// Symbol errors (`symbol_error`).
    pub symbol_errors: u64,
    /// Recoveries of the link (`link_error_recovery`).
    pub recoveries: u64,
    /// How often the link went down (`link_downed`).
    pub downs: u64,
}

/// Why a GPU's clocks are low. The discriminants are bits of `nvmlClocksEventReason...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClocksEventReason {
    /// Software: the power limit.
    SwPowerCap = 0x4,
    /// Hardware: temperature, power brake or power supply; clocks fall by half or more.
    HwSlowdown = 0x8,
    /// Software: temperature.
    SwThermalSlowdown = 0x20,
    /// Hardware: temperature.
    HwThermalSlowdown = 0x40,
    /// Hardware: an outside signal of the power supply.
    HwPowerBrakeSlowdown = 0x80,
}

/// What a reset of a GPU does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResetState {
    /// Whether it fails, and leaves the GPU as it is.
    pub fails: bool,
    /// Whether it succeeds but mends nothing: the driver advises the same afterwards.
    pub is_in_vain: bool,
    /// Its duration in milliseconds.
    pub millis: u64,
    /// How many `nvidia-smi` has begun.
    pub begun: u64,
}
