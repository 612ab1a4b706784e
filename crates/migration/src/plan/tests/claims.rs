use serde_json::{Value, json};

use super::fixtures::{commands, node, planned, section};

const DOMAIN: &str = "5f0a1f3c-1111-4222-8333-444455556666";

/// Parameters of `resource.nvidia.com/v1beta1`.
fn parameters(kind: &str, fields: Value) -> Value {
    let mut parameters = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind});
    parameters.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    parameters
}

/// A config for some requests; none are all.
fn config(driver: &str, requests: &[&str], parameters: Value) -> Value {
    json!({"requests": requests, "opaque": {"driver": driver, "parameters": parameters}})
}

fn of_gpus(requests: &[&str], kind: &str, fields: Value) -> Value {
    config("gpu.nvidia.com", requests, parameters(kind, fields))
}

fn of_domains(kind: &str, fields: Value) -> Value {
    config("compute-domain.nvidia.com", &[], parameters(kind, fields))
}

fn slice(interval: &str) -> Value {
    json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}})
}

fn mps() -> Value {
    json!({"sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}}})
}

fn request(name: &str, class: &str) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": class}})
}

fn template(name: &str, requests: Value, configs: Value) -> Value {
    json!({
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"spec": {"devices": {"requests": requests, "config": configs}}},
    })
}

/// The lines about one template with these configs, and a request for a GPU.
fn of_configs(configs: Value) -> String {
    let plan = planned(&[template("t", json!([request("gpu", "gpu.nvidia.com")]), configs)]);
    section(&plan, "CLAIMS")
}

#[test]
fn each_kind_is_the_same_better_or_not_served() {
    let gpu = json!([request("gpu", "gpu.nvidia.com")]);
    let mig = json!([request("mig", "mig.nvidia.com")]);
    let vfio = json!([request("vm", "vfio.gpu.nvidia.com")]);
    let objects = [
        template("gpu-default", gpu.clone(), json!([of_gpus(&[], "GpuConfig", json!({}))])),
        template("gpu-slice", gpu.clone(), json!([of_gpus(&["gpu"], "GpuConfig", slice("Long"))])),
        template("gpu-mps", gpu, json!([of_gpus(&["gpu"], "GpuConfig", mps())])),
        template("mig", mig.clone(), json!([of_gpus(&[], "MigDeviceConfig", json!({}))])),
        template("mig-mps", mig, json!([of_gpus(&[], "MigDeviceConfig", mps())])),
        template("vm", vfio, json!([of_gpus(&[], "VfioDeviceConfig", json!({}))])),
    ];
    let plan = planned(&objects);
    assert_eq!(
        section(&plan, "CLAIMS"),
        "  ResourceClaimTemplate team-a/gpu-default
    same: spec.spec.devices.config[0] (GpuConfig): the containers of a claim have its GPU in turns, with the driver's time slice
  ResourceClaimTemplate team-a/gpu-mps
    better: spec.spec.devices.config[0] (GpuConfig): the claim has an MPS daemon that its containers cannot end or change; it needs agent.mps.enabled
  ResourceClaimTemplate team-a/gpu-slice
    same: spec.spec.devices.config[0] (GpuConfig): the GPU has this time slice while the claim lasts, set with nvidia-smi compute-policy
  ResourceClaimTemplate team-a/mig
    same: spec.spec.devices.config[0] (MigDeviceConfig): the containers of a claim have its MIG device in turns
  ResourceClaimTemplate team-a/mig-mps
    better: spec.spec.devices.config[0] (MigDeviceConfig): each MIG device has an MPS daemon that its containers cannot end or change; it needs agent.mps.enabled
  ResourceClaimTemplate team-a/vm
    not served: spec.spec.devices.config[0] (VfioDeviceConfig): Octavo gives no GPU to virtual machines; keep its pods on nodes that do not move"
    );
    assert_eq!(
        plan.obstacles,
        [
            "ResourceClaimTemplate team-a/vm: spec.spec.devices.config[0] (VfioDeviceConfig) is not served: Octavo gives no GPU to \
             virtual machines; keep its pods on nodes that do not move"
        ]
    );
}

#[test]
fn claims_and_classes_are_read_too_and_octavos_own_are_not() {
    let mut claim = template("shared", json!([request("gpu", "gpu.nvidia.com")]), json!([]));
    claim["kind"] = "ResourceClaim".into();
    claim["spec"] = claim["spec"]["spec"].clone();
    claim["spec"]["devices"]["config"] = json!([of_gpus(&[], "GpuConfig", slice("Default"))]);
    let class = |name: &str, configs: Value| json!({"kind": "DeviceClass", "metadata": {"name": name}, "spec": {"config": configs}});
    let share = json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "GpuShareConfig"});
    let mut made = template("made", json!([]), json!([of_gpus(&[], "GpuConfig", mps())]));
    made["metadata"]["annotations"] = json!({"octavo.dev/spec-hash": "x"});
    let objects = [
        claim,
        class("slices.example.com", json!([of_gpus(&[], "GpuConfig", slice("Short"))])),
        class("mig.nvidia.com", json!([of_gpus(&[], "GpuConfig", slice("Short"))])),
        class("nodes.example.com", json!([config("gpu.nvidia.com", &[], share)])),
        class("nics.example.com", json!([config("nic.example.com", &[], json!({"mtu": 9000}))])),
        made,
    ];
    assert_eq!(
        section(&planned(&objects), "CLAIMS"),
        "  DeviceClass mig.nvidia.com
    no effect: spec.config[0] (GpuConfig): the class has no such devices
  DeviceClass slices.example.com
    same: spec.config[0] (GpuConfig): the GPU has this time slice while the claim lasts, set with nvidia-smi compute-policy
  ResourceClaim team-a/shared
    same: spec.devices.config[0] (GpuConfig): the containers of a claim have its GPU in turns, with the driver's time slice"
    );
}

#[test]
fn what_the_agent_refuses_is_not_served() {
    let refused = "  ResourceClaimTemplate team-a/t\n    not served: spec.spec.devices.config[0]";
    for (configs, reason) in [
        (
            json!([of_gpus(&[], "GpuConfig", json!({"sharing": {"strategy": "MPS", "mps": 1}}))]),
            " (GpuConfig): its claims are refused: field sharing.mps: ",
        ),
        (
            json!([config(
                "gpu.nvidia.com",
                &[],
                json!({"apiVersion": "gpu.nvidia.com/v1", "kind": "GpuConfig"})
            )]),
            " (GpuConfig): its claims are refused: field apiVersion: \"gpu.nvidia.com/v1\" is not resource.nvidia.com/v1beta1",
        ),
        (
            json!([config("gpu.nvidia.com", &[], Value::Null)]),
            ": its claims are refused: field (root): ",
        ),
        (
            json!([of_gpus(&["gpu"], "MigDeviceConfig", json!({}))]),
            " (MigDeviceConfig): its claims are refused: a MigDeviceConfig is not for devices of class gpu.nvidia.com, which \
             request gpu asks for",
        ),
        (
            json!([of_gpus(&[], "ComputeDomainDaemonConfig", json!({"domainID": DOMAIN}))]),
            " (ComputeDomainDaemonConfig): its claims are refused: a ComputeDomainDaemonConfig is not for devices of class \
             gpu.nvidia.com, which request gpu asks for",
        ),
    ] {
        let found = of_configs(configs);
        assert!(found.starts_with(&format!("{refused}{reason}")), "{found}");
    }
    // For all requests, a config for devices of another type is left out.
    let found = of_configs(json!([of_gpus(&[], "MigDeviceConfig", mps())]));
    assert!(found.ends_with("no effect: spec.spec.devices.config[0] (MigDeviceConfig): no request is for such a device"), "{found}");
}

#[test]
fn a_claim_that_has_its_gpu_not_alone_cannot_change_it() {
    let admin = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": true}});
    let capacity = json!({"requests": {"memory": "10Gi"}});
    let part = json!({"name": "any", "firstAvailable": [
        {"name": "mig", "deviceClassName": "mig.nvidia.com"},
        {"name": "part", "deviceClassName": "gpu.nvidia.com", "capacity": capacity},
    ]});
    let of = |request: &Value, fields: Value| {
        let configs = json!([of_gpus(&[], "GpuConfig", fields)]);
        let plan = planned(&[template("t", json!([request]), configs)]);
        let text = section(&plan, "CLAIMS");
        text.split_once("(GpuConfig): ").unwrap().1.to_owned()
    };
    let change = "and a time slice or MPS would change the GPU of other claims";
    assert_eq!(
        of(&admin, mps()),
        format!("its claims are refused: request gpu has adminAccess, {change}")
    );
    assert_eq!(
        of(&part, slice("Medium")),
        format!(
            "its claims are refused: request any/part asks for a part of a GPU (capacity), {}",
            change.replace(
                "a time slice or MPS",
                "MPS, or a time slice without `timeEnforcement: leases`,"
            )
        )
    );
    for request in [&admin, &part] {
        assert!(
            of(request, slice("Default")).starts_with("the containers of a claim have its GPU")
        );
    }
}

#[test]
fn templates_of_compute_domains_are_made_again() {
    let channel = json!([request("channel", "compute-domain-default-channel.nvidia.com")]);
    let daemon = json!([request("daemon", "compute-domain-daemon.nvidia.com")]);
    let of_channel = |mode: &str| {
        json!([of_domains(
            "ComputeDomainChannelConfig",
            json!({"domainID": DOMAIN, "allocationMode": mode})
        )])
    };
    let of_daemon = json!([of_domains("ComputeDomainDaemonConfig", json!({"domainID": DOMAIN}))]);
    let labelled = |mut object: Value| {
        object["metadata"]["labels"] = json!({"resource.nvidia.com/computeDomain": DOMAIN});
        object
    };
    let mut admin = channel.clone();
    admin[0]["exactly"]["adminAccess"] = true.into();
    let objects = [
        labelled(template("a-single", channel.clone(), of_channel("Single"))),
        labelled(template("b-all", channel.clone(), of_channel("All"))),
        labelled(template("c-daemon", daemon.clone(), of_daemon.clone())),
        template("d-by-hand", channel.clone(), of_channel("Single")),
        template("e-all-by-hand", channel, of_channel("All")),
        template("f-daemon-by-hand", daemon, of_daemon),
        template("g-admin", admin, of_channel("Single")),
    ];
    assert_eq!(
        section(&planned(&objects), "CLAIMS"),
        "  ResourceClaimTemplate team-a/a-single
    same: spec.spec.devices.config[0] (ComputeDomainChannelConfig): Octavo's controller makes the template again, and its claims get the domain's channel
  ResourceClaimTemplate team-a/b-all
    same: spec.spec.devices.config[0] (ComputeDomainChannelConfig): Octavo's controller makes the template again, and its claims get all channels; computeDomains.imex.isolation=channel would refuse them
  ResourceClaimTemplate team-a/c-daemon
    no effect: spec.spec.devices.config[0] (ComputeDomainDaemonConfig): Octavo's controller makes daemons and claims of its own; delete it with NVIDIA's driver
  ResourceClaimTemplate team-a/d-by-hand
    same: spec.spec.devices.config[0] (ComputeDomainChannelConfig): its claims get the channel of their ComputeDomain, which keeps its UID
  ResourceClaimTemplate team-a/e-all-by-hand
    same: spec.spec.devices.config[0] (ComputeDomainChannelConfig): its claims get all channels of the node; computeDomains.imex.isolation=channel would refuse them
  ResourceClaimTemplate team-a/f-daemon-by-hand
    not served: spec.spec.devices.config[0] (ComputeDomainDaemonConfig): claims of daemons are only those that Octavo's controller makes; delete it
  ResourceClaimTemplate team-a/g-admin
    not served: spec.spec.devices.config[0] (ComputeDomainChannelConfig): its claims are refused: request channel has adminAccess, which ComputeDomains have not"
    );
}

#[test]
fn a_claim_of_a_pod_is_as_its_template() {
    let configs = json!([of_gpus(&[], "GpuConfig", slice("Long"))]);
    let template = template("t", json!([request("gpu", "gpu.nvidia.com")]), configs);
    let claim = |name: &str, namespace: &str| {
        json!({
            "kind": "ResourceClaim",
            "metadata": {
                "name": name, "namespace": namespace,
                "ownerReferences": [{"kind": "Pod", "name": "train", "controller": true}],
            },
            "spec": template["spec"]["spec"],
        })
    };
    let objects = [claim("train-x", "team-a"), claim("train-y", "team-b"), template.clone()];
    let plan = planned(&objects);
    let found: Vec<&str> = plan.claims.iter().map(|claim| claim.object.as_str()).collect();
    // The second has no template in its namespace.
    assert_eq!(found, ["ResourceClaim team-b/train-y", "ResourceClaimTemplate team-a/t"]);
}

#[test]
fn mps_of_claims_needs_a_value_of_the_chart() {
    let value = "--set 'agent.mps.enabled=true'";
    let with = |fields: Value| {
        let configs = json!([of_gpus(&[], "GpuConfig", fields)]);
        let template = template("t", json!([request("gpu", "gpu.nvidia.com")]), configs);
        commands(&planned(&[node("a", json!({}), json!({})), template]).steps)
    };
    assert!(with(mps()).contains(value));
    assert!(!with(slice("Long")).contains(value));
}
