use serde_json::json;

use super::claims::{claim, claiming, class, slice};
use super::fixtures::{Testbed, evicted, node, pod_group, with};
use crate::state::SchedulerConfig;

const RACK: &str = "/metadata/labels/topology.octavo.dev~1rack";

/// Nodes in racks, each with a number of GPUs.
fn cluster(nodes: &[(&str, &str, u32)]) -> Testbed {
    let mut testbed = Testbed::new();
    testbed.class(&class());
    for (name, rack, gpus) in nodes {
        testbed.node(&with(node(name, 64), RACK, json!(rack)));
        testbed.slice(&slice(name, *gpus));
    }
    testbed
}

/// A pod with a claim of one GPU.
fn foreign(testbed: &mut Testbed, name: &str) {
    testbed.claim(&claim(&format!("{name}-gpu"), name));
    testbed.pod(&claiming(name));
}

/// A member of the gang, with one GPU. Another pod of the same index has a name with a suffix.
fn member(testbed: &mut Testbed, index: u32, suffix: &str) {
    member_with(testbed, index, suffix, 0);
}

fn member_with(testbed: &mut Testbed, index: u32, suffix: &str, priority: i32) {
    let name = format!("m{index}{suffix}");
    testbed.claim(&claim(&format!("{name}-gpu"), &name));
    let labels = json!({
        "octavo.dev/pod-group": "g", "batch.kubernetes.io/job-completion-index": index.to_string(),
    });
    let pod = with(claiming(&name), "/metadata/labels", labels);
    testbed.pod(&with(pod, "/spec/priority", json!(priority)));
}

/// A gang of this many members, all bound. Returns their nodes.
fn gang(testbed: &mut Testbed, members: u32) -> Vec<(String, String)> {
    testbed.object(&pod_group("g", members, json!({})));
    for index in 0..members {
        member(testbed, index, "");
    }
    let bound = testbed.settle();
    assert_eq!(bound.len(), members as usize);
    bound
}

/// The GPU of a pod's claim: node and number.
fn gpu(testbed: &Testbed, pod: &str) -> (String, u32) {
    let claim = &testbed.claims[&format!("{pod}-gpu")];
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    let device = result["device"].as_str().expect("a device");
    let number = device.strip_prefix("gpu-").expect("a GPU").parse().expect("a number");
    (result["pool"].as_str().expect("a pool").to_owned(), number)
}

/// Publishes the slice of a node with taints on some GPUs.
fn fence(testbed: &mut Testbed, node: &str, gpus: u32, taints: &[(u32, &str, &str)]) {
    let mut fenced = slice(node, gpus);
    fenced["spec"]["pool"]["generation"] = json!(2);
    for (gpu, key, effect) in taints {
        let taint = json!([{"key": key, "effect": effect}]);
        fenced = with(fenced, &format!("/spec/devices/{gpu}/taints"), taint);
    }
    testbed.slice(&fenced);
}

fn begin_deletion(testbed: &mut Testbed, name: &str) {
    let value = testbed.pods[name].clone();
    testbed.pod(&with(value, "/metadata/deletionTimestamp", json!("2026-01-01T00:01:00Z")));
}

/// Deletes a pod and its claim.
fn delete(testbed: &mut Testbed, name: &str) {
    begin_deletion(testbed, name);
    testbed.drop_pod(name);
    testbed.drop_claim(&format!("{name}-gpu"));
}

fn fail(testbed: &mut Testbed, name: &str) {
    let failed = with(testbed.pods[name].clone(), "/status/phase", json!("Failed"));
    testbed.pod(&failed);
}

fn bound(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(pod, node)| ((*pod).to_owned(), (*node).to_owned())).collect()
}

/// The nodes of a gang's members in the order of their indices.
fn nodes(bound: &[(String, String)]) -> Vec<&str> {
    bound.iter().map(|(_, node)| node.as_str()).collect()
}

#[test]
fn a_member_whose_gpu_is_fenced_gets_another_one_of_its_node() {
    for (key, effect) in [
        ("gpu.nvidia.com/xid", "NoSchedule"),
        ("gpu.nvidia.com/gpu-lost", "NoExecute"),
        ("octavo.dev/recovery-action", "NoExecute"),
        ("octavo.dev/health", "NoSchedule"),
    ] {
        let mut testbed = cluster(&[("a", "r1", 1), ("b", "r1", 8), ("c", "r1", 8)]);
        assert_eq!(nodes(&gang(&mut testbed, 7)), ["b"; 7]);
        let (_, number) = gpu(&testbed, "m3");
        fence(&mut testbed, "b", 8, &[(number, key, effect)]);
        delete(&mut testbed, "m3");
        member(&mut testbed, 3, "-again");
        assert_eq!(testbed.settle(), bound(&[("m3-again", "b")]), "{key}");
        assert_ne!(gpu(&testbed, "m3-again").1, number);
    }
}

#[test]
fn a_member_leaves_its_fenced_gpu_even_if_that_is_back_before_its_successor() {
    let mut testbed = cluster(&[("b", "r1", 3)]);
    assert_eq!(nodes(&gang(&mut testbed, 2)), ["b"; 2]);
    let (_, number) = gpu(&testbed, "m1");
    fence(&mut testbed, "b", 3, &[(number, "gpu.nvidia.com/xid", "NoSchedule")]);
    delete(&mut testbed, "m1");
    assert_eq!(testbed.settle(), []);
    let mut back = slice("b", 3);
    back["spec"]["pool"]["generation"] = json!(3);
    testbed.slice(&back);
    let probation = json!([{"name": format!("gpu-{number}"), "state": "Probation"}]);
    testbed.object(&json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "NodeHealth",
        "metadata": {"name": "b", "uid": "uid-health-b"}, "status": {"devices": probation},
    }));
    member(&mut testbed, 1, "-again");
    assert_eq!(testbed.settle(), bound(&[("m1-again", "b")]));
    assert_ne!(gpu(&testbed, "m1-again").1, number);
}

#[test]
fn the_former_node_goes_before_a_node_with_fewer_hops() {
    let mut testbed = cluster(&[("a", "r1", 2), ("b", "r2", 1)]);
    testbed.claim(&claim("other-gpu", "other"));
    let on_a = json!({"kubernetes.io/hostname": "a"});
    testbed.pod(&with(claiming("other"), "/spec/nodeSelector", on_a));
    assert_eq!(testbed.settle(), bound(&[("other", "a")]));
    let before = gang(&mut testbed, 2);
    let (moved, _) = before.iter().find(|(_, node)| node == "b").expect("a member on b");
    let index = moved.strip_prefix('m').expect("a member").parse().expect("an index");
    // From now on `a` has room for both.
    testbed.drop_pod("other");
    testbed.drop_claim("other-gpu");
    fail(&mut testbed, moved);
    delete(&mut testbed, moved);
    member(&mut testbed, index, "-again");
    assert_eq!(testbed.settle(), [(format!("{moved}-again"), "b".to_owned())]);
}

#[test]
fn without_room_in_the_node_the_member_stays_in_the_rack() {
    let mut testbed =
        cluster(&[("a", "r2", 4), ("b", "r1", 2), ("c", "r2", 4), ("d", "r1", 4), ("e", "r3", 4)]);
    let others = [("a", "r2"), ("c", "r2"), ("d", "r1"), ("e", "r3")];
    for (name, rack) in others {
        let other = with(node(name, 64), RACK, json!(rack));
        testbed.node(&with(other, "/spec/unschedulable", json!(true)));
    }
    assert_eq!(nodes(&gang(&mut testbed, 2)), ["b", "b"]);
    for (name, rack) in others {
        testbed.node(&with(node(name, 64), RACK, json!(rack)));
    }
    let (_, number) = gpu(&testbed, "m1");
    fence(&mut testbed, "b", 2, &[(number, "gpu.nvidia.com/xid", "NoExecute")]);
    delete(&mut testbed, "m1");
    member(&mut testbed, 1, "-again");
    assert_eq!(testbed.settle(), bound(&[("m1-again", "d")]));
}

#[test]
fn any_number_of_fenced_members_comes_back() {
    let mut testbed = cluster(&[("a", "r1", 6), ("b", "r1", 6), ("c", "r2", 6), ("d", "r2", 6)]);
    assert_eq!(nodes(&gang(&mut testbed, 4)), ["a"; 4]);
    let fenced: Vec<_> = (0..3)
        .map(|index| (gpu(&testbed, &format!("m{index}")).1, "octavo.dev/health", "NoExecute"))
        .collect();
    fence(&mut testbed, "a", 6, &fenced);
    for index in 0..3 {
        delete(&mut testbed, &format!("m{index}"));
        member(&mut testbed, index, "-again");
    }
    // Two GPUs of the node are left, and the rack has more.
    let found = testbed.settle();
    assert_eq!(found, bound(&[("m0-again", "a"), ("m1-again", "a"), ("m2-again", "b")]));
    assert_eq!(testbed.settle(), []);
}

/// A gang of six on three nodes of two GPUs, all in use, and three pods that wait.
fn full() -> (Testbed, Vec<(String, String)>) {
    let mut testbed = cluster(&[("a", "r1", 2), ("b", "r1", 2), ("c", "r1", 2)]);
    let before = gang(&mut testbed, 6);
    for number in 0..3 {
        foreign(&mut testbed, &format!("foreign{number}"));
    }
    assert_eq!(testbed.settle(), []);
    (testbed, before)
}

#[test]
fn after_a_restart_of_all_members_each_has_its_place() {
    let (mut testbed, before) = full();
    let gpus: Vec<_> = (0..6).map(|index| gpu(&testbed, &format!("m{index}"))).collect();
    fail(&mut testbed, "m4");
    for index in [4, 0, 5, 1, 3, 2] {
        delete(&mut testbed, &format!("m{index}"));
        assert_eq!(testbed.settle(), [], "no other pod gets the place");
    }
    testbed.time(5_000);
    // In another order than the first time.
    for index in [2, 5, 0, 3, 4, 1] {
        assert_eq!(testbed.settle(), []);
        member(&mut testbed, index, "-again");
    }
    assert_eq!(nodes(&testbed.settle()), nodes(&before));
    let after: Vec<_> = (0..6).map(|index| gpu(&testbed, &format!("m{index}-again"))).collect();
    assert_eq!(after, gpus, "the same GPUs too");
    assert_eq!(testbed.after(60_000), [], "nothing is left for the others");
}

#[test]
fn pods_of_a_jobset_are_known_by_job_and_index_after_a_restart() {
    let mut testbed = cluster(&[("a", "r1", 2), ("b", "r1", 2)]);
    let pods = json!({"spec": {"schedulerName": "octavo"}});
    let job = json!({"spec": {"parallelism": 2, "completions": 2, "template": pods}});
    testbed.object(&json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "js", "namespace": "team", "uid": "uid-js", "generation": 1},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": job}]},
    }));
    // A restart makes other Jobs, which have other UIDs.
    let create = |testbed: &mut Testbed, attempt: u32, job: u32, index: u32| {
        let name = format!("p{job}{index}-{attempt}");
        testbed.claim(&claim(&format!("{name}-gpu"), &name));
        let labels = json!({
            "jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "w",
            "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
            "jobset.sigs.k8s.io/job-index": job.to_string(),
            "jobset.sigs.k8s.io/restart-attempt": attempt.to_string(),
            "batch.kubernetes.io/job-completion-index": index.to_string(),
        });
        let owners = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": format!("js-w-{job}"),
            "uid": format!("uid-job-{job}-{attempt}"), "controller": true,
        }]);
        let pod = with(claiming(&name), "/metadata/labels", labels);
        testbed.pod(&with(pod, "/metadata/ownerReferences", owners));
    };
    let all = [(0, 0), (0, 1), (1, 0), (1, 1)];
    for (job, index) in all {
        create(&mut testbed, 0, job, index);
    }
    assert_eq!(testbed.settle().len(), 4);
    let places = |testbed: &Testbed, attempt: u32| {
        all.map(|(job, index)| gpu(testbed, &format!("p{job}{index}-{attempt}")))
    };
    let before = places(&testbed, 0);
    foreign(&mut testbed, "foreign");
    fail(&mut testbed, "p10-0");
    for (job, index) in all {
        delete(&mut testbed, &format!("p{job}{index}-0"));
    }
    assert_eq!(testbed.settle(), [], "the places are kept");
    for (job, index) in [(1, 1), (0, 1), (1, 0), (0, 0)] {
        create(&mut testbed, 1, job, index);
    }
    assert_eq!(testbed.settle().len(), 4);
    assert_eq!(places(&testbed, 1), before);
}

#[test]
fn equal_restarts_end_equally() {
    let run = || {
        let (mut testbed, _) = full();
        fence(&mut testbed, "b", 2, &[(1, "gpu.nvidia.com/xid", "NoExecute")]);
        testbed.node(&with(node("d", 64), RACK, json!("r2")));
        testbed.slice(&slice("d", 1));
        for index in 0..6 {
            delete(&mut testbed, &format!("m{index}"));
        }
        for index in 0..6 {
            member(&mut testbed, index, "-again");
        }
        testbed.ops()
    };
    let ops = run();
    assert!(!ops.is_empty());
    assert_eq!(run(), ops);
}

#[test]
fn members_of_a_restart_have_their_places_but_for_the_fenced_one() {
    let (mut testbed, before) = full();
    let (at, number) = gpu(&testbed, "m2");
    testbed.node(&with(node("d", 64), RACK, json!("r1")));
    testbed.slice(&slice("d", 1));
    // Another pod has the only free GPU. It does not keep the gang from its other places.
    assert_eq!(testbed.settle(), bound(&[("foreign0", "d")]));
    for name in ["foreign1", "foreign2"] {
        testbed.drop_pod(name);
    }
    fence(&mut testbed, &at, 2, &[(number, "gpu.nvidia.com/xid", "NoExecute")]);
    for index in [2, 0, 1, 3, 4, 5] {
        delete(&mut testbed, &format!("m{index}"));
    }
    for index in 0..6 {
        member(&mut testbed, index, "-again");
    }
    assert_eq!(testbed.settle(), [], "five places are left for six members");
    testbed.node(&with(node("e", 64), RACK, json!("r1")));
    testbed.slice(&slice("e", 1));
    testbed.time(2_000);
    let after = testbed.settle();
    let mut expected = nodes(&before);
    expected[2] = "e";
    assert_eq!(nodes(&after), expected);
}

#[test]
fn a_fenced_member_and_one_on_a_lost_node_come_back_together() {
    let config = SchedulerConfig { repair_after_seconds: 10, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    testbed.class(&class());
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r1"), ("d", "r2")] {
        testbed.node(&with(node(name, 64), RACK, json!(rack)));
        testbed.slice(&slice(name, 3));
    }
    let before = gang(&mut testbed, 4);
    assert_eq!(nodes(&before), ["a", "a", "a", "b"]);
    let lost = with(
        with(node("b", 64), RACK, json!("r1")),
        "/status/conditions/0/status",
        json!("Unknown"),
    );
    let unreachable = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    testbed.node(&with(lost, "/spec/taints", unreachable));
    let (_, number) = gpu(&testbed, "m1");
    fence(&mut testbed, "a", 3, &[(number, "gpu.nvidia.com/gpu-lost", "NoExecute")]);
    let ops = testbed.after(11_000);
    assert_eq!(evicted(&ops), ["m3"], "the controller evicts from GPUs");
    for op in &ops {
        testbed.complete(op);
    }
    for index in [1, 3] {
        delete(&mut testbed, &format!("m{index}"));
        member(&mut testbed, index, "-again");
    }
    assert_eq!(testbed.settle(), bound(&[("m1-again", "c"), ("m3-again", "c")]));
}

#[test]
fn no_foreign_pod_leaves_for_a_repair_unless_its_priority_is_lower() {
    for (priority, victims) in [(0, 0), (100, 1)] {
        let mut testbed = cluster(&[("a", "r1", 2), ("b", "r1", 2)]);
        testbed.object(&pod_group("g", 2, json!({})));
        for index in 0..2 {
            member_with(&mut testbed, index, "", priority);
        }
        assert_eq!(nodes(&testbed.settle()), ["a", "a"]);
        for number in 0..2 {
            foreign(&mut testbed, &format!("foreign{number}"));
        }
        assert_eq!(testbed.settle().len(), 2);
        let (_, number) = gpu(&testbed, "m0");
        fence(&mut testbed, "a", 2, &[(number, "gpu.nvidia.com/xid", "NoExecute")]);
        delete(&mut testbed, "m0");
        member_with(&mut testbed, 0, "-again", priority);
        assert_eq!(evicted(&testbed.ops()).len(), victims, "priority {priority}");
    }
}

#[test]
fn a_gang_that_is_deleted_without_a_fault_keeps_nothing() {
    let (mut testbed, _) = full();
    delete(&mut testbed, "m0");
    assert_eq!(testbed.settle().len(), 1);
    // A pod that is being deleted often ends with a failure.
    begin_deletion(&mut testbed, "m1");
    fail(&mut testbed, "m1");
    delete(&mut testbed, "m1");
    assert_eq!(testbed.settle().len(), 1);
}

#[test]
fn places_are_kept_for_a_bounded_time() {
    let (mut testbed, _) = full();
    fail(&mut testbed, "m0");
    delete(&mut testbed, "m0");
    testbed.time(29_000);
    assert_eq!(testbed.settle(), []);
    testbed.time(2_000);
    assert_eq!(testbed.settle().len(), 1);
}

#[test]
fn a_changed_gang_keeps_nothing() {
    let (mut testbed, _) = full();
    fail(&mut testbed, "m0");
    delete(&mut testbed, "m0");
    assert_eq!(testbed.settle(), []);
    let changed = with(pod_group("g", 5, json!({})), "/metadata/generation", json!(2));
    testbed.object(&changed);
    assert_eq!(testbed.settle().len(), 1);
}

#[test]
fn a_member_waits_until_the_claims_of_the_former_one_are_gone() {
    let mut testbed = cluster(&[("a", "r1", 2), ("b", "r1", 2)]);
    assert_eq!(nodes(&gang(&mut testbed, 2)), ["a", "a"]);
    let before = gpu(&testbed, "m1");
    fail(&mut testbed, "m1");
    testbed.drop_pod("m1");
    member(&mut testbed, 1, "-again");
    assert_eq!(testbed.settle(), [], "its claim is not deleted yet");
    testbed.drop_claim("m1-gpu");
    assert_eq!(testbed.settle(), bound(&[("m1-again", "a")]));
    assert_eq!(gpu(&testbed, "m1-again"), before);
    // If the claim stays, the member goes elsewhere after the time.
    fail(&mut testbed, "m0");
    testbed.drop_pod("m0");
    member(&mut testbed, 0, "-again");
    assert_eq!(testbed.settle(), []);
    testbed.time(31_000);
    assert_eq!(testbed.settle(), bound(&[("m0-again", "b")]));
}

#[test]
fn members_on_a_suspect_gpu_run_on_and_no_gang_counts_it() {
    let mut testbed = cluster(&[("a", "r1", 2)]);
    testbed.object(&pod_group("h", 1, json!({})));
    let name = "h0";
    testbed.claim(&claim("h0-gpu", name));
    testbed.pod(&with(claiming(name), "/metadata/labels", json!({"octavo.dev/pod-group": "h"})));
    assert_eq!(testbed.settle(), bound(&[("h0", "a")]));
    let taint = ("octavo.dev/health", "NoSchedule");
    fence(&mut testbed, "a", 2, &[(0, taint.0, taint.1), (1, taint.0, taint.1)]);
    assert_eq!(testbed.after(300_000), [], "no eviction");
    testbed.object(&pod_group("g", 1, json!({})));
    member(&mut testbed, 0, "");
    assert_eq!(testbed.settle(), [], "the free GPU is suspect");
    fence(&mut testbed, "a", 2, &[(0, taint.0, taint.1)]);
    assert_eq!(testbed.settle(), bound(&[("m0", "a")]));
}
