//! From an allocated claim to the devices of a domain. No I/O.

use octavo_api::config::{
    ChannelAllocationMode, DecodedConfig, DeviceType, OpaqueConfig, decode_entries, for_request,
};
use octavo_api::imex::ImexServices;
use octavo_api::{Refusal, names};

use super::DomainNode;
use super::record::{DomainDevice, DomainRecord, HeldDomainDevice};
use super::spec::{ALL_CHANNELS, cdi_id};
use crate::claims::{AllocatedClaim, AllocatedDevice, mismatched, parent_request, parse_bytes};
use crate::fabric::Fabric;

/// What a claim gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Its record.
    pub(super) record: DomainRecord,
    /// The domain that must be ready before; `None` if nothing is waited for.
    pub(super) wait_for: Option<WaitFor>,
}

/// A domain that must be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitFor {
    /// Namespace.
    pub(super) namespace: String,
    /// Name.
    pub(super) name: String,
    /// UID.
    pub(super) uid: String,
    /// The node's clique, in which the domain has a channel.
    pub(super) clique: String,
}

impl WaitFor {
    /// `<namespace>/<name>`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The devices of a claim, and what it waits for.
pub(super) fn plan(
    claim: &AllocatedClaim,
    node: &DomainNode,
    fabric: &Fabric,
    boot_id: &str,
) -> Result<Plan, Refusal> {
    let name = claim.claim.to_string();
    let driver = names::DRIVER_COMPUTE_DOMAIN;
    let Some(allocation) = &claim.allocation else {
        return Err(Refusal::NotAllocated { claim: name });
    };
    let configs =
        decode_entries(&allocation.configs, driver, parse_bytes).map_err(|(source, error)| {
            Refusal::InvalidConfig { source_name: source.object(), error }
        })?;
    let (mut devices, mut wait_for) = (Vec::new(), None);
    for result in allocation.results.iter().filter(|result| result.driver == driver) {
        if result.pool != node.name {
            return Err(Refusal::OtherNode {
                pool: result.pool.clone(),
                device: result.device.clone(),
                node: node.name.clone(),
            });
        }
        if result.admin_access {
            let what = "administrators' access to a channel or daemon (adminAccess)".to_owned();
            return Err(Refusal::NotYetSupported { request: result.request.clone(), what });
        }
        let (domain, kind) = if device_type(result, node)? == DeviceType::Daemon {
            daemon(claim, node, result, &configs, fabric)?
        } else {
            let (wait, kind) = channel(claim, node, result, &configs, fabric)?;
            let uid = wait.uid.clone();
            if *fabric != Fabric::Absent {
                wait_for = Some(wait);
            }
            (uid, kind)
        };
        let has_spec = !matches!(kind, DomainDevice::Channels { count: 0, .. });
        devices.push(HeldDomainDevice {
            requests: vec![parent_request(&result.request).to_owned()],
            pool: result.pool.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
            cdi_ids: has_spec
                .then(|| cdi_id(&claim.claim.uid, &result.device, result.share_id.as_deref()))
                .into_iter()
                .collect(),
            domain,
            kind,
        });
    }
    if devices.is_empty() {
        return Err(Refusal::NothingForDriver { claim: name, driver: driver.to_owned() });
    }
    if devices.iter().any(|device| device.domain != devices[0].domain) {
        let problem = "its configs name several ComputeDomains".to_owned();
        return Err(Refusal::NotInComputeDomain { claim: name, problem });
    }
    let (claim, boot_id) = (claim.claim.clone(), boot_id.to_owned());
    Ok(Plan { record: DomainRecord { claim, boot_id, is_unresolved: false, devices }, wait_for })
}

/// The type of an allocated device.
fn device_type(result: &AllocatedDevice, node: &DomainNode) -> Result<DeviceType, Refusal> {
    match result.device.as_str() {
        "channel-0" => Ok(DeviceType::Channel),
        "daemon-0" if node.imex.services() != ImexServices::OfHost => Ok(DeviceType::Daemon),
        device => {
            let (device, node) = (device.to_owned(), node.name.clone());
            Err(Refusal::UnknownDevice { device, node })
        }
    }
}

/// A channel of the domain in the claim's config.
fn channel(
    claim: &AllocatedClaim,
    node: &DomainNode,
    result: &AllocatedDevice,
    configs: &[DecodedConfig],
    fabric: &Fabric,
) -> Result<(WaitFor, DomainDevice), Refusal> {
    let found = for_request(configs, &result.request, DeviceType::Channel).map_err(mismatched)?;
    let Some(OpaqueConfig::ComputeDomainChannel(config)) = found else {
        return Err(not_in_domain(claim, no_config(result, "ComputeDomainChannelConfig")));
    };
    let (namespace, name) = domain_name(claim)?;
    if namespace != claim.claim.namespace {
        let problem =
            format!("it is in another namespace than its ComputeDomain {namespace}/{name}");
        return Err(not_in_domain(claim, problem));
    }
    let is_shared = node.imex.services() == ImexServices::PerClique;
    if is_shared && config.allocation_mode == ChannelAllocationMode::All {
        let problem = format!(
            "it asks for all channels of node {} (allocationMode: All), and each ComputeDomain has one (imex.isolation: \
             channel)",
            node.name
        );
        return Err(not_in_domain(claim, problem));
    }
    let count = match (fabric, config.allocation_mode) {
        (Fabric::Absent, _) => 0,
        (_, ChannelAllocationMode::Single) => 1,
        (_, ChannelAllocationMode::All) => ALL_CHANNELS,
    };
    let (uid, clique) = (config.domain_id.clone(), fabric.clique().to_owned());
    Ok((WaitFor { namespace, name, uid, clique }, DomainDevice::Channels { first: 0, count }))
}

/// The place of a domain's daemon. Only the driver's namespace has such claims: the daemon may manage all channels of its
/// node.
fn daemon(
    claim: &AllocatedClaim,
    node: &DomainNode,
    result: &AllocatedDevice,
    configs: &[DecodedConfig],
    fabric: &Fabric,
) -> Result<(String, DomainDevice), Refusal> {
    if claim.claim.namespace != node.namespace {
        let problem = format!("claims of daemons are for namespace {} only", node.namespace);
        return Err(not_in_domain(claim, problem));
    }
    let found = for_request(configs, &result.request, DeviceType::Daemon).map_err(mismatched)?;
    let Some(OpaqueConfig::ComputeDomainDaemon(config)) = found else {
        return Err(not_in_domain(claim, no_config(result, "ComputeDomainDaemonConfig")));
    };
    let clique = fabric.clique().to_owned();
    let is_shared = config.domain_id == names::SHARED_IMEX_DOMAIN;
    if is_shared != (node.imex.services() == ImexServices::PerClique) {
        let problem = format!(
            "it is for daemons of other settings than those of the agent of node {} ({}); give controller and agents the same",
            node.name,
            node.imex.services()
        );
        return Err(not_in_domain(claim, problem));
    }
    // The daemons of a clique are of no domain.
    let (namespace, name) =
        if is_shared { (node.namespace.clone(), "shared".to_owned()) } else { domain_name(claim)? };
    Ok((config.domain_id.clone(), DomainDevice::Daemon { clique, namespace, name }))
}

/// Namespace and name of the claim's domain.
fn domain_name(claim: &AllocatedClaim) -> Result<(String, String), Refusal> {
    let annotation = names::ANNOTATION_COMPUTE_DOMAIN;
    let named = claim.compute_domain.as_deref().and_then(|domain| domain.split_once('/'));
    let named = named.filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let Some((namespace, name)) = named else {
        let problem = format!(
            "it has no annotation {annotation} yet, by which the controller tells its ComputeDomain"
        );
        return Err(not_in_domain(claim, problem));
    };
    Ok((namespace.to_owned(), name.to_owned()))
}

fn no_config(result: &AllocatedDevice, kind: &str) -> String {
    format!("its request {} has no {kind}", result.request)
}

fn not_in_domain(claim: &AllocatedClaim, problem: String) -> Refusal {
    Refusal::NotInComputeDomain { claim: claim.claim.to_string(), problem }
}
