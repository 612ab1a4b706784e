//! Pods at their admission.

use serde_json::{Value, json};

use super::fixtures::options;
use crate::{Options, Origin, Reason, Refusal, Translation, translate};

fn admit(pod: &Value) -> Result<Option<Translation>, Vec<Refusal>> {
    let options = Options { is_admission: true, ..options() };
    translate(pod, &Origin::default(), &options)
}

/// A pod of KAI with these labels.
fn fraction(labels: Value) -> Value {
    json!({
        "metadata": {"labels": labels, "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
    })
}

#[test]
fn labels_stay_and_are_read() {
    let labels = json!({
        "app": "x",
        "kai.scheduler/queue": "a",
        "runai/queue": "b",
        "runai-gpu-group": "g",
        "hami.io/vgpu-node": "n1",
        "hami.io/gpu-scheduler-policy": "binpack",
        "kai.scheduler/topology": "cluster",
        "kai.scheduler/topology-required-placement": "example.com/rack",
        "priorityClassName": "train",
    });
    let translation = admit(&fraction(labels.clone())).unwrap().unwrap();
    let pod = &translation.pod;
    assert_eq!(pod["metadata"]["labels"], labels);
    let annotations = json!({"octavo.dev/topology-required": "example.com/rack"});
    assert_eq!(pod["metadata"]["annotations"], annotations);
    assert_eq!(pod["spec"]["priorityClassName"], "train");
    assert!(pod["spec"]["schedulerName"].is_null());
    let fields: Vec<&str> = translation.changes.iter().map(|it| it.field.as_str()).collect();
    assert!(!fields.iter().any(|field| field.contains("queue")), "{fields:?}");
    // A webhook is asked again after others.
    assert_eq!(admit(pod), Ok(None));
}

#[test]
fn labels_without_an_equal_are_refused_as_in_manifests() {
    for (label, reason) in [
        ("kai.scheduler/node-pool", Reason::NoEqual),
        ("kai.scheduler/unknown", Reason::UnknownKey),
        ("mps", Reason::NoEqual),
    ] {
        let refusals = admit(&fraction(json!({label: "x"}))).unwrap_err();
        assert_eq!((refusals.len(), refusals[0].reason), (1, reason), "{label}");
    }
}

#[test]
fn labels_that_stay_and_what_a_scheduler_wrote_are_no_signs() {
    let plain = json!({"containers": [{"name": "main"}]});
    for label in ["kai.scheduler/queue", "runai/queue", "runai-gpu-group", "hami.io/webhook"] {
        let labels = json!({label: "x", "priorityClassName": "train"});
        let pod = json!({"metadata": {"labels": labels}, "spec": plain});
        assert_eq!(admit(&pod), Ok(None), "{label}");
    }
    for annotation in ["hami.io/vgpu-node", "hami.io/bind-phase", "runai/shared-gpu-configmap"] {
        let pod = json!({"metadata": {"annotations": {annotation: "x"}}, "spec": plain});
        assert_eq!(admit(&pod), Ok(None), "{annotation}");
    }
}

#[test]
fn the_label_of_a_priority_class_wins_over_a_default() {
    let mut pod = fraction(json!({"priorityClassName": "train"}));
    pod["spec"]["priorityClassName"] = "default".into();
    let translation = admit(&pod).unwrap().unwrap();
    assert_eq!(translation.pod["spec"]["priorityClassName"], "train");
    let change = translation.changes.iter().find(|it| it.field.contains("priorityClassName"));
    assert_eq!(change.unwrap().became, "spec.priorityClassName, instead of default");
    // A manifest has it from its author.
    let translation = translate(&pod, &Origin::default(), &options()).unwrap().unwrap();
    assert_eq!(translation.pod["spec"]["priorityClassName"], "default");
    // The same class is no change.
    pod["spec"]["priorityClassName"] = "train".into();
    let changes = admit(&pod).unwrap().unwrap().changes;
    assert!(!changes.iter().any(|it| it.field.contains("priorityClassName")), "{changes:?}");
}
