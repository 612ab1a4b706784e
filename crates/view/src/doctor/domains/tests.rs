use octavo_testkit::{ScriptedApi, failure};
use serde_json::{Value, json};

use super::facts::FabricNode;
use super::*;
use crate::controller::Controller;
use crate::doctor::Severity;
use crate::scheduler::LeaseName;

/// A cluster with one node of a clique that serves one domain, without a fault.
fn well() -> Facts {
    let node = FabricNode {
        clique: Some("c1.0".to_owned()),
        domain: Some("u-1".to_owned()),
        kubelet: Some([1, 36, 0]),
        drivers: ["580.95.5".to_owned()].into(),
        obstacle: None,
    };
    let domains = DomainFacts {
        definitions: definitions::wanted()
            .into_keys()
            .map(|name| (name, Definition::Complete))
            .collect(),
        domains: Some(["u-1".to_owned()].into()),
        nodes: [("a".to_owned(), node)].into(),
        published: ["a".to_owned()].into(),
        controller: Some(Controller {
            lease: LeaseName::controller(),
            holder: Ok("octavo-controller-x".to_owned()),
        }),
        foreign: Vec::new(),
        policies: Vec::new(),
    };
    let classes = [CLASS_CHANNEL, CLASS_DAEMON].map(str::to_owned).into();
    Facts { server: (1, 36), serves_dra: true, classes, domains, ..Facts::default() }
}

fn found(change: impl FnOnce(&mut Facts)) -> (Vec<Finding>, String) {
    let mut facts = well();
    change(&mut facts);
    check(&facts)
}

fn check_one(change: impl FnOnce(&mut Facts), severity: Severity, subject: &str, words: &str) {
    let (findings, _) = found(change);
    let [finding] = findings.as_slice() else { panic!("wanted {words:?}: {findings:?}") };
    assert_eq!((finding.severity, &*finding.subject), (severity, subject), "{finding:?}");
    assert!(finding.problem.contains(words), "wanted {words:?}: {finding:?}");
    assert!(!finding.remedy.is_empty(), "{finding:?}");
}

fn policies(selector: &Value, ingress: &Value) -> impl FnOnce(&mut Facts) {
    let spec = json!({"podSelector": selector, "ingress": ingress});
    let policy = json!({"metadata": {"name": "deny"}, "spec": spec});
    move |facts| facts.domains.policies = vec![serde_json::from_value(policy).unwrap()]
}

#[test]
fn a_cluster_without_a_fault_is_checked() {
    let (findings, words) = found(|_| {});
    assert_eq!(findings, []);
    assert_eq!(words, "checked: 1 domains, 1 nodes with an NVLink clique");
}

#[test]
fn clusters_without_domains_are_not_checked() {
    let (findings, words) = check(&Facts::default());
    assert_eq!(findings, []);
    assert!(words.starts_with("not checked: no node has the label nvidia.com/gpu.clique"));
    let off = |facts: &mut Facts| {
        let domains = &mut facts.domains;
        domains.controller.as_mut().unwrap().holder = Err(LeaseProblem::Missing);
        domains.published.clear();
        domains.domains = None;
    };
    check_one(off, Severity::Warning, "cluster", "1 nodes have an NVLink clique");
    let nvidia = |facts: &mut Facts| {
        off(facts);
        facts.domains.foreign = vec!["Deployment nvidia/controller".to_owned()];
    };
    let (findings, words) = found(nvidia);
    assert_eq!(findings, []);
    assert!(words.contains("NVIDIA's driver serves them (Deployment nvidia/controller)"));
}

#[test]
fn each_fault_of_a_cluster_is_one_finding() {
    let error = |change: fn(&mut Facts), words| {
        check_one(change, Severity::Error, "cluster", words);
    };
    let set = |facts: &mut Facts, state| {
        let name = "computedomains.resource.nvidia.com".to_owned();
        facts.domains.definitions.insert(name, state);
    };
    check_one(
        |facts| set(facts, Definition::Missing),
        Severity::Error,
        "cluster",
        "there is no CustomResourceDefinition computedomains.resource.nvidia.com",
    );
    check_one(
        |facts| set(facts, Definition::NotServed),
        Severity::Error,
        "cluster",
        "does not serve version v1beta1",
    );
    check_one(
        |facts| set(facts, Definition::Without(vec!["status.conditions".to_owned()])),
        Severity::Error,
        "cluster",
        "lacks fields, which are dropped on each write: status.conditions",
    );
    error(
        |facts| _ = facts.classes.remove(CLASS_DAEMON),
        "no DeviceClass compute-domain-daemon.nvidia.com",
    );
    error(
        |facts| facts.domains.foreign = vec!["DaemonSet nvidia/plugin".to_owned()],
        "DaemonSet nvidia/plugin of NVIDIA's driver serves ComputeDomains besides Octavo",
    );
    let gone = |facts: &mut Facts| {
        facts.domains.controller.as_mut().unwrap().holder = Err(LeaseProblem::Released);
    };
    error(gone, "no controller is active: the Lease octavo-system/octavo-controller has no holder");
    let unused = |facts: &mut Facts| {
        gone(facts);
        facts.domains.domains = Some(std::collections::BTreeSet::new());
        facts.domains.nodes.get_mut("a").unwrap().domain = None;
    };
    check_one(unused, Severity::Warning, "cluster", "no controller is active");
}

#[test]
fn each_fault_of_a_node_is_one_finding() {
    let warning = Severity::Warning;
    let silent = |facts: &mut Facts| facts.domains.published.clear();
    check_one(silent, Severity::Error, "node a", "offers no channel");
    for (obstacle, words) in [
        (NO_IMEX_CHANNELS, "has no IMEX channels"),
        (NO_IMEX_SERVICE, "has no nvidia-imex"),
        (NO_IMEX_CONTROL, "has no nvidia-imex-ctl"),
        ("of-a-later-version", "of-a-later-version"),
    ] {
        let lacking = |facts: &mut Facts| {
            facts.domains.nodes.get_mut("a").unwrap().obstacle = Some(obstacle.to_owned());
        };
        check_one(lacking, Severity::Error, "node a", words);
    }
    let old = |facts: &mut Facts| {
        facts.domains.nodes.get_mut("a").unwrap().kubelet = facts::version("v1.34.1-gke.3");
    };
    check_one(old, warning, "node a", "its kubelet is older than 1.34.2");
    let driver = |facts: &mut Facts| {
        facts.domains.nodes.get_mut("a").unwrap().drivers = ["570.133.20".to_owned()].into();
    };
    check_one(driver, Severity::Error, "node a", "driver 570.133.20 is older than 570.158.01");
    let stale = |facts: &mut Facts| {
        facts.domains.nodes.get_mut("a").unwrap().domain = Some("u-9".to_owned());
    };
    check_one(stale, warning, "node a", "names a ComputeDomain that does not exist: u-9");
}

#[test]
fn network_policies_that_close_the_daemons_ports_are_a_hint() {
    let all = json!({});
    check_one(
        policies(&all, &json!([])),
        Severity::Warning,
        "cluster",
        "none opens TCP port 50000 and 50005: deny",
    );
    let one = json!([{"ports": [{"port": 50000}]}]);
    check_one(policies(&all, &one), Severity::Warning, "cluster", "none opens TCP port 50005");
    let open =
        [json!([{}]), json!([{"ports": [{"port": 50000, "endPort": 50005, "protocol": "TCP"}]}])];
    for ingress in open {
        assert_eq!(found(policies(&all, &ingress)).0, [], "{ingress}");
    }
    let other = json!({"matchLabels": {"app": "x"}});
    assert_eq!(found(policies(&other, &json!([]))).0, []);
    let label = json!({"matchExpressions": [
        {"key": "resource.nvidia.com/computeDomain", "operator": "Exists"}]});
    assert_eq!(found(policies(&label, &json!([]))).0.len(), 1);
}

#[test]
fn definitions_are_compared_by_their_fields() {
    for (name, wanted) in definitions::wanted() {
        let mut crd = serde_json::from_value(wanted.clone()).unwrap();
        assert_eq!(definitions::compare(&wanted, Some(&crd)), Definition::Complete, "{name}");
        assert_eq!(definitions::compare(&wanted, None), Definition::Missing);
        crd.spec.versions[0].served = false;
        assert_eq!(definitions::compare(&wanted, Some(&crd)), Definition::NotServed);
    }
    let wanted = &definitions::wanted()["computedomains.resource.nvidia.com"];
    let mut nvidia = wanted.clone();
    let schema = &mut nvidia["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let status = schema["properties"]["status"]["properties"].as_object_mut().unwrap();
    status.remove("conditions");
    let found = definitions::compare(wanted, Some(&serde_json::from_value(nvidia).unwrap()));
    assert_eq!(found, Definition::Without(vec!["status.conditions".to_owned()]));
}

#[test]
fn nvidias_workloads_are_known_by_their_containers() {
    let is_part = |container: &Value, labels: &Value| {
        let pod = serde_json::from_value(json!({"containers": [container]})).unwrap();
        foreign::is_part(&serde_json::from_value(labels.clone()).unwrap(), Some(&pod))
    };
    let none = json!({});
    for container in [
        json!({"name": "compute-domains"}),
        json!({"name": "c", "command": ["compute-domain-controller", "-v", "6"]}),
        json!({"name": "c", "args": ["-c", "/usr/bin/compute-domain-kubelet-plugin"]}),
    ] {
        assert!(is_part(&container, &none), "{container}");
    }
    assert!(!is_part(&json!({"name": "gpus", "command": ["gpu-kubelet-plugin"]}), &none));
    let octavo = json!({"name": "imex-daemon", "command": ["octavo", "imex-daemon"]});
    assert!(!is_part(&octavo, &none));
    let of_domain = json!({"resource.nvidia.com/computeDomain": "u-1"});
    assert!(!is_part(&json!({"name": "compute-domain-daemon"}), &of_domain));
}

#[test]
fn versions_are_three_numbers() {
    assert_eq!(facts::version("570.158.01"), Some([570, 158, 1]));
    assert_eq!(facts::version("v1.34"), Some([1, 34, 0]));
    assert_eq!(facts::version("unknown"), None);
}

#[tokio::test]
async fn facts_are_read_where_a_node_has_a_clique() {
    let api = ScriptedApi::new(|request| {
        let path = request.uri().path().to_owned();
        let list = |items: &Value| (200, json!({"metadata": {}, "items": items}));
        match path.as_str() {
            "/apis/resource.nvidia.com/v1beta1/computedomains" => failure(403, "no"),
            "/apis/resource.k8s.io/v1/resourceslices" => {
                let device = |kind: &str| json!({"name": format!("{kind}-0"), "attributes": {"type": {"string": kind}}});
                let pool = json!({"name": "a", "generation": 1, "resourceSliceCount": 1});
                let spec = json!({"driver": "compute-domain.nvidia.com", "nodeName": "a",
                    "pool": pool, "devices": [device("channel"), device("daemon")]});
                list(&json!([{"metadata": {"name": "a-x"}, "spec": spec}]))
            }
            "/apis/apps/v1/daemonsets" => {
                let pod = json!({"spec": {"containers": [{"name": "compute-domains"}]}});
                let spec = json!({"selector": {}, "template": pod});
                let metadata = json!({"namespace": "nvidia", "name": "plugin"});
                list(&json!([{"metadata": metadata, "spec": spec}]))
            }
            _ if path.contains("customresourcedefinitions") || path.contains("leases") => {
                failure(404, &path)
            }
            _ => list(&json!([])),
        }
    });
    let mut facts = Facts::default();
    read(&api.client(), &mut facts).await.unwrap();
    assert_eq!(api.requests().len(), 2, "nothing is read without a clique");
    let labels = json!({"nvidia.com/gpu.clique": "c1.0"});
    let info = json!({"kubeletVersion": "v1.34.1"});
    let node = json!({"metadata": {"name": "a", "labels": labels}, "status": {"nodeInfo": info}});
    let mut node: k8s_openapi::api::core::v1::Node = serde_json::from_value(node).unwrap();
    facts.domains.add_node(&node);
    node.metadata.labels = None;
    node.metadata.name = Some("b".to_owned());
    facts.domains.add_node(&node);
    read(&api.client(), &mut facts).await.unwrap();
    let domains = &facts.domains;
    assert_eq!(domains.nodes.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(domains.nodes["a"].kubelet, Some([1, 34, 1]));
    assert!(domains.published.contains("a"));
    assert_eq!(domains.foreign, ["DaemonSet nvidia/plugin"]);
    assert_eq!(domains.domains, None);
    assert!(facts.unread.contains("computedomains"));
}
