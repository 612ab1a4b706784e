//! The checks. No I/O.

use std::collections::BTreeMap;

use octavo_api::names::{
    CLASS_GPU, CLASS_MIG, DRIVER_RELEASED, LABEL_MODE, MISSING_MODULE_PREFIX, MODE_NONE,
    OWNER_OCTAVO, TAINT_DRIVER_UNAVAILABLE, TAINT_FABRIC, TAINT_FOREIGN_MIG, TAINT_GPU_LOST,
    TAINT_HEALTH, TAINT_RECOVERY_ACTION, TAINT_WITHDRAWN, TAINT_XID,
};

use super::facts::{DeviceTaint, Facts, GpuNode, POLICIES};
use super::{Checked, Finding, domains, health, node, node_problems};

/// The oldest Kubernetes that is served, and the oldest with shares and dynamic MIG.
const OLDEST: (u32, u32) = (1, 34);
const WITH_SHARES: (u32, u32) = (1, 36);
/// The oldest containerd that reads CDI specs without being configured to.
const CONTAINERD_WITH_CDI: u32 = 2;

pub(super) const CLUSTER: &str = "cluster";
/// Devices of a finding that are named.
const MAX_NAMES: usize = 4;

/// All findings about a cluster.
pub fn check(facts: &Facts) -> Checked {
    let mut findings = versions(facts);
    let mut compute_domains = String::new();
    if facts.serves_dra {
        findings.extend(objects(facts));
        findings.extend(facts.nodes.iter().flat_map(|(name, found)| of_node(facts, name, found)));
        findings.extend(agents(facts));
        findings.extend(others(facts));
        findings.extend(node_problems::check(facts));
        findings.extend(health::check(facts));
        let (found, words) = domains::check(facts);
        findings.extend(found);
        compute_domains = words;
    }
    Checked { findings, compute_domains }
}

fn versions(facts: &Facts) -> Vec<Finding> {
    let (major, minor) = facts.server;
    if facts.server < OLDEST || !facts.serves_dra {
        let problem = format!("the API server {major}.{minor} does not serve resource.k8s.io/v1");
        return vec![Finding::error(CLUSTER, problem, "upgrade Kubernetes to 1.34 or later")];
    }
    if facts.server < WITH_SHARES {
        let problem =
            format!("Kubernetes {major}.{minor} has no shares of GPUs and no dynamic MIG");
        return vec![Finding::warning(CLUSTER, problem, "upgrade Kubernetes to 1.36 or later")];
    }
    Vec::new()
}

fn objects(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if facts.nodes.is_empty() {
        findings.push(Finding::error(
            CLUSTER,
            "no node has GPUs: none has a label of a GPU, and no agent publishes any",
            "install Node Feature Discovery, or label GPU nodes by hand: kubectl label node NODE \
             nvidia.com/gpu.present=true",
        ));
    }
    for class in [CLASS_GPU, CLASS_MIG] {
        if !facts.classes.contains(class) && !facts.unread.contains("deviceclasses") {
            findings.push(Finding::error(
                CLUSTER,
                format!("there is no DeviceClass {class}: no claim can name it"),
                "install the chart with deviceClasses.enabled=true",
            ));
        }
    }
    let policy = |suffix: &str| facts.policies.iter().find(|(name, _)| name.ends_with(suffix));
    for (suffix, what) in [
        ("-resourceslices", "the ResourceSlices of every node"),
        ("-claimstatus", "the status of every claim"),
        ("-events", "events in the name of every node"),
    ] {
        if policy(suffix).is_none() && !facts.unread.contains(POLICIES) {
            findings.push(Finding::warning(
                CLUSTER,
                format!("the token of one node's agent can write {what}"),
                "install the chart with admissionPolicy.enabled=true",
            ));
        }
    }
    let refused = policy("-runtimeclass").map_or("", |(_, text)| text);
    let open =
        facts.runtime_classes.iter().filter(|class| !refused.contains(&format!("'{class}'")));
    let open: Vec<_> = open.map(String::as_str).collect();
    if !open.is_empty() && !facts.unread.contains(POLICIES) {
        let names = open.join(", ");
        findings.push(Finding::warning(
            CLUSTER,
            format!(
                "any pod with the RuntimeClass {names} gets all GPUs of its node without a claim"
            ),
            "install the chart with admissionPolicy.runtimeClass.enabled=true and these names in \
             admissionPolicy.runtimeClass.names, or remove the classes",
        ));
    }
    if !facts.unread.is_empty() {
        let kinds = facts.unread.iter().copied().collect::<Vec<_>>().join(", ");
        findings.push(Finding::warning(
            CLUSTER,
            format!("{kinds} could not be read, so what they show is not checked"),
            "run it as an administrator of the cluster",
        ));
    }
    findings
}

fn of_node(facts: &Facts, name: &str, found: &GpuNode) -> Vec<Finding> {
    let subject = node(name);
    let mut findings = Vec::new();
    if !found.is_ready {
        let remedy = format!("kubectl describe node {name}");
        findings.push(Finding::error(&subject, "the node is not ready", &remedy));
    }
    let has_agent =
        facts.unread.contains("pods") || facts.agents.iter().any(|agent| agent.node == name);
    let counts = !found.plugin_resources.is_empty();
    match (found.devices, has_agent) {
        // It leaves Octavo, and so has no GPU on offer.
        (_, true) if found.mode.as_deref() == Some(MODE_NONE) => findings.push(Finding::warning(
            &subject,
            format!("it offers no GPU: its label {LABEL_MODE} is {MODE_NONE}"),
            &format!("kubectl label node {name} {LABEL_MODE}- gives it the mode of the chart's agent.mode"),
        )),
        // A device plugin of the agent: slices have no devices then.
        (None | Some(0), true) if counts => {}
        (None | Some(0), true) if found.mode.as_deref() == Some("device-plugin") => {
            findings.push(Finding::error(
                &subject,
                "its agent lists no GPU to the kubelet",
                "read the agent's log, and the node's events: kubectl describe node NODE",
            ));
        }
        (None, false) => findings.push(Finding::error(
            &subject,
            "no agent runs here, so its GPUs are not published",
            "check nodeSelector, affinity and tolerations of the DaemonSet (agent.* of the chart)",
        )),
        (None, true) => findings.push(Finding::error(
            &subject,
            "its agent has published no GPU",
            "read the agent's log: kubectl logs -n NAMESPACE POD",
        )),
        (Some(0), _) if !found.is_incomplete => findings.push(Finding::error(
            &subject,
            "its agent publishes an empty pool: the driver does not answer, has no GPU, or the node's mode changes",
            "run nvidia-smi on the node; a released driver returns with `octavo driver resume NODE`; an event \
             ModeWaits names what a change of the mode waits for",
        )),
        (Some(_), _) => {}
    }
    if found.is_incomplete {
        findings.push(Finding::error(
            &subject,
            "slices of its pool are missing, so nothing of it is allocated",
            "read the agent's log; the agent writes missing slices again",
        ));
    }
    if found.devices.is_some_and(|devices| devices > 0) && counts {
        let names = found.plugin_resources.iter().cloned().collect::<Vec<_>>().join(", ");
        findings.push(Finding::error(
            &subject,
            format!(
                "a device plugin serves {names} besides the agent: a GPU can be given out twice"
            ),
            "remove the device plugin from this node, or the agent",
        ));
    }
    if let Some(version) = found.runtime.strip_prefix("containerd://")
        && leading_number(version).is_some_and(|major| major < CONTAINERD_WITH_CDI)
    {
        findings.push(Finding::warning(
            &subject,
            format!("containerd {version} reads CDI specs only if enable_cdi is set"),
            "upgrade to containerd 2, or set enable_cdi = true in its config",
        ));
    }
    let is_unknown = facts.unread.contains("pods") || facts.unread.contains("leases");
    if found.owner.as_deref() == Some(OWNER_OCTAVO) && !facts.has_scheduler && !is_unknown {
        findings.push(Finding::error(
            &subject,
            "its devices belong to Octavo's scheduler, of which no pod is ready",
            "install the chart with scheduler.enabled=true, or remove the label octavo.dev/scheduler",
        ));
    }
    let mut tainted: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for DeviceTaint { device, key, value } in &found.taints {
        tainted.entry((key, value)).or_default().push(device);
    }
    let of = found.devices.unwrap_or_default();
    let taints = tainted.into_iter();
    findings.extend(taints.map(|(taint, devices)| of_taint(&subject, taint, &devices, of)));
    findings
}

/// The finding about a taint of some devices of a node.
fn of_taint(subject: &str, (key, value): (&str, &str), devices: &[&str], of: usize) -> Finding {
    let remedy = match key {
        TAINT_DRIVER_UNAVAILABLE if value == DRIVER_RELEASED => {
            "the driver is released: run `octavo driver resume NODE`, or wait for the operator's \
             upgrade"
        }
        TAINT_DRIVER_UNAVAILABLE if value.starts_with(MISSING_MODULE_PREFIX) => {
            "load the kernel module on the node with modprobe, and at each boot with \
             /etc/modules-load.d"
        }
        TAINT_DRIVER_UNAVAILABLE => "run nvidia-smi on the node; reinstall or load the driver",
        TAINT_FABRIC => {
            "check nvidia-fabricmanager (HGX) or nvidia-imex and the NVLink switches (GB200), of \
             the driver's version"
        }
        TAINT_GPU_LOST => "drain the node and reboot it; replace the GPU if it is lost again",
        TAINT_XID | TAINT_RECOVERY_ACTION => {
            "drain the node and do what the driver advises: nvidia-smi -q -d ROW_REMAPPER; \
             nvidia-smi --gpu-reset with the driver released"
        }
        TAINT_HEALTH => {
            "the node's event GpuUnhealthy says what the GPU needs; it returns by itself after a remedy and a test"
        }
        TAINT_FOREIGN_MIG => "destroy the instance with nvidia-smi mig -dci and -dgi",
        TAINT_WITHDRAWN => "none: it goes with its claim",
        _ => "see who wrote the taint: kubectl get devicetaintrules",
    };
    let value = if value.is_empty() { String::new() } else { format!("={value}") };
    let names = devices.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    let more = if devices.len() > MAX_NAMES { ", ..." } else { "" };
    let count = devices.len();
    let problem =
        format!("{count} of {of} devices take no pods ({names}{more}): taint {key}{value}");
    Finding::warning(subject, problem, remedy)
}

fn agents(facts: &Facts) -> Vec<Finding> {
    let sick = facts.agents.iter().filter(|agent| !agent.is_ready);
    let findings = sick.map(|agent| {
        let (namespace, pod) = agent.name.split_once('/').unwrap_or_default();
        let why = agent.trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let remedy =
            format!("kubectl logs -n {namespace} {pod}; its /readyz names what it waits for");
        let problem = format!("the agent {} is not ready{why}", agent.name);
        let subject = if agent.node.is_empty() { CLUSTER.to_owned() } else { node(&agent.node) };
        Finding::error(&subject, problem, &remedy)
    });
    findings.collect()
}

/// Pods beside the agents: MPS daemons that do not run, and other programs that offer the same GPUs.
fn others(facts: &Facts) -> Vec<Finding> {
    let mps = facts.sick_mps_pods.iter().map(|pod| {
        let (namespace, name) = pod.name.split_once('/').unwrap_or_default();
        let why = pod.trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let problem = format!("the pod {} of MPS daemons is not ready{why}", pod.name);
        Finding::error(&node(&pod.node), problem, &format!("kubectl logs -n {namespace} {name}"))
    });
    // A node in the mode `none` is another program's.
    let has_left = |node: &str| {
        facts.nodes.get(node).is_some_and(|node| node.mode.as_deref() == Some(MODE_NONE))
    };
    let rivals = facts.rivals.iter().filter(|rival| !has_left(&rival.node)).map(|rival| {
        let problem = format!("{} runs here, too: {}", rival.what, rival.pod);
        let remedy = "end it on this node, as `octavo migrate plan` says, or keep the agent off the node (agent.nodeSelector)";
        Finding::error(&node(&rival.node), problem, remedy)
    });
    mps.chain(rivals).collect()
}

/// The number that a version begins with.
fn leading_number(version: &str) -> Option<u32> {
    let digits = version.trim_start_matches('v');
    digits.split('.').next()?.parse().ok()
}
