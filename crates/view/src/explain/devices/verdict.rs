//! Why a node does not serve a pod, request by request and device by device.

use octavo_dra::{Count, DeviceVerdict, Explanation, Placed, RequestExplanation};
use serde::Serialize;

/// Why a node's devices do not serve the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeVerdict {
    /// Node.
    pub node: String,
    /// The reason in a line.
    pub refusal: String,
    /// Each request as if it were alone.
    pub requests: Vec<RequestVerdict>,
    /// Where each request could be served but not all together: how far a search came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clash: Option<ClashVerdict>,
}

/// A node's devices for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestVerdict {
    /// Claim, as `namespace/name`.
    pub claim: String,
    /// Request, with a sub-request after a slash.
    pub request: String,
    /// How many devices it wants; absent for all that match.
    pub wanted: Option<u64>,
    /// Whether enough devices are usable.
    pub enough: bool,
    /// The devices, in the allocator's order.
    pub devices: Vec<DeviceView>,
}

/// A device and the reason against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceView {
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// The reason against it; absent for a usable device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruled_out: Option<String>,
}

/// How far a search for all requests together came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClashVerdict {
    /// Devices that were placed.
    pub placed: Vec<PlacedDevice>,
    /// The request that was not, or only partly, served beside them.
    pub request: RequestVerdict,
}

/// A device that a search had placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedDevice {
    /// Claim, as `namespace/name`.
    pub claim: String,
    /// Request, with a sub-request after a slash.
    pub request: String,
    /// Device.
    pub device: String,
}

impl NodeVerdict {
    pub(super) fn new(node: &str, refusal: String, explanation: &Explanation) -> Self {
        let clash = explanation.clash.as_ref().map(|clash| ClashVerdict {
            placed: clash.placed.iter().map(PlacedDevice::new).collect(),
            request: RequestVerdict::new(&clash.request),
        });
        let requests = explanation.requests.iter().map(RequestVerdict::new).collect();
        Self { node: node.to_owned(), refusal, requests, clash }
    }

    /// The requests that the node cannot serve, as `claim/request`. These are the requests without
    /// enough devices in any alternative, or else the request that lost to the others.
    pub(in crate::explain) fn lacking(&self) -> Vec<String> {
        let mut served: Vec<(&str, &str, bool)> = Vec::new();
        for request in &self.requests {
            let (claim, name) = (&*request.claim, request.name());
            match served.iter_mut().find(|known| (known.0, known.1) == (claim, name)) {
                Some((.., enough)) => *enough |= request.enough,
                None => served.push((claim, name, request.enough)),
            }
        }
        let mut lacking: Vec<String> = served
            .into_iter()
            .filter(|(.., enough)| !enough)
            .map(|(claim, name, _)| format!("{claim}/{name}"))
            .collect();
        if let (true, Some(clash)) = (lacking.is_empty(), &self.clash) {
            lacking.push(format!("{}/{}", clash.request.claim, clash.request.name()));
        }
        lacking
    }

    /// Sort key of a node: the number of requests that it cannot serve, then the most usable
    /// devices first.
    pub(super) fn distance(&self) -> (usize, usize) {
        let usable = self.requests.iter().flat_map(|request| &request.devices);
        let usable = usable.filter(|device| device.ruled_out.is_none()).count();
        (self.lacking().len(), usize::MAX - usable)
    }
}

impl PlacedDevice {
    fn new(placed: &Placed) -> Self {
        Self {
            claim: placed.claim.to_string(),
            request: placed.request.clone(),
            device: placed.device.device.clone(),
        }
    }
}

impl RequestVerdict {
    fn new(request: &RequestExplanation) -> Self {
        let wanted = match request.wanted {
            Count::Exactly(count) => Some(count),
            Count::All => None,
        };
        let device = |verdict: &DeviceVerdict| DeviceView {
            driver: verdict.device.driver.clone(),
            pool: verdict.device.pool.clone(),
            device: verdict.device.device.clone(),
            ruled_out: verdict.reason.as_ref().map(ToString::to_string),
        };
        Self {
            claim: request.claim.to_string(),
            request: request.request.clone(),
            wanted,
            enough: request.is_enough(),
            devices: request.devices.iter().map(device).collect(),
        }
    }

    /// The request, without the sub-request.
    fn name(&self) -> &str {
        self.request.split_once('/').map_or(&*self.request, |(name, _)| name)
    }
}
