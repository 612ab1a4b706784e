//! The groups that objects of each kind announce.

use octavo_api::pod_group::{DisruptionMode, SegmentSpec, SubGroup, TopologyWish};
use octavo_api::{PodGroupSpec, names};
use octavo_engine::topology::LevelId;
use serde_json::{Value, json};

use super::fixtures::{knowing, member, object, only_spec, own, owned, pod, refusal};
use super::*;

/// The one group that an object announces: its subgroups in short, or the error.
fn read(object: WatchedObject) -> Result<String, String> {
    let groups = knowing([object]);
    let read = groups.objects.values().next().expect("an object that announces a group");
    let spec = read.as_ref().map_err(ToString::to_string)?;
    let sub = |sub: &Subgroup| {
        let count = sub.count.map_or("-".to_owned(), |count| count.to_string());
        let late = if sub.is_late { " late" } else { "" };
        format!("{} {}..{count}{late}", sub.name, sub.min)
    };
    assert_eq!(spec.min, spec.subs.iter().map(|sub| sub.min).sum::<u32>());
    Ok(spec.subs.iter().map(sub).collect::<Vec<_>>().join(", "))
}

#[test]
fn each_kind_is_read_by_its_own_rules() {
    let job = |parallelism, completions: Value| json!({"template": {"spec": {"parallelism": parallelism, "completions": completions}}});
    let named = |name: &str, mut value: Value| {
        value["name"] = json!(name);
        value
    };
    let jobs = [named("a", job(2, Value::Null)), named("b", job(8, json!(3)))];
    let set = |extra: Value| {
        let mut spec = json!({"replicatedJobs": jobs});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        object("jobset.x-k8s.io/v1alpha2", "JobSet", "g", spec)
    };
    let lws = |spec: Value| object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "g", spec);
    let torch = |spec: Value| object("kubeflow.org/v1", "PyTorchJob", "g", spec);
    let replicas = json!({"Worker": {"replicas": 4}, "Master": {}});
    let ray = |spec: Value| object("ray.io/v1", "RayCluster", "g", spec);
    let volcano = |spec: Value| object("batch.volcano.sh/v1alpha1", "Job", "g", spec);
    let tasks = json!([{"name": "ps", "replicas": 1}, {"name": "w", "replicas": 4}]);
    let ordered = json!({"startupPolicy": {"startupPolicyOrder": "InOrder"}});
    let table = [
        (set(json!({})), "a 2..2, b 3..3"),
        (set(ordered), "a 2..2, b 3..3 late"),
        (lws(json!({"leaderWorkerTemplate": {"size": 3}})), "leader 1..1, worker 2..2"),
        (lws(json!({"leaderWorkerTemplate": {}})), "leader 1..1"),
        (
            lws(json!({"leaderWorkerTemplate": {"size": 3}, "startupPolicy": "LeaderReady"})),
            "leader 1..1, worker 2..2 late",
        ),
        (torch(json!({"pytorchReplicaSpecs": replicas})), "master 1..1, worker 4..4"),
        (
            torch(json!({"pytorchReplicaSpecs": replicas, "elasticPolicy": {"minReplicas": 2}})),
            "master 1..1, worker 2..4",
        ),
        (
            object(
                "kubeflow.org/v1",
                "TFJob",
                "g",
                json!({"tfReplicaSpecs": {"Worker": {"replicas": 2}, "PS": {}, "Chief": {},
                    "Evaluator": {}}}),
            ),
            "chief 1..1, ps 1..1, worker 2..2, evaluator 1..1",
        ),
        (
            object(
                "kubeflow.org/v2beta1",
                "MPIJob",
                "g",
                json!({"mpiReplicaSpecs": {"Worker": {"replicas": 2}, "Launcher": {}},
                    "runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}),
            ),
            "launcher 1..1, worker 1..2",
        ),
        (
            ray(json!({"workerGroupSpecs": [
                {"groupName": "x", "replicas": 3, "minReplicas": 1, "numOfHosts": 2},
                {"groupName": "y", "suspend": true, "replicas": 9},
                {"groupName": "z", "replicas": 9, "maxReplicas": 4},
            ]})),
            "headgroup 1..1, x 6..6, z 4..4",
        ),
        (
            object("sparkoperator.k8s.io/v1beta2", "SparkApplication", "g", json!({})),
            "driver 1..1, executor 0..- late",
        ),
        (volcano(json!({"tasks": tasks})), "ps 1..1, w 4..4"),
        (volcano(json!({"tasks": tasks, "minAvailable": 3})), "ps 1..1, w 2..4"),
        (
            object(
                "scheduling.volcano.sh/v1beta1",
                "PodGroup",
                "g",
                json!({"minMember": 3, "minTaskMember": {"a": 1, "b": 2}}),
            ),
            "a 1..-, b 2..-",
        ),
        (
            object("scheduling.x-k8s.io/v1alpha1", "PodGroup", "g", json!({"minMember": 6})),
            "members 6..-",
        ),
        (own("g", json!({})), "members 1..-"),
        (own("g", json!({"subGroups": [{"name": "a", "minMember": 2}]})), "a 2..-"),
    ];
    for (object, expected) in table {
        let what = format!("{} {}", object.kind, object.spec);
        assert_eq!(read(object).as_deref(), Ok(expected), "{what}");
    }
}

#[test]
fn contradictions_are_errors_that_say_what_to_do() {
    let set = |jobs: Value| {
        object("jobset.x-k8s.io/v1alpha2", "JobSet", "g", json!({"replicatedJobs": jobs}))
    };
    let torch = |spec: Value| object("kubeflow.org/v1", "PyTorchJob", "g", spec);
    let native = |spec: Value| object("scheduling.k8s.io/v1beta1", "PodGroup", "g", spec);
    let sub = |name: &str, min: i64| json!({"name": name, "minMember": min});
    let table = [
        (own("g", json!({"minMember": "many"})), "spec.minMember is \"many\", but it must be"),
        (own("g", json!({"minMember": -1})), "spec.minMember is -1"),
        (own("g", json!({"minMember": 100_001})), "100001 members, but at most 100000"),
        (own("g", json!({"minMember": 3, "subGroups": [sub("a", 2)]})), "need 2 together"),
        (own("g", json!({"subGroups": [sub("a", 2), sub("a", 2)]})), "two subgroups named \"a\""),
        (
            own("g", json!({"subGroups": {"a": 2}})),
            "spec.subGroups is {\"a\":2}, but it must be a list",
        ),
        (own("g", json!({"subGroups": [{"minMember": 2}]})), "spec.subGroups[0].name is null"),
        (own("g", json!({"disruptionMode": "Some"})), "Single or All"),
        (
            own(
                "g",
                json!({"subGroups": [{"name": "a", "minMember": 3,
                "segment": {"size": 2, "level": "rack"}}]}),
            ),
            "segments of 2 members do not divide 3",
        ),
        (set(json!([])), "has no members"),
        (set(json!([{"name": "a", "replicas": 0}])), "has no members"),
        (
            set(
                json!([{"name": "a", "replicas": 70_000, "template": {"spec": {"parallelism": 70_000}}}]),
            ),
            "at most 100000",
        ),
        (torch(json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 1.5}}})), "replicas is 1.5"),
        (
            torch(json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 2}},
                "runPolicy": {"schedulingPolicy": {"minAvailable": 3}}})),
            "needs at least 3 members, but will have only 2",
        ),
        (native(json!({})), "either gang or basic"),
        (native(json!({"schedulingPolicy": {"gang": {"minCount": 0}}})), "1 or more"),
        (
            native(json!({"schedulingPolicy": {"gang": {"minCount": 2}},
                "parentCompositePodGroupName": "tree"})),
            "CompositePodGroup \"tree\" is not supported",
        ),
        (
            native(json!({"schedulingPolicy": {"gang": {"minCount": 2}},
                "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}})),
            "more than one topology constraint is not supported",
        ),
    ];
    for (object, expected) in table {
        let what = format!("{} {}", object.kind, object.spec);
        let error = read(object).expect_err(&what);
        assert!(error.contains(expected), "{what}: {error}");
    }
}

#[test]
fn invalid_group_blocks_only_its_own_pods() {
    let groups = knowing([own("bad", json!({"minMember": "x"})), own("good", json!({}))]);
    let of = |name: &str| pod("p", &[(names::POD_GROUP, name)]);
    assert!(refusal(&groups, &of("bad")).starts_with("PodGroup ml/bad: spec.minMember"));
    assert_eq!(member(&groups, &of("good")).spec.min, 1);
}

#[test]
fn native_pod_group_is_read_in_all_versions() {
    let constraints = json!({"topology": [{"key": "topology.kubernetes.io/rack"}]});
    for (version, mode) in [
        ("v1alpha2", json!("PodGroup")),
        ("v1alpha3", json!({"all": {}})),
        ("v1beta1", json!({"all": {}})),
    ] {
        let spec = json!({"schedulingPolicy": {"gang": {"minCount": 4}}, "disruptionMode": mode,
            "schedulingConstraints": constraints, "priority": 7});
        let version = format!("scheduling.k8s.io/{version}");
        let groups = knowing([object(&version, "PodGroup", "g", spec)]);
        let mut pod = pod("p", &[]);
        std::sync::Arc::make_mut(&mut pod.spec).group = Some("g".to_owned());
        let member = member(&groups, &pod);
        assert_eq!(member.group.kind, GroupKind::NativePodGroup);
        assert_eq!((member.spec.min, member.spec.priority), (4, Some(7)));
        assert_eq!(member.spec.required.as_deref(), Some("topology.kubernetes.io/rack"));
        assert!(member.spec.is_whole, "{version}");
    }
}

#[test]
fn pods_of_a_native_group_with_the_basic_policy_are_alone() {
    let spec = json!({"schedulingPolicy": {"basic": {}}});
    let groups = knowing([object("scheduling.k8s.io/v1beta1", "PodGroup", "g", spec)]);
    let mut pod = pod("p", &[]);
    std::sync::Arc::make_mut(&mut pod.spec).group = Some("g".to_owned());
    assert_eq!(groups.membership(&pod), Membership::Alone);
}

#[test]
fn a_job_that_says_true_is_as_large_as_the_job() {
    let mut job = object("batch/v1", "Job", "j", json!({"parallelism": 6, "completions": 4}));
    let pod = owned(pod("p", &[(names::GANG, "true")]), "batch/v1", "Job", "j");
    let groups = knowing([job.clone()]);
    assert!(refusal(&groups, &pod).contains("put the label octavo.dev/gang"));
    job.meta.labels.insert(names::GANG.to_owned(), "true".to_owned());
    assert_eq!(member(&knowing([job]), &pod).spec.min, 4);
}

#[test]
fn invalid_gang_annotation_is_rejected() {
    let job = |hint: &str| owned(pod("p", &[(names::GANG, hint)]), "batch/v1", "Job", "j");
    for hint in ["", "yes", "0", "-3", "2.5", "4294967296"] {
        assert!(refusal(&knowing([]), &job(hint)).contains("octavo.dev/gang"), "{hint:?}");
    }
    assert!(refusal(&knowing([]), &job("200000")).contains("at most 100000"));
    let lone = pod("p", &[(names::GANG, "4")]);
    assert!(refusal(&knowing([]), &lone).contains("this pod's controller is none"));
    let web = owned(lone, "apps/v1", "ReplicaSet", "web");
    assert!(refusal(&knowing([]), &web).contains("ReplicaSet web"));
}

#[test]
fn kueue_group_is_declared_by_its_pods() {
    let name = ("kueue.x-k8s.io/pod-group-name", "batch");
    let total = ("@kueue.x-k8s.io/pod-group-total-count", "5");
    let member = member(&knowing([]), &pod("p", &[name, total]));
    assert_eq!((member.group.kind, member.spec.min), (GroupKind::KueueGroup, 5));
    assert!(refusal(&knowing([]), &pod("p", &[name])).contains("pod-group-total-count"));
}

#[test]
fn ray_job_submitter_is_not_a_cluster_member() {
    let groups = knowing([object("ray.io/v1", "RayCluster", "c", json!({}))]);
    let submitter = pod("p", &[("ray.io/cluster", "c"), ("job-name", "submit")]);
    assert_eq!(groups.membership(&submitter), Membership::Alone);
}

#[test]
fn spark_driver_does_not_wait_for_executors() {
    let spark = object("sparkoperator.k8s.io/v1beta2", "SparkApplication", "s", json!({}));
    let groups = knowing([spark]);
    let labels = |role| [("sparkoperator.k8s.io/app-name", "s"), ("spark-role", role)];
    let driver = member(&groups, &pod("d", &labels("driver")));
    assert_eq!(driver.spec.missing(|sub| u32::from(sub == "driver")), []);
    let executor = member(&groups, &pod("e", &labels("executor")));
    assert_eq!((&driver.group, &*executor.sub), (&executor.group, "executor"));
    assert_eq!(executor.spec.missing(|sub| u32::from(sub == "executor")).len(), 1);
}

#[test]
fn pod_must_name_one_of_several_subgroups() {
    let subs = json!([{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]);
    let groups = knowing([own("g", json!({"subGroups": subs}))]);
    let label = (names::POD_GROUP, "g");
    let error = refusal(&groups, &pod("p", &[label]));
    assert!(error.contains("the subgroups a, b; name the pod's"), "{error}");
    let error = refusal(&groups, &pod("p", &[label, (names::POD_SUBGROUP, "c")]));
    assert!(error.contains("no subgroup \"c\""), "{error}");
    let found = member(&groups, &pod("p", &[label, (names::POD_SUBGROUP, "b")]));
    assert_eq!(&*found.sub, "b");
}

#[test]
fn recreated_pod_is_the_same_member() {
    let jobs = json!([{"name": "w", "template": {"spec": {"parallelism": 2}}}]);
    let set = object("jobset.x-k8s.io/v1alpha2", "JobSet", "s", json!({"replicatedJobs": jobs}));
    let groups = knowing([set]);
    let attempt = |number: &'static str, name: &str| {
        let hints = [
            ("jobset.sigs.k8s.io/jobset-name", "s"),
            ("jobset.sigs.k8s.io/replicatedjob-name", "w"),
            ("jobset.sigs.k8s.io/replicatedjob-replicas", "1"),
            ("jobset.sigs.k8s.io/job-index", "0"),
            ("jobset.sigs.k8s.io/restart-attempt", number),
            ("batch.kubernetes.io/job-completion-index", "1"),
        ];
        pod(name, &hints)
    };
    let mut old = attempt("0", "s-w-0-1-aaaaa");
    old.meta.deleted = Some(1);
    let new = attempt("1", "s-w-0-1-bbbbb");
    assert_eq!(member(&groups, &old), member(&groups, &new));
    assert_eq!(
        (MemberState::of(&old), MemberState::of(&new)),
        (MemberState::Leaving, MemberState::Present)
    );
}

#[test]
fn late_subgroup_counts_once_it_has_a_pod() {
    let jobs = json!([
        {"name": "first", "template": {"spec": {"parallelism": 2}}},
        {"name": "then", "dependsOn": [{"name": "first", "status": "Complete"}],
            "template": {"spec": {"parallelism": 3}}},
    ]);
    let set = object("jobset.x-k8s.io/v1alpha2", "JobSet", "s", json!({"replicatedJobs": jobs}));
    let groups = knowing([set]);
    let spec = only_spec(&groups);
    let missing = |first, then| -> Vec<_> {
        let missing = spec.missing(|sub| if sub == "first" { first } else { then });
        missing.into_iter().map(|missing| (missing.sub.to_string(), missing.have)).collect()
    };
    assert_eq!(missing(0, 0), [("first".to_owned(), 0)]);
    assert_eq!(missing(1, 0), [("first".to_owned(), 1)]);
    assert_eq!(missing(2, 0), []);
    assert_eq!(missing(2, 1), [("then".to_owned(), 1)]);
    assert_eq!(missing(2, 3), []);
}

#[test]
fn invalid_hints_are_rejected_with_their_key() {
    for (key, value) in [
        (names::MOVABLE, "perhaps"),
        (names::SECONDS_AT_RISK, "ten"),
        (names::TOPOLOGY_REQUIRED, ""),
    ] {
        let mut group = own("g", json!({}));
        group.meta.annotations.insert(key.to_owned(), value.to_owned());
        let error = read(group).unwrap_err();
        assert!(error.starts_with(key), "{error}");
    }
}

#[test]
fn unknown_topology_levels_are_named() {
    let spec = json!({"topology": {"required": "zone", "preferred": "rack"},
        "subGroups": [{"name": "a", "minMember": 4, "topology": {"required": "rack"},
            "segment": {"size": 2, "level": "host"}}]});
    let groups = knowing([own("g", spec)]);
    let spec = only_spec(&groups);
    let level = |levels: &'static [&'static str]| {
        move |name: &str| {
            let found = levels.iter().position(|level| *level == name)?;
            u8::try_from(found).ok().map(LevelId)
        }
    };
    let topology = spec.resolve_topology(level(&["cluster", "zone", "rack", "host"]), "").unwrap();
    assert_eq!(topology.group.required, Some(LevelId(1)));
    assert_eq!(topology.group.preferred, Some(LevelId(2)));
    assert_eq!(topology.subs[0].0.required, Some(LevelId(2)));
    assert_eq!(
        topology.subs[0].1.map(|segment| (segment.size, segment.level)),
        Some((2, LevelId(3)))
    );
    let error = spec
        .resolve_topology(level(&["cluster", "zone", "rack"]), "cluster, zone, rack")
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "PodGroup ml/g: the segment of subgroup \"a\" names the topology level \"host\", which does \
         not exist; existing levels: cluster, zone, rack"
    );
    assert_eq!(error.reason(), "TopologyLevelNotFound");
}

#[test]
fn every_field_of_the_resource_is_read() {
    let topology = |required: &str| {
        Some(TopologyWish {
            required: Some(required.to_owned()),
            preferred: Some("rack".to_owned()),
        })
    };
    let spec = PodGroupSpec {
        min_member: Some(4),
        sub_groups: vec![SubGroup {
            name: "a".to_owned(),
            min_member: 4,
            topology: topology("row"),
            segment: Some(SegmentSpec { size: 2, level: "host".to_owned() }),
        }],
        topology: topology("zone"),
        placement_policy: Some("near".to_owned()),
        disruption_mode: Some(DisruptionMode::All),
        preemptible: Some(false),
        movable: Some(true),
        seconds_at_risk: Some(60),
    };
    let groups = knowing([own("g", serde_json::to_value(spec).unwrap())]);
    let read = only_spec(&groups);
    let sub = Subgroup {
        name: "a".into(),
        min: 4,
        count: None,
        is_late: false,
        required: Some("row".into()),
        preferred: Some("rack".into()),
        segment: Some(SegmentTopology { size: 2, level: "host".into() }),
    };
    let expected = GroupSpec {
        name: read.name.clone(),
        announcer: read.announcer.clone(),
        min: 4,
        subs: vec![sub],
        required: Some("zone".into()),
        preferred: Some("rack".into()),
        policy: Some("near".into()),
        priority: None,
        is_preemptible: false,
        is_movable: true,
        is_whole: true,
        seconds_at_risk: 60,
    };
    assert_eq!(*read, expected);
    assert_eq!(read.announcer.generation, 1);
}
