//! Workloads whose controllers create the pods of a gang: `Job`, `JobSet`, `LeaderWorkerSet`.

use super::error::GroupError;
use super::placement_hints::PlacementHints;
use super::reader::GroupReader;
use super::spec::{DEFAULT_SUBGROUP, Subgroup};
use super::spec_field::SpecField;

/// Reads a `Job` of `batch/v1`. The gang has as many members as run at a time.
pub(super) fn job(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    let template = PlacementHints::of_template(read.spec.at("template").value())?;
    read.add(Subgroup::fixed(DEFAULT_SUBGROUP, pods_at_a_time(&read.spec)?));
    read.hints.is_movable = template.is_movable.or(read.hints.is_movable);
    read.hints.seconds_at_risk = template.seconds_at_risk.or(read.hints.seconds_at_risk);
    read.hints.fill(&template);
    Ok(())
}

/// Reads a `JobSet` of `jobset.x-k8s.io/v1alpha2`: one subgroup for each replicated job.
pub(super) fn job_set(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    let startup = read.spec.at("startupPolicy").at("startupPolicyOrder");
    let is_in_order = startup.text()? == Some("InOrder");
    for (number, job) in read.spec.at("replicatedJobs").list()?.iter().enumerate() {
        let (template, spec) = (job.at("template"), job.at("template").at("spec"));
        let mut hints = PlacementHints::of_template(template.value())?;
        hints.fill(&PlacementHints::of_template(spec.at("template").value())?);
        read.hints.fill_for_group(&hints);
        let replicas = job.at("replicas").count()?.unwrap_or(1);
        let count = replicas.saturating_mul(pods_at_a_time(&spec)?);
        let depends = !job.at("dependsOn").list()?.is_empty();
        let sub = Subgroup::fixed(job.at("name").name()?, count).with(&hints);
        read.add(Subgroup { is_late: depends || (is_in_order && number > 0), ..sub });
    }
    Ok(())
}

/// Reads a `LeaderWorkerSet` of `leaderworkerset.x-k8s.io/v1`: each replica is a group of its own.
pub(super) fn leader_worker_set(read: &mut GroupReader<'_>) -> Result<(), GroupError> {
    let template = read.spec.at("leaderWorkerTemplate");
    let size = template.at("size").count()?.unwrap_or(1);
    if size == 0 {
        return Err(template.at("size").wrong("1 or more"));
    }
    let worker_template = template.at("workerTemplate");
    let leader_template = template.at("leaderTemplate");
    let leader_template =
        if leader_template.is_null() { &worker_template } else { &leader_template };
    let leader = read.pod_hints(leader_template)?;
    let worker = read.pod_hints(&worker_template)?;
    // Workers are created once the leader is ready, or with an exclusive topology once it has a
    // node.
    let exclusive = "leaderworkerset.sigs.k8s.io/exclusive-topology";
    let is_late = read.spec.at("startupPolicy").text()? == Some("LeaderReady")
        || read.object.meta.annotations.contains_key(exclusive);
    read.add(Subgroup::fixed("leader", 1).with(&leader));
    read.add(Subgroup { is_late, ..Subgroup::fixed("worker", size - 1).with(&worker) });
    let restart = template.at("restartPolicy").text()?;
    read.group.is_whole = matches!(restart, None | Some("RecreateGroupOnPodRestart"));
    Ok(())
}

/// How many pods a Job's spec runs at a time.
fn pods_at_a_time(spec: &SpecField<'_>) -> Result<u32, GroupError> {
    let parallelism = spec.at("parallelism").count()?.unwrap_or(1);
    let completions = spec.at("completions").count()?;
    Ok(completions.map_or(parallelism, |completions| parallelism.min(completions)))
}
