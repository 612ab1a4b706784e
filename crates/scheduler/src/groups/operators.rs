//! Workloads of operators: Kubeflow's training jobs and `MPIJob`, Ray, Spark, Volcano.

use super::error::GroupError;
use super::name::GroupKind;
use super::placement_hints::PlacementHints;
use super::reader::GroupReader;
use super::spec::Subgroup;

/// Jobs of Kubeflow: the operator that labels their pods, and the field of their replica types.
pub(super) const TRAINING_KINDS: [(GroupKind, &str, &str); 7] = [
    (GroupKind::PyTorchJob, "pytorchjob-controller", "pytorchReplicaSpecs"),
    (GroupKind::TfJob, "tfjob-controller", "tfReplicaSpecs"),
    (GroupKind::XgBoostJob, "xgboostjob-controller", "xgbReplicaSpecs"),
    (GroupKind::PaddleJob, "paddlejob-controller", "paddleReplicaSpecs"),
    (GroupKind::JaxJob, "jaxjob-controller", "jaxReplicaSpecs"),
    (GroupKind::MpiJob, "mpijob-controller", "mpiReplicaSpecs"),
    (GroupKind::MpiJob, "mpi-operator", "mpiReplicaSpecs"),
];

/// Replica types in the order of their ranks. Others follow, ordered by name.
const REPLICA_TYPES: [&str; 5] = ["launcher", "chief", "master", "ps", "worker"];

/// Reads a job of Kubeflow's training operator (`kubeflow.org/v1`) or of its MPI operator
/// (`kubeflow.org/v2beta1`). Each replica type is a subgroup, named in lower case as in the label
/// `training.kubeflow.org/replica-type`.
pub(super) fn training(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    let spec = read.spec.clone();
    let known = TRAINING_KINDS.iter().find(|(kind, ..)| *kind == read.group.name.kind);
    let specs = spec.at(known.map_or("", |(.., field)| field));
    let is_launcher_late = spec.at("launcherCreationPolicy").text()? == Some("WaitForWorkersReady")
        || spec.at("waitForWorkers").flag()?;
    for (kind, replica) in specs.map()? {
        let hints = read.pod_hints(&replica.at("template"))?;
        let kind = kind.to_ascii_lowercase();
        let sub = Subgroup::fixed(&kind, replica.at("replicas").count()?.unwrap_or(1)).with(&hints);
        read.add(Subgroup { is_late: kind == "launcher" && is_launcher_late, ..sub });
    }
    let subs = &mut read.group.subs;
    let rank = |sub: &Subgroup| REPLICA_TYPES.iter().position(|kind| **kind == *sub.name);
    subs.sort_by_cached_key(|sub| (rank(sub).unwrap_or(REPLICA_TYPES.len()), sub.name.clone()));
    // Elastic training: the minimum applies to workers, not to the master.
    let elastic = spec.at("elasticPolicy").at("minReplicas").count()?;
    if let (Some(min), Some(worker)) = (elastic, subs.iter_mut().find(|sub| &*sub.name == "worker"))
    {
        worker.min = min.min(worker.min);
    }
    read.lower_minimum(&spec.at("runPolicy").at("schedulingPolicy").at("minAvailable"))
}

/// Reads a `RayCluster` of `ray.io/v1`: the head, and a subgroup for each worker group. With the
/// autoscaler a worker group needs its `minReplicas`, otherwise its `replicas`.
pub(super) fn ray(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    let spec = read.spec.clone();
    let head = read.pod_hints(&spec.at("headGroupSpec").at("template"))?;
    read.add(Subgroup::fixed(RAY_HEAD_GROUP, 1).with(&head));
    let is_scaled = spec.at("enableInTreeAutoscaling").flag()?;
    for worker in spec.at("workerGroupSpecs").list()? {
        if worker.at("suspend").flag()? {
            continue;
        }
        let hints = read.pod_hints(&worker.at("template"))?;
        let hosts = worker.at("numOfHosts").count()?.unwrap_or(1).max(1);
        let min_replicas = worker.at("minReplicas").count()?;
        let max_replicas = worker.at("maxReplicas").count()?;
        let asked = worker.at("replicas").count()?.or(min_replicas).unwrap_or(0);
        let asked = asked.max(min_replicas.unwrap_or(0)).min(max_replicas.unwrap_or(u32::MAX));
        let (min, count) = if is_scaled {
            (min_replicas.unwrap_or(0).min(asked), None)
        } else {
            (asked, Some(asked))
        };
        let name = worker.at("groupName").name()?;
        read.add(Subgroup {
            name: name.into(),
            min: min.saturating_mul(hosts),
            count: count.map(|count: u32| count.saturating_mul(hosts)),
            ..Subgroup::default().with(&hints)
        });
    }
    Ok(())
}

/// Value of `ray.io/group` of a head.
pub(super) const RAY_HEAD_GROUP: &str = "headgroup";

/// Reads a `SparkApplication` of `sparkoperator.k8s.io/v1beta2`. The driver requests executors once
/// it runs, and more once the first ones run. So no member waits for another, but they are placed
/// close together.
pub(super) fn spark(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    for (role, min) in [("driver", 1), ("executor", 0)] {
        let part = &read.object.spec[role];
        let hints = PlacementHints::of_template(&serde_json::json!({"metadata": {
            "annotations": part["annotations"], "labels": part["labels"],
        }}))?;
        read.hints.fill_for_group(&hints);
        let (count, is_late) = ((min > 0).then_some(min), min == 0);
        let sub = Subgroup { name: role.into(), min, count, is_late, ..Subgroup::default() };
        read.add(sub.with(&hints));
    }
    Ok(())
}

/// Reads Volcano's `Job` (`batch.volcano.sh/v1alpha1`): one subgroup for each task.
pub(super) fn volcano(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    for (number, task) in read.spec.at("tasks").list()?.iter().enumerate() {
        let hints = read.pod_hints(&task.at("template"))?;
        let count = task.at("replicas").count()?.unwrap_or(1);
        let name =
            task.at("name").text()?.map_or_else(|| format!("default{number}"), str::to_owned);
        let sub = Subgroup::fixed(&name, count).with(&hints);
        let min = task.at("minAvailable").count()?.unwrap_or(count);
        read.add(Subgroup { min, is_late: !task.at("dependsOn").is_null(), ..sub });
    }
    read.lower_minimum(&read.spec.at("minAvailable"))
}
