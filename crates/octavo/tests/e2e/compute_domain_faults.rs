//! Faults and bad input around `ComputeDomains`: each ends in a clear condition, event or message, and leaves nothing.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use octavo_api::ComputeDomain;
use octavo_api::compute_domain::Readiness;
use octavo_api::names::{ANNOTATION_READY_WHEN, CONDITION_SHARED_CLIQUE, LABEL_COMPUTE_DOMAIN};
use octavo_lab::{Component, UpOptions};
use serde_json::{Value, json};

use crate::compute_domain_pods::{Domains, all_ready};
use crate::testbed::{OCTAVO, Testbed, eventually};

impl Domains<'_> {
    /// Status, reason and message of a condition, once it has this reason.
    pub(crate) async fn wait_for_reason(
        &self,
        domain: &str,
        type_: &str,
        reason: &str,
    ) -> (String, String) {
        let api = self.api();
        eventually(&format!("{type_} of {domain} has the reason {reason}"), || async {
            let status = api.get(domain).await.ok()?.status?;
            let condition = status.conditions.into_iter().find(|it| it.type_ == type_)?;
            (condition.reason == reason).then_some((condition.status, condition.message))
        })
        .await
    }

    /// Waits for an event about an object, and returns its note.
    async fn wait_for_event(&self, namespace: &str, reason: &str, word: &str) -> String {
        let api: Api<Event> = Api::namespaced(self.testbed.client.clone(), namespace);
        eventually(&format!("an event {reason} with {word:?}"), || async {
            let events = api.list(&ListParams::default()).await.ok()?.items;
            let notes = events
                .into_iter()
                .filter(|event| event.reason.as_deref() == Some(reason))
                .filter_map(|event| event.note);
            notes.into_iter().find(|note| note.contains(word))
        })
        .await
    }
}

/// A lab with two trays and a node without a fabric of several nodes.
async fn lab() -> Testbed {
    Testbed::up_with(|state| UpOptions {
        nodes: Some("gb200-tray=2,dgx-h100=1".parse().unwrap()),
        ..UpOptions::new(state, OCTAVO)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_has_clear_answers_and_leaves_nothing() {
    let testbed = lab().await;
    let domains = Domains::of(&testbed);
    let [a, b] = ["gb200-tray-0", "gb200-tray-1"];

    // A template of that name exists: it is left alone, and the domain says so.
    let templates: Api<ResourceClaimTemplate> = Api::default_namespaced(testbed.client.clone());
    let taken = serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "taken"}, "spec": {"spec": {}},
    }));
    let taken = templates.create(&PostParams::default(), &taken.unwrap()).await.unwrap();
    domains.create("taken").await;
    let (status, message) = domains.wait_for_reason("taken", "Ready", "TemplateNameTaken").await;
    assert!(status == "False" && message.contains("taken"), "{message}");
    assert_eq!(templates.get("taken").await.unwrap().uid(), taken.uid());
    templates.delete("taken", &DeleteParams::default()).await.unwrap();
    domains.wait_for_reason("taken", "Ready", "NoNodes").await;
    assert!(templates.get("taken").await.unwrap().labels().contains_key(LABEL_COMPUTE_DOMAIN));

    // A claim of another namespace names the domain's UID: its pod does not start, and its node does not join.
    let domain = domains.create("mine").await;
    let namespaces: Api<Namespace> = Api::all(testbed.client.clone());
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap();
    namespaces.create(&PostParams::default(), &other).await.unwrap();
    foreign_claim(&testbed, &domain, a).await;
    let note = domains.wait_for_event("other", "ForeignNamespace", "another namespace").await;
    assert!(!note.contains("mine"), "the tenant learns no name: {note}");
    domains.wait_for_event("other", "FailedPrepareDynamicResources", "template").await;
    assert_eq!(label(&testbed, a).await, None);
    let pods: Api<Pod> = Api::namespaced(testbed.client.clone(), "other");
    pods.delete("thief", &DeleteParams::default()).await.unwrap();
    let claims: Api<ResourceClaim> = Api::namespaced(testbed.client.clone(), "other");
    claims.delete("stolen", &DeleteParams::default()).await.unwrap();
    // The kubelet unprepares before the scheduler can give the channel again.
    eventually("the stolen claim is gone", || async {
        claims.get_opt("stolen").await.ok()?.is_none().then_some(())
    })
    .await;

    // Without a fabric a pod runs without a device, once its domain's daemon is there.
    domains.pod("plain", "mine", "dgx-h100-0").await;
    let pod = testbed.wait_until_running("plain").await;
    let container = testbed.container("dgx-h100-0", &pod, "main");
    assert_eq!(container.device_nodes("/dev/nvidia-caps-imex-channels/"), 0);
    let nodes = domains.wait("mine", &all_ready(&["dgx-h100-0"])).await;
    assert_eq!((nodes["dgx-h100-0"].index, &*nodes["dgx-h100-0"].clique_id), (None, ""));

    // One domain a node: the second waits until the first has left.
    domains.pod("first", "mine", b).await;
    testbed.wait_until_running("first").await;
    domains.create("second").await;
    domains.pod("second", "second", b).await;
    let message = testbed.wait_until_unschedulable("second").await;
    assert!(message.contains("cannot allocate all claims"), "{message}");
    // Another domain in the same clique is allowed, and both are warned about it.
    domains.pod("beside", "second", a).await;
    testbed.wait_until_running("beside").await;
    let (status, message) =
        domains.wait_for_reason("mine", CONDITION_SHARED_CLIQUE, "OtherDomain").await;
    assert!(status == "True" && message.contains("second"), "{message}");
    testbed.delete_pod("first").await;
    testbed.wait_until_running("second").await;

    // All channels.
    testbed.delete_pod("second").await;
    let all = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
        "metadata": {"name": "all"},
        "spec": {"channel": {
            "allocationMode": "All", "resourceClaimTemplate": {"name": "all"},
        }},
    });
    testbed.create::<ComputeDomain>(all).await;
    domains.pod("all", "all", b).await;
    let pod = testbed.wait_until_running("all").await;
    let container = testbed.container(b, &pod, "main");
    assert_eq!(container.device_nodes("/dev/nvidia-caps-imex-channels/"), 2048);

    for pod in ["plain", "beside", "all"] {
        testbed.delete_pod(pod).await;
    }
    for domain in ["taken", "mine", "second", "all"] {
        domains.api().delete(domain, &DeleteParams::default()).await.unwrap();
    }
    domains.wait_until_nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_programs_are_waited_for_and_nothing_is_lost() {
    let testbed = lab().await;
    let domains = Domains::of(&testbed);
    let [a, b] = ["gb200-tray-0", "gb200-tray-1"];
    let stuck = |node: &str, state: Option<&str>| {
        let more = state.map(|state| ["--stuck-in", state]);
        testbed.octavo_ok(
            &[&["lab", "node", node, "imex"][..], more.as_ref().map_or(&[], |it| &it[..])].concat(),
        );
    };

    // A pod waits for its own daemon. An agent that is killed meanwhile delays it by a retry.
    domains.create("job").await;
    stuck(a, Some("INIT_GPU"));
    domains.pod("w0", "job", a).await;
    domains.wait("job", &[(a, Readiness::NotReady)]).await;
    testbed.lab.kill(Component::Agents).await;
    testbed.lab.start(Component::Agents).await.unwrap();
    stuck(a, None);
    testbed.wait_until_running("w0").await;

    // The controller is killed while a node joins; its successor goes on, and keeps the index.
    let index = domains.wait("job", &all_ready(&[a])).await[a].index;
    domains.pod("w1", "job", b).await;
    testbed.lab.kill(Component::OctavoController).await;
    testbed.wait_until_bound("w1").await;
    testbed.lab.start(Component::OctavoController).await.unwrap();
    testbed.wait_until_running("w1").await;
    let nodes = domains.wait("job", &all_ready(&[a, b])).await;
    assert_eq!(nodes[a].index, index);
    assert_ne!(nodes[b].index, index);

    // Simulated kubelets that are killed find their daemons again.
    let before = (domains.pids(a).await, domains.pids(b).await);
    testbed.lab.kill(Component::Kubelets).await;
    testbed.lab.start(Component::Kubelets).await.unwrap();
    domains.pod("again", "job", a).await;
    testbed.wait_until_unschedulable("again").await;
    assert_eq!((domains.pids(a).await, domains.pids(b).await), before);
    testbed.delete_pod("again").await;

    // With `Members` a pod waits for the others, too; without it, 38 s at most.
    testbed.delete_pod("w1").await;
    let strict =
        Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION_READY_WHEN: "Members"}}}));
    domains.api().patch("job", &PatchParams::default(), &strict).await.unwrap();
    testbed.delete_pod("w0").await;
    // Else the pod that follows on this node could start with the status of the one that left.
    domains.wait("job", &[]).await;
    stuck(b, Some("INIT_GPU"));
    domains.pod("late", "job", b).await;
    testbed.wait_until_bound("late").await;
    domains.pod("strict", "job", a).await;
    domains.wait("job", &[(a, Readiness::Ready), (b, Readiness::NotReady)]).await;
    // Nothing started although its own daemon is ready.
    let note = domains.wait_for_event("default", "FailedPrepareDynamicResources", b).await;
    assert!(note.contains("not ready"), "{note}");
    let phase = testbed.pods().get("strict").await.unwrap().status.unwrap().phase;
    assert_eq!(phase.as_deref(), Some("Pending"));
    stuck(b, None);
    testbed.wait_until_running("strict").await;
    testbed.wait_until_running("late").await;

    for pod in ["strict", "late"] {
        testbed.delete_pod(pod).await;
    }
    domains.api().delete("job", &DeleteParams::default()).await.unwrap();
    domains.wait_until_nothing_is_left().await;
    for node in [a, b] {
        assert_eq!(testbed.node_files(node), Vec::<std::path::PathBuf>::new());
    }
}

/// A claim and its pod in the namespace `other`, with a domain of another one.
async fn foreign_claim(testbed: &Testbed, domain: &ComputeDomain, node: &str) {
    let parameters = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainChannelConfig",
        "domainID": domain.uid().unwrap(), "allocationMode": "Single",
    });
    let claim: Value = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "name": "stolen",
            "annotations": {"octavo.dev/compute-domain": format!("default/{}", domain.name_any())},
        },
        "spec": {"devices": {
            "requests": [{"name": "channel", "exactly": {
                "deviceClassName": "compute-domain-default-channel.nvidia.com",
            }}],
            "config": [{"opaque": {
                "driver": "compute-domain.nvidia.com", "parameters": parameters,
            }}],
        }},
    });
    let claims: Api<ResourceClaim> = Api::namespaced(testbed.client.clone(), "other");
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "example",
                "resources": {"claims": [{"name": "channel"}]},
            }],
            "resourceClaims": [{"name": "channel", "resourceClaimName": "stolen"}],
        },
    });
    let pods: Api<Pod> = Api::namespaced(testbed.client.clone(), "other");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// The domain label of a node.
async fn label(testbed: &Testbed, node: &str) -> Option<String> {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    nodes.get(node).await.unwrap().labels().get(LABEL_COMPUTE_DOMAIN).cloned()
}
