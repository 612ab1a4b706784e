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
fn a_pod_without_a_word_of_a_group_is_alone() {
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
fn a_pod_that_names_a_pod_group_waits_until_it_is_there() {
    let mut groups = knowing([]);
    let pod = pod("p", &[(names::POD_GROUP, "train")]);
    assert!(refusal(&groups, &pod).starts_with("PodGroup ml/train is not there"));
    let touched = groups.apply(&Delta::Upsert(Arc::new(own("train", json!({"minMember": 4})))));
    let member = member(&groups, &pod);
    assert_eq!(touched, std::slice::from_ref(&member.group));
    assert_eq!((&*member.sub, member.spec.min), (MEMBERS, 4));
    let gone = Arc::new(own("train", json!({})));
    assert_eq!(groups.apply(&Delta::Delete(gone)), touched);
    assert!(refusal(&groups, &pod).contains("is not there"));
}

#[test]
fn octavos_own_label_goes_before_what_the_workload_says() {
    let groups = knowing([own("mine", json!({"minMember": 2})), job_set("js")]);
    let marks = [(JOB_SET, "js"), (REPLICATED, "w")];
    assert_eq!(member(&groups, &pod("p", &marks)).group.kind, GroupKind::JobSet);
    let mut marks = marks.to_vec();
    marks.push((names::POD_GROUP, "mine"));
    assert_eq!(member(&groups, &pod("p", &marks)).group.kind, GroupKind::PodGroup);
}

#[test]
fn pods_of_a_job_set_keep_their_order_in_a_pod_group() {
    let groups = knowing([own("mine", json!({"minMember": 4}))]);
    let rank = |job: &str, index: &str| {
        let marks = [
            (names::POD_GROUP, "mine"),
            (JOB_SET, "js"),
            ("jobset.sigs.k8s.io/job-global-index", job),
            ("batch.kubernetes.io/job-completion-index", index),
        ];
        member(&groups, &pod("p", &marks)).rank
    };
    let ranks = [rank("0", "0"), rank("0", "9"), rank("1", "0"), rank("1", "1")];
    assert!(ranks[0].is_some() && ranks.is_sorted_by(|one, other| one < other), "{ranks:?}");
    assert_eq!(rank("4294967295", "4294967295"), Some(u32::MAX));
}

#[test]
fn a_pod_that_wants_no_gang_is_alone_whatever_its_workload_is() {
    let groups = knowing([job_set("js")]);
    let marks = [(JOB_SET, "js"), (REPLICATED, "w"), (names::GANG, "false")];
    assert_eq!(groups.membership(&pod("p", &marks)), Membership::Alone);
}

#[test]
fn a_status_that_changes_touches_no_group() {
    let mut groups = knowing([job_set("js")]);
    let mut changed = job_set("js");
    changed.status = json!({"restarts": 1});
    changed.meta.version = "17".into();
    assert_eq!(groups.apply(&Delta::Upsert(Arc::new(changed))), []);
}

#[test]
fn a_list_anew_forgets_what_is_not_in_it_and_nothing_of_other_kinds() {
    let mut groups = knowing([job_set("a"), job_set("b"), own("g", json!({"minMember": 1}))]);
    let kind = Kind::new("jobset.x-k8s.io/v1alpha2", "JobSet");
    let touched = groups.apply(&Delta::Replace(kind, vec![Arc::new(job_set("b"))]));
    assert_eq!(touched.iter().map(ToString::to_string).collect::<Vec<_>>(), ["JobSet ml/a"]);
    let left: Vec<_> = groups.specs().map(|spec| spec.name.to_string()).collect();
    assert_eq!(left, ["PodGroup ml/g", "JobSet ml/b"]);
}

#[test]
fn a_pod_that_failed_or_is_deleted_leaves_and_one_that_ended_well_has_done_its_part() {
    let mut pod = pod("p", &[]);
    assert_eq!(Standing::of(&pod), Standing::Present);
    pod.meta.deleted = Some(1);
    assert_eq!(Standing::of(&pod), Standing::Leaving);
    pod.phase = Phase::Succeeded;
    assert_eq!(Standing::of(&pod), Standing::Done);
    pod.phase = Phase::Failed;
    assert_eq!(Standing::of(&pod), Standing::Leaving);
}
