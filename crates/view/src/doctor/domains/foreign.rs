//! NVIDIA's own driver of `ComputeDomains`, by the containers of its workloads.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use octavo_api::names::LABEL_COMPUTE_DOMAIN;

/// Begin of the names of its programs, and of its containers.
const PROGRAM_PREFIX: &str = "compute-domain-";
const CONTAINERS: [&str; 2] = ["compute-domains", "compute-domain"];

/// Whether a workload is a part of it. Daemons of single domains are not: its controller makes them.
pub(super) fn is_part(labels: &BTreeMap<String, String>, pod: Option<&PodSpec>) -> bool {
    let is_daemon = labels.contains_key(LABEL_COMPUTE_DOMAIN);
    !is_daemon && pod.into_iter().flat_map(|pod| &pod.containers).any(is_ours)
}

fn is_ours(container: &Container) -> bool {
    let mut words = container.command.iter().chain(&container.args).flatten();
    // The words of a shell's command line count, too.
    let runs_it = words.any(|word| {
        word.split_whitespace()
            .map(|part| part.rsplit('/').next().unwrap_or(part))
            .any(|program| program.starts_with(PROGRAM_PREFIX))
    });
    runs_it
        || CONTAINERS.contains(&container.name.as_str())
        || container.name.starts_with(PROGRAM_PREFIX)
}
