//! What the chart's policies let the controller of `ComputeDomains` and its daemons write.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource};
use octavo_api::ComputeDomainClique;
use octavo_api::compute_domain::daemon_manager;
use octavo_api::names::{CONTROLLER, LABEL_COMPUTE_DOMAIN, SHARED_IMEX_DOMAIN, TAINT_MAINTENANCE};
use octavo_controller::config;
use octavo_controller::view::Domain;
use octavo_controller::wanted::{self, DaemonsOf};
use octavo_lab::UpOptions;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::testbed::{OCTAVO, Testbed, eventually};

pub(super) const NAMESPACE: &str = "octavo-system";
const DOMAIN: &str = "6f1b6d3e-5d2c-4f0e-9b1a-0c2d4e6f8a01";

/// Image in the lab's rendering of the chart.
const IMAGE: &str = "octavo.dev/lab/octavo:1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_labels_nodes_with_their_domain_and_changes_nothing_else_of_them() {
    let testbed = control_plane().await;
    create_node(&testbed, "a").await;
    let nodes: Api<Node> = Api::all(client(&testbed, "octavo-controller", None).await);
    let patch = async |patch: Value| {
        let patched = nodes.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    };
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    in_force(async || {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patched = nodes.patch("a", &params, &Patch::Merge(label("example.com/x"))).await;
        patched.map(drop).map_err(|error| error.to_string())
    })
    .await;
    for change in [
        label("octavo.dev/scheduler"),
        json!({"metadata": {"labels": {"example.com/pool": null}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
    ] {
        let error = patch(change.clone()).await.unwrap_err();
        assert!(
            error.contains("may change the label resource.nvidia.com/computeDomain only"),
            "{change}: {error}"
        );
    }
    // Kubernetes gives a node that is not ready taints, which stay.
    let nodes = Api::<Node>::all(testbed.client.clone());
    let taints = async |keys: &[&str]| {
        let known = nodes.get("a").await.unwrap().spec.unwrap().taints.unwrap_or_default();
        let known = known.iter().filter(|taint| taint.key != TAINT_MAINTENANCE);
        let mut taints: Vec<Value> = known.map(|taint| json!(taint)).collect();
        taints.extend(keys.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})));
        json!({"spec": {"taints": taints}})
    };
    let other = taints(&["example.com/other"]).await;
    for change in [json!({"spec": {"unschedulable": true}}), other] {
        let error = patch(change.clone()).await.unwrap_err();
        let expected = "may change the taint octavo.dev/maintenance only";
        assert!(error.contains(expected), "{change}: {error}");
    }
    for keys in [&[TAINT_MAINTENANCE][..], &[]] {
        // Kubernetes may change its taints meanwhile.
        eventually("the taint is changed", || async { patch(taints(keys).await).await.ok() }).await;
    }
    for value in [json!("x"), Value::Null] {
        patch(json!({"metadata": {"labels": {LABEL_COMPUTE_DOMAIN: value}}})).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_writes_daemon_sets_of_domains_only() {
    let testbed = control_plane().await;
    let all: Api<DaemonSet> = Api::namespaced(testbed.client.clone(), NAMESPACE);
    let sets: Api<DaemonSet> =
        Api::namespaced(client(&testbed, "octavo-controller", None).await, NAMESPACE);
    let create = async |set: &Value| {
        let created = sets.create(&PostParams::default(), &parsed(set)).await;
        created.map(drop).map_err(|error| error.to_string())
    };
    let wanted = daemon_set();
    let mut foreign = wanted.clone();
    foreign["metadata"] = json!({"name": "foreign"});
    in_force(async || {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let created = sets.create(&dry_run, &parsed(&foreign)).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;

    // What the controller makes is allowed.
    create(&wanted).await.unwrap();
    let name = wanted::daemon_name(DOMAIN);
    let mut changed = wanted.clone();
    changed["spec"]["template"]["spec"]["priorityClassName"] = "system-cluster-critical".into();
    sets.replace(&name, &PostParams::default(), &parsed(&changed)).await.unwrap();
    let mut encrypted = config();
    encrypted.imex.encryption = true;
    let encrypted = wanted::daemon_set(DaemonsOf::Domain(&domain()), &encrypted);
    sets.replace(&name, &PostParams::default(), &parsed(&encrypted)).await.unwrap();

    // Pods with other rights are not.
    let error = create(&foreign).await.unwrap_err();
    assert!(error.contains("DaemonSets with the label"), "{error}");
    let host_folder = json!([{"name": "imexd", "hostPath": {"path": "/"}}]);
    let secret = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]);
    let rights = "pods of the controller's DaemonSets have the account";
    let settings = "pods of the controller's DaemonSets have no annotations";
    let image = "have the image octavo.dev/lab/octavo:1";
    for (pointer, value, reason) in [
        ("/spec/serviceAccountName", json!("octavo-agent"), rights),
        ("/spec/hostNetwork", json!(true), rights),
        ("/spec/hostPID", json!(true), rights),
        ("/spec/hostIPC", json!(true), rights),
        ("/spec/volumes", host_folder, rights),
        ("/spec/volumes", json!([{"name": "imexd", "secret": {"secretName": "a"}}]), rights),
        // The Secret of another DaemonSet.
        ("/spec/volumes", json!([{"name": "imexd", "secret": {"secretName": name}}]), rights),
        ("/spec/containers/0/securityContext", json!({"privileged": true}), rights),
        (
            "/spec/containers/0/securityContext",
            json!({"capabilities": {"add": ["SYS_ADMIN"]}}),
            rights,
        ),
        ("/spec/containers/0/env", secret, rights),
        ("/spec/containers/0/image", json!("octavo.dev/lab/octavo:2"), image),
        ("/spec/initContainers", json!([{"name": "a", "image": "a"}]), image),
        ("/metadata/annotations", json!({"cdi.k8s.io/a": "nvidia.com/gpu=all"}), settings),
        ("/spec/runtimeClassName", json!("nvidia"), settings),
        ("/spec/securityContext", json!({"sysctls": [{"name": "a", "value": "1"}]}), settings),
        ("/spec/securityContext", json!({"seLinuxOptions": {"type": "spc_t"}}), settings),
        ("/spec/securityContext", json!({"seccompProfile": {"type": "Unconfined"}}), settings),
        ("/spec/securityContext", json!({"appArmorProfile": {"type": "Unconfined"}}), settings),
        ("/spec/containers/0/securityContext/seLinuxOptions", json!({"type": "spc_t"}), settings),
        ("/spec/containers/0/securityContext/seccompProfile", Value::Null, settings),
        (
            "/spec/containers/0/securityContext/seccompProfile",
            json!({"type": "Unconfined"}),
            settings,
        ),
        (
            "/spec/containers/0/securityContext/appArmorProfile",
            json!({"type": "Unconfined"}),
            settings,
        ),
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "hostPort": 1}]), settings),
    ] {
        let mut set = wanted.clone();
        set["metadata"]["name"] = "other".into();
        let (folder, key) = pointer.rsplit_once('/').unwrap();
        set["spec"]["template"].pointer_mut(folder).unwrap()[key] = value;
        let error = create(&set).await.unwrap_err();
        assert!(error.contains(reason), "{pointer}: {error}");
    }
    // The API server wants a user namespace for it.
    let mut unmasked = wanted.clone();
    unmasked["spec"]["template"]["spec"]["hostUsers"] = false.into();
    unmasked["spec"]["template"]["spec"]["containers"][0]["securityContext"]["procMount"] =
        "Unmasked".into();
    let error = create(&unmasked).await.unwrap_err();
    assert!(error.contains(settings), "{error}");

    // One with another image, such as of an older release, is deleted, and not changed.
    let mut old = wanted.clone();
    old["metadata"]["name"] = "old".into();
    old["spec"]["template"]["spec"]["containers"][0]["image"] = "octavo/octavo:0".into();
    all.create(&PostParams::default(), &parsed(&old)).await.unwrap();
    let merge =
        async |patch: Value| sets.patch("old", &PatchParams::default(), &Patch::Merge(patch)).await;
    merge(json!({"metadata": {"finalizers": ["example.com/a"]}})).await.unwrap();
    merge(json!({"metadata": {"finalizers": null}})).await.unwrap();
    let error = refused(merge(json!({"spec": {"minReadySeconds": 5}})).await);
    assert!(error.contains(image), "{error}");
    sets.delete("old", &DeleteParams::default()).await.unwrap();

    // DaemonSets of others, such as the agent's, are out of its reach.
    all.create(&PostParams::default(), &parsed(&foreign)).await.unwrap();
    let adopt = json!({"metadata": {"labels": {LABEL_COMPUTE_DOMAIN: DOMAIN}}});
    let adopted = sets.patch("foreign", &PatchParams::default(), &Patch::Merge(adopt)).await;
    let deleted = sets.delete("foreign", &DeleteParams::default()).await;
    for error in [refused(adopted), refused(deleted)] {
        assert!(error.contains("DaemonSets with the label"), "{error}");
    }
    sets.delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_imex_daemon_writes_the_entry_of_its_own_node_only() {
    let testbed = control_plane().await;
    for node in ["a", "b"] {
        create_node(&testbed, node).await;
    }
    let all = cliques(testbed.client.clone());
    let clique = ComputeDomainClique::new(DOMAIN, "c.1");
    let name = clique.metadata.name.clone().unwrap();
    let other = ComputeDomainClique::new("6f1b6d3e-5d2c-4f0e-9b1a-0c2d4e6f8a02", "c.1");
    for clique in [&clique, &other] {
        all.create(&PostParams::default(), clique).await.unwrap();
    }
    let daemon = async |node: &str| {
        let pod = daemon_pod(&testbed, DOMAIN, node).await;
        cliques(client(&testbed, "octavo-imex-daemon", Some(pod)).await)
    };
    let (a, b) = (daemon("a").await, daemon("b").await);
    let apply =
        async |cliques: &Api<ComputeDomainClique>, name: &str, writer: &str, entry: Value| {
            let params = PatchParams::apply(writer).force();
            let patched =
                cliques.patch(name, &params, &Patch::Apply(applied(name, &json!([entry])))).await;
            patched.map(drop).map_err(|error| error.to_string())
        };
    let entry = |node: &str, status: &str| json!({"nodeName": node, "ipAddress": "10.0.0.1", "cliqueID": "c.1", "status": status});
    let (of_a, of_b) = (daemon_manager("a"), daemon_manager("b"));
    in_force(async || {
        let params = PatchParams { dry_run: true, ..PatchParams::apply("test") };
        let patch = Patch::Apply(applied(&name, &json!([entry("c", "Ready")])));
        a.patch(&name, &params, &patch).await.map(drop).map_err(|error| error.to_string())
    })
    .await;

    // The protocol of daemons and controller.
    apply(&a, &name, &of_a, entry("a", "NotReady")).await.unwrap();
    apply(&b, &name, &of_b, entry("b", "NotReady")).await.unwrap();
    let controller = cliques(client(&testbed, "octavo-controller", None).await);
    let indices = json!([{"nodeName": "a", "index": 0}, {"nodeName": "b", "index": 1}]);
    let params = PatchParams::apply(CONTROLLER).force();
    controller.patch(&name, &params, &Patch::Apply(applied(&name, &indices))).await.unwrap();
    apply(&a, &name, &of_a, entry("a", "Ready")).await.unwrap();
    let entries = all.get(&name).await.unwrap().daemons;
    let indices: Vec<_> = entries.iter().map(|it| (it.node_name.as_str(), it.index)).collect();
    assert_eq!(indices, [("a", Some(0)), ("b", Some(1))]);

    // Everything else is refused.
    let own = "may write the entry of its own node only";
    let index = "may not change its index, nor remove its entry";
    let mut with_index = entry("a", "Ready");
    with_index["index"] = 5.into();
    for (name, entry, reason) in [
        (&name, entry("b", "Ready"), own),
        (&name, with_index, index),
        (&other.metadata.name.clone().unwrap(), entry("a", "Ready"), "of its own domain only"),
    ] {
        let error = apply(&a, name, "test", entry.clone()).await.unwrap_err();
        assert!(error.contains(reason), "{entry}: {error}");
    }
    for (patch, reason) in [
        (json!({"daemons": []}), own),
        (json!({"metadata": {"labels": {"a": "b"}}}), "may not change the metadata"),
        (json!({"metadata": {"finalizers": ["example.com/a"]}}), "may not change the metadata"),
    ] {
        let patched = a.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let error = refused(patched);
        assert!(error.contains(reason), "{patch}: {error}");
    }

    // Daemons of a shared clique have a name of the same form.
    let shared = ComputeDomainClique::new(SHARED_IMEX_DOMAIN, "c.1");
    all.create(&PostParams::default(), &shared).await.unwrap();
    let pod = daemon_pod(&testbed, SHARED_IMEX_DOMAIN, "a").await;
    let daemon = cliques(client(&testbed, "octavo-imex-daemon", Some(pod)).await);
    let shared = shared.metadata.name.unwrap();
    apply(&daemon, &shared, &of_a, entry("a", "Ready")).await.unwrap();
    let error = apply(&a, &shared, &of_a, entry("a", "Ready")).await.unwrap_err();
    assert!(error.contains("of its own domain only"), "{error}");

    let unbound = cliques(client(&testbed, "octavo-imex-daemon", None).await);
    let error = apply(&unbound, &name, &of_a, entry("a", "Ready")).await.unwrap_err();
    assert!(error.contains("not bound to a node"), "{error}");
}

/// The controller accepts the chart's config file, which has the controller's own defaults.
pub(super) async fn controller_reads_its_config(testbed: &Testbed) {
    let maps: Api<ConfigMap> = in_namespace(testbed.client.clone());
    let map = maps.get("octavo-controller").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("controller.yaml");
    std::fs::write(&file, &map.data.unwrap()["controller.yaml"]).unwrap();
    let found = config::Config::read(Some(&file), None).unwrap();
    let image = format!("octavo/octavo:{}", env!("CARGO_PKG_VERSION"));
    let wanted = config::Config {
        namespace: NAMESPACE.to_owned(),
        daemon: config::DaemonConfig {
            image,
            image_pull_policy: "IfNotPresent".to_owned(),
            ..config::DaemonConfig::default()
        },
        health: config::HealthConfig {
            enabled: true,
            repair: Some(config::RepairConfig {
                after_seconds: 60,
                scheduler_name: "octavo".to_owned(),
            }),
        },
        leader_election: config::LeaderElection {
            namespace: NAMESPACE.to_owned(),
            ..config::LeaderElection::default()
        },
        ..config::Config::default()
    };
    assert_eq!(found, wanted);
}

pub(super) async fn control_plane() -> Testbed {
    Testbed::up_with(|state| UpOptions::control_plane_only(state, OCTAVO)).await
}

/// Waits until a write is refused: the API server learns of a policy a moment after its creation. The write is a dry run.
pub(super) async fn in_force(write: impl AsyncFn() -> Result<(), String>) {
    eventually("the policy is in force", async || write().await.err()).await;
}

pub(super) fn refused<T: Debug>(written: kube::Result<T>) -> String {
    written.unwrap_err().to_string()
}

pub(super) fn parsed<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap()
}

/// What a field manager applies to the entries of a clique.
fn applied(name: &str, entries: &Value) -> Value {
    json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainClique",
        "metadata": {"name": name}, "daemons": entries,
    })
}

fn cliques(client: Client) -> Api<ComputeDomainClique> {
    in_namespace(client)
}

pub(super) fn in_namespace<K>(client: Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client, NAMESPACE)
}

async fn create_node(testbed: &Testbed, name: &str) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"example.com/pool": "gpu"}},
    });
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    nodes.create(&PostParams::default(), &parsed(&node)).await.unwrap();
}

pub(super) fn domain() -> Domain {
    Domain {
        uid: DOMAIN.to_owned(),
        namespace: "default".to_owned(),
        name: "domain".to_owned(),
        template: "channel".to_owned(),
        ..Domain::default()
    }
}

/// The controller's config, as in the lab.
pub(super) fn config() -> config::Config {
    config::Config {
        namespace: NAMESPACE.to_owned(),
        daemon: config::DaemonConfig { image: IMAGE.to_owned(), ..config::DaemonConfig::default() },
        ..config::Config::default()
    }
}

/// The `DaemonSet` that the controller makes for a domain.
pub(super) fn daemon_set() -> Value {
    wanted::daemon_set(DaemonsOf::Domain(&domain()), &config())
}

/// A pod as the `DaemonSet` makes it on a node.
async fn daemon_pod(testbed: &Testbed, domain: &str, node: &str) -> BoundObjectReference {
    let name = format!("{}-abcd{node}", wanted::daemon_name(domain));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "serviceAccountName": "octavo-imex-daemon",
            "containers": [{"name": "a", "image": "a"}],
        },
    });
    let pods: Api<Pod> = in_namespace(testbed.client.clone());
    let pod = pods.create(&PostParams::default(), &parsed(&pod)).await.unwrap();
    BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(name),
        uid: pod.metadata.uid,
    }
}

/// A client with a token of a service account, which may be bound to a pod.
pub(super) async fn client(
    testbed: &Testbed,
    account: &str,
    pod: Option<BoundObjectReference>,
) -> Client {
    let accounts: Api<ServiceAccount> = in_namespace(testbed.client.clone());
    let spec = TokenRequestSpec { bound_object_ref: pod, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let made = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let kubeconfig = Kubeconfig::read_from(testbed.lab.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let token = made.unwrap().status.unwrap().token.map(Into::into);
    config.auth_info = AuthInfo { token, ..AuthInfo::default() };
    Client::try_from(config).unwrap()
}
