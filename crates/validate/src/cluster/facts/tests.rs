use serde_json::json;

use super::*;

#[test]
fn a_node_has_a_gpu_by_label_or_by_offer() {
    let facts = |labels, allocatable| {
        let node = json!({"metadata": {"name": "a", "labels": labels}, "status": {
            "allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}});
        node_facts(&serde_json::from_value(node).unwrap(), &[])
    };
    let none = facts(json!({"nvidia.com/gpu.present": "false"}), json!({"cpu": "8"}));
    assert_eq!(none, NodeFacts { has_gpu: false, is_ready: true, offer: None });
    assert!(facts(json!({"nvidia.com/gpu.present": "true"}), json!({})).has_gpu);
    assert!(facts(json!({}), json!({"nvidia.com/gpu": "8"})).has_gpu);
}

#[test]
fn the_agents_say_image_account_and_secrets() {
    let pod = json!({
        "serviceAccountName": "octavo-agent",
        "imagePullSecrets": [{"name": "registry"}],
        "containers": [{"name": "agent", "image": "octavo:1", "imagePullPolicy": "Always"}],
    });
    let pod = serde_json::from_value(pod).unwrap();
    let agent =
        agent_facts("octavo-system".to_owned(), &pod, Some("/opt/nvidia".to_owned())).unwrap();
    assert_eq!((agent.image.as_str(), agent.pull_policy.as_deref()), ("octavo:1", Some("Always")));
    assert_eq!(agent.pull_secrets, ["registry"]);
    assert_eq!(agent.service_account.as_deref(), Some("octavo-agent"));
    assert_eq!(agent.driver_root.as_deref(), Some("/opt/nvidia"));
}

#[test]
fn the_driver_s_root_is_in_the_agent_s_config() {
    let root = driver_root_of("driverRoot: \"/run/nvidia/driver\"\nmode: dra\n");
    assert_eq!(root.as_deref(), Some("/run/nvidia/driver"));
    assert_eq!(driver_root_of("mode: dra\n"), None);
    assert_eq!(driver_root_of("- a list"), None);
}
