//! The webhook down, under another authority, and served by another replica.

use std::process::{Child, Command};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use octavo_lab::Component;
use serde_json::json;
use tokio::net::TcpListener;

use super::{
    condition, create, dry_run, hami, kai, pod, template_of, templates, up, wait_until_served,
};
use crate::testbed::{OCTAVO, Testbed, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_webhook_only_pods_of_kai_and_hami_are_refused() {
    let testbed = up("t4=1", 3600).await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(testbed.client.clone());
    let secrets: Api<Secret> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let bundle = async || {
        let found = webhooks.get("octavo-translation").await.unwrap();
        found.webhooks.unwrap()[0].client_config.ca_bundle.clone()
    };
    let (trusted, secret) =
        (bundle().await, secrets.get("octavo-controller-webhook").await.unwrap());
    assert!(trusted.is_some());

    testbed.lab.kill(Component::OctavoController).await;
    let params = PostParams::default();
    for pod in [kai("down", "0.5"), hami("down", &json!({"nvidia.com/gpumem": 1000}), &json!({}))] {
        let error = create(&testbed.pods(), &pod, &params).await.unwrap_err();
        assert!(error.contains("failed calling webhook"), "{error}");
    }
    let other = pod("other", &json!({"app": "x"}), &json!({}), None);
    create(&testbed.pods(), &other, &params).await.unwrap();
    testbed.wait_until_running("other").await;
    condition::agrees_with_the_translation(&testbed).await;

    // The certificate survives, so the API server needs no other authority.
    testbed.lab.start(Component::OctavoController).await.unwrap();
    wait_until_served(&testbed).await;
    testbed.create::<Pod>(kai("down", "0.5")).await;
    testbed.wait_until_running("down").await;
    assert_eq!(bundle().await, trusted);
    let kept = secrets.get("octavo-controller-webhook").await.unwrap();
    assert_eq!(kept.data, secret.data);

    // An upgrade that replaces the object removes what the controller wrote. It comes back.
    let patch = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
    webhooks.patch("octavo-translation", &PatchParams::default(), &patch).await.unwrap();
    // The API server may trust the old one for a while.
    eventually("the authority is there again", || async {
        (bundle().await == trusted).then_some(())
    })
    .await;
    wait_until_served(&testbed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_authority_refuses_no_pod() {
    let testbed = up("t4=1", 3600).await;
    let secrets: Api<Secret> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let data = async |key: &str| {
        secrets.get("octavo-controller-webhook").await.unwrap().data.unwrap()[key].clone()
    };
    let (authority, certificate) = (data("ca.crt").await, data("tls.crt").await);
    // It ends soon.
    let expires = ByteString(b"2026-01-01T00:00:00Z".to_vec());
    let patch = Patch::Merge(json!({"data": {"ca-expires": expires}}));
    secrets.patch("octavo-controller-webhook", &PatchParams::default(), &patch).await.unwrap();
    let pod = kai("asked", "0.5");
    eventually("the webhook has another certificate", || async {
        dry_run(&testbed, &pod).await.unwrap();
        (data("tls.crt").await != certificate).then_some(())
    })
    .await;
    assert_ne!(data("ca.crt").await, authority);
    assert_eq!(data("previous-ca.crt").await, authority);
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(testbed.client.clone());
    let found = webhooks.get("octavo-translation").await.unwrap().webhooks.unwrap();
    let bundle = found[0].client_config.ca_bundle.clone().unwrap().0;
    assert_eq!(bundle, [data("ca.crt").await.0, authority.0].concat());
    for _ in 0..20 {
        dry_run(&testbed, &pod).await.unwrap();
    }
}

/// Another replica of the controller, which ends with the test.
struct Replica(Child);

impl Replica {
    /// Starts it with a webhook on this port.
    fn start(testbed: &Testbed, port: u16) -> Self {
        let layout = testbed.lab.layout();
        let text = std::fs::read_to_string(layout.octavo_controller_config()).unwrap();
        let first = testbed.lab.settings().ports.octavo_webhook;
        let text = text.replace(&format!(":{first}"), &format!(":{port}"));
        let config = layout.root().join("other-controller.yaml");
        std::fs::write(&config, text).unwrap();
        let child = Command::new(OCTAVO)
            .args([
                "controller",
                "--metrics-listen=127.0.0.1:0",
                "--identity=other",
                "--kubeconfig",
            ])
            .arg(layout.client_kubeconfig("octavo-controller"))
            .arg("--config")
            .arg(config)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_does_not_lead_translates_and_takes_over() {
    let testbed = up("t4=1", 4).await;
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let _other = Replica::start(&testbed, port);
    // From now on the API server asks the other replica.
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(testbed.client.clone());
    let url = format!("https://127.0.0.1:{port}/translate");
    let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
    webhooks.patch("octavo-translation", &PatchParams::default(), &patch).await.unwrap();
    testbed.lab.check_alive(Component::OctavoController).unwrap();
    wait_until_served(&testbed).await;
    let fraction = testbed.create::<Pod>(kai("first", "0.5")).await;
    testbed.wait_until_running("first").await;

    // Without the leader it goes on, and collects once the lease is its own.
    testbed.lab.kill(Component::OctavoController).await;
    dry_run(&testbed, &kai("second", "0.25")).await.unwrap();
    testbed.pods().delete("first", &DeleteParams::default()).await.unwrap();
    let template = template_of(&fraction);
    eventually("the template is collected", || async {
        templates(&testbed).get_opt(&template).await.unwrap().is_none().then_some(())
    })
    .await;
}
