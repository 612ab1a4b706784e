//! What `ComputeDomains` need of a cluster.
//!
//! | module | purpose |
//! |---|---|
//! | `facts` | reads [`DomainFacts`] |
//! | `definitions` | compares the installed definitions with those of this version |
//! | `foreign` | finds NVIDIA's driver of `ComputeDomains` |
//! | `network` | what `NetworkPolicies` say about the daemons' ports |

mod definitions;
mod facts;
mod foreign;
mod network;
#[cfg(test)]
mod tests;

use octavo_api::names::{
    CLASS_CHANNEL, CLASS_DAEMON, LABEL_CLIQUE, LABEL_COMPUTE_DOMAIN, NO_IMEX_CHANNELS,
    NO_IMEX_CONTROL, NO_IMEX_SERVICE,
};

use super::facts::Facts;
use super::{Finding, node};
use crate::scheduler::LeaseProblem;
use definitions::Definition;

pub use facts::DomainFacts;
pub(super) use facts::read;

const CLUSTER: &str = "cluster";
/// The oldest kubelet that keeps its connection to a DRA driver.
const KUBELET: [u32; 3] = [1, 34, 2];
/// The oldest driver whose `nvidia-imex` looks names up again.
const DRIVER: [u32; 3] = [570, 158, 1];
/// Names in one finding.
const MAX_NAMES: usize = 4;

/// The findings, and what was looked at, as the end of a sentence about `ComputeDomains`.
pub(super) fn check(facts: &Facts) -> (Vec<Finding>, String) {
    let domains = &facts.domains;
    let cliques = domains.nodes.values().filter(|node| node.clique.is_some()).count();
    if cliques == 0 && !domains.is_defined() {
        let why = format!("no node has the label {LABEL_CLIQUE}, and the cluster has no such kind");
        return (Vec::new(), format!("not checked: {why}"));
    }
    let has_lease = domains
        .controller
        .as_ref()
        .is_some_and(|found| !found.is_unknown() && found.holder != Err(LeaseProblem::Missing));
    if !domains.foreign.is_empty() && !has_lease {
        let names = domains.foreign.join(", ");
        return (Vec::new(), format!("not checked: NVIDIA's driver serves them ({names})"));
    }
    let is_used = domains.domains.as_ref().is_some_and(|domains| !domains.is_empty());
    if !has_lease && domains.published.is_empty() && !is_used {
        let finding = Finding::warning(
            CLUSTER,
            format!("{cliques} nodes have an NVLink clique, and ComputeDomains are not served"),
            "install the chart with computeDomains.enabled=true, if pods of several nodes share memory",
        );
        let findings = if cliques > 0 { vec![finding] } else { Vec::new() };
        return (findings, "not served here".to_owned());
    }
    let mut findings = objects(facts);
    findings.extend(clashes(domains));
    findings.extend(controller(domains, is_used));
    findings.extend(nodes(facts));
    findings.extend(network::check(domains));
    let count = domains.domains.as_ref().map_or_else(|| "?".to_owned(), |it| it.len().to_string());
    (findings, format!("checked: {count} domains, {cliques} nodes with an NVLink clique"))
}

fn objects(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let remedy = "install the chart's definitions: computeDomains.crds.install=true; helm refuses those that another \
                  installation owns, so remove that one first";
    for (name, definition) in &facts.domains.definitions {
        let problem = match definition {
            Definition::Complete => continue,
            Definition::Missing => format!("there is no CustomResourceDefinition {name}"),
            Definition::NotServed => format!("{name} does not serve version v1beta1"),
            Definition::Without(fields) => {
                format!(
                    "{name} lacks fields, which are dropped on each write: {}",
                    fields.join(", ")
                )
            }
        };
        findings.push(Finding::error(CLUSTER, problem, remedy));
    }
    for class in [CLASS_CHANNEL, CLASS_DAEMON] {
        if !facts.classes.contains(class) && !facts.unread.contains("deviceclasses") {
            findings.push(Finding::error(
                CLUSTER,
                format!(
                    "there is no DeviceClass {class}: no claim of a ComputeDomain is allocated"
                ),
                "install the chart with deviceClasses.enabled=true and computeDomains.enabled=true",
            ));
        }
    }
    findings
}

fn clashes(domains: &DomainFacts) -> Vec<Finding> {
    let clash = |name: &String| {
        Finding::error(
            CLUSTER,
            format!(
                "{name} of NVIDIA's driver serves ComputeDomains besides Octavo: both write the same objects"
            ),
            "turn one of them off: resources.computeDomains.enabled=false of NVIDIA's chart, or \
             computeDomains.enabled=false of Octavo's",
        )
    };
    domains.foreign.iter().map(clash).collect()
}

fn controller(domains: &DomainFacts, is_used: bool) -> Option<Finding> {
    let controller = domains.controller.as_ref().filter(|found| !found.is_unknown())?;
    let problem = format!("ComputeDomains: {}", controller.problem()?);
    let remedy = controller.remedy();
    Some(if is_used {
        Finding::error(CLUSTER, problem, &remedy)
    } else {
        Finding::warning(CLUSTER, problem, &remedy)
    })
}

fn nodes(facts: &Facts) -> Vec<Finding> {
    let domains = &facts.domains;
    let mut findings = Vec::new();
    for (name, found) in domains.nodes.iter().filter(|(_, found)| found.clique.is_some()) {
        let subject = node(name);
        if !domains.published.contains(name) {
            findings.push(Finding::error(
                &subject,
                "it has an NVLink clique and offers no channel, so no pod of a ComputeDomain comes here",
                "install the chart with computeDomains.enabled=true, and read the log of the node's agent",
            ));
        }
        if found.kubelet.is_some_and(|version| version < KUBELET) {
            findings.push(Finding::warning(
                &subject,
                "its kubelet is older than 1.34.2: it may lose a DRA driver that is registered, and then prepares no claim",
                "upgrade the kubelet to 1.34.2 or later",
            ));
        }
        if let Some(obstacle) = &found.obstacle {
            let (problem, remedy) = of_obstacle(obstacle);
            findings.push(Finding::error(
                &subject,
                format!("no pod of a ComputeDomain comes here: {problem}"),
                remedy,
            ));
        }
        for version in &found.drivers {
            if facts::version(version).is_some_and(|number| number < DRIVER) {
                findings.push(Finding::error(
                    &subject,
                    format!(
                        "NVIDIA's driver {version} is older than 570.158.01: its nvidia-imex does not see peers that join later"
                    ),
                    "upgrade NVIDIA's driver",
                ));
            }
        }
    }
    let Some(known) = &domains.domains else { return findings };
    let is_stale = |uid: &String| !known.contains(uid);
    for (name, found) in &domains.nodes {
        let Some(uid) = found.domain.as_ref().filter(|uid| is_stale(uid)) else { continue };
        findings.push(Finding::warning(
            &node(name),
            format!(
                "its label {LABEL_COMPUTE_DOMAIN} names a ComputeDomain that does not exist: {uid}"
            ),
            "end the pods with claims of that domain there; then the controller removes the label",
        ));
    }
    findings
}

/// What the value of the taint of a node's channel means, and what to do.
fn of_obstacle(obstacle: &str) -> (&str, &str) {
    match obstacle {
        NO_IMEX_CHANNELS => (
            "its kernel module nvidia has no IMEX channels",
            "upgrade NVIDIA's driver, or load its module without NVreg_ImexChannelCount=0",
        ),
        NO_IMEX_SERVICE => (
            "its driver's root has no nvidia-imex",
            "install NVIDIA's package nvidia-imex of the driver's version on the node, or in the driver's container",
        ),
        NO_IMEX_CONTROL => (
            "its driver's root has no nvidia-imex-ctl, by which the host's IMEX service is asked",
            "install NVIDIA's package nvidia-imex on the node, or set computeDomains.imex.mode=driverManaged",
        ),
        other => {
            (other, "see the taint of the device channel-0: kubectl get resourceslices -o yaml")
        }
    }
}

/// The first names of a list.
fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES { format!("{shown}, ...") } else { shown }
}
