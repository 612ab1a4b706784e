//! Pods of HAMi and KAI Scheduler, translated by the controller's webhook at their admission.

mod condition;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
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
    let metadata = &fraction.metadata;
    assert_eq!((metadata.annotations.as_ref(), metadata.labels.as_ref()), (None, None));
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

    // A workload stays as it is written. Its pods have one template.
    let template = kai("unused", "0.1");
    let labels = json!({"app": "many", "kai.scheduler/queue": "research"});
    let metadata = json!({"labels": labels, "annotations": template["metadata"]["annotations"]});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "many"}},
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

    results_of_admission_follow(&testbed).await;
    refused_by_name(&testbed).await;
    opted_out(&testbed).await;

    let metrics = metrics(testbed.lab.settings().ports.octavo_controller).await;
    for line in [
        "octavo_controller_translation_refusals_total{reason=\"TooMuchMemory\"} 1",
        "octavo_controller_translation_refusals_total{reason=\"NameTaken\"} 1",
        "octavo_controller_translation_seconds_count",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

/// The API server has the priority and the overhead of a pod's classes before it asks the webhook, which changes the classes.
async fn results_of_admission_follow(testbed: &Testbed) {
    let class = json!({"metadata": {"name": "train"}, "value": 50, "preemptionPolicy": "Never"});
    let classes: Api<PriorityClass> = Api::all(testbed.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    let class = json!({"metadata": {"name": "nvidia"}, "handler": "nvidia", "overhead": {"podFixed": {"memory": "1Mi"}}});
    let classes: Api<RuntimeClass> = Api::all(testbed.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    let mut pod = kai("classes", "0.1");
    pod["metadata"]["labels"]["priorityClassName"] = "train".into();
    pod["spec"]["runtimeClassName"] = "nvidia".into();
    let pod = eventually("the API server knows the classes", || async {
        dry_run(testbed, &pod).await.ok()
    })
    .await;
    let spec = pod.spec.unwrap();
    assert_eq!((spec.priority, spec.preemption_policy.as_deref()), (Some(50), Some("Never")));
    assert_eq!(
        (spec.priority_class_name.as_deref(), spec.runtime_class_name),
        (Some("train"), None)
    );
    assert_eq!(spec.overhead, None);
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

async fn refused_by_name(testbed: &Testbed) {
    let gpumem = |mib: u32| json!({"nvidia.com/gpumem": mib});
    let mps = json!({"gpu-fraction": "0.5", "mps": "true"});
    for (pod, parts) in [
        (
            kai("zero", "0"),
            ["annotation gpu-fraction: 0 is refused because a fraction is above 0", "(OutOfRange)"],
        ),
        (
            kai("large", "1.5"),
            [
                "annotation gpu-fraction: 1.5 is refused because a fraction is below 1",
                "(OutOfRange)",
            ],
        ),
        (
            hami("above", &gpumem(23035), &json!({})),
            [
                "nvidia.com/gpumem: 23035 of container main",
                "the largest known GPU has 23034Mi (NVIDIA L4)",
            ],
        ),
        (
            pod("mps", &mps, &json!({}), None),
            ["annotation mps: true is refused", "remove it and the volume"],
        ),
    ] {
        let error = create(&testbed.pods(), &pod, &PostParams::default()).await.unwrap_err();
        assert!(error.contains("pods.octavo.dev"), "{error}");
        for part in parts {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
    // A template of another owner has the name.
    let name = template_of(&dry_run(testbed, &kai("taken", "0.3")).await.unwrap());
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}});
    let taken = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    });
    testbed.create::<ResourceClaimTemplate>(taken).await;
    let pod = kai("taken", "0.3");
    let error = create(&testbed.pods(), &pod, &PostParams::default()).await.unwrap_err();
    let part =
        format!("ResourceClaimTemplate default/{name}, and one of that name is another owner's");
    assert!(error.contains(&part), "{error}");
}

/// Namespaces and pods with the label, and the namespaces of the cluster's own pods, are not asked about.
async fn opted_out(testbed: &Testbed) {
    let mut left = kai("left", "0.5");
    left["metadata"]["labels"]["octavo.dev/translate"] = "false".into();
    let left = dry_run(testbed, &left).await.unwrap();
    assert_eq!(left.annotations()["gpu-fraction"], "0.5");
    let namespace =
        json!({"metadata": {"name": "kai", "labels": {"octavo.dev/translate": "false"}}});
    let namespaces: Api<Namespace> = Api::all(testbed.client.clone());
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let account = "default";
    for name in ["kai", "kube-system"] {
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(testbed.client.clone(), name);
        eventually("the namespace has its account", || async { accounts.get(account).await.ok() })
            .await;
        let pods: Api<Pod> = Api::namespaced(testbed.client.clone(), name);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let left = create(&pods, &kai("left", "0.5"), &params).await.unwrap();
        assert_eq!(left.annotations()["gpu-fraction"], "0.5");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_webhook_only_pods_of_kai_and_hami_are_refused() {
    let testbed = up("t4=1", 3600).await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(testbed.client.clone());
    let secrets: Api<Secret> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let bundle = async || {
        let found = webhooks.get("octavo-translation").await.unwrap();
        found.webhooks.unwrap()[0].client_config.ca_bundle.clone().unwrap()
    };
    let (trusted, secret) =
        (bundle().await, secrets.get("octavo-controller-webhook").await.unwrap());

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
    wait_until_served(&testbed).await;
    assert_eq!(bundle().await, trusted);
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
    let expires = k8s_openapi::ByteString(b"2026-01-01T00:00:00Z".to_vec());
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
