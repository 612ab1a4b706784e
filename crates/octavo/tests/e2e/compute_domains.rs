//! `ComputeDomain` and `ComputeDomainClique` on a real API server: defaults, rules, and who owns what in their lists.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, ValidationDirective};
use kube::runtime::conditions::is_crd_established;
use octavo_api::compute_domain::{ComputeDomainAllocationMode, Readiness};
use octavo_api::crds::compute_domain_crds;
use octavo_api::{ComputeDomain, ComputeDomainClique};
use octavo_lab::UpOptions;
use serde_json::{Value, json};

use crate::testbed::{OCTAVO, Testbed, eventually};

fn domain(name: &str, spec: &Value) -> ComputeDomain {
    let object = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
        "metadata": {"name": name}, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// A patch of one owner of a part of an object.
fn owned_by(manager: &str) -> PatchParams {
    PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply(manager)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn domains_have_the_defaults_and_rules_of_nvidia_s_driver() {
    let testbed = Testbed::up_with(|state| UpOptions::control_plane_only(state, OCTAVO)).await;
    // The chart has installed the definitions.
    let crds: Api<CustomResourceDefinition> = Api::all(testbed.client.clone());
    for crd in compute_domain_crds().unwrap() {
        let name = crd["metadata"]["name"].as_str().unwrap();
        eventually(&format!("{name} is established"), || async {
            let crd = crds.get(name).await.ok();
            kube::runtime::wait::Condition::matches_object(&is_crd_established(), crd.as_ref())
                .then_some(())
        })
        .await;
    }
    let domains: Api<ComputeDomain> = Api::default_namespaced(testbed.client.clone());
    let create = async |name: &str, spec: &Value| {
        let object = json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
            "metadata": {"name": name}, "spec": spec,
        });
        let body = serde_json::to_vec(&object).unwrap();
        let request = http::Request::post(
            "/apis/resource.nvidia.com/v1beta1/namespaces/default/computedomains?fieldValidation=Strict",
        );
        let request = request.header("content-type", "application/json").body(body).unwrap();
        testbed.client.request::<ComputeDomain>(request).await
    };

    // Defaults, and the shortest spec that NVIDIA's manifests have.
    let channel = json!({"channel": {"resourceClaimTemplate": {"name": "imex"}}});
    let made = create("short", &channel).await.unwrap();
    assert_eq!(made.spec.num_nodes, 0);
    assert_eq!(made.spec.channel.allocation_mode, ComputeDomainAllocationMode::Single);
    assert_eq!(made.spec.channel.resource_claim_template.name, "imex");

    // What is wrong is refused, with the field's name.
    for (spec, word) in [
        (json!({}), "channel"),
        (json!({"channel": {}}), "resourceClaimTemplate"),
        (json!({"channel": {"resourceClaimTemplate": {}}}), "name"),
        (json!({"numNodes": -1, "channel": {"resourceClaimTemplate": {"name": "a"}}}), "numNodes"),
        (
            json!({"channel": {"allocationMode": "Some", "resourceClaimTemplate": {"name": "a"}}}),
            "allocationMode",
        ),
        (json!({"numNodez": 2, "channel": {"resourceClaimTemplate": {"name": "a"}}}), "numNodez"),
    ] {
        let error = create("wrong", &spec).await.unwrap_err().to_string();
        assert!(error.contains(word), "{spec}: {error}");
    }

    // The spec cannot change.
    let changed = domain(
        "short",
        &json!({"channel": {
            "allocationMode": "All", "resourceClaimTemplate": {"name": "imex"},
        }}),
    );
    let mut changed = changed;
    changed.metadata = made.metadata.clone();
    let error = domains.replace("short", &PostParams::default(), &changed).await.unwrap_err();
    assert!(error.to_string().contains("A computeDomain.spec is immutable"), "{error}");

    // Each node of the status has its owner; readers without the addition still see `Ready`.
    let status = |node: &str, ready: &str| {
        json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
            "metadata": {"name": "short"},
            "status": {"status": "NotReady", "nodes": [{
                "name": node, "ipAddress": "10.0.0.1", "cliqueID": "c.1", "index": 0, "status": ready,
            }]},
        })
    };
    for (node, ready) in [("a", "NotReady"), ("b", "Ready"), ("a", "Ready")] {
        let patch = Patch::Apply(status(node, ready));
        domains.patch_status("short", &owned_by(node).force(), &patch).await.unwrap();
    }
    let found = domains.get("short").await.unwrap().status.unwrap();
    let mut nodes: Vec<_> = found.nodes.iter().map(|n| (n.name.as_str(), n.status)).collect();
    nodes.sort_by_key(|(name, _)| *name);
    assert_eq!(nodes, [("a", Readiness::Ready), ("b", Readiness::Ready)]);
    let columns = testbed.octavo_ok(&["lab", "kubectl", "get", "computedomains"]);
    assert!(columns.lines().any(|line| line.starts_with("short") && line.contains("NotReady")));

    // A clique has no spec; its daemons are owned one by one, and defaults apply to each.
    let cliques: Api<ComputeDomainClique> = Api::default_namespaced(testbed.client.clone());
    let uid = made.metadata.uid.unwrap();
    let clique = ComputeDomainClique::new(&uid, "c.1");
    let name = clique.metadata.name.clone().unwrap();
    cliques.create(&PostParams::default(), &clique).await.unwrap();
    for node in ["a", "b"] {
        let patch = Patch::Apply(json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainClique",
            "metadata": {"name": name},
            "daemons": [{"nodeName": node, "ipAddress": "10.0.0.1", "cliqueID": "c.1"}],
        }));
        cliques.patch(&name, &owned_by(node), &patch).await.unwrap();
    }
    let found = cliques.get(&name).await.unwrap();
    let daemons: Vec<_> =
        found.daemons.iter().map(|d| (d.node_name.as_str(), d.index, d.status)).collect();
    assert_eq!(daemons, [("a", None, Readiness::NotReady), ("b", None, Readiness::NotReady)]);
    cliques.delete(&name, &DeleteParams::default()).await.unwrap();
    domains.delete("short", &DeleteParams::default()).await.unwrap();
}
