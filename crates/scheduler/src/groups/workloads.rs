//! Workloads whose controllers create the pods of a gang: `Job`, `JobSet`, `LeaderWorkerSet`.

use octavo_kube_io::objects::WatchedObject;
use serde_json::Value;

use super::error::GroupError;
use super::name::GroupName;
use super::placement_hints::PlacementHints;
use super::spec::{Announcer, DEFAULT_SUBGROUP, GroupSpec, Subgroup};
use super::spec_field::SpecField;

/// Reads a `Job` of `batch/v1`. The gang has as many members as run at a time.
pub(super) fn job(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    let template = PlacementHints::of_template(spec.at("template").value())?;
    let sub = Subgroup::fixed(DEFAULT_SUBGROUP, pods_at_a_time(&spec)?);
    let read = GroupSpec::new(name, announcer, vec![sub]);
    Ok(read.with(&PlacementHints::of(&object.meta)?).with(&template))
}

/// Reads a `JobSet` of `jobset.x-k8s.io/v1alpha2`: one subgroup for each replicated job.
pub(super) fn job_set(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    let is_in_order = spec.at("startupPolicy").at("startupPolicyOrder").text()? == Some("InOrder");
    let mut group_hints = PlacementHints::of(&object.meta)?;
    let mut subs = Vec::new();
    for (number, job) in spec.at("replicatedJobs").list()?.iter().enumerate() {
        let hints = template_hints(&job.at("template"), &mut group_hints)?;
        let replicas = job.at("replicas").count()?.unwrap_or(1);
        let count = replicas.saturating_mul(pods_at_a_time(&job.at("template").at("spec"))?);
        let depends = !job.at("dependsOn").list()?.is_empty();
        let sub = Subgroup::fixed(job.at("name").name()?, count).with(&hints);
        subs.push(Subgroup { is_late: depends || (is_in_order && number > 0), ..sub });
    }
    Ok(GroupSpec::new(name, announcer, subs).with(&group_hints))
}

/// Reads a `LeaderWorkerSet` of `leaderworkerset.x-k8s.io/v1`: each replica is a group of its own.
pub(super) fn leader_worker_set(
    object: &WatchedObject,
    name: GroupName,
    announcer: Announcer,
) -> Result<GroupSpec, GroupError> {
    let group = name.to_string();
    let spec = SpecField::spec(&object.spec, &group);
    let template = spec.at("leaderWorkerTemplate");
    let size = template.at("size").count()?.unwrap_or(1);
    if size == 0 {
        return Err(template.at("size").wrong("1 or more"));
    }
    let mut group_hints = PlacementHints::of(&object.meta)?;
    let worker = PlacementHints::of_template(template.at("workerTemplate").value())?;
    let leader_template = template.at("leaderTemplate");
    let leader = if leader_template.is_null() {
        worker.clone()
    } else {
        PlacementHints::of_template(leader_template.value())?
    };
    fill_group_hints(&mut group_hints, &leader);
    fill_group_hints(&mut group_hints, &worker);
    // Workers are created once the leader is ready, or with an exclusive topology once it has a
    // node.
    let exclusive = "leaderworkerset.sigs.k8s.io/exclusive-topology";
    let is_late = spec.at("startupPolicy").text()? == Some("LeaderReady")
        || object.meta.annotations.contains_key(exclusive);
    let leader = Subgroup::fixed("leader", 1).with(&leader);
    let workers = Subgroup { is_late, ..Subgroup::fixed("worker", size - 1).with(&worker) };
    let mut read = GroupSpec::new(name, announcer, vec![leader, workers]).with(&group_hints);
    let restart = template.at("restartPolicy").text()?;
    read.is_whole = matches!(restart, None | Some("RecreateGroupOnPodRestart"));
    Ok(read)
}

/// How many pods a Job's spec runs at a time.
fn pods_at_a_time(spec: &SpecField<'_>) -> Result<u32, GroupError> {
    let parallelism = spec.at("parallelism").count()?.unwrap_or(1);
    let completions = spec.at("completions").count()?;
    Ok(completions.map_or(parallelism, |completions| parallelism.min(completions)))
}

/// Hints of a Job's template, completed by those of its pod template. Hints other than topology go
/// to the group.
fn template_hints(
    job: &SpecField<'_>,
    group_hints: &mut PlacementHints,
) -> Result<PlacementHints, GroupError> {
    let mut hints = PlacementHints::of_template(job.value())?;
    let pods = PlacementHints::of_template(job.at("spec").at("template").value())?;
    hints.required = hints.required.or_else(|| pods.required.clone());
    hints.preferred = hints.preferred.or_else(|| pods.preferred.clone());
    fill_group_hints(&mut hints, &pods);
    fill_group_hints(group_hints, &hints);
    Ok(hints)
}

/// Fills in hints for the whole group, without topology, where none are set yet.
pub(super) fn fill_group_hints(group_hints: &mut PlacementHints, hints: &PlacementHints) {
    group_hints.policy = group_hints.policy.take().or_else(|| hints.policy.clone());
    group_hints.is_movable = group_hints.is_movable.or(hints.is_movable);
    group_hints.seconds_at_risk = group_hints.seconds_at_risk.or(hints.seconds_at_risk);
}

/// Hints of a pod template. Those other than topology go to the group.
pub(super) fn pod_hints(
    template: &Value,
    group_hints: &mut PlacementHints,
) -> Result<PlacementHints, GroupError> {
    let hints = PlacementHints::of_template(template)?;
    fill_group_hints(group_hints, &hints);
    Ok(hints)
}
