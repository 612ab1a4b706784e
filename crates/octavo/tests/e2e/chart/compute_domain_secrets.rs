//! Which Secrets the chart's policy lets the controller write.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use octavo_api::names::LABEL_COMPUTE_DOMAIN;
use octavo_controller::certificate::{CertificateRequest, Issued};
use octavo_controller::wanted;
use serde_json::{Value, json};

use super::compute_domains::{
    NAMESPACE, client, control_plane, daemon_set, domain, in_force, in_namespace, parsed, refused,
};

/// The Secret that the controller makes for a domain's `DaemonSet`.
fn secret(owner: &str) -> Value {
    let request = CertificateRequest {
        namespace: NAMESPACE.to_owned(),
        domain: domain().uid,
        title: "ComputeDomain".to_owned(),
        owner: owner.to_owned(),
        slots: 18,
    };
    let issued = Issued {
        key: "key".to_owned(),
        certificate: "certificate".to_owned(),
        authority: "authority".to_owned(),
        expires: "2031-01-01T00:00:00Z".parse().unwrap(),
    };
    wanted::certificate_secret(&request, &issued)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_writes_secrets_of_daemons_only() {
    let testbed = control_plane().await;
    let all: Api<Secret> = in_namespace(testbed.client.clone());
    let controller = client(&testbed, "octavo-controller", None).await;
    let secrets: Api<Secret> = in_namespace(controller.clone());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    // Without its owner it would disappear by itself.
    let sets: Api<DaemonSet> = in_namespace(testbed.client.clone());
    let set = sets.create(&PostParams::default(), &parsed(&daemon_set())).await.unwrap();
    let wanted = secret(&set.metadata.uid.unwrap());
    let name = wanted::daemon_name(&domain().uid);
    let mut foreign = wanted.clone();
    foreign["metadata"]["name"] = "foreign".into();
    in_force(async || {
        let created = secrets.create(&dry_run, &parsed(&foreign)).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;

    let reason = "may create and delete Secrets of type kubernetes.io/tls only";
    for (pointer, value) in [
        ("/metadata/name", json!("computedomain-daemon-other")),
        ("/metadata/labels", json!({LABEL_COMPUTE_DOMAIN: "other"})),
        ("/metadata/labels", Value::Null),
        ("/metadata/ownerReferences", Value::Null),
        ("/type", json!("Opaque")),
    ] {
        let mut other = wanted.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        let error = refused(secrets.create(&dry_run, &parsed(&other)).await);
        assert!(error.contains(reason), "{pointer}: {error}");
    }
    // Those of others, such as that of helm, stay.
    all.create(&PostParams::default(), &parsed(&foreign)).await.unwrap();
    let error = refused(secrets.delete("foreign", &DeleteParams::default()).await);
    assert!(error.contains(reason), "{error}");
    let elsewhere: Api<Secret> = Api::namespaced(controller, "default");
    let mut other = wanted.clone();
    other["metadata"]["namespace"] = "default".into();
    let error = refused(elsewhere.create(&dry_run, &parsed(&other)).await);
    assert!(error.contains("forbidden"), "{error}");

    // Its own ones are created and deleted, and not changed.
    secrets.create(&PostParams::default(), &parsed(&wanted)).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let error = refused(secrets.patch(&name, &PatchParams::default(), &patch).await);
    assert!(error.contains("forbidden"), "{error}");
    secrets.delete(&name, &DeleteParams::default()).await.unwrap();
}
