//! Each example of `examples/scheduler`, with the pods that its controller creates and their
//! groups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use octavo_kube_io::objects::{Pod, WatchedObject};
use serde_json::Value;

use super::controllers::pods;
use super::fixtures::{knowing, member, object};
use super::{GroupName, Groups, Member, Membership};

struct Example {
    groups: Groups,
    pods: Vec<Pod>,
}

pub(super) fn documents(name: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scheduler");
    let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// Examples with workloads.
pub(super) const EXAMPLES: [&str; 9] = [
    "hang",
    "job",
    "jobset",
    "leaderworkerset",
    "mpijob",
    "podgroup",
    "pytorchjob",
    "raycluster",
    "topology",
];

/// A manifest as a watch has it.
pub(super) fn watched(document: &Value) -> WatchedObject {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&document["metadata"]["name"]);
    let (version, kind) = (text(&document["apiVersion"]), text(&document["kind"]));
    let mut object = object(&version, &kind, &name, document["spec"].clone());
    let hints = document["metadata"]["annotations"].as_object().into_iter().flatten();
    object.meta.annotations.extend(hints.map(|(key, value)| (key.clone(), text(value))));
    object
}

fn example(name: &str) -> Example {
    let documents = documents(name);
    let groups = knowing(documents.iter().map(watched));
    Example { groups, pods: documents.iter().flat_map(pods).collect() }
}

impl Example {
    fn members(&self) -> Vec<Member> {
        self.pods.iter().map(|pod| member(&self.groups, pod)).collect()
    }

    /// Groups, and for each subgroup its name, minimum, count and number of pods. Checks that all
    /// pods are members and ranks are unique in each subgroup.
    fn lines(&self) -> Vec<String> {
        let mut found: BTreeMap<GroupName, Vec<Member>> = BTreeMap::new();
        for member in self.members() {
            found.entry(member.group.clone()).or_default().push(member);
        }
        let mut lines = Vec::new();
        for (name, members) in found {
            let spec = &members[0].spec;
            lines.push(format!("{name}: min {}", spec.min));
            let have = |sub: &str| members.iter().filter(|member| &*member.sub == sub).count();
            for sub in &spec.subs {
                let count = sub.count.map_or("-".to_owned(), |count| count.to_string());
                let late = if sub.is_late { ", late" } else { "" };
                let there = have(&sub.name);
                lines.push(format!("  {} {}..{count}{late}: {there}", sub.name, sub.min));
                let ranks = members.iter().filter(|member| member.sub == sub.name);
                let ranks: BTreeSet<_> = ranks.filter_map(|member| member.rank).collect();
                assert!(there < 2 || ranks.is_empty() || ranks.len() == there, "{name}: {ranks:?}");
            }
            let enough = |sub: &str| u32::try_from(have(sub)).unwrap();
            assert_eq!(spec.missing(enough), [], "{name} is not complete");
            assert_ne!(spec.missing(|_| 0), [], "{name} is complete without anybody");
        }
        lines
    }
}

#[test]
fn every_example_is_read_by_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scheduler");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let read = EXAMPLES.iter().chain(&["policy"]);
    let mut expected: Vec<_> = read.map(|name| format!("{name}.yaml")).collect();
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn a_job_with_a_probe_of_its_progress_is_one_gang() {
    let example = example("hang");
    assert_eq!(example.lines(), ["Job ml/pretrain: min 4", "  members 4..-: 4"]);
}

#[test]
fn annotated_job_is_one_gang() {
    let example = example("job");
    assert_eq!(example.lines(), ["Job ml/sweep: min 8", "  members 8..-: 8"]);
    let member = &example.members()[5];
    assert_eq!(member.rank, Some(5));
    assert_eq!(member.spec.preferred.as_deref(), Some("topology.octavo.dev/rack"));
    assert_eq!(&*member.spec.announcer.uid, "uid-of-sweep");
}

#[test]
fn plain_pods_join_the_pod_group_they_name() {
    let example = example("podgroup");
    let expected = ["PodGroup ml/pair: min 3", "  server 1..-: 1", "  client 2..-: 2"];
    assert_eq!(example.lines(), expected);
    let spec = &example.members()[0].spec;
    assert!(spec.is_movable);
    assert_eq!(spec.subs[1].required.as_deref(), Some("rack"));
}

#[test]
fn a_job_set_is_one_gang_with_a_subgroup_for_each_replicated_job() {
    let example = example("jobset");
    let expected = ["JobSet ml/pretrain: min 9", "  workers 8..8: 8", "  driver 1..1, late: 1"];
    assert_eq!(example.lines(), expected);
    let members = example.members();
    let ranks: Vec<_> = members.iter().map(|member| member.rank).collect();
    assert_eq!(ranks[..8], (0..8).map(Some).collect::<Vec<_>>());
    let spec = &members[0].spec;
    assert_eq!(spec.preferred.as_deref(), Some("topology.kubernetes.io/zone"));
    assert_eq!(spec.required, None);
    assert_eq!(spec.subs[0].required.as_deref(), Some("topology.octavo.dev/rack"));
    assert_eq!(spec.seconds_at_risk, 900);
    // The driver's pod is created when the workers run: they do not wait for it.
    assert_eq!(spec.missing(|sub| if sub == "workers" { 8 } else { 0 }), []);
}

#[test]
fn each_replica_of_a_leader_worker_set_is_a_gang() {
    let example = example("leaderworkerset");
    let expected = [
        "LeaderWorkerSet ml/serve replica 0: min 4",
        "  leader 1..1: 1",
        "  worker 3..3: 3",
        "LeaderWorkerSet ml/serve replica 1: min 4",
        "  leader 1..1: 1",
        "  worker 3..3: 3",
    ];
    assert_eq!(example.lines(), expected);
    let members = example.members();
    assert_eq!(members[0].spec.required.as_deref(), Some("nvidia.com/gpu.clique"));
    assert!(members[0].spec.is_whole);
    let ranks: Vec<_> = members[..4].iter().map(|member| member.rank).collect();
    assert_eq!(ranks, [Some(0), Some(0), Some(1), Some(2)]);
    let all = members[0].group.whole();
    assert!(members.iter().all(|member| member.group.whole() == all));
    assert_ne!(members[0].group, members[4].group);
}

#[test]
fn elastic_py_torch_job_needs_its_minimum_workers() {
    let example = example("pytorchjob");
    let expected = ["PyTorchJob ml/finetune: min 5", "  master 1..1: 1", "  worker 4..7: 7"];
    assert_eq!(example.lines(), expected);
    assert_eq!(example.members()[0].spec.policy.as_deref(), Some("near"));
}

#[test]
fn mpi_workers_do_not_wait_for_a_late_launcher() {
    let example = example("mpijob");
    let expected =
        ["MPIJob ml/allreduce: min 17", "  launcher 1..1, late: 1", "  worker 16..16: 16"];
    assert_eq!(example.lines(), expected);
    let spec = &example.members()[0].spec;
    assert_eq!(spec.missing(|sub| if sub == "worker" { 16 } else { 0 }), []);
    assert_eq!(spec.missing(|sub| if sub == "worker" { 15 } else { 0 }).len(), 1);
}

#[test]
fn ray_cluster_needs_its_head_and_minimum_workers() {
    let example = example("raycluster");
    let expected = ["RayCluster ml/tune: min 5", "  headgroup 1..1: 1", "  gpu 4..-: 6"];
    assert_eq!(example.lines(), expected);
    let spec = &example.members()[0].spec;
    assert_eq!(spec.subs[1].preferred.as_deref(), Some("topology.octavo.dev/rack"));
}

#[test]
fn named_pod_group_takes_precedence_over_the_job_set() {
    let example = example("topology");
    assert_eq!(example.lines(), ["PodGroup ml/blocks: min 16", "  worker 16..-: 16"]);
    let spec = &example.members()[0].spec;
    assert_eq!(spec.required.as_deref(), Some("topology.kubernetes.io/zone"));
    assert_eq!(spec.preferred.as_deref(), Some("topology.octavo.dev/rack"));
    let segment = spec.subs[0].segment.as_ref().unwrap();
    assert_eq!((segment.size, &*segment.level), (8, "nvidia.com/gpu.clique"));
}

#[test]
fn example_policy_is_valid() {
    let [policy] = documents("policy").try_into().unwrap();
    let name = policy["metadata"]["name"].as_str().unwrap().to_owned();
    let mut policies = crate::policies::Policies::default();
    let object = object("octavo.dev/v1alpha1", "PlacementPolicy", &name, policy["spec"].clone());
    policies.apply(&octavo_kube_io::objects::Delta::Upsert(std::sync::Arc::new(object)));
    assert_eq!(policies.find(Some("near")).unwrap().name(), "near");
}

#[test]
fn example_pods_wait_for_missing_objects() {
    for name in ["jobset", "leaderworkerset", "pytorchjob", "mpijob", "raycluster", "podgroup"] {
        for pod in example(name).pods {
            let Membership::Unresolved(not_yet) = Groups::default().membership(&pod) else {
                panic!("{name}: {} does not wait", pod.meta.name);
            };
            assert!(not_yet.group.is_some(), "{name}: its future group is unknown");
            assert_eq!(not_yet.error.reason(), "PodGroupNotFound");
        }
    }
}
