//! Workloads of operators: Kubeflow's training jobs and `MPIJob`, Ray, Spark, Volcano.

use octavo_kube_io::objects::WatchedObject;

use super::error::GroupError;
use super::marks::Marks;
use super::name::{GroupKind, GroupName};
use super::read::Place;
use super::spec::{Announcer, GroupSpec, Sub, lower};
use super::workloads::pod_marks;

/// Replica types in the order of their ranks; others follow in the order of their names.
const LEADERS: [&str; 5] = ["launcher", "chief", "master", "ps", "worker"];

/// Reads a job of Kubeflow's training operator (`kubeflow.org/v1`) or of its MPI operator
/// (`kubeflow.org/v2beta1`): one subgroup for each replica type, named in lower case as in the label
/// `training.kubeflow.org/replica-type`.
pub(super) fn training(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = Place::spec(&object.spec, &group);
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
    let mut standing = Marks::of(&object.meta)?;
    let mut subs = Vec::new();
    for (kind, replica) in specs.map()? {
        let marks = pod_marks(replica.at("template").value(), &mut standing)?;
        let kind = kind.to_ascii_lowercase();
        let sub = Sub::fixed(&kind, replica.at("replicas").count()?.unwrap_or(1)).with(&marks);
        subs.push(Sub { is_late: kind == "launcher" && is_launcher_late, ..sub });
    }
    let rank = |sub: &Sub| LEADERS.iter().position(|kind| **kind == *sub.name);
    subs.sort_by_cached_key(|sub| (rank(sub).unwrap_or(LEADERS.len()), sub.name.clone()));
    // Elastic training: workers from so many to so many, the master among neither.
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
        lower(&mut subs, min);
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&standing))
}

/// Reads a `RayCluster` of `ray.io/v1`: the head, and a subgroup for each worker group. With the
/// autoscaler a worker group needs its `minReplicas`, without it what it asks for.
pub(super) fn ray(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = Place::spec(&object.spec, &group);
    let mut standing = Marks::of(&object.meta)?;
    let head = pod_marks(spec.at("headGroupSpec").at("template").value(), &mut standing)?;
    let mut subs = vec![Sub::fixed(RAY_HEAD, 1).with(&head)];
    let is_scaled = spec.at("enableInTreeAutoscaling").flag()?;
    for worker in spec.at("workerGroupSpecs").list()? {
        if worker.at("suspend").flag()? {
            continue;
        }
        let marks = pod_marks(worker.at("template").value(), &mut standing)?;
        let hosts = worker.at("numOfHosts").count()?.unwrap_or(1).max(1);
        let least = worker.at("minReplicas").count()?;
        let most = worker.at("maxReplicas").count()?;
        let asked = worker.at("replicas").count()?.or(least).unwrap_or(0);
        let asked = asked.max(least.unwrap_or(0)).min(most.unwrap_or(u32::MAX));
        let (min, count) =
            if is_scaled { (least.unwrap_or(0).min(asked), None) } else { (asked, Some(asked)) };
        let name = worker.at("groupName").name()?;
        subs.push(Sub {
            name: name.into(),
            min: min.saturating_mul(hosts),
            count: count.map(|count: u32| count.saturating_mul(hosts)),
            ..Sub::default().with(&marks)
        });
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&standing))
}

/// Value of `ray.io/group` of a head.
pub(super) const RAY_HEAD: &str = "headgroup";

/// Reads a `SparkApplication` of `sparkoperator.k8s.io/v1beta2`. The driver asks for executors once it
/// runs, and for more only when the first ones run: nobody waits for another, but they are placed near
/// one another.
pub(super) fn spark(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let mut standing = Marks::of(&object.meta)?;
    let mut sub = |role: &str, min| {
        let part = &object.spec[role];
        let pods = serde_json::json!({"metadata": {
            "annotations": part["annotations"], "labels": part["labels"],
        }});
        let marks = pod_marks(&pods, &mut standing)?;
        Ok(Sub { name: role.into(), min, ..Sub::default().with(&marks) })
    };
    let driver = Sub { count: Some(1), ..sub("driver", 1)? };
    let executor = Sub { is_late: true, ..sub("executor", 0)? };
    Ok(GroupSpec::new(name, announcer, vec![driver, executor]).with(&standing))
}

/// Reads Volcano's `Job` (`batch.volcano.sh/v1alpha1`): one subgroup for each task.
pub(super) fn volcano(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = Place::spec(&object.spec, &group);
    let mut standing = Marks::of(&object.meta)?;
    let mut subs = Vec::new();
    for (number, task) in spec.at("tasks").list()?.iter().enumerate() {
        let marks = pod_marks(task.at("template").value(), &mut standing)?;
        let count = task.at("replicas").count()?.unwrap_or(1);
        let name =
            task.at("name").text()?.map_or_else(|| format!("default{number}"), str::to_owned);
        let sub = Sub::fixed(&name, count).with(&marks);
        let min = task.at("minAvailable").count()?.unwrap_or(count);
        subs.push(Sub { min, is_late: !task.at("dependsOn").is_null(), ..sub });
    }
    if let Some(min) = spec.at("minAvailable").count()? {
        let count = subs.iter().filter_map(|sub| sub.count).map(u64::from).sum();
        if u64::from(min) > count {
            return Err(GroupError::MinimumAboveCount { group, min: min.into(), count });
        }
        lower(&mut subs, min);
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&standing))
}
