//! Which claims of `ComputeDomains` the chart's policies allow, and what the controller may change of claims.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use octavo_api::names::{ANNOTATION_COMPUTE_DOMAIN, CLASS_CHANNEL, CLASS_DAEMON};
use octavo_controller::wanted::{self, DaemonsOf};
use serde_json::{Value, json};

use super::compute_domains::{
    NAMESPACE, client, config, control_plane, domain, in_force, parsed, refused,
};
use crate::testbed::{Testbed, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_for_daemons_are_in_the_namespace_of_the_daemons_only() {
    let testbed = control_plane().await;
    let create = async |namespace: &str, spec: &Value| created(&testbed, namespace, spec).await;
    let exactly = |class: &str| json!({"name": "a", "exactly": {"deviceClassName": class}});
    let config = |kind: &str, driver: &str| {
        json!({"requests": ["a"], "opaque": {"driver": driver, "parameters": {
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": kind,
            "domainID": "6f1b6d3e-5d2c-4f0e-9b1a-0c2d4e6f8a01",
        }}})
    };
    let class = json!({"devices": {"requests": [exactly("gpu.nvidia.com"), {
        "name": "b", "exactly": {"deviceClassName": CLASS_DAEMON},
    }]}});
    let alternative = json!({"devices": {"requests": [{"name": "a", "firstAvailable": [
        {"name": "a", "deviceClassName": CLASS_CHANNEL},
        {"name": "b", "deviceClassName": CLASS_DAEMON},
    ]}]}});
    // The class of an administrator may select the device, too.
    let daemon_config = json!({"devices": {
        "requests": [exactly("fabric.example.com")],
        "config": [config("ComputeDomainDaemonConfig", "compute-domain.nvidia.com")],
    }});
    in_force(async || create("default", &class).await).await;
    for spec in [&class, &alternative, &daemon_config] {
        for kind in ["claims", "templates"] {
            let error = if kind == "claims" {
                create("default", spec).await
            } else {
                created_template(&testbed, "default", spec).await
            };
            let error = error.unwrap_err();
            assert!(error.contains("are not allowed in namespace 'default'"), "{spec}: {error}");
        }
        create(NAMESPACE, spec).await.unwrap();
        created_template(&testbed, NAMESPACE, spec).await.unwrap();
    }

    // Other claims are none of its business.
    let channel = json!({"devices": {
        "requests": [exactly(CLASS_CHANNEL)],
        "config": [config("ComputeDomainChannelConfig", "compute-domain.nvidia.com")],
    }});
    let other_driver = json!({"devices": {
        "requests": [exactly("gpu.nvidia.com")],
        "config": [config("ComputeDomainDaemonConfig", "nic.example.com")],
    }});
    for spec in [&channel, &other_driver, &json!({}), &json!({"devices": {}})] {
        create("default", spec).await.unwrap();
        created_template(&testbed, "default", spec).await.unwrap();
    }
    a_claim_from_before_the_policy_can_be_deleted(&testbed, &class).await;
}

async fn a_claim_from_before_the_policy_can_be_deleted(testbed: &Testbed, spec: &Value) {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(testbed.client.clone());
    let mut binding = bindings.get("octavo-daemonclaims").await.unwrap();
    bindings.delete("octavo-daemonclaims", &DeleteParams::default()).await.unwrap();
    eventually("the policy is not in force", async || created(testbed, "default", spec).await.ok())
        .await;
    let claims: Api<ResourceClaim> = Api::default_namespaced(testbed.client.clone());
    let claim = json!({"metadata": {"name": "old", "finalizers": ["example.com/a"]}, "spec": spec});
    claims.create(&PostParams::default(), &parsed(&claim)).await.unwrap();
    binding.metadata = ObjectMeta { name: binding.metadata.name, ..ObjectMeta::default() };
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    in_force(async || created(testbed, "default", spec).await).await;
    claims.delete("old", &DeleteParams::default()).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims.patch("old", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_writes_templates_of_domains_only() {
    let testbed = control_plane().await;
    let controller = client(&testbed, "octavo-controller", None).await;
    let all: Api<ResourceClaimTemplate> = Api::default_namespaced(testbed.client.clone());
    let own: Api<ResourceClaimTemplate> = Api::default_namespaced(controller.clone());
    let create = async |template: &Value| {
        let namespace = template["metadata"]["namespace"].as_str().unwrap();
        let own: Api<ResourceClaimTemplate> = Api::namespaced(controller.clone(), namespace);
        let created = own.create(&PostParams::default(), &parsed(template)).await;
        created.map(drop).map_err(|error| error.to_string())
    };
    let pods = wanted::workload_template(&domain());
    let daemons = wanted::daemon_template(DaemonsOf::Domain(&domain()), &config());
    let mut foreign = pods.clone();
    foreign["metadata"] = json!({"namespace": "default", "name": "foreign"});
    in_force(async || {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let created = own.create(&dry_run, &parsed(&foreign)).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;

    // What the controller makes is allowed; that NVIDIA's controller left has a finalizer.
    create(&pods).await.unwrap();
    create(&daemons).await.unwrap();
    let merge = async |api: &Api<ResourceClaimTemplate>, name: &str, patch: Value| {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    };
    let finalizers = |names: Value| json!({"metadata": {"finalizers": names}});
    let name = &domain().template;
    merge(&all, name, finalizers(json!(["example.com/a"]))).await.unwrap();
    for change in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
    ] {
        let error = refused(merge(&own, name, change).await);
        assert!(error.contains("may change the finalizers only"), "{error}");
    }
    merge(&own, name, finalizers(Value::Null)).await.unwrap();
    own.delete(name, &DeleteParams::default()).await.unwrap();

    // Templates of users are out of its reach, and those with devices of other drivers.
    let label = "ResourceClaimTemplates with the label";
    let error = create(&foreign).await.unwrap_err();
    assert!(error.contains(label), "{error}");
    all.create(&PostParams::default(), &parsed(&foreign)).await.unwrap();
    let adopt = json!({"metadata": {"labels": pods["metadata"]["labels"]}});
    let adopted = merge(&own, "foreign", adopt).await;
    let deleted = own.delete("foreign", &DeleteParams::default()).await;
    for error in [refused(adopted), refused(deleted)] {
        assert!(error.contains(label), "{error}");
    }
    let mut gpu = pods.clone();
    gpu["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] =
        "gpu.nvidia.com".into();
    let error = create(&gpu).await.unwrap_err();
    assert!(error.contains("ask for devices of ComputeDomains only"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_annotates_claims_and_changes_nothing_else_of_them() {
    let testbed = control_plane().await;
    let all: Api<ResourceClaim> = Api::default_namespaced(testbed.client.clone());
    let claim = json!({
        "metadata": {
            "name": "a", "labels": {"a": "b"}, "annotations": {"a": "b"},
            "finalizers": ["example.com/a"],
        },
        "spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": CLASS_CHANNEL}},
        ]}},
    });
    all.create(&PostParams::default(), &parsed(&claim)).await.unwrap();
    let claims: Api<ResourceClaim> =
        Api::default_namespaced(client(&testbed, "octavo-controller", None).await);
    let patch = async |params: &PatchParams, patch: Value| {
        let patched = claims.patch("a", params, &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    };
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    in_force(async || {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        patch(&params, annotate("example.com/a", "b".into())).await
    })
    .await;
    let params = PatchParams::default();
    for change in [
        annotate("example.com/a", "b".into()),
        annotate("a", "c".into()),
        annotate("a", Value::Null),
        json!({"metadata": {"labels": {"a": "c"}}}),
        json!({"metadata": {"labels": {"b": "c"}}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a"},
        ]}}),
    ] {
        let error = patch(&params, change.clone()).await.unwrap_err();
        assert!(
            error.contains("may change the annotation octavo.dev/compute-domain only"),
            "{change}: {error}"
        );
    }
    for value in [json!("default/domain"), Value::Null] {
        patch(&params, annotate(ANNOTATION_COMPUTE_DOMAIN, value)).await.unwrap();
    }
}

/// Creates a claim, as an administrator.
async fn created(testbed: &Testbed, namespace: &str, spec: &Value) -> Result<(), String> {
    let claim = json!({"metadata": {"generateName": "a-"}, "spec": spec});
    let api: Api<ResourceClaim> = Api::namespaced(testbed.client.clone(), namespace);
    let created = api.create(&dry_run(), &parsed(&claim)).await;
    created.map(drop).map_err(|error| error.to_string())
}

/// Creates the template of a claim, as an administrator.
async fn created_template(testbed: &Testbed, namespace: &str, spec: &Value) -> Result<(), String> {
    let template = json!({"metadata": {"generateName": "a-"}, "spec": {"spec": spec}});
    let api: Api<ResourceClaimTemplate> = Api::namespaced(testbed.client.clone(), namespace);
    let created = api.create(&dry_run(), &parsed(&template)).await;
    created.map(drop).map_err(|error| error.to_string())
}

/// A dry run passes admission and stores nothing.
fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}
