//! Calls of a DRA plugin: prepare and unprepare, in either version of the service.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_kubelet_api::dra::{v1, v1beta1};

use crate::kubelet::claims::claim_info::{ClaimInfo, Device};
use crate::kubelet::plugins::registration::within_deadline;
use crate::kubelet::plugins::{DraVersion, PluginInstance};

/// Time limit of prepare and unprepare, as in the kubelet.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);

/// Reference to a claim in plugin calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimRef {
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// UID.
    pub(crate) uid: String,
}

/// A prepare or unprepare call failed; the texts are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The call itself failed.
    #[error("{call}: {}", source.message())]
    Call {
        call: &'static str,
        #[source]
        source: Box<tonic::Status>,
    },
    /// The plugin rejected a claim.
    #[error("{call} failed for ResourceClaim {claim}: {error}")]
    Refused { call: &'static str, claim: String, error: String },
    /// The plugin answered for a claim that was not in the request.
    #[error("{call} returned result for unknown claim UID {uid}")]
    Unknown { call: &'static str, uid: String },
    /// The plugin did not answer for some claims.
    #[error("{call} skipped {count} ResourceClaims")]
    Skipped { call: &'static str, count: usize },
}

impl From<&ClaimInfo> for ClaimRef {
    fn from(info: &ClaimInfo) -> Self {
        Self { namespace: info.namespace.clone(), name: info.name.clone(), uid: info.uid.clone() }
    }
}

/// Prepares `claims` and returns the devices of each, by claim UID.
pub(crate) async fn prepare(
    plugin: &PluginInstance,
    claims: &[ClaimRef],
) -> Result<BTreeMap<String, Vec<Device>>, CallError> {
    const CALL: &str = "NodePrepareResources";
    let answers: BTreeMap<String, (Vec<Device>, String)> = match plugin.description.dra {
        DraVersion::V1 => {
            let claims = claims.iter().map(to_v1).collect();
            let mut client = v1::dra_plugin_client::DraPluginClient::new(plugin.channel.clone());
            let request = with_timeout(v1::NodePrepareResourcesRequest { claims });
            let response =
                within_deadline(CALL_TIMEOUT, client.node_prepare_resources(request)).await;
            let response = response.map_err(|source| call_error(CALL, source))?;
            let claims = response.claims.into_iter();
            claims
                .map(|(uid, a)| (uid, (a.devices.into_iter().map(from_v1).collect(), a.error)))
                .collect()
        }
        DraVersion::V1Beta1 => {
            let claims = claims.iter().map(to_v1beta1).collect();
            let mut client =
                v1beta1::dra_plugin_client::DraPluginClient::new(plugin.channel.clone());
            let request = with_timeout(v1beta1::NodePrepareResourcesRequest { claims });
            let response =
                within_deadline(CALL_TIMEOUT, client.node_prepare_resources(request)).await;
            let response = response.map_err(|source| call_error(CALL, source))?;
            let claims = response.claims.into_iter();
            claims
                .map(|(uid, a)| (uid, (a.devices.into_iter().map(from_v1beta1).collect(), a.error)))
                .collect()
        }
    };
    check_answers(CALL, claims, answers)
}

/// Unprepares `claims`.
pub(crate) async fn unprepare(
    plugin: &PluginInstance,
    claims: &[ClaimRef],
) -> Result<(), CallError> {
    const CALL: &str = "NodeUnprepareResources";
    let answers: BTreeMap<String, ((), String)> = match plugin.description.dra {
        DraVersion::V1 => {
            let claims = claims.iter().map(to_v1).collect();
            let mut client = v1::dra_plugin_client::DraPluginClient::new(plugin.channel.clone());
            let request = with_timeout(v1::NodeUnprepareResourcesRequest { claims });
            let response =
                within_deadline(CALL_TIMEOUT, client.node_unprepare_resources(request)).await;
            let response = response.map_err(|source| call_error(CALL, source))?;
            response.claims.into_iter().map(|(uid, a)| (uid, ((), a.error))).collect()
        }
        DraVersion::V1Beta1 => {
            let claims = claims.iter().map(to_v1beta1).collect();
            let mut client =
                v1beta1::dra_plugin_client::DraPluginClient::new(plugin.channel.clone());
            let request = with_timeout(v1beta1::NodeUnprepareResourcesRequest { claims });
            let response =
                within_deadline(CALL_TIMEOUT, client.node_unprepare_resources(request)).await;
            let response = response.map_err(|source| call_error(CALL, source))?;
            response.claims.into_iter().map(|(uid, a)| (uid, ((), a.error))).collect()
        }
    };
    check_answers(CALL, claims, answers).map(drop)
}

/// Checks that every claim was answered, that none was rejected, and that no other claim was named.
fn check_answers<T>(
    call: &'static str,
    claims: &[ClaimRef],
    answers: BTreeMap<String, (T, String)>,
) -> Result<BTreeMap<String, T>, CallError> {
    let mut done = BTreeMap::new();
    for (uid, (answer, error)) in answers {
        let Some(claim) = claims.iter().find(|claim| claim.uid == uid) else {
            return Err(CallError::Unknown { call, uid });
        };
        if !error.is_empty() {
            return Err(CallError::Refused { call, claim: claim.name.clone(), error });
        }
        done.insert(uid, answer);
    }
    match claims.len() - done.len() {
        0 => Ok(done),
        count => Err(CallError::Skipped { call, count }),
    }
}

fn with_timeout<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

fn call_error(call: &'static str, source: tonic::Status) -> CallError {
    CallError::Call { call, source: Box::new(source) }
}

fn to_v1(claim: &ClaimRef) -> v1::Claim {
    let claim = claim.clone();
    v1::Claim { namespace: claim.namespace, uid: claim.uid, name: claim.name }
}

fn to_v1beta1(claim: &ClaimRef) -> v1beta1::Claim {
    let claim = claim.clone();
    v1beta1::Claim { namespace: claim.namespace, uid: claim.uid, name: claim.name }
}

fn from_v1(device: v1::Device) -> Device {
    Device {
        requests: device.request_names,
        pool: device.pool_name,
        name: device.device_name,
        cdi_ids: device.cdi_device_ids,
        share_id: device.share_id,
    }
}

fn from_v1beta1(device: v1beta1::Device) -> Device {
    Device {
        requests: device.request_names,
        pool: device.pool_name,
        name: device.device_name,
        cdi_ids: device.cdi_device_ids,
        share_id: None,
    }
}
