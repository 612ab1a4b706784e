//! `octavo install`, `upgrade` and `uninstall` on a real node: what is in the way, and what is left.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::chart::helm_binary;
use crate::real_node::{lock_real_nodes, shell_pod};
use crate::testbed::{Testbed, claim, eventually, files};

const NODE: &str = "real-0";
const VALUES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/octavo/ci/real-node-values.yaml");
/// Cycles of installation and uninstallation, if the environment names no other number.
const CYCLES: usize = 2;
const CYCLES_VARIABLE: &str = "OCTAVO_TEST_INSTALL_CYCLES";

/// Kinds of which the chart has objects.
const KINDS: &str = "daemonsets,deployments,replicasets,pods,configmaps,secrets,serviceaccounts,services,poddisruptionbudgets,\
    leases,roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
    networkpolicies,deviceclasses,customresourcedefinitions";

struct Installer<'a> {
    testbed: &'a Testbed,
    helm: String,
}

impl Installer<'_> {
    fn run(&self, args: &[&str]) -> Output {
        self.testbed.octavo(&[args, &["--helm", &self.helm]].concat())
    }

    /// Runs a command, which must end with this code. Returns what it text.
    fn ends(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        text
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.testbed.octavo_ok(&[&["lab", "kubectl"], args].concat())
    }

    /// Names of the objects with a label of the chart, and of the release's own.
    fn objects(&self) -> Vec<String> {
        let named = ["get", KINDS, "-A", "-o", "name", "-l"];
        let of_chart = self.kubectl(&[&named[..], &["app.kubernetes.io/part-of=octavo"]].concat());
        let of_helm = self.kubectl(&["get", "secrets", "-A", "-o", "name", "-l", "owner=helm"]);
        let leases = self.kubectl(&["get", "leases", "-n", "octavo-system", "-o", "name"]);
        [of_chart, of_helm, leases]
            .iter()
            .flat_map(|text| text.lines().map(str::to_owned))
            .collect()
    }

    /// Installs, and lets the agent find the simulated hardware.
    async fn install(&self) {
        self.ends(&["install", "-f", VALUES, "--no-wait"], 0);
        self.testbed.lab.apply_real_agent().await.unwrap();
        eventually("the node publishes", || self.testbed.device(NODE, "gpu-0")).await;
    }

    async fn node_labels(&self) -> BTreeMap<String, String> {
        let nodes: Api<Node> = Api::all(self.testbed.client.clone());
        nodes.get(NODE).await.unwrap().metadata.labels.unwrap()
    }

    /// Nothing of the release is in the cluster, and no file on the node.
    async fn nothing_is_left(&self, labels: &BTreeMap<String, String>) {
        assert_eq!(self.objects(), [""; 0]);
        assert_eq!(self.node_labels().await, *labels);
        assert!(self.testbed.slices_of(NODE).await.is_empty());
        let root = self.testbed.lab.real_root(NODE).unwrap();
        let in_folder = |folder: &str| -> Vec<String> {
            let files = files(&root.join(folder));
            files.iter().map(|file| file.display().to_string()).collect()
        };
        for folder in [
            "var/lib/kubelet/plugins/gpu.nvidia.com",
            "var/lib/kubelet/plugins/compute-domain.nvidia.com",
            "var/lib/octavo/bin",
            "run/octavo",
            "var/run/cdi",
        ] {
            assert_eq!(in_folder(folder), [""; 0], "{folder}");
        }
        for folder in ["var/lib/kubelet/plugins_registry", "var/lib/kubelet/device-plugins"] {
            let ours = |file: &String| file.contains("nvidia");
            assert_eq!(in_folder(folder).into_iter().filter(ours).count(), 0, "{folder}");
        }
        let mounts = std::fs::read_to_string(root.with_file_name("mountinfo")).unwrap();
        assert!(!mounts.contains(" /run/octavo/"), "{mounts}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_comes_and_goes_and_leaves_nothing() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:t4").await;
    let installer = Installer { testbed: &testbed, helm: helm_binary() };
    // The lab has applied the chart itself. Classes and definitions stay, as those of NVIDIA's driver do.
    installer.ends(&["uninstall"], 1);
    let kinds = KINDS.replace(",deviceclasses,customresourcedefinitions", "").replace("pods,", "");
    installer.kubectl(&[
        "delete",
        &kinds,
        "-A",
        "-l",
        "app.kubernetes.io/part-of=octavo",
        "--wait=true",
    ]);
    eventually("no agent is left", || async {
        installer.objects().iter().all(|name| !name.starts_with("pod/")).then_some(())
    })
    .await;
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    nodes
        .patch_metadata(
            NODE,
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"labels": {"octavo.dev/mode": null}}})),
        )
        .await
        .unwrap();

    a_live_plugin_of_nvidia_is_named(&installer).await;
    a_class_of_a_living_release_is_named(&installer).await;

    let text = installer.ends(&["install", "-f", VALUES, "--dry-run"], 0);
    assert!(text.contains("taken over: DeviceClass gpu.nvidia.com, of an unknown owner"), "{text}");
    assert!(
        text.contains("taken over: CustomResourceDefinition computedomains.resource.nvidia.com"),
        "{text}"
    );
    assert!(installer.objects().iter().all(|name| !name.starts_with("daemonset")));
    let text = installer.ends(&["install", "-f", VALUES, "--set", "scheduler.enabled=true"], 0);
    for workload in [
        "DaemonSet octavo-agent: 1 of 1",
        "Deployment octavo-controller: 2 of 2",
        "Deployment octavo-scheduler: 2 of 2",
    ] {
        assert!(text.contains(&format!("{workload} pods are ready")), "{text}");
    }
    let wrong = ["--set", "scheduler.enabled=false,image.tag=none", "--timeout", "10s"];
    let text = installer.ends(&[&["upgrade"][..], &wrong].concat(), 3);
    assert!(text.contains("ErrImagePull") || text.contains("ImagePullBackOff"), "{text}");
    installer.ends(&["upgrade", "--no-wait", "--set-string", "image.tag=1"], 0);
    testbed.lab.apply_real_agent().await.unwrap();
    eventually("the node publishes", || testbed.device(NODE, "gpu-0")).await;
    let text = installer.ends(&["install", "-f", VALUES], 1);
    assert!(text.contains("use `octavo upgrade`"), "{text}");
    let upgrade = ["upgrade", "--no-wait", "--set", "commonLabels.team=a"];
    // The lab has changed the agent's config.
    let text = installer.ends(&upgrade, 1);
    assert!(text.contains("remedy: --force-conflicts"), "{text}");
    installer.ends(&[&upgrade[..], &["--force-conflicts"]].concat(), 0);
    let values = installer.kubectl(&[
        "get",
        "daemonset",
        "octavo-agent",
        "-n",
        "octavo-system",
        "-o",
        "json",
    ]);
    let set: Value = serde_json::from_str(&values).unwrap();
    assert_eq!(set["metadata"]["labels"]["team"], "a");
    assert_eq!(
        set["spec"]["template"]["spec"]["nodeSelector"]["octavo.dev/lab"], "real",
        "the release's values stay"
    );
    testbed.lab.apply_real_agent().await.unwrap();
    eventually("the node publishes", || testbed.device(NODE, "gpu-0")).await;

    a_pod_with_a_gpu_keeps_the_release(&installer).await;

    let mut labels = installer.node_labels().await;
    labels.retain(|key, _| !key.starts_with("octavo.dev/mode"));
    let text = installer.ends(&["uninstall"], 0);
    assert!(text.contains("real-0: offers no GPU any more"), "{text}");
    installer.nothing_is_left(&labels).await;

    an_interrupted_uninstallation_goes_on(&installer).await;
    installer.nothing_is_left(&labels).await;

    let cycles = std::env::var(CYCLES_VARIABLE).ok().map_or(CYCLES, |text| text.parse().unwrap());
    for _ in 1..cycles {
        installer.install().await;
        installer.ends(&["uninstall"], 0);
        installer.nothing_is_left(&labels).await;
    }
}

/// The command was killed after helm had removed the release: nodes still have the mode `none`.
async fn an_interrupted_uninstallation_goes_on(installer: &Installer<'_>) {
    installer.install().await;
    installer.kubectl(&["label", "node", NODE, "octavo.dev/mode=none"]);
    installer.kubectl(&["annotate", "node", NODE, "octavo.dev/leaving=octavo-system/octavo="]);
    eventually("the node offers nothing", || async {
        installer.testbed.device(NODE, "gpu-0").await.is_none().then_some(())
    })
    .await;
    let kubeconfig = installer.testbed.lab.kubeconfig();
    let mut helm = Command::new(&installer.helm);
    helm.args(["uninstall", "octavo", "--namespace", "octavo-system"]);
    let output = helm.env("KUBECONFIG", kubeconfig).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    installer.ends(&["uninstall"], 0);
    installer.ends(&["uninstall"], 1);
}

/// A device plugin of NVIDIA's on a node of the agents.
async fn a_live_plugin_of_nvidia_is_named(installer: &Installer<'_>) {
    let mut plugin = shell_pod("nvidia-device-plugin-abc", NODE, "true", &[]);
    plugin["spec"]["containers"][0]["name"] = "nvidia-device-plugin-ctr".into();
    installer.testbed.create::<Pod>(plugin).await;
    installer.testbed.wait_until_bound("nvidia-device-plugin-abc").await;
    let text = installer.ends(&["install", "-f", VALUES], 3);
    let line =
        "in the way: NVIDIA's device plugin runs on real-0: default/nvidia-device-plugin-abc";
    assert!(text.contains(line), "{text}");
    assert!(
        installer.objects().iter().all(|name| !name.starts_with("daemonset")),
        "nothing is written"
    );
    installer.testbed.delete_pod("nvidia-device-plugin-abc").await;
}

/// A class of NVIDIA's release, until that release is gone.
async fn a_class_of_a_living_release_is_named(installer: &Installer<'_>) {
    let client = &installer.testbed.client;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "sh.helm.release.v1.nvidia.v1", "labels": {"owner": "helm", "name": "nvidia", "status": "deployed"}},
    });
    secrets
        .create(&kube::api::PostParams::default(), &serde_json::from_value(secret).unwrap())
        .await
        .unwrap();
    let classes: Api<DeviceClass> = Api::all(client.clone());
    let named = |release: Option<&str>| {
        let namespace = release.map(|_| "default");
        Patch::Merge(json!({"metadata": {"annotations": {
            "meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}}}))
    };
    let params = PatchParams::default();
    classes.patch_metadata("mig.nvidia.com", &params, &named(Some("nvidia"))).await.unwrap();
    let text = installer.ends(&["install", "-f", VALUES], 3);
    assert!(
        text.contains("DeviceClass mig.nvidia.com is of helm release nvidia in namespace default"),
        "{text}"
    );
    assert!(text.contains("`helm uninstall nvidia -n default` first"), "{text}");
    secrets.delete("sh.helm.release.v1.nvidia.v1", &DeleteParams::default()).await.unwrap();
}

/// The release and its offer stay while a pod has a GPU.
async fn a_pod_with_a_gpu_keeps_the_release(installer: &Installer<'_>) {
    let testbed = installer.testbed;
    testbed.create::<ResourceClaim>(claim("train", &json!([]))).await;
    testbed.create::<Pod>(shell_pod("train", NODE, "true", &["train"])).await;
    testbed.wait_until_running("train").await;
    let text = installer.ends(&["uninstall", "--timeout", "10s"], 3);
    assert!(text.contains("in the way: 1 pods have GPUs: default/train"), "{text}");
    assert!(testbed.device(NODE, "gpu-1").await.is_some(), "the node offers as before");
    testbed.delete_pod("train").await;
    testbed.claims().delete("train", &DeleteParams::default()).await.unwrap();
}
