//! An allocation as kube-scheduler would write it, with the configs of classes and claim and the
//! tolerations of the requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::{Allocation, DeviceRequest, Request};
use octavo_kube_io::claims::toleration_to_api;
use octavo_kube_io::objects::{ClaimConfig, DeviceClass};
use serde_json::{Value, json};

use super::ask::{alternatives, full_name};
use crate::bind::WrittenAllocation;

/// A request that was served, or the alternative of it that was.
struct ServedRequest<'a> {
    /// `<request>` or `<request>/<alternative>`.
    name: String,
    request: &'a str,
    asked: &'a DeviceRequest,
}

/// What is written for an allocation of a claim with these requests and configs.
pub(super) fn allocation_to_write(
    allocation: Allocation,
    requests: &[Request],
    config: &[ClaimConfig],
    classes: &BTreeMap<Arc<str>, Arc<DeviceClass>>,
) -> WrittenAllocation {
    let served: Vec<ServedRequest<'_>> =
        requests.iter().filter_map(|request| served(request, &allocation)).collect();
    let mut entries = class_configs(&served, classes);
    for config in config {
        let entry = || config_entry(config, "FromClaim", &config.requests);
        if config.requests.is_empty() {
            entries.push(entry());
            continue;
        }
        // One entry for each request that it applies to, as in Kubernetes.
        for served in &served {
            let is_for = |name: &String| *name == served.name || name.as_str() == served.request;
            if config.requests.iter().any(is_for) {
                entries.push(entry());
            }
        }
    }
    let extras = allocation.results.iter().map(|result| {
        let served = served.iter().find(|served| served.name == result.request);
        let tolerations = served.map(|served| served.asked.tolerations.as_slice());
        let tolerations: Vec<Value> = tolerations
            .unwrap_or_default()
            .iter()
            .map(|one| json!(toleration_to_api(one)))
            .collect();
        if tolerations.is_empty() { json!({}) } else { json!({ "tolerations": tolerations }) }
    });
    let extras = extras.collect();
    WrittenAllocation { allocation, config: entries, extras }
}

/// Which alternative of a request was served. A request without alternatives always counts as
/// served, even with no result.
fn served<'a>(request: &'a Request, allocation: &Allocation) -> Option<ServedRequest<'a>> {
    for (alternative, asked) in alternatives(request) {
        let name = full_name(&request.name, alternative);
        let is_served = || allocation.results.iter().any(|result| result.request == name);
        if alternative.is_none() || is_served() {
            return Some(ServedRequest { name, request: &request.name, asked });
        }
    }
    None
}

/// Configs of classes, each class once with all requests that it served.
fn class_configs(
    served: &[ServedRequest<'_>],
    classes: &BTreeMap<Arc<str>, Arc<DeviceClass>>,
) -> Vec<Value> {
    let mut entries = Vec::new();
    for (index, first) in served.iter().enumerate() {
        let class = first.asked.class.as_str();
        if served[..index].iter().any(|earlier| earlier.asked.class == class) {
            continue;
        }
        let Some(object) = classes.get(class) else { continue };
        let of_class = served.iter().filter(|served| served.asked.class == class);
        let names: Vec<String> = of_class.map(|served| served.name.clone()).collect();
        entries
            .extend(object.config.iter().map(|config| config_entry(config, "FromClass", &names)));
    }
    entries
}

/// `DeviceAllocationConfiguration`.
fn config_entry(config: &ClaimConfig, source: &str, requests: &[String]) -> Value {
    let opaque = json!({ "driver": config.driver, "parameters": config.parameters });
    let mut entry = json!({ "opaque": opaque, "source": source });
    if !requests.is_empty() {
        entry["requests"] = json!(requests);
    }
    entry
}
