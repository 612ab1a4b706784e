//! Workloads of operators: Kubeflow's training jobs and `MPIJob`, Ray, Spark, Volcano.

use octavo_kube_io::objects::WatchedObject;

use super::error::GroupError;
use super::name::{GroupKind, GroupName};
use super::placement_hints::PlacementHints;
use super::spec::{Announcer, GroupSpec, Subgroup, lower_minimums};
use super::spec_field::SpecField;
use super::workloads::pod_hints;

/// Replica types in the order of their ranks. Others follow, ordered by name.
const REPLICA_TYPES: [&str; 5] = ["launcher", "chief", "master", "ps", "worker"];

/// Reads a job of Kubeflow's training operator (`kubeflow.org/v1`) or of its MPI operator
/// (`kubeflow.org/v2beta1`). Each replica type is a subgroup, named in lower case as in the label
/// `training.kubeflow.org/replica-type`.
pub(super) fn training(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    let specs = spec.at(match name.kind {
        GroupKind::TfJob => "tfReplicaSpecs",
        GroupKind::XgBoostJob => "xgbReplicaSpecs",
        GroupKind::PaddleJob => "paddleReplicaSpecs",
        GroupKind::JaxJob => "jaxReplicaSpecs",
        GroupKind::MpiJob => "mpiReplicaSpecs",
        _ => "pytorchReplicaSpecs",
    });
    let is_launcher_late = spec.at("launcherCreationPolicy").text()? == Some("WaitForWorkersReady")
        || spec.at("waitForWorkers").flag()?;
    let mut group_hints = PlacementHints::of(&object.meta)?;
    let mut subs = Vec::new();
    for (kind, replica) in specs.map()? {
        let hints = pod_hints(replica.at("template").value(), &mut group_hints)?;
        let kind = kind.to_ascii_lowercase();
        let sub = Subgroup::fixed(&kind, replica.at("replicas").count()?.unwrap_or(1)).with(&hints);
        subs.push(Subgroup { is_late: kind == "launcher" && is_launcher_late, ..sub });
    }
    let rank = |sub: &Subgroup| REPLICA_TYPES.iter().position(|kind| **kind == *sub.name);
    subs.sort_by_cached_key(|sub| (rank(sub).unwrap_or(REPLICA_TYPES.len()), sub.name.clone()));
    // Elastic training: the minimum applies to workers, not to the master.
    let elastic = spec.at("elasticPolicy").at("minReplicas").count()?;
    if let (Some(min), Some(worker)) = (elastic, subs.iter_mut().find(|sub| &*sub.name == "worker"))
    {
        worker.min = min.min(worker.min);
    }
    let policy = spec.at("runPolicy").at("schedulingPolicy");
    if let Some(min) = policy.at("minAvailable").count()? {
        let count = subs.iter().filter_map(|sub| sub.count).map(u64::from).sum();
        if u64::from(min) > count {
            return Err(GroupError::MinimumAboveCount { group, min: min.into(), count });
        }
        lower_minimums(&mut subs, min);
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&group_hints))
}

/// Reads a `RayCluster` of `ray.io/v1`: the head, and a subgroup for each worker group. With the
/// autoscaler a worker group needs its `minReplicas`, otherwise its `replicas`.
pub(super) fn ray(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    let mut group_hints = PlacementHints::of(&object.meta)?;
    let head = pod_hints(spec.at("headGroupSpec").at("template").value(), &mut group_hints)?;
    let mut subs = vec![Subgroup::fixed(RAY_HEAD_GROUP, 1).with(&head)];
    let is_scaled = spec.at("enableInTreeAutoscaling").flag()?;
    for worker in spec.at("workerGroupSpecs").list()? {
        if worker.at("suspend").flag()? {
            continue;
        }
        let hints = pod_hints(worker.at("template").value(), &mut group_hints)?;
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
        subs.push(Subgroup {
            name: name.into(),
            min: min.saturating_mul(hosts),
            count: count.map(|count: u32| count.saturating_mul(hosts)),
            ..Subgroup::default().with(&hints)
        });
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&group_hints))
}

/// Value of `ray.io/group` of a head.
pub(super) const RAY_HEAD_GROUP: &str = "headgroup";

/// Reads a `SparkApplication` of `sparkoperator.k8s.io/v1beta2`. The driver requests executors once
/// it runs, and more once the first ones run. So no member waits for another, but they are placed
/// close together.
pub(super) fn spark(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let mut group_hints = PlacementHints::of(&object.meta)?;
    let mut sub = |role: &str, min| {
        let part = &object.spec[role];
        let pods = serde_json::json!({"metadata": {
            "annotations": part["annotations"], "labels": part["labels"],
        }});
        let hints = pod_hints(&pods, &mut group_hints)?;
        Ok(Subgroup { name: role.into(), min, ..Subgroup::default().with(&hints) })
    };
    let driver = Subgroup { count: Some(1), ..sub("driver", 1)? };
    let executor = Subgroup { is_late: true, ..sub("executor", 0)? };
    Ok(GroupSpec::new(name, announcer, vec![driver, executor]).with(&group_hints))
}

/// Reads Volcano's `Job` (`batch.volcano.sh/v1alpha1`): one subgroup for each task.
pub(super) fn volcano(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    let mut group_hints = PlacementHints::of(&object.meta)?;
    let mut subs = Vec::new();
    for (number, task) in spec.at("tasks").list()?.iter().enumerate() {
        let hints = pod_hints(task.at("template").value(), &mut group_hints)?;
        let count = task.at("replicas").count()?.unwrap_or(1);
        let name =
            task.at("name").text()?.map_or_else(|| format!("default{number}"), str::to_owned);
        let sub = Subgroup::fixed(&name, count).with(&hints);
        let min = task.at("minAvailable").count()?.unwrap_or(count);
        subs.push(Subgroup { min, is_late: !task.at("dependsOn").is_null(), ..sub });
    }
    if let Some(min) = spec.at("minAvailable").count()? {
        let count = subs.iter().filter_map(|sub| sub.count).map(u64::from).sum();
        if u64::from(min) > count {
            return Err(GroupError::MinimumAboveCount { group, min: min.into(), count });
        }
        lower_minimums(&mut subs, min);
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&group_hints))
}
