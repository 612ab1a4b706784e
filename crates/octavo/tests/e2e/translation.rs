//! Pods of HAMi and KAI Scheduler, translated by the controller's webhook at their admission.

mod admission;
mod condition;
mod outages;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use octavo_lab::{Component, UpOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::testbed::{OCTAVO, Testbed, eventually};

const T4: &str = "t4-0";
const L4: &str = "l4-0";

/// A lab with Kubernetes' scheduler and a webhook. Templates stay for these seconds without a pod.
async fn up(nodes: &str, collect_after_seconds: u64) -> Testbed {
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some(nodes.parse().unwrap()),
        scheduler: Some(false),
        controller: Some(true),
        translation: Some(json!({"collectAfterSeconds": collect_after_seconds})),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    wait_until_served(&testbed).await;
    testbed
}

/// Waits until the API server trusts the webhook, and the webhook knows the GPUs of both nodes.
async fn wait_until_served(testbed: &Testbed) {
    eventually("the webhook translates a pod", || async {
        dry_run(testbed, &kai("probe", "0.5")).await.ok()
    })
    .await;
}

/// What the API server says of a pod, without creating it.
async fn dry_run(testbed: &Testbed, pod: &Value) -> Result<Pod, String> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    create(&testbed.pods(), pod, &params).await
}

async fn create(pods: &Api<Pod>, pod: &Value, params: &PostParams) -> Result<Pod, String> {
    let pod = serde_json::from_value(pod.clone()).unwrap();
    pods.create(params, &pod).await.map_err(|error| error.to_string())
}

fn pod(name: &str, annotations: &Value, limits: &Value, scheduler: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "ubuntu:24.04", "resources": {"limits": limits}}],
        },
    })
}

/// A pod as KAI Scheduler's documentation has it.
fn kai(name: &str, fraction: &str) -> Value {
    let mut pod = pod(name, &json!({"gpu-fraction": fraction}), &json!({}), Some("kai-scheduler"));
    pod["metadata"]["labels"] = json!({"kai.scheduler/queue": "research"});
    pod
}

/// A pod as HAMi's documentation has it.
fn hami(name: &str, limits: &Value, annotations: &Value) -> Value {
    pod(name, annotations, limits, None)
}

/// Memory in MiB of the only share of a pod's container, with the driver's part of it.
fn share_mib(testbed: &Testbed, node: &str, pod: &Pod) -> u64 {
    let container = testbed.container(node, pod, "main");
    let shares = container.shares();
    assert_eq!(shares.len(), 1, "{container:?}");
    shares[0].limits()["memoryBytes"].as_u64().unwrap() >> 20
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().node_name.as_deref().unwrap()
}

/// Name of the template of a pod's only claim.
fn template_of(pod: &Pod) -> String {
    let claims = pod.spec.as_ref().unwrap().resource_claims.as_ref().unwrap();
    assert_eq!(claims.len(), 1, "{claims:?}");
    claims[0].resource_claim_template_name.clone().unwrap()
}

fn templates(testbed: &Testbed) -> Api<ResourceClaimTemplate> {
    Api::default_namespaced(testbed.client.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_kai_and_hami_run_as_they_are_and_what_has_no_equal_is_refused() {
    let testbed = up("t4=1,l4=1", 3600).await;
    // A dry run has made no template.
    assert!(templates(&testbed).list(&ListParams::default()).await.unwrap().items.is_empty());

    // A fraction is of the GPU that the pod gets: 7680 MiB of a T4, or 11517 MiB of an L4.
    testbed.create::<Pod>(kai("fraction", "0.5")).await;
    let fraction = testbed.wait_until_running("fraction").await;
    let half = if node_of(&fraction) == T4 { 15360 / 2 } else { 23034 / 2 };
    let mib = share_mib(&testbed, node_of(&fraction), &fraction);
    assert!((half - 500..=half).contains(&mib), "{mib} of {half}");
    assert_eq!(fraction.metadata.annotations, None);
    // Selectors may have it.
    assert_eq!(fraction.labels()["kai.scheduler/queue"], "research");
    let spec = fraction.spec.as_ref().unwrap();
    assert_eq!(spec.scheduler_name.as_deref(), Some("default-scheduler"));
    let template = templates(&testbed).get(&template_of(&fraction)).await.unwrap();
    assert_eq!(template.labels()["octavo.dev/translated"], "true");

    let limits = json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 25});
    testbed.create::<Pod>(hami("memory", &limits, &json!({"nvidia.com/use-gputype": "L4"}))).await;
    let memory = testbed.wait_until_running("memory").await;
    assert_eq!(node_of(&memory), L4);
    assert!((2500..=3000).contains(&share_mib(&testbed, L4, &memory)));
    let container = testbed.container(L4, &memory, "main");
    assert_eq!(container.shares()[0].limits()["computeMilliPercent"], 25_000);

    // A workload stays as it is written, and keeps its pods. They have one template.
    let template = kai("unused", "0.1");
    let labels = json!({"app": "many", "kai.scheduler/queue": "research"});
    let metadata = json!({"labels": labels, "annotations": template["metadata"]["annotations"]});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels},
        "template": {"metadata": metadata, "spec": template["spec"]}});
    let written: Deployment = testbed
        .create(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"}, "spec": spec}))
        .await;
    let many = eventually("both pods of the Deployment run", || async {
        let pods = testbed.pods().list(&ListParams::default().labels("app=many")).await.ok()?.items;
        let runs = |pod: &Pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running");
        (pods.len() == 2 && pods.iter().all(runs)).then_some(pods)
    })
    .await;
    assert_eq!(template_of(&many[0]), template_of(&many[1]));
    let deployments: Api<Deployment> = Api::default_namespaced(testbed.client.clone());
    let kept = deployments.get("many").await.unwrap();
    assert_eq!(kept.spec.unwrap().template, written.spec.unwrap().template);

    admission::results_of_admission_follow(&testbed).await;
    admission::refused_by_name(&testbed).await;
    admission::opted_out(&testbed).await;

    let metrics = metrics(testbed.lab.settings().ports.octavo_controller).await;
    for line in [
        "octavo_controller_translation_refusals_total{reason=\"TooMuchMemory\"} 1",
        "octavo_controller_translation_refusals_total{reason=\"NameTaken\"} 1",
        "octavo_controller_translation_seconds_count",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

/// The controller's metrics.
async fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nhost: controller\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_stay_while_a_pod_needs_them_and_are_made_again() {
    let testbed = up("t4=1", 4).await;
    let fraction = testbed.create::<Pod>(kai("first", "0.5")).await;
    let name = template_of(&fraction);
    testbed.wait_until_running("first").await;
    let last_used = async || {
        let found = templates(&testbed).get_opt(&name).await.unwrap()?;
        Some(found.annotations()["octavo.dev/last-used"].clone())
    };
    // More than the time to keep goes by in two renewals.
    let mut before = last_used().await.expect("the template is there");
    for _ in 0..2 {
        before = eventually("the leader renews the time", || async {
            let now = last_used().await.expect("a pod needs the template");
            (now != before).then_some(now)
        })
        .await;
    }
    // The leader is killed, and goes on after its start. It needs no ComputeDomains.
    testbed.lab.kill(Component::OctavoController).await;
    let config = testbed.lab.layout().octavo_controller_config();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}\ncomputeDomains: false\n")).unwrap();
    testbed.pods().delete("first", &DeleteParams::default()).await.unwrap();
    testbed.lab.start(Component::OctavoController).await.unwrap();
    eventually("the template is collected", || async { last_used().await.is_none().then_some(()) })
        .await;

    wait_until_served(&testbed).await;
    let second = testbed.create::<Pod>(kai("second", "0.5")).await;
    assert_eq!(template_of(&second), name);
    testbed.wait_until_running("second").await;
}
