use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::fixtures::{claim, gpu_operator, node, pod, slice};
use crate::Options;
use crate::plan::{Cluster, Kind, plan, plan_text};

/// The cluster's objects, each with one value anywhere replaced.
fn objects() -> Vec<Value> {
    let mut objects = gpu_operator(&["a"]);
    objects.push(node(
        "a",
        serde_json::json!({"nvidia.com/mig.config": "x"}),
        serde_json::json!({"nvidia.com/gpu": "8"}),
    ));
    objects.push(pod(
        "train",
        "a",
        serde_json::json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 5}),
    ));
    objects.extend([slice("a"), claim("c", "a", Some("train"))]);
    objects.push(serde_json::json!({
        "kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "team-a"},
        "spec": {"spec": {"devices": {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
            "config": [{"requests": ["gpu"], "opaque": {"driver": "gpu.nvidia.com", "parameters": {
                "apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig",
                "sharing": {"strategy": "MPS", "mpsConfig": {"multiUser": true}},
            }}}],
        }}},
    }));
    objects
}

fn replace(value: &mut Value, steps: &[usize], new: &Value) {
    let Some((step, rest)) = steps.split_first() else {
        *value = new.clone();
        return;
    };
    let count = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    if count == 0 {
        *value = new.clone();
        return;
    }
    match value {
        Value::Array(list) => replace(&mut list[step % count], rest, new),
        Value::Object(map) => replace(map.values_mut().nth(step % count).unwrap(), rest, new),
        _ => {}
    }
}

proptest! {
    #[test]
    fn objects_of_another_form_are_never_a_panic(
        which in any::<proptest::sample::Index>(),
        steps in vec(0_usize..9, 1..7),
        new in prop_oneof![
            Just(Value::Null), any::<i64>().prop_map(Value::from), any::<String>().prop_map(Value::from),
            Just(serde_json::json!([])), Just(serde_json::json!({"a": [1]})),
        ],
        serves_dra in any::<bool>(),
    ) {
        let mut objects = objects();
        let at = which.index(objects.len());
        let kind = objects[at]["kind"].clone();
        replace(&mut objects[at], &steps, &new);
        let mut cluster = Cluster { serves_dra, ..Cluster::default() };
        for (index, object) in objects.into_iter().enumerate() {
            let name = if index == at { &kind } else { &object["kind"] };
            let kind = Kind::ALL.iter().find(|known| Some(known.kind) == name.as_str()).unwrap();
            cluster.add(*kind, object);
        }
        let plan = plan(&cluster, &Options::default());
        prop_assert!(!plan_text(&plan).is_empty());
        // What must end is never also said to go on.
        for node in &plan.nodes {
            prop_assert!(node.must_end.count == 0 || !node.why_end.is_empty());
            prop_assert!(node.must_end.names.len() <= 5);
        }
    }
}
