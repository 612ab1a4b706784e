//! Random claims of GPUs and NICs: no pod is evicted in vain, and none waits behind pods that may be
//! evicted for it.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::json;

use super::claim_preemption::{
    asking, cluster, leave, of_gang, paired, request, with_gpu, with_nic,
};
use super::fixtures::{Testbed, evicted, pod_group};
use crate::bind::OpKind;
use crate::state::SchedulerConfig;

/// What a pod claims.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Gpu,
    Nic,
    /// Both on one PCIe root.
    Pair,
    /// Two GPUs and a NIC, wherever they are.
    Both,
}

#[derive(Clone, Debug)]
struct Case {
    /// GPUs and NICs.
    nodes: Vec<(u32, u32)>,
    running: Vec<(Wish, i32)>,
    members: u32,
    wish: Wish,
    is_gang: bool,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const PRIORITY: i32 = 5;

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![Just(Wish::Gpu), Just(Wish::Nic), Just(Wish::Pair), Just(Wish::Both)]
}

fn case() -> impl Strategy<Value = Case> {
    let nodes = prop::collection::vec((0..4_u32, 0..4_u32), 1..=3);
    let running = prop::collection::vec((wish(), 0..8_i32), 0..8);
    (nodes, running, 1..4_u32, wish(), any::<bool>()).prop_map(
        |(nodes, running, members, wish, is_gang)| Case { nodes, running, members, wish, is_gang },
    )
}

fn claiming(testbed: &mut Testbed, name: &str, priority: i32, wish: Wish) -> serde_json::Value {
    match wish {
        Wish::Gpu => with_gpu(testbed, name, priority),
        Wish::Nic => with_nic(testbed, name, priority),
        Wish::Pair => paired(testbed, name, priority),
        Wish::Both => {
            let gpus = request("gpu", "gpu.nvidia.com", 2);
            let both = json!([gpus, request("nic", "nic.example.com", 1)]);
            asking(testbed, name, priority, both)
        }
    }
}

/// Decides and carries out all but evictions, which are returned.
fn step(testbed: &mut Testbed) -> Vec<String> {
    let ops = testbed.ops();
    for op in &ops {
        testbed.complete(op);
    }
    evicted(&ops)
}

fn is_bound(testbed: &Testbed, name: &str) -> bool {
    testbed.pods[name]["spec"].get("nodeName").is_some()
}

fn check(case: &Case) {
    let nodes: Vec<_> =
        NAMES.iter().zip(&case.nodes).map(|(name, (gpus, nics))| (*name, *gpus, *nics)).collect();
    let mut testbed = cluster(SchedulerConfig::default(), &nodes);
    let mut lower = Vec::new();
    for (number, (wish, priority)) in case.running.iter().enumerate() {
        let name = format!("r{number}");
        let pod = claiming(&mut testbed, &name, *priority, *wish);
        testbed.pod(&pod);
        // Those that find no free place are none that run.
        let ops = testbed.ops();
        if ops.iter().any(|op| matches!(op.kind, OpKind::Evict(_))) || ops.is_empty() {
            testbed.drop_pod(&name);
            testbed.drop_claim(&format!("{name}-gpu"));
            continue;
        }
        for op in &ops {
            testbed.complete(op);
        }
        if *priority < PRIORITY {
            lower.push(name);
        }
    }
    let count = if case.is_gang { case.members } else { 1 };
    if case.is_gang {
        testbed.object(&pod_group("g", count, json!({})));
    }
    let members: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    for name in &members {
        let pod = claiming(&mut testbed, name, PRIORITY, case.wish);
        testbed.pod(&if case.is_gang { of_gang(pod) } else { pod });
    }
    let victims = step(&mut testbed);
    assert!(victims.iter().all(|name| lower.contains(name)), "{victims:?} of {lower:?}");
    if victims.is_empty() {
        if is_bound(&testbed, "m0") {
            return;
        }
        // All pods that could be evicted leave.
        leave(&mut testbed, &[], &lower);
        for op in testbed.after(300_000) {
            testbed.complete(&op);
        }
        let is_missed = is_bound(&testbed, "m0");
        assert!(!is_missed, "pods could have been evicted");
        return;
    }
    for (number, victim) in victims.iter().enumerate() {
        leave(&mut testbed, &[], std::slice::from_ref(victim));
        // A pod that comes meanwhile must not take what is nominated.
        let late = claiming(&mut testbed, &format!("late{number}"), 0, Wish::Nic);
        testbed.pod(&late);
        let more = step(&mut testbed);
        assert!(more.is_empty(), "{more:?} are evicted after {victims:?}");
    }
    assert!(members.iter().all(|name| is_bound(&testbed, name)), "{victims:?} left in vain");
}

#[test]
fn pods_are_evicted_where_it_helps() {
    // The search for a gang's victims is not exhaustive, so the cases are always the same.
    let config = ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    runner
        .run(&case(), |case| {
            check(&case);
            Ok(())
        })
        .expect("all cases hold");
}
