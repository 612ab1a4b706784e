//! Workloads whose controllers make the pods of a gang: `Job`, `JobSet`, `LeaderWorkerSet`.

use octavo_kube_io::objects::WatchedObject;
use serde_json::Value;

use super::error::GroupError;
use super::marks::Marks;
use super::name::GroupName;
use super::read::Place;
use super::spec::{Announcer, GroupSpec, MEMBERS, Sub};

/// Reads a `Job` of `batch/v1`: as many as run at a time.
pub(super) fn job(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = Place::spec(&object.spec, &group);
    let template = Marks::of_template(spec.at("template").value())?;
    let sub = Sub::fixed(MEMBERS, pods_at_a_time(&spec)?);
    let read = GroupSpec::new(name, announcer, vec![sub]);
    Ok(read.with(&Marks::of(&object.meta)?).with(&template))
}

/// Reads a `JobSet` of `jobset.x-k8s.io/v1alpha2`: one subgroup for each replicated job.
pub(super) fn job_set(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = Place::spec(&object.spec, &group);
    let is_in_order = spec.at("startupPolicy").at("startupPolicyOrder").text()? == Some("InOrder");
    let mut standing = Marks::of(&object.meta)?;
    let mut subs = Vec::new();
    for (number, job) in spec.at("replicatedJobs").list()?.iter().enumerate() {
        let marks = template_marks(&job.at("template"), &mut standing)?;
        let replicas = job.at("replicas").count()?.unwrap_or(1);
        let count = replicas.saturating_mul(pods_at_a_time(&job.at("template").at("spec"))?);
        let depends = !job.at("dependsOn").list()?.is_empty();
        let sub = Sub::fixed(job.at("name").name()?, count).with(&marks);
        subs.push(Sub { is_late: depends || (is_in_order && number > 0), ..sub });
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&standing))
}

/// Reads a `LeaderWorkerSet` of `leaderworkerset.x-k8s.io/v1`: each replica is a group of its own.
pub(super) fn leader_worker_set(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = Place::spec(&object.spec, &group);
    let template = spec.at("leaderWorkerTemplate");
    let size = template.at("size").count()?.unwrap_or(1);
    if size == 0 {
        return Err(template.at("size").wrong("1 or more"));
    }
    let mut standing = Marks::of(&object.meta)?;
    let worker = Marks::of_template(template.at("workerTemplate").value())?;
    let leader_template = template.at("leaderTemplate");
    let leader = if leader_template.is_null() {
        worker.clone()
    } else {
        Marks::of_template(leader_template.value())?
    };
    fill(&mut standing, &leader);
    fill(&mut standing, &worker);
    // Workers are made once the leader is ready; for exclusive topologies once it has a node.
    let exclusive = "leaderworkerset.sigs.k8s.io/exclusive-topology";
    let is_late = spec.at("startupPolicy").text()? == Some("LeaderReady")
        || object.meta.annotations.contains_key(exclusive);
    let leader = Sub::fixed("leader", 1).with(&leader);
    let workers = Sub { is_late, ..Sub::fixed("worker", size - 1).with(&worker) };
    let mut read = GroupSpec::new(name, announcer, vec![leader, workers]).with(&standing);
    let restart = template.at("restartPolicy").text()?;
    read.is_whole = matches!(restart, None | Some("RecreateGroupOnPodRestart"));
    Ok(read)
}

/// How many pods a Job's spec makes at a time.
fn pods_at_a_time(spec: &Place<'_>) -> Result<u32, GroupError> {
    let parallelism = spec.at("parallelism").count()?.unwrap_or(1);
    let completions = spec.at("completions").count()?;
    Ok(completions.map_or(parallelism, |completions| parallelism.min(completions)))
}

/// Marks of a Job's template: its own and, where those say nothing, those of its pod template. What is
/// not about topology goes to the group.
fn template_marks(job: &Place<'_>, standing: &mut Marks) -> Result<Marks, GroupError> {
    let mut marks = Marks::of_template(job.value())?;
    let pods = Marks::of_template(job.at("spec").at("template").value())?;
    marks.required = marks.required.or_else(|| pods.required.clone());
    marks.preferred = marks.preferred.or_else(|| pods.preferred.clone());
    fill(&mut marks, &pods);
    fill(standing, &marks);
    Ok(marks)
}

/// Fills in what is said of the whole and not of topology, where nothing is said yet.
pub(super) fn fill(standing: &mut Marks, marks: &Marks) {
    standing.policy = standing.policy.take().or_else(|| marks.policy.clone());
    standing.is_movable = standing.is_movable.or(marks.is_movable);
    standing.seconds_at_risk = standing.seconds_at_risk.or(marks.seconds_at_risk);
}

/// Marks of a pod template whose other marks go to the group.
pub(super) fn pod_marks(template: &Value, standing: &mut Marks) -> Result<Marks, GroupError> {
    let marks = Marks::of_template(template)?;
    fill(standing, &marks);
    Ok(marks)
}
