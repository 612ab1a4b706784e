//! What the controller may write for the webhook, and what an upgrade of the chart leaves of it.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::compute_domains::{client, control_plane, in_force, in_namespace, parsed, refused};
use super::{CHART, helm};
use crate::testbed::Testbed;

const WEBHOOK: &str = "octavo-controller-webhook";
const TRANSLATION: &str = "octavo-translation";

/// A template as the webhook makes it.
fn template(name: &str) -> Value {
    let alternative = |name: &str| json!({"name": name, "deviceClassName": "gpu.nvidia.com"});
    let requests = json!([
        {"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        {"name": "b", "firstAvailable": [alternative("one"), alternative("other")]},
    ]);
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"octavo.dev/translated": "true"},
            "annotations": {"octavo.dev/last-used": "2028-01-01T00:00:00Z"}},
        "spec": {"spec": {"devices": {"requests": requests}}},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_writes_templates_of_translated_pods_and_renews_their_time() {
    let testbed = control_plane().await;
    let own: Api<ResourceClaimTemplate> =
        Api::default_namespaced(client(&testbed, "octavo-controller", None).await);
    let create = async |template: &Value, is_dry_run: bool| {
        let params = PostParams { dry_run: is_dry_run, ..PostParams::default() };
        own.create(&params, &parsed(template)).await.map(drop).map_err(|error| error.to_string())
    };
    let mut unlabelled = template("foreign");
    unlabelled["metadata"]["labels"] = json!({});
    in_force(async || create(&unlabelled, true).await).await;
    create(&template("own"), false).await.unwrap();

    // The API server refuses that access elsewhere.
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    let namespaces: Api<Namespace> = Api::all(testbed.client.clone());
    namespaces.patch("default", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let requests = "/spec/spec/devices/requests";
    for (pointer, value) in [
        ("/0/exactly/deviceClassName", json!("nic.example.com")),
        ("/1/firstAvailable/1/deviceClassName", json!("nic.example.com")),
        ("/0/exactly", json!({"deviceClassName": "gpu.nvidia.com", "adminAccess": true})),
    ] {
        let mut other = template("other");
        *other.pointer_mut(&format!("{requests}{pointer}")).unwrap() = value;
        let error = create(&other, true).await.unwrap_err();
        assert!(error.contains("devices of the class gpu.nvidia.com only"), "{pointer}: {error}");
    }
    // It is a domain's or a pod's, so that the rules of one of them hold.
    let mut both = template("both");
    both["metadata"]["labels"]["resource.nvidia.com/computeDomain"] = "a".into();
    let error = create(&both, true).await.unwrap_err();
    assert!(error.contains("ask for devices of ComputeDomains only"), "{error}");

    let merge =
        async |patch: Value| own.patch("own", &PatchParams::default(), &Patch::Merge(patch)).await;
    for metadata in [
        json!({"labels": {"a": "b"}}),
        json!({"labels": {"octavo.dev/translated": "yes"}}),
        json!({"annotations": {"a": "b"}}),
        json!({"finalizers": ["example.com/a"]}),
    ] {
        let error = refused(merge(json!({ "metadata": metadata })).await);
        assert!(error.contains("octavo:"), "{metadata}: {error}");
    }
    let renewed = json!({"octavo.dev/last-used": "2028-01-02T00:00:00Z"});
    merge(json!({"metadata": {"annotations": renewed}})).await.unwrap();
    own.delete("own", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_keeps_the_certificate_and_the_authority() {
    let testbed = control_plane().await;
    let home = tempfile::tempdir().unwrap();
    let values = ["--set", "translation.enabled=true"];
    let install =
        ["upgrade", "--install", "octavo", CHART, "--take-ownership", "--force-conflicts"];
    helm(&testbed, home.path(), &[&install[..], &values].concat());
    the_controller_writes_its_own_webhook_and_secret_only(&testbed).await;

    let upgrade = ["upgrade", "octavo", CHART, "--set", "translation.schedulerName=octavo"];
    helm(&testbed, home.path(), &[&upgrade[..], &values].concat());
    let secrets: Api<Secret> = in_namespace(testbed.client.clone());
    let secret = secrets.get(WEBHOOK).await.unwrap();
    assert_eq!(secret.data.unwrap()["tls.crt"], ByteString(b"certificate".to_vec()));
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(testbed.client.clone());
    let found = webhooks.get(TRANSLATION).await.unwrap().webhooks.unwrap();
    assert!(found[0].client_config.ca_bundle.is_some());

    // Without it nothing of it is left, and the API server asks about no pod.
    let without = ["--set", "translation.enabled=false", "--force-conflicts"];
    helm(&testbed, home.path(), &[&["upgrade", "octavo", CHART][..], &without].concat());
    assert!(webhooks.get_opt(TRANSLATION).await.unwrap().is_none());
    assert!(secrets.get_opt(WEBHOOK).await.unwrap().is_none());
}

async fn the_controller_writes_its_own_webhook_and_secret_only(testbed: &Testbed) {
    let controller = client(testbed, "octavo-controller", None).await;
    let secrets: Api<Secret> = in_namespace(controller.clone());
    let mut secret = secrets.get(WEBHOOK).await.unwrap();
    assert_eq!(secret.data, None);
    secret.data = Some([("tls.crt".to_owned(), ByteString(b"certificate".to_vec()))].into());
    let post = PostParams {
        field_manager: Some("octavo.dev/controller".to_owned()),
        ..PostParams::default()
    };
    secrets.replace(WEBHOOK, &post, &secret).await.unwrap();
    assert!(refused(secrets.get("other").await).contains("forbidden"));
    secret.metadata.name = Some("other".to_owned());
    secret.metadata.resource_version = None;
    assert!(refused(secrets.create(&post, &secret).await).contains("forbidden"));

    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(controller);
    // Any authority will do. The API server's is there.
    let kubeconfig = Kubeconfig::read_from(testbed.lab.kubeconfig()).unwrap();
    let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
    let bundle = cluster.certificate_authority_data.unwrap();
    let patch =
        json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
    let manager = PatchParams {
        field_manager: Some("octavo.dev/controller".to_owned()),
        ..PatchParams::default()
    };
    webhooks.patch(TRANSLATION, &manager, &patch).await.unwrap();
    assert!(refused(webhooks.patch("other", &manager, &patch).await).contains("forbidden"));
    assert!(
        refused(webhooks.delete(TRANSLATION, &DeleteParams::default()).await).contains("forbidden")
    );
}
