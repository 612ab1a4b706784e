//! The driver and its prepared devices, as the kubelet names them.

/// Name of the driver in slices, classes and the kubelet.
pub const DRIVER_NAME: &str = "gpu.nvidia.com";

/// A prepared device of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// Requests of the claim that the device serves.
    pub requests: Vec<String>,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Qualified CDI names for the runtime.
    pub cdi_ids: Vec<String>,
    /// Share id, if the device was allocated in parts.
    pub share_id: Option<String>,
}
