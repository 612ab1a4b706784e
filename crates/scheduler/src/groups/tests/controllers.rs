//! The pods that controllers create from manifests, with the names, labels, annotations and owners
//! that they write. Sources:
//!
//! - Job: kubernetes 1.36 `pkg/controller/job` and `staging/src/k8s.io/api/batch/v1/types.go`.
//! - `JobSet`: jobset v0.10 `api/jobset/v1alpha2/jobset_types.go`, `labelAndAnnotateObject`.
//! - `LeaderWorkerSet`: lws v0.7 `api/leaderworkerset/v1/leaderworkerset_types.go`.
//! - `PyTorchJob`: training-operator v1.9 `pkg/apis/kubeflow.org/v1/common_types.go`; labels of its
//!   pods as in Kueue's tests.
//! - `MPIJob`: mpi-operator v0.6 `pkg/apis/kubeflow/v2beta1/constants.go`, its controller's
//!   `newWorker` and launcher Job.
//! - `RayCluster`: kuberay v1.5 `ray-operator/controllers/ray/utils/constant.go`; worker indices as
//!   in its guide to multi-host workers.

use octavo_kube_io::objects::Pod;
use serde_json::Value;

use super::fixtures::{owned, pod};

/// The pods of one manifest.
pub(super) fn pods(object: &Value) -> Vec<Pod> {
    match text(object, "kind") {
        "Pod" => vec![templated(object, name(object), &[])],
        "Job" => job(object, name(object), &[]),
        "JobSet" => job_set(object),
        "LeaderWorkerSet" => leader_worker_set(object),
        "PyTorchJob" => training(object, "pytorchReplicaSpecs", "pytorchjob-controller"),
        "MPIJob" => mpi(object),
        "RayCluster" => ray(object),
        "PodGroup" | "PlacementPolicy" => Vec::new(),
        other => panic!("it is not known what pods a {other} makes"),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(&object["metadata"], "name")
}

fn count(value: &Value, or: u64) -> u64 {
    value.as_u64().unwrap_or(or)
}

/// A pod from a template, with what its controller adds.
fn templated(template: &Value, name: &str, added: &[(&str, &str)]) -> Pod {
    let mut pod = pod(name, added);
    for (key, value) in template["metadata"]["labels"].as_object().into_iter().flatten() {
        pod.meta.labels.insert(key.clone(), value.as_str().unwrap().to_owned());
    }
    for (key, value) in template["metadata"]["annotations"].as_object().into_iter().flatten() {
        pod.meta.annotations.insert(key.clone(), value.as_str().unwrap().to_owned());
    }
    pod
}

fn job(job: &Value, name: &str, added: &[(&str, &str)]) -> Vec<Pod> {
    let pods = (0..count(&job["spec"]["parallelism"], 1)).map(|index| {
        let index = index.to_string();
        let mut labels = vec![
            ("batch.kubernetes.io/job-name", name),
            ("job-name", name),
            ("batch.kubernetes.io/job-completion-index", &*index),
            ("@batch.kubernetes.io/job-completion-index", &*index),
        ];
        labels.extend(added);
        let pod = templated(&job["spec"]["template"], &format!("{name}-{index}-x7k2p"), &labels);
        owned(pod, "batch/v1", "Job", name)
    });
    pods.collect()
}

fn job_set(set: &Value) -> Vec<Pod> {
    let mut pods = Vec::new();
    let mut global = 0;
    for replicated in set["spec"]["replicatedJobs"].as_array().unwrap() {
        let replicas = count(&replicated["replicas"], 1).to_string();
        for index in 0..count(&replicated["replicas"], 1) {
            let full = format!("{}-{}-{index}", name(set), text(replicated, "name"));
            let (index, number) = (index.to_string(), global.to_string());
            let labels = [
                ("jobset.sigs.k8s.io/jobset-name", name(set)),
                ("jobset.sigs.k8s.io/replicatedjob-name", text(replicated, "name")),
                ("jobset.sigs.k8s.io/replicatedjob-replicas", &*replicas),
                ("jobset.sigs.k8s.io/job-index", &*index),
                ("jobset.sigs.k8s.io/job-global-index", &*number),
                ("jobset.sigs.k8s.io/restart-attempt", "0"),
            ];
            pods.extend(job(&replicated["template"], &full, &labels));
            global += 1;
        }
    }
    pods
}

fn leader_worker_set(set: &Value) -> Vec<Pod> {
    let template = &set["spec"]["leaderWorkerTemplate"];
    let size = count(&template["size"], 1);
    let mut pods = Vec::new();
    for replica in 0..count(&set["spec"]["replicas"], 1) {
        let leader = format!("{}-{replica}", name(set));
        for worker in 0..size {
            let (group, index) = (replica.to_string(), worker.to_string());
            let (size, set_name) = (size.to_string(), name(set));
            let labels = [
                ("leaderworkerset.sigs.k8s.io/name", set_name),
                ("leaderworkerset.sigs.k8s.io/group-index", &*group),
                ("leaderworkerset.sigs.k8s.io/worker-index", &*index),
                ("leaderworkerset.sigs.k8s.io/group-key", "5ea1d4"),
                ("@leaderworkerset.sigs.k8s.io/size", &*size),
                ("apps.kubernetes.io/pod-index", if worker == 0 { &*group } else { &*index }),
            ];
            let own = match (worker, template.get("leaderTemplate")) {
                (0, Some(own)) => own,
                _ => &template["workerTemplate"],
            };
            let (pod_name, owner) = match worker {
                0 => (leader.clone(), set_name),
                _ => (format!("{leader}-{worker}"), &*leader),
            };
            pods.push(owned(templated(own, &pod_name, &labels), "apps/v1", "StatefulSet", owner));
        }
    }
    pods
}

fn training(job: &Value, specs: &str, operator: &str) -> Vec<Pod> {
    let mut pods = Vec::new();
    for (kind, replica) in job["spec"][specs].as_object().unwrap() {
        let kind = kind.to_lowercase();
        for index in 0..count(&replica["replicas"], 1) {
            let index = index.to_string();
            let mut labels = vec![
                ("training.kubeflow.org/job-name", name(job)),
                ("training.kubeflow.org/operator-name", operator),
                ("training.kubeflow.org/replica-type", &*kind),
                ("training.kubeflow.org/replica-index", &*index),
            ];
            if kind == "master" {
                labels.push(("training.kubeflow.org/job-role", "master"));
            }
            let pod_name = format!("{}-{kind}-{index}", name(job));
            let pod = templated(&replica["template"], &pod_name, &labels);
            pods.push(owned(pod, "kubeflow.org/v1", text(job, "kind"), name(job)));
        }
    }
    pods
}

fn mpi(job: &Value) -> Vec<Pod> {
    let specs = &job["spec"]["mpiReplicaSpecs"];
    let common = [
        ("training.kubeflow.org/job-name", name(job)),
        ("training.kubeflow.org/operator-name", "mpi-operator"),
    ];
    let mut labels = common.to_vec();
    labels.push(("training.kubeflow.org/job-role", "launcher"));
    let launcher = format!("{}-launcher", name(job));
    labels.push(("batch.kubernetes.io/job-name", &launcher));
    let pod = templated(&specs["Launcher"]["template"], &format!("{launcher}-k4c9d"), &labels);
    let mut pods = vec![owned(pod, "batch/v1", "Job", &launcher)];
    for index in 0..count(&specs["Worker"]["replicas"], 1) {
        let index = index.to_string();
        let mut labels = common.to_vec();
        labels.push(("training.kubeflow.org/job-role", "worker"));
        labels.push(("training.kubeflow.org/replica-index", &index));
        let pod_name = format!("{}-worker-{index}", name(job));
        let pod = templated(&specs["Worker"]["template"], &pod_name, &labels);
        pods.push(owned(pod, "kubeflow.org/v2beta1", "MPIJob", name(job)));
    }
    pods
}

fn ray(cluster: &Value) -> Vec<Pod> {
    let common = [("ray.io/cluster", name(cluster)), ("ray.io/is-ray-node", "yes")];
    let mut labels = common.to_vec();
    labels.extend([("ray.io/node-type", "head"), ("ray.io/group", "headgroup")]);
    let head = &cluster["spec"]["headGroupSpec"]["template"];
    let pod = templated(head, &format!("{}-head-zz9hw", name(cluster)), &labels);
    let mut pods = vec![owned(pod, "ray.io/v1", "RayCluster", name(cluster))];
    for worker in cluster["spec"]["workerGroupSpecs"].as_array().unwrap() {
        let hosts = count(&worker["numOfHosts"], 1);
        for replica in 0..count(&worker["replicas"], 0) {
            for host in 0..hosts {
                let (replica, host) = (replica.to_string(), host.to_string());
                let group = text(worker, "groupName");
                let mut labels = common.to_vec();
                labels.extend([
                    ("ray.io/node-type", "worker"),
                    ("ray.io/group", group),
                    ("ray.io/worker-group-replica-index", &*replica),
                ]);
                if hosts > 1 {
                    labels.push(("ray.io/replica-host-index", &*host));
                }
                let pod_name = format!("{}-{group}-worker-{replica}-{host}", name(cluster));
                let pod = templated(&worker["template"], &pod_name, &labels);
                pods.push(owned(pod, "ray.io/v1", "RayCluster", name(cluster)));
            }
        }
    }
    pods
}
