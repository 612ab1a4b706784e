//! The objects written to the API server.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use octavo_api::config::{ComputePart, OverflowPolicy};
use octavo_api::names;
use octavo_enforcement::backend::BackendKind;
use octavo_enforcement::share::{ShareFinding, Status};
use octavo_kube_io::events::EventType;
use octavo_node::ClaimRef;
use serde_json::{Value, json};

use super::{Fact, Report, ReportedDevice, SwapFact, TimeFact};

/// Longest note of an event that the API takes.
pub(super) const NOTE_LIMIT: usize = 1024;

/// This driver's part of the claim's status: one entry per device with conditions. The UID guards against another claim
/// of the same name.
pub(super) fn status_of(report: &Report, now: jiff::Timestamp) -> Value {
    // A claim may hold a device twice, once with admin access. The server rejects two entries of one key.
    let mut devices: Vec<&ReportedDevice> = Vec::new();
    for device in &report.devices {
        match devices.iter().position(|known| known.is_same(device)) {
            None => devices.push(device),
            Some(known) if devices[known].fact.is_none() => devices[known] = device,
            Some(_) => {}
        }
    }
    let entries = devices.into_iter().filter_map(|device| match (&report.refusal, &device.fact) {
        (Some((reason, message)), _) => {
            let no = condition(names::CONDITION_READY, Status::False, reason, message, now);
            Some(entry(device, &[no], None))
        }
        (None, Some(fact)) => Some(entry(device, &fact.conditions(now), fact.data())),
        (None, None) => None,
    });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": report.claim.name, "uid": report.claim.uid},
        "status": {"devices": entries.collect::<Vec<_>>()},
    })
}

/// A condition of a device.
fn condition(
    kind: &str,
    status: Status,
    reason: &str,
    message: &str,
    since: jiff::Timestamp,
) -> Value {
    json!({
        "type": kind,
        "status": status.as_str(),
        "reason": reason,
        "message": message,
        "lastTransitionTime": since.strftime("%FT%TZ").to_string(),
    })
}

/// A device's entry.
fn entry(device: &ReportedDevice, conditions: &[Value], data: Option<Value>) -> Value {
    let mut entry = json!({
        "driver": names::DRIVER,
        "pool": device.pool,
        "device": device.device,
        "conditions": conditions,
    });
    if let Some(entry) = entry.as_object_mut() {
        entry.extend(device.share_id.iter().map(|id| ("shareID".to_owned(), json!(id))));
        entry.extend(data.map(|data| ("data".to_owned(), data)));
    }
    entry
}

impl Fact {
    /// The conditions for the facts.
    fn conditions(&self, now: jiff::Timestamp) -> Vec<Value> {
        let since = |since: &Option<i64>| {
            since.and_then(|since| jiff::Timestamp::from_second(since).ok()).unwrap_or(now)
        };
        vec![match self {
            Self::Share { prepared_at, backend, is_exempt, overflow, time, swap, findings } => {
                let changed = |(finding, at): &(ShareFinding, i64)| {
                    let (kind, status) = finding.condition?;
                    let at = since(&Some(*at));
                    Some((kind, condition(kind, status, finding.reason, &finding.message, at)))
                };
                let found: Vec<_> = findings.iter().filter_map(changed).collect();
                let at = since(prepared_at);
                let own = [
                    Some((
                        names::CONDITION_ENFORCED,
                        enforced(*backend, *is_exempt, *overflow, at),
                    )),
                    time_enforced(*time, *is_exempt, at)
                        .map(|time| (names::CONDITION_TIME_ENFORCED, time)),
                    swap.map(|swap| (names::CONDITION_MEMORY_SWAP, memory_swap(swap, at))),
                ];
                // A finding is newer than the record.
                let is_found = |kind: &str| found.iter().any(|(found, _)| *found == kind);
                let own = own.into_iter().flatten().filter(|(kind, _)| !is_found(kind));
                return own.chain(found.clone()).map(|(_, reported)| reported).collect();
            }
            Self::Mig { prepared_at, instance } => condition(
                names::CONDITION_READY,
                Status::True,
                "Prepared",
                &format!("MIG instance {} is ready for the claim's containers", instance.uuid),
                since(prepared_at),
            ),
            Self::MigGone { instance } => condition(
                names::CONDITION_READY,
                Status::False,
                "MigInstanceGone",
                &format!(
                    "MIG instance {} is gone, as after a reset of its GPU; delete the pod so that another \
                     is made",
                    instance.uuid
                ),
                now,
            ),
        }]
    }

    /// The facts for programs.
    fn data(&self) -> Option<Value> {
        let Self::Mig { instance, .. } = self else { return None };
        Some(json!({
            "uuid": instance.uuid,
            "gpuInstance": instance.gpu_instance,
            "computeInstance": instance.compute_instance,
            "profile": instance.profile,
            "parentUUID": instance.parent_uuid,
        }))
    }
}

/// Whether something holds a share's containers.
fn enforced(
    backend: Option<BackendKind>,
    is_exempt: bool,
    overflow: Option<OverflowPolicy>,
    since: jiff::Timestamp,
) -> Value {
    let (status, reason, message) = match backend {
        Some(BackendKind::Guard) => (
            Status::True,
            names::REASON_GUARD,
            "the guard in the containers refuses memory beyond the share, and the agent monitors the \
             driver's count",
        ),
        Some(BackendKind::Driver) => (
            Status::True,
            names::REASON_DRIVER,
            "the driver refuses the containers memory beyond the share, and the agent monitors its count",
        ),
        Some(BackendKind::Off) if is_exempt => (
            Status::False,
            names::REASON_EXEMPT,
            "the administrator exempted the claim's namespace on this node (`exemptNamespaces` of the agent): the containers can exceed \
             the share",
        ),
        Some(BackendKind::Off) => (
            Status::False,
            names::REASON_ENFORCEMENT_OFF,
            "the node does not limit the share (`memoryEnforcement: off`, or `gpuShares: unlimited`): the containers can exceed it",
        ),
        None => (
            Status::False,
            names::REASON_NO_GUARD,
            "a version of Octavo without a guard prepared the share: the containers can exceed it; \
             delete the pods so that it is prepared again",
        ),
    };
    let mut message = message.to_owned();
    if let Some(policy) = overflow.filter(|_| !is_exempt) {
        message.push_str("; its overflow policy is ");
        message.push_str(policy.as_str());
    }
    condition(names::CONDITION_ENFORCED, status, reason, &message, since)
}

/// Whether something holds a share to its part of the GPU's time. `None` if it asks for none, and the node gives no leases.
fn time_enforced(time: TimeFact, is_exempt: bool, since: jiff::Timestamp) -> Option<Value> {
    let TimeFact { request, limit, has_leases } = time;
    if !has_leases {
        let asks = request > 0 || limit.is_some();
        let (reason, message) = if is_exempt {
            (names::REASON_EXEMPT, "the administrator exempted the claim's namespace on this node")
        } else {
            let message = "the node does not divide the GPU's time among shares, so the driver does it evenly among \
                 their processes; `timeEnforcement: leases` of the agent divides it, with the guard as the backend";
            (names::REASON_TIME_NOT_ENFORCED, message)
        };
        let kind = names::CONDITION_TIME_ENFORCED;
        return asks.then(|| condition(kind, Status::False, reason, message, since));
    }
    let has = match request {
        0 => "the GPU's time that other shares leave".to_owned(),
        part => format!("{} of the GPU's time while they want it", ComputePart(part)),
    };
    let more = match limit {
        Some(part) => format!(", and never more than {}", ComputePart(part)),
        None if request == 0 => String::new(),
        None => ", and more while others leave it".to_owned(),
    };
    let message = format!("its processes have {has}{more}");
    let (kind, reason) = (names::CONDITION_TIME_ENFORCED, names::REASON_LEASES);
    Some(condition(kind, Status::True, reason, &message, since))
}

/// Whether a share with memory above its request can give it back.
fn memory_swap(swap: SwapFact, since: jiff::Timestamp) -> Value {
    let SwapFact { request, limit, has_swap } = swap;
    let (status, reason, message) = if has_swap {
        let message = format!(
            "its processes have {} MiB whenever they want, and up to {} MiB while other shares leave it; then the agent moves \
             them to the host's memory and back",
            request >> 20,
            limit >> 20
        );
        (Status::True, names::REASON_SWAPPABLE, message)
    } else {
        let message = "the node lends memory to no new shares (`memorySwap: off`). Memory of this one still moves to the host and \
             back while the node gives leases of GPU time; without them other shares may not get what they ask for, and what is on the \
             host stays there. Delete the pods so that the share is prepared again";
        (Status::False, names::REASON_SWAP_OFF, message.to_owned())
    };
    condition(names::CONDITION_MEMORY_SWAP, status, reason, &message, since)
}

/// As the API has it.
fn event_type(kind: EventType) -> &'static str {
    match kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

/// An event of a claim, of a type and with an action.
pub(super) fn event_of(
    claim: &ClaimRef,
    node: &str,
    (kind, action): (EventType, &str),
    reason: &str,
    message: &str,
) -> Event {
    let note = message.char_indices().take_while(|(at, c)| at + c.len_utf8() <= NOTE_LIMIT);
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", claim.name.chars().take(200).collect::<String>())),
            namespace: Some(claim.namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some(action.to_owned()),
        event_time: Some(MicroTime(jiff::Timestamp::now())),
        note: Some(note.map(|(_, c)| c).collect()),
        reason: Some(reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some("resource.k8s.io/v1".to_owned()),
            kind: Some("ResourceClaim".to_owned()),
            name: Some(claim.name.clone()),
            namespace: Some(claim.namespace.clone()),
            uid: Some(claim.uid.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(names::AGENT_CONTROLLER.to_owned()),
        reporting_instance: Some(node.to_owned()),
        type_: Some(event_type(kind).to_owned()),
        ..Event::default()
    }
}
