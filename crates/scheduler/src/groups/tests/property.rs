//! Arbitrary input never panics, and valid results are consistent.

use octavo_engine::gang::MAX_MEMBERS;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::examples::{EXAMPLES, documents, watched};
use super::fixtures::{knowing, object, owned, pod};
use super::*;

/// Fields of real kinds, so that generated input reaches the readers.
const FIELDS: [&str; 38] = [
    "minMember",
    "subGroups",
    "name",
    "topology",
    "required",
    "segment",
    "size",
    "level",
    "disruptionMode",
    "schedulingPolicy",
    "gang",
    "minCount",
    "basic",
    "schedulingConstraints",
    "replicatedJobs",
    "replicas",
    "template",
    "spec",
    "parallelism",
    "completions",
    "dependsOn",
    "leaderWorkerTemplate",
    "leaderTemplate",
    "workerTemplate",
    "pytorchReplicaSpecs",
    "mpiReplicaSpecs",
    "Worker",
    "runPolicy",
    "minAvailable",
    "elasticPolicy",
    "minReplicas",
    "workerGroupSpecs",
    "groupName",
    "numOfHosts",
    "tasks",
    "metadata",
    "annotations",
    "octavo.dev/movable",
];

const KEYS: [&str; 16] = [
    "octavo.dev/pod-group",
    "octavo.dev/pod-subgroup",
    "octavo.dev/gang",
    "scheduling.x-k8s.io/pod-group",
    "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "jobset.sigs.k8s.io/replicatedjob-replicas",
    "batch.kubernetes.io/job-completion-index",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-index",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
    "ray.io/node-type",
    "volcano.sh/job-name",
    "kueue.x-k8s.io/pod-group-name",
];

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u32..12).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(&["a", "w", "", "InOrder", "true", "All"][..]).prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let field = (select(&FIELDS[..]).prop_map(str::to_owned), inner.clone());
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            vec(field, 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn hints() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let value = prop_oneof![
        Just("g".to_owned()),
        Just("a".to_owned()),
        Just("worker".to_owned()),
        (0_u32..9).prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        ".{0,12}",
    ];
    vec((select(&KEYS[..]), value), 0..6)
}

/// How many values a value contains, including itself.
fn size(value: &Value) -> usize {
    let inside: usize = match value {
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(map) => map.values().map(size).sum(),
        _ => 0,
    };
    inside + 1
}

/// Replaces one of them, in the order of [`size`].
fn replace(value: &mut Value, place: &mut usize, new: &Value) {
    if *place == 0 {
        *value = new.clone();
        *place = usize::MAX;
        return;
    }
    *place -= 1;
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| replace(value, place, new)),
        Value::Object(map) => map.values_mut().for_each(|value| replace(value, place, new)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn mutated_examples_are_read_or_rejected(
        name in select(&EXAMPLES[..]),
        place in any::<usize>(),
        new in values(),
    ) {
        let mut documents = documents(name);
        let pods: Vec<_> = documents.iter().flat_map(super::controllers::pods).collect();
        let mut place = place % documents.iter().map(|document| size(&document["spec"])).sum::<usize>();
        for document in &mut documents {
            replace(&mut document["spec"], &mut place, &new);
        }
        let groups = knowing(documents.iter().map(watched));
        for pod in pods {
            match groups.membership(&pod) {
                Membership::Alone => prop_assert!(false, "{name}: {} is alone", pod.meta.name),
                Membership::Unresolved(not_yet) => prop_assert!(not_yet.group.is_some()),
                Membership::Member(member) => {
                    prop_assert!(member.spec.sub(&member.sub).is_some());
                    prop_assert!(member.spec.min <= MAX_MEMBERS);
                }
            }
        }
    }

    #[test]
    fn arbitrary_specs_and_labels_do_not_panic(
        spec in values(),
        hints in hints(),
        kind in 0..Groups::kinds().len(),
        owner in select(&["Job", "PyTorchJob", "MPIJob"][..]),
    ) {
        let watched = &Groups::kinds()[kind];
        let api_version = format!("{}/{}", watched.api_group, watched.versions[0]);
        let mut object = object(&api_version, watched.kind, "g", spec);
        object.meta.labels.insert("octavo.dev/gang".to_owned(), "true".to_owned());
        let groups = knowing([object]);
        prop_assert_eq!(groups.objects.len(), 1);
        for spec in groups.objects.values().flatten() {
            prop_assert!(!spec.subs.is_empty());
            prop_assert_eq!(spec.min, spec.subs.iter().map(|sub| sub.min).sum::<u32>());
            prop_assert!(spec.min <= MAX_MEMBERS);
            prop_assert!(!spec.missing(|_| 0).is_empty());
            prop_assert!(spec.missing(|_| MAX_MEMBERS).is_empty());
        }
        let hints: Vec<_> = hints.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let version = if owner == "Job" { "batch/v1" } else { "kubeflow.org/v1" };
        let pod = owned(pod("p", &hints), version, owner, "g");
        match groups.membership(&pod) {
            Membership::Alone => {}
            Membership::Unresolved(not_yet) => prop_assert!(!not_yet.error.to_string().is_empty()),
            Membership::Member(member) => prop_assert!(member.spec.sub(&member.sub).is_some()),
        }
    }
}
