//! Which group a pod is in.

use std::sync::Arc;

use octavo_kube_io::objects::{Kind, Phase};
use serde_json::json;

use super::fixtures::{knowing, member, object, own, owned, pod, refusal};
use super::*;

const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";
const REPLICATED: &str = "jobset.sigs.k8s.io/replicatedjob-name";

fn job_set(name: &str) -> WatchedObject {
    let jobs = json!([{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4}}}]);
    object("jobset.x-k8s.io/v1alpha2", "JobSet", name, json!({"replicatedJobs": jobs}))
}

#[test]
fn pod_without_group_labels_is_alone() {
    assert_eq!(knowing([]).membership(&pod("p", &[("app", "web")])), Membership::Alone);
}

#[test]
fn pods_of_deployments_and_stateful_sets_are_alone() {
    for (kind, owner) in [("ReplicaSet", "web-5d"), ("StatefulSet", "db")] {
        let pod = owned(pod("p", &[("apps.kubernetes.io/pod-index", "0")]), "apps/v1", kind, owner);
        assert_eq!(knowing([]).membership(&pod), Membership::Alone);
    }
}

#[test]
fn pod_waits_for_the_pod_group_it_names() {
    let mut groups = knowing([]);
    let pod = pod("p", &[(names::POD_GROUP, "train")]);
    assert!(refusal(&groups, &pod).starts_with("PodGroup ml/train does not exist"));
    let touched = groups.apply(&Delta::Upsert(Arc::new(own("train", json!({"minMember": 4})))));
    let member = member(&groups, &pod);
    assert_eq!(touched, std::slice::from_ref(&member.group));
    assert_eq!((&*member.sub, member.spec.min), (DEFAULT_SUBGROUP, 4));
    let gone = Arc::new(own("train", json!({})));
    assert_eq!(groups.apply(&Delta::Delete(gone)), touched);
    assert!(refusal(&groups, &pod).contains("does not exist"));
}

#[test]
fn octavo_label_takes_precedence_over_workload_labels() {
    let groups = knowing([own("mine", json!({"minMember": 2})), job_set("js")]);
    let hints = [(JOB_SET, "js"), (REPLICATED, "w")];
    assert_eq!(member(&groups, &pod("p", &hints)).group.kind, GroupKind::JobSet);
    let mut hints = hints.to_vec();
    hints.push((names::POD_GROUP, "mine"));
    assert_eq!(member(&groups, &pod("p", &hints)).group.kind, GroupKind::PodGroup);
}

#[test]
fn pods_of_a_job_set_keep_their_order_in_a_pod_group() {
    let groups = knowing([own("mine", json!({"minMember": 4}))]);
    let rank = |job: &str, index: &str| {
        let hints = [
            (names::POD_GROUP, "mine"),
            (JOB_SET, "js"),
            ("jobset.sigs.k8s.io/job-global-index", job),
            ("batch.kubernetes.io/job-completion-index", index),
        ];
        member(&groups, &pod("p", &hints)).rank
    };
    let ranks = [rank("0", "0"), rank("0", "9"), rank("1", "0"), rank("1", "1")];
    assert!(ranks[0].is_some() && ranks.is_sorted_by(|one, other| one < other), "{ranks:?}");
    assert_eq!(rank("4294967295", "4294967295"), Some(u32::MAX));
}

#[test]
fn gang_false_makes_any_pod_alone() {
    let groups = knowing([job_set("js")]);
    let hints = [(JOB_SET, "js"), (REPLICATED, "w"), (names::GANG, "false")];
    assert_eq!(groups.membership(&pod("p", &hints)), Membership::Alone);
}

#[test]
fn status_changes_do_not_change_groups() {
    let mut groups = knowing([job_set("js")]);
    let mut changed = job_set("js");
    changed.status = json!({"restarts": 1});
    changed.meta.version = "17".into();
    assert_eq!(groups.apply(&Delta::Upsert(Arc::new(changed))), []);
}

#[test]
fn relist_removes_missing_objects_of_its_kind_only() {
    let mut groups = knowing([job_set("a"), job_set("b"), own("g", json!({"minMember": 1}))]);
    let kind = Kind::new("jobset.x-k8s.io/v1alpha2", "JobSet");
    let touched = groups.apply(&Delta::Replace(kind, vec![Arc::new(job_set("b"))]));
    assert_eq!(touched.iter().map(ToString::to_string).collect::<Vec<_>>(), ["JobSet ml/a"]);
    let left: Vec<_> = groups.objects.keys().map(ToString::to_string).collect();
    assert_eq!(left, ["PodGroup ml/g", "JobSet ml/b"]);
}

#[test]
fn failed_or_deleted_pod_is_leaving_and_succeeded_is_done() {
    let mut pod = pod("p", &[]);
    assert_eq!(MemberState::of(&pod), MemberState::Present);
    pod.meta.deleted = Some(1);
    assert_eq!(MemberState::of(&pod), MemberState::Leaving);
    pod.phase = Phase::Succeeded;
    assert_eq!(MemberState::of(&pod), MemberState::Done);
    pod.phase = Phase::Failed;
    assert_eq!(MemberState::of(&pod), MemberState::Leaving);
}
