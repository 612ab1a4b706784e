//! What a GPU measures and counts while it runs.

/// What a GPU measures and counts. Facts that GPU or driver do not report are absent. Counters begin at zero when the driver is loaded or the
/// GPU is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTelemetry {
    /// Degrees Celsius until the hardware lowers the clocks (`nvmlDeviceGetMarginTemperature`).
    pub margin_celsius: Option<i32>,
    /// Whether it has no work (`nvmlDeviceGetCurrentClocksEventReasons`). Then its links may be slow, too, to save power.
    pub is_idle: Option<bool>,
    /// Why its clocks are low, by the same call.
    pub slowdown: Option<Slowdown>,
    /// Its `PCIe` link.
    pub pcie: Option<PcieLink>,
    /// Replays of the `PCIe` link (`NVML_FI_DEV_PCIE_REPLAY_COUNTER`).
    pub pcie_replays: Option<u64>,
    /// Its `NVLink`s; `None` if it has none.
    pub nvlink: Option<NvLinkTelemetry>,
}

/// Why a GPU's clocks are lower than its work would have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowdown {
    /// The hardware lowers them, by half or more: heat, or the power supply.
    pub is_by_hardware: bool,
    /// It is too hot, by hardware's or software's limit.
    pub is_hot: bool,
    /// The power supply demands it from outside.
    pub is_power_brake: bool,
}

/// The `PCIe` link of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcieLink {
    /// Generation now; lower than the maximum on an idle GPU.
    pub generation: u32,
    /// Highest generation of GPU and slot.
    pub max_generation: u32,
    /// Lanes now.
    pub width: u32,
    /// Most lanes of GPU and slot.
    pub max_width: u32,
}

/// The `NVLink`s of a GPU together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvLinkTelemetry {
    /// Links that are active.
    pub active: u32,
    /// Links that the GPU has.
    pub links: u32,
    /// Transfers with a wrong checksum; from the fifth generation on, symbol errors.
    pub errors: u64,
    /// Transfers that were repeated; from the fifth generation on, errors that its correction did not mend.
    pub replays: u64,
    /// How often a link was trained again.
    pub recoveries: u64,
}
