use serde_json::json;

use super::*;

fn nodes() -> BTreeSet<String> {
    BTreeSet::from(["a".to_owned()])
}

fn add(holders: &mut Holders, driver: &str, pool: &str, pods: &[&str]) {
    let users: Vec<_> =
        pods.iter().map(|pod| json!({"resource": "pods", "name": pod, "uid": "u"})).collect();
    let claim = json!({
        "metadata": {"name": "c", "namespace": "team"}, "spec": {},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "gpu", "driver": driver, "pool": pool, "device": "gpu-0"}]}},
            "reservedFor": users,
        },
    });
    add_claim(holders, &serde_json::from_value(claim).unwrap(), &nodes());
}

#[test]
fn claims_of_the_release_s_nodes_hold_by_their_pods() {
    let mut holders = Holders::default();
    add(&mut holders, "gpu.nvidia.com", "b", &["of-another-node"]);
    add(&mut holders, "dra.example.com", "a", &["of-another-driver"]);
    assert_eq!(holders, Holders::default());
    add(&mut holders, "gpu.nvidia.com", "a", &[]);
    assert!(holders.is_none(), "no pod uses it");
    assert_eq!(holders.idle_claims, BTreeSet::from(["team/c".to_owned()]));
    add(&mut holders, "compute-domain.nvidia.com", "a", &["p", "q"]);
    assert!(!holders.is_none());
    assert_eq!(holders.pods, BTreeSet::from(["team/p".to_owned(), "team/q".to_owned()]));
}

#[test]
fn pods_hold_resources_until_they_have_ended() {
    let pod = |node: &str, resource: &str, phase: &str| {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "team"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]},
            "status": {"phase": phase},
        });
        has_plugin_gpus(&serde_json::from_value(pod).unwrap(), &nodes())
    };
    assert!(pod("a", "nvidia.com/gpu", "Running"));
    assert!(pod("a", "nvidia.com/mig-1g.10gb", "Pending"));
    assert!(!pod("a", "nvidia.com/gpu", "Succeeded"));
    assert!(!pod("b", "nvidia.com/gpu", "Running"));
    assert!(!pod("a", "cpu", "Running"));
}
