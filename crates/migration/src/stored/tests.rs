use serde_json::{Value, json};

use super::is_as_written;

fn template(request: &Value) -> Value {
    json!({"spec": {"spec": {"devices": {"requests": [request]}}}})
}

fn written() -> Value {
    let capacity = json!({"requests": {"memory": "20480Mi", "compute": "25"}});
    template(
        &json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "capacity": capacity}}),
    )
}

#[test]
fn defaults_and_canonical_amounts_change_nothing() {
    let capacity = json!({"requests": {"memory": "20Gi", "compute": "25"}});
    let mut stored = template(&json!({"name": "gpu", "exactly": {
        "deviceClassName": "gpu.nvidia.com", "capacity": capacity, "allocationMode": "ExactCount", "count": 1,
    }}));
    stored["spec"]["metadata"] = json!({"creationTimestamp": null});
    stored["status"] = json!({"other": 1});
    assert!(is_as_written(&written(), &stored));
    assert!(is_as_written(&written(), &written()));
}

#[test]
fn other_specs_differ() {
    let changed = |pointer: &str, value: Value| {
        let mut stored = written();
        *stored.pointer_mut(pointer).unwrap() = value;
        stored
    };
    let request = "/spec/spec/devices/requests/0";
    let exactly = format!("{request}/exactly");
    let with = |key: &str, value: Value| {
        let mut stored = written();
        stored.pointer_mut(&exactly).unwrap()[key] = value;
        stored
    };
    for stored in [
        changed(&format!("{exactly}/deviceClassName"), json!("mig.nvidia.com")),
        changed(&format!("{exactly}/capacity/requests/memory"), json!("10Gi")),
        changed("/spec/spec/devices/requests", json!([])),
        with("count", json!(2)),
        with("allocationMode", json!("All")),
        with("adminAccess", json!(true)),
        with("selectors", json!([])),
        json!({}),
    ] {
        assert!(!is_as_written(&written(), &stored), "{stored}");
    }
}
