//! Reads single claims when the kubelet names them. The agent never lists or watches claims: ten thousand agents would
//! overload the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
};
use octavo_api::names::{ANNOTATION_COMPUTE_DOMAIN, CONDITION_READY, DRIVER};
use octavo_api::{ConfigEntry, ConfigSource};

use octavo_node::ClaimRef;

/// Timeout for reading a claim. Shorter than the kubelet's timeout, so that the kubelet gets the reason.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads claims.
pub trait ClaimReader: Send + Sync {
    /// The claim that has the name now, whatever its UID; `None` if it does not exist.
    fn read<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<Option<AllocatedClaim>, ReadError>>;
}

/// A claim could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(pub String);

/// The relevant parts of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatedClaim {
    /// The claim.
    pub claim: ClaimRef,
    /// Its allocation; `None` if it is not allocated.
    pub allocation: Option<Allocation>,
    /// Whether this driver reported a device as not ready.
    pub is_reported_not_ready: bool,
    /// Namespace and name of its `ComputeDomain`, as its annotation has them.
    pub compute_domain: Option<String>,
}

/// The allocation of a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Devices, of all drivers.
    pub results: Vec<AllocatedDevice>,
    /// Configs, of all drivers.
    pub configs: Vec<ConfigEntry>,
}

/// A device that a scheduler gave a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// Request, or `request/subrequest`.
    pub request: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Share id, if the device is allocated in parts.
    pub share_id: Option<String>,
    /// Consumed capacities, as quantities by name. Empty if the whole device is allocated, or the server predates
    /// shares.
    pub consumed: BTreeMap<String, String>,
    /// Whether the device is allocated with admin access.
    pub admin_access: bool,
}

/// Reads claims from the API server.
#[derive(Clone)]
pub struct KubeReader {
    client: kube::Client,
}

impl KubeReader {
    /// Reads through a client.
    pub fn new(client: kube::Client) -> Self {
        Self { client }
    }

    /// Sends one GET.
    async fn get(&self, claim: &ClaimRef) -> Result<Option<AllocatedClaim>, ReadError> {
        let api = kube::Api::<ResourceClaim>::namespaced(self.client.clone(), &claim.namespace);
        let read = tokio::time::timeout(READ_TIMEOUT, api.get_opt(&claim.name)).await;
        let object = read
            .map_err(|_| ReadError(format!("no answer within {} s", READ_TIMEOUT.as_secs())))?
            .map_err(|error| ReadError(error.to_string()))?;
        Ok(object.map(claim_of))
    }
}

impl ClaimReader for KubeReader {
    fn read<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<Option<AllocatedClaim>, ReadError>> {
        Box::pin(self.get(claim))
    }
}

/// Extracts the relevant parts of a claim's object.
pub fn claim_of(object: ResourceClaim) -> AllocatedClaim {
    let annotations = object.metadata.annotations.unwrap_or_default();
    let compute_domain = annotations.get(ANNOTATION_COMPUTE_DOMAIN).cloned();
    let claim = ClaimRef {
        namespace: object.metadata.namespace.unwrap_or_default(),
        name: object.metadata.name.unwrap_or_default(),
        uid: object.metadata.uid.unwrap_or_default(),
    };
    let status = object.status.unwrap_or_default();
    let reported = status.devices.unwrap_or_default();
    let is_reported_not_ready =
        reported.iter().filter(|device| device.driver == DRIVER).any(|device| {
            let conditions = device.conditions.iter().flatten();
            conditions.into_iter().any(|c| c.type_ == CONDITION_READY && c.status == "False")
        });
    let allocation = status.allocation.map(|allocation| {
        let devices = allocation.devices.unwrap_or_default();
        Allocation {
            results: devices.results.unwrap_or_default().into_iter().map(device_of).collect(),
            configs: devices.config.unwrap_or_default().into_iter().filter_map(config_of).collect(),
        }
    });
    AllocatedClaim { claim, allocation, is_reported_not_ready, compute_domain }
}

/// Converts a result of an allocation.
fn device_of(result: DeviceRequestAllocationResult) -> AllocatedDevice {
    AllocatedDevice {
        request: result.request,
        driver: result.driver,
        pool: result.pool,
        device: result.device,
        share_id: result.share_id,
        consumed: result
            .consumed_capacity
            .unwrap_or_default()
            .into_iter()
            .map(|(name, amount)| (name, amount.0))
            .collect(),
        admin_access: result.admin_access.unwrap_or_default(),
    }
}

/// Converts a config of an allocation; `None` if it is not opaque and so belongs to no driver.
fn config_of(config: DeviceAllocationConfiguration) -> Option<ConfigEntry> {
    let opaque = config.opaque?;
    Some(ConfigEntry {
        source: match config.source.as_str() {
            "FromClass" => ConfigSource::Class,
            _ => ConfigSource::Claim,
        },
        requests: config.requests.unwrap_or_default(),
        driver: opaque.driver,
        parameters: opaque.parameters.0,
    })
}
