//! Why an empty node would not serve claims, in words that name no object of the cluster.

use octavo_dra::{AllocateError, DeviceMismatch, RequestExplanation};

use super::Devices;
use super::ask::Ask;
use super::pod_allocation::Holders;

impl Devices {
    /// Why a node would not serve an ask even if no claim held any of its devices. Nodes with equal
    /// devices give equal words. `None` if it would, or if the claims are at fault.
    pub fn unserved_reason(&self, ask: &Ask, node: &str) -> Option<String> {
        let Some(view) = self.nodes.get(node) else {
            return Some("node(s) without devices".to_owned());
        };
        let claims = self.wanted(ask, view).claims;
        let claims: Vec<&octavo_dra::Claim> = claims.iter().collect();
        let explanation = self.with_allocator(view, Holders::None, &[], |allocator| {
            allocator.explain(&view.node, &claims)
        });
        match explanation.error? {
            AllocateError::NoFit => {}
            error @ AllocateError::InvalidPool { .. } => return Some(error.to_string()),
            _ => return None,
        }
        let unserved = first_unserved(&explanation.requests);
        Some(unserved.map_or_else(
            || "node(s) whose devices serve each request, but not all requests together".to_owned(),
            |request| {
                format!(
                    "node(s) without devices for request {}: {}",
                    request.request,
                    lack(request)
                )
            },
        ))
    }
}

/// The first request that has too few devices by itself: of a list, if no alternative has enough.
fn first_unserved(requests: &[RequestExplanation]) -> Option<&RequestExplanation> {
    let of_list = |one: &RequestExplanation, other: &RequestExplanation| {
        let list = |request: &str| request.split('/').next().map(str::to_owned);
        one.claim == other.claim && list(&one.request) == list(&other.request)
    };
    let mut lists = requests.chunk_by(of_list);
    let unserved = lists.find(|list| !list.iter().any(RequestExplanation::is_enough));
    unserved.and_then(<[_]>::first)
}

/// What the devices of a node lack for a request. The device that comes closest tells.
fn lack(request: &RequestExplanation) -> String {
    let reasons = request.devices.iter().map(|verdict| verdict.reason.as_ref());
    let closest = reasons.map(|reason| (nearness(reason), reason)).max_by_key(|(near, _)| *near);
    match closest {
        None => "there are none".to_owned(),
        Some((_, None)) => "there are too few".to_owned(),
        Some((_, Some(reason))) => match reason {
            DeviceMismatch::ClassSelector { class, .. } => {
                format!("none is of device class {class}")
            }
            DeviceMismatch::RequestSelector { expression } => {
                format!("none matches the selector {expression}")
            }
            DeviceMismatch::OtherNode => "they are for other nodes".to_owned(),
            DeviceMismatch::Taint(taint) => {
                format!("they have the taint {}, which is not tolerated", taint.key)
            }
            DeviceMismatch::CapacityUnknown { name }
            | DeviceMismatch::CapacityOutsidePolicy { name, .. }
            | DeviceMismatch::CapacityShort { name, .. } => {
                format!("their capacity {name} does not serve it")
            }
            DeviceMismatch::Constraint(_) => "none satisfies its constraints".to_owned(),
            DeviceMismatch::PoolIncomplete => "their pool is being updated".to_owned(),
            _ => "none can be allocated".to_owned(),
        },
    }
}

/// How many checks a device has passed.
fn nearness(reason: Option<&DeviceMismatch>) -> u8 {
    match reason {
        Some(DeviceMismatch::ClassSelector { .. }) => 0,
        Some(DeviceMismatch::OtherNode) => 1,
        Some(DeviceMismatch::RequestSelector { .. }) => 2,
        Some(_) => 3,
        None => 4,
    }
}
