//! Operations with an unknown outcome that are retried unchanged.

use proptest::prelude::*;

use super::fake_api::InjectedFault;
use super::faults::{STEPS, Scenario, scenario};
use super::*;

/// Faults that lose the response.
const LOST: [InjectedFault; 4] = [
    InjectedFault::LostBefore,
    InjectedFault::LostAfter,
    InjectedFault::SilentBefore,
    InjectedFault::SilentAfter,
];

impl Scenario {
    fn retry(&self) -> OpKind {
        OpKind::Bind(Bind { is_retry: true, ..self.op.clone() })
    }

    fn assert_bound_once(&self, what: &str) {
        self.assert_done(what);
        let writes = self.api.writes();
        let bindings = writes.iter().filter(|write| write.ends_with("/binding"));
        assert_eq!(bindings.count(), 1, "{what}: {writes:?}");
        for claim in self.api.paths().iter().filter(|path| path.contains("resourceclaims")) {
            let object = self.api.object(claim).unwrap();
            let users = list(&object["status"]["reservedFor"]);
            let ours = users.iter().filter(|user| user["uid"] == *self.pod.uid);
            assert_eq!(ours.count(), 1, "{what}: {object}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_a_lost_response_binds_once() {
    for fault in LOST {
        for step in 0..STEPS {
            let scenario = scenario();
            scenario.api.inject(step, fault);
            scenario.api.inject_from(step + 1, InjectedFault::LostBefore);
            let mut harness = Harness::new(&scenario.api);
            let what = format!("{fault:?} at {step}");
            let failure = harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
            let is_last = step == STEPS - 1;
            assert_eq!(failure.kind == FailureKind::Indeterminate, is_last, "{what}: {failure:?}");
            scenario.api.clear_faults();
            assert_eq!(harness.carry_out(scenario.retry()).await, Ok(()), "{what}");
            scenario.assert_bound_once(&what);
            // Another retry only reads.
            let writes = scenario.api.writes().len();
            assert_eq!(harness.carry_out(scenario.retry()).await, Ok(()), "{what}");
            assert_eq!(scenario.api.writes().len(), writes, "{what}");
        }
    }
}

/// The operation is rejected at one step, and its rollback is interrupted at any of its own steps.
#[tokio::test(start_paused = true)]
async fn retry_after_a_partial_rollback_binds_once() {
    for (step, rollback_step) in
        (0..STEPS).flat_map(|step| (0..10).map(move |rollback_step| (step, rollback_step)))
    {
        for fault in [InjectedFault::LostBefore, InjectedFault::LostAfter] {
            let scenario = scenario();
            let cut = step + 1 + rollback_step;
            scenario.api.inject(step, InjectedFault::Status(403));
            scenario.api.inject(cut, fault);
            scenario.api.inject_from(cut + 1, InjectedFault::LostBefore);
            let mut harness = Harness::new(&scenario.api);
            let what = format!("refused at {step}, {fault:?} at {cut}");
            harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
            scenario.api.clear_faults();
            assert_eq!(harness.carry_out(scenario.retry()).await, Ok(()), "{what}");
            scenario.assert_bound_once(&what);
        }
    }
}

/// The operation may have found a claim allocated that its own rollback then released.
#[tokio::test(start_paused = true)]
async fn pod_is_not_bound_with_a_claim_its_own_op_released() {
    let api = FakeApi::default();
    let (pod, other) = (put_pod(&api, "p"), put_claim(&api, "other"));
    put_claim(&api, "found");
    api.edit(&claim_path("found"), |claim| {
        claim["metadata"]["finalizers"] = json!([responses::FINALIZER]);
        claim["status"] = json!({
            "allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com",
                "pool": NODE, "device": "gpu-7"}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": *pod.uid}],
        });
    });
    let op = bind(&pod, vec![reserve_only(&seen(&api, "found")), write(&other, &["gpu-0"])]);
    // Requests: reservation of the claim found allocated, finalizer and status of the other claim,
    // binding; then the rollback with two reads and four writes. The claim found allocated is last.
    api.inject(3, InjectedFault::Status(403));
    api.inject_from(10, InjectedFault::LostBefore);
    let mut harness = Harness::new(&api);
    let failure = harness.carry_out(OpKind::Bind(op.clone())).await.unwrap_err();
    assert_eq!(failure.unreleased, [ObjectName::new("team", "found")], "{:?}", api.seen());
    assert!(api.object(&claim_path("found")).unwrap()["status"]["allocation"].is_null());
    api.clear_faults();
    let retry = Bind { is_retry: true, ..op };
    let failure = harness.carry_out(OpKind::Bind(retry)).await.unwrap_err();
    assert_eq!((failure.kind, failure.unreleased), (FailureKind::Conflict, Vec::new()));
    assert_eq!(bound_to(&api, "p"), None);
    assert!(is_clean(&api, "found") && is_clean(&api, "other"));
}

/// The retry is rejected at every request, after the first attempt wrote everything.
#[tokio::test(start_paused = true)]
async fn failed_retry_rolls_back_the_first_attempt() {
    for (step, refused) in (1..STEPS).flat_map(|step| (1..12).map(move |one| (step, one))) {
        let scenario = scenario();
        scenario.api.inject(step, InjectedFault::LostAfter);
        scenario.api.inject_from(step + 1, InjectedFault::LostBefore);
        let mut harness = Harness::new(&scenario.api);
        let what = format!("lost at {step}, refused at request {refused} of the second");
        harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
        scenario.api.clear_faults();
        scenario.api.inject(scenario.api.count() + refused, InjectedFault::Status(403));
        match harness.carry_out(scenario.retry()).await {
            Ok(()) => scenario.assert_bound_once(&what),
            Err(failure) => {
                assert_eq!(failure.unreleased, [], "{what}: {failure:?}");
                assert_eq!(bound_to(&scenario.api, "p"), None, "{what}");
                scenario.assert_undone_but(&[], &what);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn indeterminate_retry_rolls_nothing_back() {
    let scenario = scenario();
    scenario.api.inject(STEPS - 1, InjectedFault::LostAfter);
    scenario.api.inject_from(STEPS, InjectedFault::LostBefore);
    let mut harness = Harness::new(&scenario.api);
    for op in [OpKind::Bind(scenario.op.clone()), scenario.retry(), scenario.retry()] {
        let failure = harness.carry_out(op).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Indeterminate);
        assert_eq!(failure.unreleased.len(), 3, "{failure:?}");
        scenario.assert_done("bound, with an unknown outcome");
    }
    scenario.api.clear_faults();
    assert_eq!(harness.carry_out(scenario.retry()).await, Ok(()));
    scenario.assert_bound_once("known at last");
}

#[tokio::test(start_paused = true)]
async fn retry_for_a_gone_pod_leaves_nothing() {
    let spoil: [fn(&FakeApi); 2] = [
        |api| api.remove(&pod_path("p")),
        |api| {
            api.edit(&pod_path("p"), |pod| {
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            });
        },
    ];
    for (number, spoil) in spoil.iter().enumerate() {
        let scenario = scenario();
        scenario.api.inject(STEPS - 1, InjectedFault::LostBefore);
        scenario.api.inject_from(STEPS, InjectedFault::LostBefore);
        let mut harness = Harness::new(&scenario.api);
        harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
        scenario.api.clear_faults();
        spoil(&scenario.api);
        let failure = harness.carry_out(scenario.retry()).await.unwrap_err();
        assert_eq!((failure.kind, &failure.unreleased[..]), (FailureKind::PodGone, &[][..]));
        scenario.assert_undone_but(&[], &format!("{number}"));
    }
}

#[tokio::test(start_paused = true)]
async fn retry_for_a_pod_bound_by_others_keeps_node_and_claims() {
    let scenario = scenario();
    scenario.api.inject(STEPS - 1, InjectedFault::LostBefore);
    scenario.api.inject_from(STEPS, InjectedFault::LostBefore);
    let mut harness = Harness::new(&scenario.api);
    harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
    scenario.api.clear_faults();
    scenario.api.edit(&pod_path("p"), |pod| pod["spec"]["nodeName"] = "elsewhere".into());
    let failure = harness.carry_out(scenario.retry()).await.unwrap_err();
    assert_eq!((failure.kind, failure.unreleased), (FailureKind::AlreadyBound, Vec::new()));
    assert_eq!(bound_to(&scenario.api, "p").as_deref(), Some("elsewhere"));
    assert!(is_taken(&scenario.api, "own", &scenario.pod));
}

#[tokio::test(start_paused = true)]
async fn pod_without_claims_can_be_indeterminate() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    api.inject(0, InjectedFault::LostAfter);
    api.inject_from(1, InjectedFault::LostBefore);
    let mut harness = Harness::new(&api);
    let failure = harness.carry_out(OpKind::Bind(bind(&pod, Vec::new()))).await.unwrap_err();
    assert_eq!((failure.kind, failure.unreleased), (FailureKind::Indeterminate, Vec::new()));
}

/// A reader of the unreleased claims must see all writes.
#[tokio::test(start_paused = true)]
async fn failure_is_reported_once_no_write_can_take_effect() {
    for step in 0..STEPS {
        let scenario = scenario();
        scenario.api.inject(step, InjectedFault::LostAfter);
        scenario.api.inject_from(step + 1, InjectedFault::LostBefore);
        let retry_timeout = Duration::from_secs(1);
        let options = BinderOptions { retry_timeout, ..BinderOptions::default() };
        let mut harness = Harness::with(&scenario.api, options);
        let begun = tokio::time::Instant::now();
        let failure = harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
        assert!(!failure.unreleased.is_empty(), "{step}: {failure:?}");
        // The request carried this deadline.
        assert!(begun.elapsed() > options.timeout, "{step}: {:?}", begun.elapsed());
    }
}

fn any_fault() -> impl Strategy<Value = InjectedFault> {
    prop_oneof![
        Just(InjectedFault::Status(403)),
        Just(InjectedFault::Status(409)),
        Just(InjectedFault::Status(422)),
        Just(InjectedFault::Status(429)),
        Just(InjectedFault::Status(500)),
        Just(InjectedFault::Forbidden),
        Just(InjectedFault::LostBefore),
        Just(InjectedFault::LostAfter),
        Just(InjectedFault::SilentBefore),
        Just(InjectedFault::SilentAfter),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn retried_op_binds_once_or_leaves_nothing(
        sendings in proptest::collection::vec(
            (proptest::collection::btree_map(0..14_usize, any_fault(), 0..4), 1..20_usize),
            1..4,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let scenario = scenario();
            let mut harness = Harness::new(&scenario.api);
            let mut op = OpKind::Bind(scenario.op.clone());
            let mut sendings = sendings.into_iter();
            loop {
                scenario.api.clear_faults();
                let begin = scenario.api.count();
                if let Some((faults, away)) = sendings.next() {
                    for (number, fault) in faults {
                        scenario.api.inject(begin + number, fault);
                    }
                    scenario.api.inject_from(begin + away, InjectedFault::LostBefore);
                }
                let result = harness.carry_out(op.clone()).await;
                scenario.api.clear_faults();
                match result {
                    Ok(()) => return scenario.assert_bound_once("carried out"),
                    Err(failure)
                        if failure.unreleased.is_empty() && failure.kind != FailureKind::Indeterminate =>
                    {
                        assert_eq!(bound_to(&scenario.api, "p"), None, "{failure:?}");
                        // The pod's next operation writes this status again.
                        scenario.api.edit(&pod_path("p"), |pod| pod["status"] = json!({}));
                        return scenario.assert_undone_but(&[], &failure.to_string());
                    }
                    Err(_) => op = scenario.retry(),
                }
            }
        });
    }
}
