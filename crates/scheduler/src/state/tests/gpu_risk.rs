use octavo_kube_io::objects::{Change, Delta, Kind};
use serde_json::{Value, json};

use super::claims::{claim, claiming, class, slice};
use super::fixtures::{Testbed, node};

fn testbed(nodes: &[&str], gpus: u32) -> Testbed {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    for name in nodes {
        testbed.node(&node(name, 64));
        testbed.slice(&slice(name, gpus));
    }
    testbed
}

/// What the agent of a node reports of its GPUs: the number, the state and the risk.
fn health(node: &str, devices: &[(u32, &str, Option<&str>)]) -> Value {
    let device = |(gpu, state, risk): &(u32, &str, Option<&str>)| json!({"uuid": format!("GPU-{gpu}"), "name": format!("gpu-{gpu}"), "state": state, "risk": risk});
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth",
        "metadata": {"name": node, "uid": format!("uid-health-{node}"), "generation": 1},
        "spec": {}, "status": {"devices": devices.iter().map(device).collect::<Vec<_>>()},
    })
}

/// Creates pods with one GPU, one after another. Returns their nodes and devices.
fn places(testbed: &mut Testbed, stem: &str, count: u32) -> Vec<(String, String)> {
    let place = |number| {
        let name = format!("{stem}{number}");
        testbed.claim(&claim(&format!("{name}-gpu"), &name));
        testbed.pod(&claiming(&name));
        testbed.settle();
        let claim = &testbed.claims[&format!("{name}-gpu")];
        let result = &claim["status"]["allocation"]["devices"]["results"][0];
        let text = |key: &str| result[key].as_str().expect("a place").to_owned();
        (text("pool"), text("device"))
    };
    (0..count).map(place).collect()
}

fn place(node: &str, device: &str) -> (String, String) {
    (node.to_owned(), device.to_owned())
}

#[test]
fn gpus_that_are_watched_or_often_fail_are_given_last() {
    let mut testbed = testbed(&["a", "b"], 3);
    testbed.object(&health(
        "a",
        &[(0, "Watch", None), (1, "Healthy", Some("raised")), (2, "Healthy", None)],
    ));
    testbed.object(&health("b", &[(2, "Healthy", Some("extreme"))]));
    let places = places(&mut testbed, "p", 6);
    assert_eq!(places[3..], [place("a", "gpu-1"), place("a", "gpu-0"), place("b", "gpu-2")]);
}

#[test]
fn a_gpu_that_is_healthy_again_is_given_as_any_other() {
    for is_listed in [true, false] {
        let mut testbed = testbed(&["a"], 2);
        testbed.object(&health("a", &[(0, "Probation", None)]));
        assert_eq!(places(&mut testbed, "p", 1), [place("a", "gpu-1")]);
        if is_listed {
            testbed.object(&health("a", &[(0, "Healthy", None)]));
        } else {
            let kind = Kind::new("octavo.dev/v1alpha1", "NodeHealth");
            testbed.scheduler.apply(&Change::Object(Delta::Replace(kind, Vec::new())));
        }
        testbed.object(&health("a", &[(1, "Healthy", None)]));
        assert_eq!(places(&mut testbed, "q", 1), [place("a", "gpu-0")]);
    }
}

#[test]
fn what_was_reported_before_its_node_and_its_gpus_counts() {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    testbed.object(&health("a", &[(0, "Watch", None)]));
    testbed.node(&node("a", 64));
    testbed.slice(&slice("a", 2));
    assert_eq!(places(&mut testbed, "p", 2), [place("a", "gpu-1"), place("a", "gpu-0")]);
}

#[test]
fn a_rebuilt_engine_knows_the_risks() {
    let mut testbed = testbed(&["a"], 2);
    testbed.object(&health("a", &[(0, "Watch", None)]));
    testbed.node(&node("other", 64));
    testbed.drop_node(&node("other", 64));
    assert_eq!(places(&mut testbed, "p", 1), [place("a", "gpu-1")]);
}
