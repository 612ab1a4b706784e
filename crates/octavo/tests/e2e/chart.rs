//! The Helm chart on a real API server, applied by a real helm, and the rights that it grants.

mod compute_domain_claims;
mod compute_domain_secrets;
mod compute_domains;
mod health;
mod share_classes;
mod translation;

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use octavo_lab::Component;
use serde_json::{Value, json};

use crate::testbed::{OCTAVO, Testbed, eventually};

/// Folder of the chart.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/octavo");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_installs_the_chart_and_upgrades_it() {
    let testbed = Testbed::up("t4=1").await;
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| helm(&testbed, home.path(), args);
    // The lab has applied the chart's objects itself; helm takes them over.
    let install = ["upgrade", "--install", "octavo", CHART, "--take-ownership"];
    run(&[&install[..], &["--force-conflicts"]].concat());
    let sets: Api<k8s_openapi::api::apps::v1::DaemonSet> =
        Api::namespaced(testbed.client.clone(), "octavo-system");
    let set = sets.get("octavo-agent").await.unwrap();
    let pod = set.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.service_account_name.as_deref(), Some("octavo-agent"));
    agent_reads_its_config(&testbed).await;
    compute_domains::controller_reads_its_config(&testbed).await;

    run(&["upgrade", "octavo", CHART, "--set", "agent.enabled=false"]);
    assert!(run(&["history", "octavo"]).contains("superseded"));
    eventually("no agent is left", || async {
        sets.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_writes_slices_of_its_own_node_only() {
    let testbed = Testbed::up("gh200=2").await;
    // Running agents would restore their slices while the test deletes them.
    testbed.lab.stop(Component::Agents).await;
    let own = agent_slices(&testbed.node("gh200-0")).await;
    let other = agent_slices(&testbed.node("gh200-1")).await;
    let create = |slice: Value| {
        let (own, slice) = (own.clone(), serde_json::from_value::<ResourceSlice>(slice).unwrap());
        async move { own.create(&PostParams::default(), &slice).await }
    };
    create(slice("own", "gpu.nvidia.com", "gh200-0", &json!({"nodeName": "gh200-0"})))
        .await
        .unwrap();

    let driver = "gpu.nvidia.com";
    // The API server learns of a policy a moment after its creation.
    // A dry run passes admission and stores nothing, so a late policy leaves no slice behind.
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let foreign: ResourceSlice =
        serde_json::from_value(slice("x", driver, "gh200-1", &json!({"nodeName": "gh200-1"})))
            .unwrap();
    eventually("the admission policy is in force", || async {
        own.create(&dry_run, &foreign).await.is_err().then_some(())
    })
    .await;
    let selector = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]});
    for (reason, refused) in [
        ("spec.allNodes is refused", slice("x", driver, "gh200-0", &json!({"allNodes": true}))),
        (
            "spec.nodeSelector is refused",
            slice("x", driver, "gh200-0", &json!({"nodeSelector": selector})),
        ),
        (
            "spec.perDeviceNodeSelection is refused",
            slice(
                "x",
                driver,
                "gh200-0",
                &json!({
                    "perDeviceNodeSelection": true,
                    "devices": [{"name": "gpu-0", "nodeName": "gh200-1"}],
                }),
            ),
        ),
        (
            "may not write a ResourceSlice of node 'gh200-1'",
            slice("x", driver, "gh200-1", &json!({"nodeName": "gh200-1"})),
        ),
        (
            "may not write to pool 'gh200-1'",
            slice("x", driver, "gh200-1", &json!({"nodeName": "gh200-0"})),
        ),
        (
            "may not write a ResourceSlice of driver 'nic.example.com'",
            slice("x", "nic.example.com", "gh200-0", &json!({"nodeName": "gh200-0"})),
        ),
    ] {
        let error = create(refused).await.unwrap_err().to_string();
        assert!(error.contains(reason), "wanted {reason:?}: {error}");
    }

    let patch = Patch::Merge(json!({"spec": {"pool": {"generation": 9}}}));
    let error = other.patch("own", &PatchParams::default(), &patch).await.unwrap_err();
    assert!(error.to_string().contains("the agent of node 'gh200-1' may not write"), "{error}");
    let error = other.delete("own", &DeleteParams::default()).await.unwrap_err();
    assert!(error.to_string().contains("the agent of node 'gh200-1' may not write"), "{error}");
    own.delete("own", &DeleteParams::default()).await.unwrap();

    let unbound: Api<ResourceSlice> = Api::all(unbound_agent(&testbed).await);
    let slice = slice("own", driver, "gh200-0", &json!({"nodeName": "gh200-0"}));
    let slice = serde_json::from_value(slice).unwrap();
    let error = unbound.create(&PostParams::default(), &slice).await.unwrap_err();
    assert!(error.to_string().contains("this token is not bound to a node"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_class_that_gives_all_gpus_is_refused_outside_of_named_namespaces() {
    let testbed = Testbed::up("gh200=1").await;
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"}, "handler": "nvidia"});
    let classes: Api<RuntimeClass> = Api::all(testbed.client.clone());
    let class = serde_json::from_value(class).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    let pod = |class: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "greedy"}, "spec": {
            "runtimeClassName": class,
            "containers": [{"name": "main", "image": "cuda", "env": [
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}}))
        .unwrap()
    };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    // The API server learns of a policy a moment after its creation.
    let error = eventually("the policy is in force", || async {
        testbed.pods().create(&dry_run, &pod("nvidia")).await.err()
    })
    .await;
    assert!(error.to_string().contains("all GPUs of its node without a claim"), "{error}");
    assert!(error.to_string().contains("namespace 'default'"), "{error}");
    let system: Api<Pod> = Api::namespaced(testbed.client.clone(), "kube-system");
    system.create(&dry_run, &pod("nvidia")).await.unwrap();
    let other = testbed.pods().create(&dry_run, &pod("other")).await.unwrap_err();
    assert!(!other.to_string().contains("octavo"), "it does not exist: {other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_writes_the_device_status_of_claims_of_its_own_node_only() {
    let testbed = Testbed::up("gh200=2").await;
    testbed.pod_with_claim("mine", &json!([])).await;
    let node = testbed.wait_until_running("mine").await.spec.unwrap().node_name.unwrap();
    let other_node = if node == "gh200-0" { "gh200-1" } else { "gh200-0" };
    let claims = async |node: &str| -> Api<ResourceClaim> {
        Api::default_namespaced(agent(&testbed.node(node)).await)
    };
    let claim = serde_json::to_value(testbed.claims().get("mine").await.unwrap()).unwrap();
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    let device = json!({
        "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0", "shareID": result["shareID"],
    });
    let params = PatchParams::default();
    let own = Patch::Merge(json!({"status": {"devices": [device]}}));
    let error = claims(other_node).await.patch_status("mine", &params, &own).await.unwrap_err();
    assert!(error.to_string().contains("resourceclaims/driver"), "{error}");
    let written = claims(&node).await.patch_status("mine", &params, &own).await.unwrap();
    assert_eq!(written.status.unwrap().devices.unwrap().len(), 1);

    // The scheduler's decision is not the agent's to change.
    let unreserved = Patch::Merge(json!({"status": {"reservedFor": null}}));
    let error = claims(&node).await.patch_status("mine", &params, &unreserved).await.unwrap_err();
    assert!(error.to_string().contains("resourceclaims/binding"), "{error}");
}

/// API servers before 1.36 do not check who writes which part of a claim's status. Here the agent has
/// the rights that such a server does not ask for, and only the chart's policy is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_server_s_own_checks_a_policy_keeps_agents_to_their_devices() {
    let testbed = Testbed::up("gh200=2").await;
    grant_unchecked_status(&testbed).await;
    testbed.pod_with_claim("mine", &json!([])).await;
    let node = testbed.wait_until_running("mine").await.spec.unwrap().node_name.unwrap();
    let other = if node == "gh200-0" { "gh200-1" } else { "gh200-0" };
    let claim = serde_json::to_value(testbed.claims().get("mine").await.unwrap()).unwrap();
    let share = &claim["status"]["allocation"]["devices"]["results"][0]["shareID"];
    let client = agent(&testbed.node(other)).await;
    let claims: Api<ResourceClaim> = Api::default_namespaced(client.clone());
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let write = async |status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        claims.patch_status("mine", &params, &patch).await
    };
    let device = json!({"driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0",
        "shareID": share});
    // The API server learns of policies and rights a moment after their creation.
    eventually("the policy is in force", || async {
        let error = write(json!({"reservedFor": null})).await.err()?.to_string();
        error.contains("octavo").then_some(())
    })
    .await;
    for (status, reason) in [
        (json!({"allocation": null, "reservedFor": null}), "status.allocation"),
        (json!({"reservedFor": null}), "status.reservedFor"),
        (json!({"devices": [device]}), "in its own pools only"),
    ] {
        let error = write(status.clone()).await.unwrap_err().to_string();
        assert!(error.contains("octavo") && error.contains(reason), "{status}: {error}");
    }

    let events: Api<Event> = Api::default_namespaced(client);
    let event = |instance: &str| -> Event {
        serde_json::from_value(json!({
            "metadata": {"generateName": "x-"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "action": "Prepare", "reason": "DeviceInUse", "type": "Warning",
            "reportingController": "octavo.dev/agent", "reportingInstance": instance,
            "regarding": {"kind": "ResourceClaim", "name": "mine", "namespace": "default"},
        }))
        .unwrap()
    };
    events.create(&PostParams::default(), &event(other)).await.unwrap();
    let error = events.create(&PostParams::default(), &event(&node)).await.unwrap_err();
    assert!(error.to_string().contains("reportingInstance"), "{error}");
}

/// Grants agents what API servers from 1.36 on ask for and older ones do not.
async fn grant_unchecked_status(testbed: &Testbed) {
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "unchecked"},
        "rules": [
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"],
                "verbs": ["update", "patch"]},
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"],
                "verbs": ["arbitrary-node:update", "arbitrary-node:patch"]},
        ],
    }))
    .unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "unchecked"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "unchecked"},
        "subjects": [{"kind": "ServiceAccount", "name": "octavo-agent",
            "namespace": "octavo-system"}],
    }))
    .unwrap();
    let (client, params) = (testbed.client.clone(), PostParams::default());
    Api::all(client.clone()).create(&params, &role).await.unwrap();
    Api::all(client).create(&params, &binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_labels_its_own_node_with_its_clique_and_changes_nothing_else_of_it() {
    let testbed = Testbed::up("gb200-tray=2").await;
    let all: Api<Node> = Api::all(testbed.client.clone());
    let label = async |node: &str| {
        eventually("the clique's label is there", || async {
            all.get(node).await.ok()?.metadata.labels?.remove("nvidia.com/gpu.clique")
        })
        .await
    };
    let clique = label("gb200-tray-0").await;
    assert!(clique.split_once('.').is_some_and(|(cluster, _)| cluster.len() == 36), "{clique}");
    assert_eq!(label("gb200-tray-1").await, clique, "the trays of a rack are in one clique");

    testbed.lab.stop(Component::Agents).await;
    let nodes: Api<Node> = Api::all(agent(&testbed.node("gb200-tray-0")).await);
    let patch = async |node: &str, patch: Value| {
        let patched = nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    };
    let labels = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    // The API server learns of a policy a moment after its creation.
    eventually("the policy is in force", async || {
        patch("gb200-tray-1", labels("nvidia.com/gpu.clique")).await.err()
    })
    .await;
    let own = "may change the labels of GPU feature discovery and ";
    for (node, change, reason) in [
        ("gb200-tray-1", labels("nvidia.com/gpu.clique"), "may change its own node only"),
        ("gb200-tray-0", labels("octavo.dev/scheduler"), own),
        // Commands to Octavo or to NVIDIA's operator, not facts.
        ("gb200-tray-0", labels("octavo.dev/mode"), own),
        ("gb200-tray-0", labels("nvidia.com/mig.config"), own),
        ("gb200-tray-0", labels("nvidia.com/gpu.present"), own),
        ("gb200-tray-0", labels("nvidia.com/device-plugin.config"), own),
        ("gb200-tray-0", json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}}), own),
        ("gb200-tray-0", json!({"metadata": {"annotations": {"a": "b"}}}), own),
        ("gb200-tray-0", json!({"spec": {"unschedulable": true}}), own),
    ] {
        let error = patch(node, change.clone()).await.unwrap_err();
        assert!(error.contains(reason), "{change}: {error}");
    }
    patch("gb200-tray-0", json!({"metadata": {"labels": {"nvidia.com/gpu.clique": null}}}))
        .await
        .unwrap();
    testbed.lab.start(Component::Agents).await.unwrap();
    assert_eq!(label("gb200-tray-0").await, clique, "an agent that starts writes it again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_may_not_list_claims() {
    let testbed = Testbed::up("gh200=1").await;
    let client = agent(&testbed.node("gh200-0")).await;
    let claims: Api<ResourceClaim> = Api::all(client);
    let error = claims.list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("cannot list resource \"resourceclaims\""), "{error}");
}

/// The agent accepts the chart's config file: with it, the agent looks for the driver at the
/// container's path.
async fn agent_reads_its_config(testbed: &Testbed) {
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(testbed.client.clone(), "octavo-system");
    let config =
        maps.get("octavo-agent").await.unwrap().data.unwrap().remove("agent.yaml").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.yaml");
    std::fs::write(&file, config).unwrap();
    let output = testbed.octavo(&["agent", "inventory", "--config", file.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("/driver-root"), "{errors}");
}

/// A client with the rights of a node's agent: its service account and its node-bound token.
async fn agent(node: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(node.join("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A client with the agents' service account and a token without a node.
async fn unbound_agent(testbed: &Testbed) -> Client {
    let accounts: Api<ServiceAccount> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let request = TokenRequest::default();
    let params = PostParams::default();
    let made = accounts.create_token_request("octavo-agent", &params, &request).await.unwrap();
    let kubeconfig = Kubeconfig::read_from(testbed.lab.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.auth_info =
        AuthInfo { token: made.status.unwrap().token.map(Into::into), ..AuthInfo::default() };
    Client::try_from(config).unwrap()
}

async fn agent_slices(node: &Path) -> Api<ResourceSlice> {
    Api::all(agent(node).await)
}

fn slice(name: &str, driver: &str, pool: &str, place: &Value) -> Value {
    let mut slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    });
    for (key, value) in place.as_object().unwrap() {
        slice["spec"][key] = value.clone();
    }
    slice
}

/// Helm, built once from its Go module.
/// Runs helm in the chart's namespace of a lab, which must succeed. `home` has its files.
fn helm(testbed: &Testbed, home: &Path, args: &[&str]) -> String {
    let output = Command::new(helm_binary())
        .args(args)
        .args(["--namespace", "octavo-system"])
        .env("KUBECONFIG", testbed.lab.kubeconfig())
        .env("HELM_CACHE_HOME", home)
        .env("HELM_CONFIG_HOME", home)
        .env("HELM_DATA_HOME", home)
        .env("KUBECACHEDIR", home)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn helm_binary() -> String {
    let xtask = Path::new(OCTAVO).with_file_name("xtask");
    assert!(
        xtask.exists(),
        "{} is not there: run `cargo build --workspace` first, as `make test` does",
        xtask.display()
    );
    let output = Command::new(xtask).args(["chart", "helm-path"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Building helm prints lines before the path.
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().last().expect("a path").to_owned()
}
