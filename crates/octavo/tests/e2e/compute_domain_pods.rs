//! Pods of a `ComputeDomain` on simulated trays: real controller, real agents, real daemons that run the simulated
//! `nvidia-imex`.

use std::collections::BTreeMap;
use std::process::Command;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt as _};
use octavo_api::compute_domain::{ComputeDomainNode, Readiness};
use octavo_api::names::{CONDITION_MEMBERS_READY, LABEL_COMPUTE_DOMAIN, TARGET_WORKLOAD};
use octavo_api::{ComputeDomain, ComputeDomainClique};
use octavo_lab::TOOLS_IMAGE;
use serde_json::{Value, json};

use crate::testbed::{Testbed, eventually};

/// Namespace of the daemons.
const SYSTEM: &str = "octavo-system";

/// Domains and their pods in a lab.
pub(crate) struct Domains<'a> {
    pub(crate) testbed: &'a Testbed,
}

impl<'a> Domains<'a> {
    pub(crate) fn of(testbed: &'a Testbed) -> Self {
        Self { testbed }
    }

    fn client(&self) -> Client {
        self.testbed.client.clone()
    }

    pub(crate) fn api(&self) -> Api<ComputeDomain> {
        Api::default_namespaced(self.client())
    }

    pub(crate) fn cliques(&self) -> Api<ComputeDomainClique> {
        Api::namespaced(self.client(), SYSTEM)
    }

    /// Makes a domain whose template has its name.
    pub(crate) async fn create(&self, name: &str) -> ComputeDomain {
        let object = json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
            "metadata": {"name": name},
            "spec": {"channel": {"resourceClaimTemplate": {"name": name}}},
        });
        self.testbed.create::<ComputeDomain>(object).await
    }

    /// Makes a pod of a domain on a node.
    pub(crate) async fn pod(&self, name: &str, domain: &str, node: &str) {
        self.testbed.create::<Pod>(pod_of(name, domain, node)).await;
    }

    /// The same on a real node, with a GPU and a container that sleeps.
    pub(crate) async fn real_pod(&self, name: &str, domain: &str, node: &str) {
        let mut pod = pod_of(name, domain, node);
        pod["spec"]["containers"][0]["image"] = TOOLS_IMAGE.into();
        pod["spec"]["containers"][0]["command"] = json!(["sleep", "10000"]);
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
        self.testbed.create::<Pod>(pod).await;
    }

    /// The nodes of a domain, once its status has the wanted readiness of each.
    pub(crate) async fn wait(
        &self,
        domain: &str,
        wanted: &[(&str, Readiness)],
    ) -> BTreeMap<String, ComputeDomainNode> {
        let api = self.api();
        let wanted: BTreeMap<_, _> =
            wanted.iter().map(|(name, status)| ((*name).to_owned(), *status)).collect();
        eventually(&format!("the nodes of {domain} are {wanted:?}"), || async {
            let nodes = api.get(domain).await.ok()?.status?.nodes;
            let found: BTreeMap<_, _> =
                nodes.iter().map(|node| (node.name.clone(), node.status)).collect();
            (found == wanted)
                .then(|| nodes.into_iter().map(|node| (node.name.clone(), node)).collect())
        })
        .await
    }

    /// The daemon's pod on a node, once it exists: the status of a domain has a node before.
    pub(crate) async fn daemon(&self, node: &str) -> Pod {
        let pods: Api<Pod> = Api::namespaced(self.client(), SYSTEM);
        let params = ListParams::default()
            .labels(LABEL_COMPUTE_DOMAIN)
            .fields(&format!("spec.nodeName={node}"));
        eventually(&format!("one daemon is on {node}"), || async {
            let [pod] = <[Pod; 1]>::try_from(pods.list(&params).await.ok()?.items).ok()?;
            Some(pod)
        })
        .await
    }

    /// Process id of the daemon on a node, and that of its service.
    pub(crate) async fn pids(&self, node: &str) -> (String, String) {
        let pod = self.daemon(node).await;
        let folder = self.testbed.node(node).join("kubelet/pods").join(pod.uid().unwrap());
        let container = &pod.spec.as_ref().unwrap().containers[0].name;
        let text = std::fs::read_to_string(folder.join(format!("{container}.pid"))).unwrap();
        let daemon = text.split(' ').next().unwrap().to_owned();
        let children = format!("/proc/{daemon}/task/{daemon}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        // The daemon also runs nvidia-imex-ctl, for moments.
        let is_service = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim_end() == "nvidia-imex")
        };
        let services: Vec<&str> = children.split_whitespace().filter(is_service).collect();
        (daemon, services.join(" "))
    }

    /// Waits until the services with the first two indices are connected with each other, as one on this node says. A service is
    /// ready before that: it calls a peer that starts at the same moment again.
    pub(crate) async fn wait_until_connected(&self, node: &str) {
        eventually("the services are connected with each other", || async {
            let imex = self.imex(node).await;
            // Free slots are nodes of the service's list, too, so the whole is no more than degraded.
            let status = |from, to| imex["nodes"][from]["connections"][to]["status"].clone();
            (status("0", "1") == "CONNECTED" && status("1", "0") == "CONNECTED").then_some(())
        })
        .await;
    }

    /// What `nvidia-imex-ctl -N -j` says on a node.
    pub(crate) async fn imex(&self, node: &str) -> Value {
        let pod = self.daemon(node).await;
        let node = self.testbed.node(node);
        let folder = node.join("kubelet/pods").join(pod.uid().unwrap());
        let output = Command::new(node.join("driver/usr/bin/nvidia-imex-ctl"))
            .env("OCTAVO_HOSTS_FILE", folder.join("hosts"))
            .arg("-c")
            .arg(folder.join("imexd/imexd.cfg"))
            .args(["-N", "-j"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{output:?}"))
    }

    /// Waits until nothing of any domain is left.
    pub(crate) async fn wait_until_nothing_is_left(&self) {
        let labelled = ListParams::default().labels(LABEL_COMPUTE_DOMAIN);
        let nodes: Api<Node> = Api::all(self.client());
        let sets: Api<DaemonSet> = Api::all(self.client());
        let pods: Api<Pod> = Api::namespaced(self.client(), SYSTEM);
        let templates: Api<ResourceClaimTemplate> = Api::all(self.client());
        let claims: Api<ResourceClaim> = Api::namespaced(self.client(), SYSTEM);
        let (domains, cliques) = (self.api(), self.cliques());
        eventually("nothing of a domain is left", || async {
            let all = ListParams::default();
            let left = [
                domains.list(&all).await.ok()?.items.len(),
                cliques.list(&all).await.ok()?.items.len(),
                nodes.list(&labelled).await.ok()?.items.len(),
                sets.list(&labelled).await.ok()?.items.len(),
                pods.list(&labelled).await.ok()?.items.len(),
                templates.list(&all).await.ok()?.items.len(),
                claims.list(&all).await.ok()?.items.len(),
            ];
            (left == [0; 7]).then_some(())
        })
        .await;
    }
}

/// A pod of a domain on a node.
fn pod_of(name: &str, domain: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "example",
                "resources": {"claims": [{"name": "channel"}]},
            }],
            "resourceClaims": [{"name": "channel", "resourceClaimTemplateName": domain}],
        },
    })
}

/// Readiness of nodes.
pub(crate) fn all_ready<'a>(nodes: &[&'a str]) -> Vec<(&'a str, Readiness)> {
    nodes.iter().map(|node| (*node, Readiness::Ready)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_on_trays_has_one_imex_domain_that_outlives_its_members() {
    let testbed = Testbed::up("gb200-tray=3").await;
    let domains = Domains::of(&testbed);
    let domain = domains.create("job").await;
    let uid = domain.uid().unwrap();
    let templates: Api<ResourceClaimTemplate> = Api::default_namespaced(testbed.client.clone());
    let template =
        eventually("the template is there", || async { templates.get_opt("job").await.ok()? });
    let template = template.await;
    assert_eq!(template.labels()[LABEL_COMPUTE_DOMAIN], uid);
    assert_eq!(template.labels()["resource.nvidia.com/computeDomainTarget"], TARGET_WORKLOAD);

    let [a, b, c] = ["gb200-tray-0", "gb200-tray-1", "gb200-tray-2"];
    domains.pod("w0", "job", a).await;
    domains.pod("w1", "job", b).await;
    for (name, node) in [("w0", a), ("w1", b)] {
        let pod = testbed.wait_until_running(name).await;
        let container = testbed.container(node, &pod, "main");
        assert_eq!(container.device_nodes("/dev/nvidia-caps-imex-channels/"), 1);
    }
    let nodes = domains.wait("job", &all_ready(&[a, b])).await;
    let mut indices: Vec<_> = nodes.values().map(|node| node.index).collect();
    indices.sort_unstable();
    assert_eq!(indices, [Some(0), Some(1)]);
    assert!(nodes.values().all(|node| node.ip_address.starts_with("127.")));
    let status = domains.api().get("job").await.unwrap().status.unwrap();
    assert_eq!(status.status, Readiness::Ready);
    let condition = status.conditions.iter().find(|it| it.type_ == CONDITION_MEMBERS_READY);
    assert_eq!(condition.unwrap().status, "True");
    domains.wait_until_connected(a).await;
    let label = async |node: &str| {
        let nodes: Api<Node> = Api::all(testbed.client.clone());
        nodes.get(node).await.unwrap().labels().get(LABEL_COMPUTE_DOMAIN).cloned()
    };
    assert_eq!((label(a).await.as_ref(), label(c).await), (Some(&uid), None));

    // A killed service is seen and comes back; the other node's service runs on.
    let ((daemon, service), other) = (domains.pids(b).await, domains.pids(a).await);
    let index = nodes[b].index;
    // Shorter losses may fall between two writes of the status.
    testbed.octavo_ok(&["lab", "node", b, "imex", "--start-time", "3000"]);
    kill(&service);
    domains.wait("job", &[(a, Readiness::Ready), (b, Readiness::NotReady)]).await;
    let nodes = domains.wait("job", &all_ready(&[a, b])).await;
    assert_eq!(nodes[b].index, index);
    assert_eq!(domains.pids(b).await.0, daemon);
    assert_eq!(domains.pids(a).await, other);

    // A killed daemon is started again with its index; what it ran has ended with it.
    kill(&daemon);
    eventually("the daemon is another process", || async {
        (domains.pids(b).await.0 != daemon).then_some(())
    })
    .await;
    let nodes = domains.wait("job", &all_ready(&[a, b])).await;
    assert_eq!(nodes[b].index, index);
    assert_eq!(domains.pids(a).await, other);

    // A member moves to another node: the survivor notices no restart.
    testbed.delete_pod("w1").await;
    domains.pod("w2", "job", c).await;
    testbed.wait_until_running("w2").await;
    let nodes = domains.wait("job", &all_ready(&[a, c])).await;
    assert_eq!(nodes[a].index, Some(1 - index.unwrap()), "the survivor keeps its index");
    assert_eq!(domains.pids(a).await, other);
    eventually("the label of the left node is gone", || async {
        label(b).await.is_none().then_some(())
    })
    .await;

    // A deleted domain waits for its pods.
    domains.api().delete("job", &DeleteParams::default()).await.unwrap();
    eventually("no new claims are made", || async {
        templates.get_opt("job").await.ok()?.is_none().then_some(())
    })
    .await;
    assert_eq!(domains.pids(a).await, other, "the pods run on");
    testbed.delete_pod("w0").await;
    testbed.delete_pod("w2").await;
    domains.wait_until_nothing_is_left().await;
    for node in [a, b, c] {
        assert_eq!(testbed.node_files(node), Vec::<std::path::PathBuf>::new());
    }
}

/// Kills a process at once.
fn kill(pid: &str) {
    let killed = Command::new("kill").args(["-9", pid]).status().unwrap();
    assert!(killed.success(), "kill -9 {pid}");
}
