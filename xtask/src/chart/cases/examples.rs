//! What the values of `examples/operator` render to.

use serde_json::json;

use super::{Fact, fact};

/// The example with replicas: its configs are keys of a `ConfigMap` that agents mount.
pub(super) fn time_slicing_facts() -> Vec<Fact> {
    vec![
        fact("ConfigMap/octavo-device-plugin", "/data/whole", json!("version: v1")),
        fact(
            "DaemonSet",
            "/spec/template/spec/volumes/6/configMap/name",
            json!("octavo-device-plugin"),
        ),
    ]
}

/// The example with MPS: a pod with daemons on each node, which no update replaces.
pub(super) fn mps_facts() -> Vec<Fact> {
    let daemons = "DaemonSet/octavo-mps-daemon";
    let mount = "/spec/template/spec/containers/0/volumeMounts/0";
    vec![
        fact(daemons, "/spec/updateStrategy", json!({"type": "OnDelete"})),
        fact(daemons, "/spec/template/spec/hostPID", json!(true)),
        fact(daemons, "/spec/template/spec/automountServiceAccountToken", json!(false)),
        fact(
            daemons,
            mount,
            json!({"name": "mps", "mountPath": "/run/octavo/mps", "mountPropagation": "Bidirectional"}),
        ),
        fact(
            daemons,
            "/spec/template/spec/containers/0/command/3",
            json!("--driver-root=/driver-root"),
        ),
    ]
}

/// The example with MIG devices: its layouts are a file of mig-parted.
pub(super) fn mixed_mig_facts() -> Vec<Fact> {
    let layouts = "mig-configs:
  halves:
  - devices:
    - 0
    - 1
    mig-devices:
      3g.40gb: 2
    mig-enabled: true
version: v1";
    vec![
        fact("ConfigMap/octavo-mig", "/data/config.yaml", json!(layouts)),
        fact("DaemonSet", "/spec/template/spec/volumes/6/configMap/name", json!("octavo-mig")),
    ]
}
