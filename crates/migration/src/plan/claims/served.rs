//! Whether Octavo's agent serves a config: its rules, and those for the choice of a request's config.

use octavo_api::config::{
    ChannelAllocationMode, ConfigSource, DecodedConfig, DeviceType, OpaqueConfig, Sharing,
    TimeSlice, decode, for_request,
};
use octavo_api::names::{
    CLASS_CHANNEL, CLASS_DAEMON, CLASS_GPU, CLASS_MIG, DRIVER, DRIVER_COMPUTE_DOMAIN,
    LABEL_COMPUTE_DOMAIN,
};
use serde_json::Value;

use super::{Holder, Kind};
use crate::json::{array, text};
use crate::plan::fields::Served;
use crate::plan::object::{label, name};
use crate::quantity::whole_bytes;

/// What becomes of a config.
pub(super) struct Outcome {
    /// Its kind as written.
    pub(super) kind: Option<String>,
    /// Whether it is served.
    pub(super) served: Served,
    /// Why, or what is to know.
    pub(super) reason: String,
    /// Whether Octavo runs MPS daemons for it.
    pub(super) has_mps: bool,
}

/// A request for devices.
struct Request {
    /// Its name, with that of the subrequest: `gpu/large`.
    name: String,
    class: String,
    /// Whether it asks for administrators' access.
    is_of_admin: bool,
    /// Whether it asks for an amount, and so for a part of a GPU.
    is_of_part: bool,
}

/// Class of GPUs for virtual machines, of NVIDIA's driver.
const CLASS_VFIO: &str = "vfio.gpu.nvidia.com";
/// Classes with the driver and the type of their devices.
const CLASSES: [(&str, &str, DeviceType); 5] = [
    (CLASS_GPU, DRIVER, DeviceType::Gpu),
    (CLASS_MIG, DRIVER, DeviceType::Mig),
    (CLASS_VFIO, DRIVER, DeviceType::Vfio),
    (CLASS_CHANNEL, DRIVER_COMPUTE_DOMAIN, DeviceType::Channel),
    (CLASS_DAEMON, DRIVER_COMPUTE_DOMAIN, DeviceType::Daemon),
];
/// Types of the devices of each driver.
const OF_GPUS: [DeviceType; 3] = [DeviceType::Gpu, DeviceType::Mig, DeviceType::Vfio];
const OF_DOMAINS: [DeviceType; 2] = [DeviceType::Channel, DeviceType::Daemon];

/// What becomes of a config of an object.
pub(super) fn outcome(holder: &Holder<'_>, entry: &Value) -> Outcome {
    let opaque = entry.get("opaque").unwrap_or(&Value::Null);
    let driver = text(opaque, "driver").unwrap_or_default();
    let parameters = opaque.get("parameters").unwrap_or(&Value::Null);
    let (served, reason, has_mps) = match decode(parameters, whole_bytes) {
        Err(error) => (Served::NotServed, format!("its claims are refused: {error}"), false),
        Ok(config) => {
            let (served, reason) = of_requests(holder, entry, driver, &config);
            let is_mps = matches!(sharing(&config), Some(Sharing::Mps(_)));
            (served, reason, is_mps && served == Served::Better)
        }
    };
    Outcome { kind: text(parameters, "kind").map(str::to_owned), served, reason, has_mps }
}

/// The outcome for the requests to which a config applies.
fn of_requests(
    holder: &Holder<'_>,
    entry: &Value,
    driver: &str,
    config: &OpaqueConfig,
) -> (Served, String) {
    let names = array(entry, "requests").iter().filter_map(Value::as_str);
    let source = if holder.kind == Kind::Class { ConfigSource::Class } else { ConfigSource::Claim };
    let requests = names.map(str::to_owned).collect();
    let decoded = [DecodedConfig { source, requests, config: config.clone() }];
    let mut served = Vec::new();
    for request in requests_of(holder) {
        let types = types(&request.class, driver);
        let of_types = types.iter().map(|found| for_request(&decoded, &request.name, *found));
        let of_types: Vec<_> = of_types.collect();
        let is_refused = !of_types.is_empty() && of_types.iter().all(Result::is_err);
        if is_refused {
            let class = &request.class;
            let whose = match holder.kind {
                Kind::Class => "devices of the class".to_owned(),
                Kind::Claim | Kind::Template => {
                    format!("devices of class {class}, which request {} asks for", request.name)
                }
            };
            let reason = format!("its claims are refused: a {} is not for {whose}", config.kind());
            return (Served::NotServed, reason);
        }
        if of_types.iter().any(|found| matches!(found, Ok(Some(_)))) {
            served.push(request);
        }
    }
    if served.is_empty() {
        let reason = match holder.kind {
            Kind::Class => "the class has no such devices",
            Kind::Claim | Kind::Template => "no request is for such a device",
        };
        return (Served::NoEffect, reason.to_owned());
    }
    refused(config, &served)
        .map_or_else(|| of_kind(holder, config), |reason| (Served::NotServed, reason))
}

/// The requests of a claim. A class has one, without a name: any request for it.
fn requests_of(holder: &Holder<'_>) -> Vec<Request> {
    let request = |name: String, exact: &Value| Request {
        name,
        class: text(exact, "deviceClassName").unwrap_or_default().to_owned(),
        is_of_admin: exact.get("adminAccess") == Some(&Value::Bool(true)),
        is_of_part: exact
            .pointer("/capacity/requests")
            .is_some_and(|amounts| amounts.as_object().is_some_and(|amounts| !amounts.is_empty())),
    };
    if holder.kind == Kind::Class {
        let class = name(holder.object).to_owned();
        let name = String::new();
        return vec![Request { name, class, is_of_admin: false, is_of_part: false }];
    }
    let mut requests = Vec::new();
    for found in array(holder.devices, "requests") {
        let parent = text(found, "name").unwrap_or_default();
        requests.extend(found.get("exactly").map(|exact| request(parent.to_owned(), exact)));
        for exact in array(found, "firstAvailable") {
            let name = format!("{parent}/{}", text(exact, "name").unwrap_or_default());
            requests.push(request(name, exact));
        }
    }
    requests
}

/// The types that the devices of a class may have. None if they are another driver's.
fn types(class: &str, driver: &str) -> &'static [DeviceType] {
    match CLASSES.iter().find(|(known, ..)| *known == class) {
        Some((_, of_class, _)) if *of_class != driver => &[],
        Some((_, _, known)) => std::slice::from_ref(known),
        None if driver == DRIVER => &OF_GPUS,
        None => &OF_DOMAINS,
    }
}

fn sharing(config: &OpaqueConfig) -> Option<&Sharing> {
    match config {
        OpaqueConfig::Gpu(config) => config.sharing.as_ref(),
        OpaqueConfig::MigDevice(config) => config.sharing.as_ref(),
        _ => None,
    }
}

/// Why the agent refuses claims that have a config for these requests.
fn refused(config: &OpaqueConfig, requests: &[Request]) -> Option<String> {
    let of_admin = requests.iter().find(|request| request.is_of_admin);
    let of_part = requests.iter().find(|request| request.is_of_part);
    if let OpaqueConfig::ComputeDomainChannel(_) | OpaqueConfig::ComputeDomainDaemon(_) = config {
        let Request { name, .. } = of_admin?;
        return Some(format!(
            "its claims are refused: request {name} has adminAccess, which ComputeDomains have not"
        ));
    }
    // The driver's default changes nothing for other claims.
    let acts =
        sharing(config).is_some_and(|it| !matches!(it, Sharing::TimeSlicing(TimeSlice::Default)));
    let is_of_gpu = matches!(config, OpaqueConfig::Gpu(_));
    let (request, what, sharing) = match (of_admin, of_part.filter(|_| is_of_gpu)) {
        (Some(request), _) => (request, "has adminAccess", "a time slice or MPS"),
        (None, Some(request)) => (
            request,
            "asks for a part of a GPU (capacity)",
            "MPS, or a time slice without `timeEnforcement: leases`,",
        ),
        (None, None) => return None,
    };
    acts.then(|| {
        format!(
            "its claims are refused: request {} {what}, and {sharing} would change the GPU of other claims",
            request.name
        )
    })
}

/// What becomes of a config that takes effect.
fn of_kind(holder: &Holder<'_>, config: &OpaqueConfig) -> (Served, String) {
    let is_of_domain = label(holder.object, LABEL_COMPUTE_DOMAIN).is_some();
    let (served, reason) = match config {
        OpaqueConfig::Gpu(config) => of_gpu(config.sharing.as_ref()),
        OpaqueConfig::MigDevice(config) => of_mig(config.sharing.as_ref()),
        OpaqueConfig::VfioDevice(_) => (
            Served::NotServed,
            "Octavo gives no GPU to virtual machines; keep its pods on nodes that do not move",
        ),
        OpaqueConfig::ComputeDomainChannel(config) => {
            let is_all = config.allocation_mode == ChannelAllocationMode::All;
            (Served::Same, of_channel(is_of_domain && holder.kind == Kind::Template, is_all))
        }
        OpaqueConfig::ComputeDomainDaemon(_) if is_of_domain => (
            Served::NoEffect,
            "Octavo's controller makes daemons and claims of its own; delete it with NVIDIA's driver",
        ),
        OpaqueConfig::ComputeDomainDaemon(_) => (
            Served::NotServed,
            "claims of daemons are only those that Octavo's controller makes; delete it",
        ),
        // They are of Octavo's API group, and not listed.
        OpaqueConfig::GpuShare(_) | OpaqueConfig::DeviceNodes(_) => (Served::Same, ""),
    };
    (served, reason.to_owned())
}

fn of_gpu(sharing: Option<&Sharing>) -> (Served, &'static str) {
    match sharing {
        None | Some(Sharing::TimeSlicing(TimeSlice::Default)) => (
            Served::Same,
            "the containers of a claim have its GPU in turns, with the driver's time slice",
        ),
        Some(Sharing::TimeSlicing(_)) => (
            Served::Same,
            "the GPU has this time slice while the claim lasts, set with nvidia-smi compute-policy",
        ),
        Some(Sharing::Mps(_)) => (
            Served::Better,
            "the claim has an MPS daemon that its containers cannot end or change; it needs agent.mps.enabled",
        ),
    }
}

fn of_mig(sharing: Option<&Sharing>) -> (Served, &'static str) {
    match sharing {
        None | Some(Sharing::TimeSlicing(_)) => {
            (Served::Same, "the containers of a claim have its MIG device in turns")
        }
        Some(Sharing::Mps(_)) => (
            Served::Better,
            "each MIG device has an MPS daemon that its containers cannot end or change; it needs agent.mps.enabled",
        ),
    }
}

fn of_channel(is_made_again: bool, is_all: bool) -> &'static str {
    match (is_made_again, is_all) {
        (true, false) => {
            "Octavo's controller makes the template again, and its claims get the domain's channel"
        }
        (true, true) => {
            "Octavo's controller makes the template again, and its claims get all channels; \
             computeDomains.imex.isolation=channel would refuse them"
        }
        (false, false) => "its claims get the channel of their ComputeDomain, which keeps its UID",
        (false, true) => {
            "its claims get all channels of the node; computeDomains.imex.isolation=channel would refuse them"
        }
    }
}
