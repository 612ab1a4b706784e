//! `MPIJobs` of Kubeflow's operator that use a `ComputeDomain`: on real nodes, where their programs run, and the job of
//! NVIDIA's driver on a rack of simulated trays.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use octavo_api::ComputeDomain;
use octavo_lab::{MPI_IMAGE, UpOptions, mpi_obstacle};
use serde_json::{Value, json};

use crate::compute_domain_pods::{Domains, all_ready};
use crate::real_node::lock_real_nodes;
use crate::testbed::{OCTAVO, Testbed, eventually};

/// The job that docs/computedomains.md runs.
const EXAMPLE: &str = include_str!("../../../../examples/mpi/fabric.yaml");

/// Ranks of the example.
const RANKS: usize = 8;

/// `MPIJobs`, whose type this repository does not have.
fn jobs(testbed: &Testbed) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kubeflow.org", "v2beta1", "MPIJob");
    Api::default_namespaced_with(testbed.client.clone(), &ApiResource::from_gvk(&kind))
}

/// Waits until a condition of a job is true.
async fn wait_for_job(testbed: &Testbed, name: &str, condition: &str) {
    let api = jobs(testbed);
    eventually(&format!("{name} is {condition}"), || async {
        let job = api.get(name).await.ok()?;
        let conditions = job.data["status"]["conditions"].as_array()?.clone();
        let is =
            |wanted: &str| conditions.iter().any(|c| c["type"] == wanted && c["status"] == "True");
        assert!(condition == "Failed" || !is("Failed"), "{conditions:?}");
        is(condition).then_some(())
    })
    .await;
}

/// Selects the pods of a job with a role.
fn pods_of(job: &str, role: &str) -> ListParams {
    let labels = "training.kubeflow.org/job";
    ListParams::default().labels(&format!("{labels}-name={job},{labels}-role={role}"))
}

/// What the launcher of a job has printed.
fn launcher_log(testbed: &Testbed, job: &str) -> String {
    let selector = pods_of(job, "launcher").label_selector.unwrap();
    // It fails before the container runs.
    let output = testbed.octavo(&["lab", "kubectl", "logs", "--tail=-1", "-l", &selector]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two real trays, or `None` where this machine cannot have them.
async fn two_trays() -> Option<Testbed> {
    if let Some(obstacle) = mpi_obstacle() {
        let _ = writeln!(std::io::stderr(), "skipped, no MPI here: {obstacle}");
        return None;
    }
    let options = |state: &Path| UpOptions {
        real_nodes: Some("2:gb200-tray".parse().unwrap()),
        controller: Some(true),
        mpi_operator: Some(true),
        ..UpOptions::control_plane_only(state, OCTAVO)
    };
    Some(Testbed::up_with(options).await)
}

/// The job of the example, with other arguments of the probe.
fn job(name: &str, more: &[&str], has_channel: bool) -> Value {
    let mut launcher = vec!["mpirun", "--allow-run-as-root", "octavo", "probe", "--fabric"];
    launcher.extend(more);
    let mut worker = json!({
        "name": "worker", "image": MPI_IMAGE, "command": ["/usr/sbin/sshd", "-De"],
        "resources": {"limits": {"nvidia.com/gpu": 4}},
    });
    let mut spec = json!({});
    if has_channel {
        worker["resources"]["claims"] = json!([{"name": "channel"}]);
        spec["resourceClaims"] = json!([{"name": "channel", "resourceClaimTemplateName": name}]);
    }
    spec["containers"] = json!([worker]);
    json!({
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 4,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1, "restartPolicy": "Never",
                    "template": {"spec": {"containers": [
                        {"name": "launcher", "image": MPI_IMAGE, "command": launcher},
                    ]}},
                },
                "Worker": {"replicas": 2, "template": {"spec": spec}},
            },
        },
    })
}

async fn create(testbed: &Testbed, job: Value) {
    let job = serde_json::from_value(job).unwrap();
    jobs(testbed).create(&PostParams::default(), &job).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_on_two_nodes_read_each_other_s_memory_or_their_job_fails() {
    let Some(_lock) = lock_real_nodes().await else { return };
    let Some(testbed) = two_trays().await else { return };
    let domains = Domains::of(&testbed);

    // The example.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), EXAMPLE).unwrap();
    testbed.octavo_ok(&["lab", "kubectl", "apply", "-f", file.path().to_str().unwrap()]);
    wait_for_job(&testbed, "fabric", "Succeeded").await;
    let log = launcher_log(&testbed, "fabric");
    for rank in 0..RANKS {
        let line = format!("rank {rank} of {RANKS}: memory of {} other ranks is right", RANKS - 1);
        assert!(log.lines().any(|found| found == line), "{line}: {log}");
    }
    testbed.octavo_ok(&["lab", "kubectl", "delete", "-f", file.path().to_str().unwrap()]);

    // A daemon dies while ranks read.
    domains.create("killed").await;
    create(&testbed, job("killed", &["--hold", "600"], true)).await;
    eventually("ranks read", || async {
        launcher_log(&testbed, "killed").contains("is right").then_some(())
    })
    .await;
    // The name server knows the workers, and pods of two nodes see each other's own addresses.
    let launcher = testbed.pods().list(&pods_of("killed", "launcher")).await.unwrap().items;
    let launcher = launcher[0].status.as_ref().unwrap().pod_ip.as_deref().unwrap();
    for worker in ["killed-worker-0", "killed-worker-1"] {
        let log = testbed.octavo_ok(&["lab", "kubectl", "logs", worker]);
        assert!(log.contains(&format!("Accepted publickey for root from {launcher} ")), "{log}");
    }
    kill_service(&domains, "real-1").await;
    wait_for_job(&testbed, "killed", "Failed").await;
    let log = launcher_log(&testbed, "killed");
    let is_of_fabric = ["import the memory of rank", "make memory for the fabric"];
    assert!(is_of_fabric.iter().any(|text| log.contains(text)), "{log}");
    jobs(&testbed).delete("killed", &DeleteParams::default()).await.unwrap();
    domains.api().delete("killed", &DeleteParams::default()).await.unwrap();

    // Workers without a channel.
    create(&testbed, job("without", &[], false)).await;
    wait_for_job(&testbed, "without", "Failed").await;
    let log = launcher_log(&testbed, "without");
    assert!(log.contains("the container needs an IMEX channel"), "{log}");
    domains.wait_until_nothing_is_left().await;
}

/// Kills `nvidia-imex` in the daemon's container on a node.
async fn kill_service(domains: &Domains<'_>, node: &str) {
    let pod = domains.daemon(node).await.uid().unwrap();
    eventually(&format!("nvidia-imex of {node} is killed"), || async {
        let service = service_of(&pod)?;
        rustix::process::kill_process(service, rustix::process::Signal::KILL).ok()
    })
    .await;
}

/// The process of `nvidia-imex` in the containers of a pod.
fn service_of(pod: &str) -> Option<rustix::process::Pid> {
    let is_service = |pid: &i32| {
        let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        read("comm").is_ok_and(|comm| comm.trim() == "nvidia-imex")
            && read("cgroup").is_ok_and(|cgroup| cgroup.contains(pod))
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    rustix::process::Pid::from_raw(pids.find(is_service)?)
}

/// Trays of a rack, each with four GPUs.
const TRAYS: u32 = 18;

/// The bandwidth job that NVIDIA's driver has as an example (`nvbandwidth-test-job.yaml`), on a whole rack. `domain` is
/// the template of the channels; without it the job is `nvbandwidth-test-no-compute-domain-job.yaml`.
fn bandwidth_job(domain: Option<&str>) -> Value {
    let image = "ghcr.io/nvidia/k8s-samples:nvbandwidth-v0.7-8d103163";
    let count = (TRAYS * 4).to_string();
    let mut worker = json!({
        "containers": [{
            "name": "mpi-worker", "image": image,
            "securityContext": {"runAsUser": 1000},
            "command": ["/usr/sbin/sshd"], "args": ["-De", "-f", "/home/mpiuser/.sshd_config"],
            "resources": {"limits": {"nvidia.com/gpu": 4}},
        }],
    });
    if let Some(template) = domain {
        let channel = "compute-domain-channel";
        worker["containers"][0]["resources"]["claims"] = json!([{"name": channel}]);
        worker["resourceClaims"] =
            json!([{"name": channel, "resourceClaimTemplateName": template}]);
    }
    let launcher = json!({
        "containers": [{
            "name": "mpi-launcher", "image": image,
            "securityContext": {"runAsUser": 1000},
            "command": ["mpirun"],
            "args": [
                "--bind-to", "core", "--map-by", "ppr:4:node", "-np", count, "--report-bindings",
                "-q", "nvbandwidth", "-t", "multinode_device_to_device_memcpy_read_ce",
            ],
        }],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
            ]}],
        }}},
    });
    let labelled = |role: &str, spec: Value| json!({"metadata": {"labels": {"mpi-memcpy-dra-test-replica": role}}, "spec": spec});
    json!({
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob",
        "metadata": {"name": "nvbandwidth-test"},
        "spec": {
            "slotsPerWorker": 4,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"cleanPodPolicy": "Running"},
            "sshAuthMountPath": "/home/mpiuser/.ssh",
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": labelled("mpi-launcher", launcher)},
                "Worker": {"replicas": TRAYS, "template": labelled("mpi-worker", worker)},
            },
        },
    })
}

/// Waits until all pods of the bandwidth job run, and checks how many channels each worker has.
async fn wait_until_running(testbed: &Testbed, channels: usize) {
    wait_for_job(testbed, "nvbandwidth-test", "Running").await;
    let workers = testbed.pods().list(&pods_of("nvbandwidth-test", "worker")).await.unwrap().items;
    assert_eq!(workers.len(), usize::try_from(TRAYS).unwrap());
    let mut nodes = BTreeSet::new();
    for pod in &workers {
        assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
        let node = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
        let container = testbed.container(node, pod, "mpi-worker");
        let found = container.device_nodes("/dev/nvidia-caps-imex-channels/");
        assert_eq!(found, channels, "{}", pod.name_any());
        assert_eq!(container.gpus().len(), 4);
        nodes.insert(node.to_owned());
    }
    assert_eq!(nodes.len(), workers.len(), "each worker has a tray");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nvidia_s_bandwidth_job_runs_on_a_rack_before_and_after_it_has_a_domain() {
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some(format!("gb200-tray={TRAYS}").parse().unwrap()),
        mpi_operator: Some(true),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    let label = [
        "lab",
        "kubectl",
        "label",
        "node",
        "gb200-tray-0",
        "node-role.kubernetes.io/control-plane=",
    ];
    testbed.octavo_ok(&label);
    create(&testbed, bandwidth_job(None)).await;
    wait_until_running(&testbed, 0).await;
    let foreground = DeleteParams::foreground();
    jobs(&testbed).delete("nvbandwidth-test", &foreground).await.unwrap();
    let api = jobs(&testbed);
    eventually("the job is gone", || async {
        let is_gone = api.get_opt("nvbandwidth-test").await.ok()?.is_none();
        let pods = testbed.pods().list(&ListParams::default()).await.ok()?.items;
        (is_gone && pods.is_empty()).then_some(())
    })
    .await;

    let domains = Domains::of(&testbed);
    let spec = json!({
        "numNodes": TRAYS,
        "channel": {"resourceClaimTemplate": {"name": "nvbandwidth-test-compute-domain-channel"}},
    });
    let name = "nvbandwidth-test-compute-domain";
    testbed
        .create::<ComputeDomain>(json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
            "metadata": {"name": name}, "spec": spec,
        }))
        .await;
    create(&testbed, bandwidth_job(Some("nvbandwidth-test-compute-domain-channel"))).await;
    wait_until_running(&testbed, 1).await;
    let trays: Vec<String> = (0..TRAYS).map(|index| format!("gb200-tray-{index}")).collect();
    let trays: Vec<&str> = trays.iter().map(String::as_str).collect();
    domains.wait(name, &all_ready(&trays)).await;
    jobs(&testbed).delete("nvbandwidth-test", &foreground).await.unwrap();
    domains.api().delete(name, &DeleteParams::default()).await.unwrap();
    domains.wait_until_nothing_is_left().await;
}
