use super::facts::{AgentPod, DeviceTaint, Facts, GpuNode, POLICIES, Rival};
use super::node_problems::NodeProblem;
use super::probe::not_started;
use super::{Checked, DoctorReport, Severity, check};

/// A cluster without a fault: one node with eight GPUs and its agent.
fn well() -> Facts {
    let node = GpuNode {
        is_labelled: true,
        is_ready: true,
        runtime: "containerd://2.1.4".to_owned(),
        devices: Some(8),
        ..GpuNode::default()
    };
    let agent = AgentPod {
        name: "octavo-system/octavo-agent-x".to_owned(),
        node: "a".to_owned(),
        is_ready: true,
        ..AgentPod::default()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Facts {
        server: (1, 36),
        serves_dra: true,
        classes: names(&["gpu.nvidia.com", "mig.nvidia.com"]),
        policies: ["o-resourceslices", "o-claimstatus", "o-events", "o-nodelabel"]
            .map(|name| (name.to_owned(), String::new()))
            .into(),
        nodes: [("a".to_owned(), node)].into(),
        agents: vec![agent],
        ..Facts::default()
    }
}

/// Severity, subject and problem of each finding after a change of a cluster without a fault.
fn found(change: impl FnOnce(&mut Facts)) -> Vec<(Severity, String, String)> {
    let mut facts = well();
    change(&mut facts);
    let report = DoctorReport::new(check(&facts), facts.nodes.len(), 0);
    for finding in &report.findings {
        assert!(!finding.remedy.is_empty(), "{finding:?}");
        assert!(report.text(false).contains(&finding.remedy), "{finding:?}");
    }
    report.findings.into_iter().map(|f| (f.severity, f.subject, f.problem)).collect()
}

fn check_one(change: impl FnOnce(&mut Facts), severity: Severity, subject: &str, words: &str) {
    let found = found(change);
    let [(found_severity, found_subject, problem)] = found.as_slice() else {
        panic!("wanted {words:?}: {found:?}")
    };
    assert_eq!((*found_severity, found_subject.as_str()), (severity, subject), "{problem}");
    assert!(problem.contains(words), "wanted {words:?}: {problem}");
}

#[test]
fn a_cluster_without_a_fault_has_no_findings() {
    assert_eq!(found(|_| {}), []);
    let text = DoctorReport::new(Checked::default(), 3, 2).text(false);
    assert_eq!(
        text,
        "errors: 0, warnings: 0, GPU nodes: 3, with a container that saw its GPU: 2\n"
    );
    let checked = Checked { compute_domains: "not served here".to_owned(), ..Checked::default() };
    let text = DoctorReport::new(checked, 1, 0).text(false);
    assert!(text.starts_with("ComputeDomains: not served here\nerrors: 0"), "{text}");
}

#[test]
fn each_fault_of_a_cluster_is_one_finding() {
    let error =
        |change: fn(&mut Facts), words| check_one(change, Severity::Error, "cluster", words);
    error(|facts| facts.server = (1, 33), "does not serve resource.k8s.io/v1");
    error(|facts| facts.serves_dra = false, "does not serve resource.k8s.io/v1");
    error(|facts| _ = facts.classes.remove("mig.nvidia.com"), "no DeviceClass mig.nvidia.com");
    let warning =
        |change: fn(&mut Facts), words| check_one(change, Severity::Warning, "cluster", words);
    warning(|facts| facts.server = (1, 35), "no shares of GPUs");
    warning(|facts| _ = facts.policies.remove("o-claimstatus"), "the status of every claim");
    let class = |facts: &mut Facts| _ = facts.runtime_classes.insert("nvidia".to_owned());
    warning(class, "all GPUs of its node without a claim");
    let out_of_service = |facts: &mut Facts| {
        facts.health = [("a".to_owned(), (2, 8)), ("b".to_owned(), (0, 8))].into();
    };
    warning(out_of_service, "2 of 16 GPUs are out of service, on 1 of the nodes");
    assert_eq!(found(|facts| facts.health = [("a".to_owned(), (0, 8))].into()), []);
    let with_policy = |text: &str| {
        found(|facts| {
            class(facts);
            facts.policies.insert("o-runtimeclass".to_owned(), text.to_owned());
        })
    };
    assert_eq!(with_policy("!(object.spec.runtimeClassName in ['nvidia'])"), []);
    assert_eq!(with_policy("!(object.spec.runtimeClassName in ['nvidia-cdi'])").len(), 1);
    let blind = |facts: &mut Facts| {
        facts.unread = ["deviceclasses", "pods", POLICIES].into();
        facts.classes.clear();
        facts.policies.clear();
        facts.agents.clear();
        facts.nodes.values_mut().for_each(|node| node.owner = Some("octavo".to_owned()));
    };
    check_one(blind, Severity::Warning, "cluster", "deviceclasses, pods, validating");
    let none = |facts: &mut Facts| (facts.nodes.clear(), facts.agents.clear()).0;
    error(none, "no node has GPUs");
}

#[test]
fn a_node_of_the_agent_s_device_plugin_has_no_findings() {
    let counts = |facts: &mut Facts| {
        for node in facts.nodes.values_mut() {
            node.devices = Some(0);
            node.plugin_resources.insert("nvidia.com/gpu".to_owned());
        }
    };
    assert_eq!(found(counts), []);
}

fn problem(facts: &mut Facts, reason: &str, is_confirmed: bool) {
    let (node, reason, note) = ("a".to_owned(), reason.to_owned(), "words".to_owned());
    facts.problems = vec![NodeProblem { node, reason, note, is_confirmed }];
}

#[test]
fn what_runs_beside_an_agent_and_what_it_says_are_findings() {
    let check =
        |change: fn(&mut Facts), severity, words| check_one(change, severity, "node a", words);
    let pod = || AgentPod {
        name: "octavo-system/octavo-mps-daemon-x".to_owned(),
        node: "a".to_owned(),
        trouble: Some("CrashLoopBackOff".to_owned()),
        ..AgentPod::default()
    };
    check_one(
        |facts| facts.sick_mps_pods = vec![pod()],
        Severity::Error,
        "node a",
        "CrashLoopBackOff",
    );
    let rival = |facts: &mut Facts| {
        let (what, pod, node) = ("NVIDIA's device plugin", "ns/p".to_owned(), "a".to_owned());
        facts.rivals = vec![Rival { what, pod, node }];
    };
    check(rival, Severity::Error, "NVIDIA's device plugin runs here, too: ns/p");
    check(
        |facts| problem(facts, "PluginConfigInvalid", true),
        Severity::Error,
        "PluginConfigInvalid: words",
    );
    check(
        |facts| problem(facts, "PluginConfigInvalid", false),
        Severity::Warning,
        "could not be asked",
    );
    check(|facts| problem(facts, "ModeWaits", true), Severity::Warning, "ModeWaits: words");
}

#[test]
fn each_fault_of_a_node_is_one_finding() {
    let of_node = |change: fn(&mut GpuNode), severity, words| {
        let change = |facts: &mut Facts| facts.nodes.values_mut().for_each(change);
        check_one(change, severity, "node a", words);
    };
    let error = |change, words| of_node(change, Severity::Error, words);
    error(|node| node.is_ready = false, "not ready");
    error(|node| node.devices = None, "has published no GPU");
    error(|node| node.devices = Some(0), "an empty pool");
    error(|node| (node.devices, node.is_incomplete) = (Some(0), true), "slices of its pool");
    error(|node| node.owner = Some("octavo".to_owned()), "Octavo's scheduler");
    let plugin = |node: &mut GpuNode| _ = node.plugin_resources.insert("nvidia.com/gpu".to_owned());
    error(plugin, "a device plugin serves nvidia.com/gpu");
    error(
        |node| (node.devices, node.mode) = (Some(0), Some("device-plugin".to_owned())),
        "lists no GPU to the kubelet",
    );
    let warning = |change, words| of_node(change, Severity::Warning, words);
    warning(
        |node| (node.devices, node.mode) = (Some(0), Some("none".to_owned())),
        "its label octavo.dev/mode is none",
    );
    warning(|node| node.runtime = "containerd://1.7.27".to_owned(), "enable_cdi");
    let taint = |node: &mut GpuNode| {
        let (device, key) = ("gpu-3".to_owned(), "gpu.nvidia.com/xid".to_owned());
        node.taints.insert(DeviceTaint { device, key, value: "79".to_owned() });
    };
    warning(taint, "1 of 8 devices take no pods (gpu-3): taint gpu.nvidia.com/xid=79");
    let no_agent = |facts: &mut Facts| {
        facts.agents.clear();
        facts.nodes.values_mut().for_each(|node| node.devices = None);
    };
    check_one(no_agent, Severity::Error, "node a", "no agent runs here");
    let sick = |facts: &mut Facts| {
        facts.agents[0].is_ready = false;
        facts.agents[0].trouble = Some("ImagePullBackOff".to_owned());
    };
    check_one(sick, Severity::Error, "node a", "is not ready: ImagePullBackOff");
    // A process that is no pod publishes devices, as in the lab.
    assert_eq!(found(|facts| facts.agents.clear()), []);
}

#[test]
fn an_event_of_a_pod_that_did_not_start_has_its_remedy() {
    for (event, words) in [
        ("failed to inject CDI devices: unresolvable CDI devices k8s.gpu", "enable_cdi"),
        ("fork/exec /opt/octavo/bin/octavo-cdi-hook: permission denied", "agent.hookDir"),
        ("Failed to pull image", "--image"),
        ("0/3 nodes are available: 1 Insufficient memory", "cordoned"),
        ("something else", "octavo explain pod"),
    ] {
        let finding = not_started("node a", Some(event));
        assert!(finding.problem.contains(event), "{finding:?}");
        assert!(finding.remedy.contains(words), "{finding:?}");
    }
    let finding = not_started("node a", None);
    assert!(finding.problem.ends_with("its events say nothing"), "{finding:?}");
}
