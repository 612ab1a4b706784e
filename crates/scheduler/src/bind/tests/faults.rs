//! Every step of a bind meets every fault.

use super::fake_api::InjectedFault;
use super::*;

/// Transient faults: the operation must succeed in the end.
const PASSING: [InjectedFault; 8] = [
    InjectedFault::Forbidden,
    InjectedFault::Status(401),
    InjectedFault::Status(429),
    InjectedFault::Status(500),
    InjectedFault::LostBefore,
    InjectedFault::LostAfter,
    InjectedFault::SilentBefore,
    InjectedFault::SilentAfter,
];

/// A pod with a claim of its own, a shared one that another pod uses, and extended resources.
pub(super) struct Scenario {
    pub(super) api: FakeApi,
    pub(super) pod: PodRef,
    pub(super) op: Bind,
}

const OTHER: &str = "uid-other";

pub(super) fn scenario() -> Scenario {
    let api = FakeApi::default();
    let (pod, own) = (put_pod(&api, "p"), put_claim(&api, "own"));
    put_claim(&api, "shared");
    api.edit(&claim_path("shared"), |claim| {
        claim["metadata"]["finalizers"] = json!([responses::FINALIZER]);
        claim["status"] = json!({
            "allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com",
                "pool": NODE, "device": "gpu-7"}]}},
            "reservedFor": [{"resource": "pods", "name": "other", "uid": OTHER}],
        });
    });
    let claims = vec![write(&own, &["gpu-0"]), reserve_only(&seen(&api, "shared"))];
    let op = Bind { extended: Some(extended(&["gpu-1"])), ..bind(&pod, claims) };
    Scenario { api, pod, op }
}

/// Requests of the scenario without faults: create, status, pod status; finalizer, status; reserve;
/// bind.
pub(super) const STEPS: usize = 7;

impl Scenario {
    pub(super) fn assert_done(&self, what: &str) {
        let Self { api, pod, .. } = self;
        assert_eq!(bound_to(api, "p").as_deref(), Some(NODE), "{what}");
        let made = made(api);
        assert_eq!(made.len(), 1, "{what}: {made:?}");
        for claim in ["own", "shared", &made[0]] {
            assert!(is_taken(api, claim, pod), "{what}: {claim}");
        }
        let status = &api.object(&pod_path("p")).unwrap()["status"]["extendedResourceClaimStatus"];
        assert_eq!(status["resourceClaimName"], made[0], "{what}");
        self.assert_other_keeps_its_claim(what);
    }

    /// Claims that are not listed as unreleased have no trace of the operation.
    pub(super) fn assert_undone_but(&self, left: &[ObjectName], what: &str) {
        let Self { api, pod, .. } = self;
        let is_left = |claim: &str| left.iter().any(|name| *name.name == *claim);
        assert!(is_left("own") || is_clean(api, "own"), "{what}: {:?}", api.object("own"));
        assert!(is_left("shared") || !is_taken(api, "shared", pod), "{what}");
        for claim in made(api) {
            assert!(is_left(&claim), "{what}: {claim} exists, but unreleased are {left:?}");
        }
        if left.is_empty() && api.object(&pod_path("p")).is_some() {
            let status =
                &api.object(&pod_path("p")).unwrap()["status"]["extendedResourceClaimStatus"];
            assert!(status.is_null(), "{what}: {status}");
        }
        self.assert_other_keeps_its_claim(what);
    }

    fn assert_other_keeps_its_claim(&self, what: &str) {
        let other = PodRef { uid: OTHER.into(), ..pod_ref("other") };
        assert!(is_taken(&self.api, "shared", &other), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn transient_fault_at_any_step_does_not_fail_the_bind() {
    for fault in PASSING {
        for step in 0..STEPS {
            let scenario = scenario();
            scenario.api.inject(step, fault);
            let mut harness = Harness::new(&scenario.api);
            let what = format!("{fault:?} at {step}");
            let result = harness.carry_out(OpKind::Bind(scenario.op.clone())).await;
            assert_eq!(result, Ok(()), "{what}");
            scenario.assert_done(&what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_faults_in_a_row_do_no_harm() {
    for (first, second) in PASSING.iter().flat_map(|a| PASSING.map(|b| (*a, b))) {
        for step in 0..STEPS {
            let scenario = scenario();
            scenario.api.inject(step, first);
            scenario.api.inject(step + 1, second);
            // Two timeouts in a row exceed the default retry timeout.
            let retry_timeout = Duration::from_mins(1);
            let options = BinderOptions { retry_timeout, ..BinderOptions::default() };
            let mut harness = Harness::with(&scenario.api, options);
            let what = format!("{first:?}, {second:?} at {step}");
            assert_eq!(
                harness.carry_out(OpKind::Bind(scenario.op.clone())).await,
                Ok(()),
                "{what}"
            );
            scenario.assert_done(&what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rejection_at_any_step_is_rolled_back() {
    for code in [403, 404, 409, 422] {
        for step in 0..STEPS {
            let scenario = scenario();
            scenario.api.inject(step, InjectedFault::Status(code));
            let mut harness = Harness::new(&scenario.api);
            let what = format!("{code} at {step}");
            match harness.carry_out(OpKind::Bind(scenario.op.clone())).await {
                Ok(()) => {
                    // A conflict that has resolved.
                    assert_eq!(code, 409, "{what}");
                    scenario.assert_done(&what);
                }
                Err(failure) => {
                    assert_eq!(failure.unreleased, [], "{what}: {failure:?}");
                    assert_eq!(bound_to(&scenario.api, "p"), None, "{what}");
                    scenario.assert_undone_but(&[], &what);
                    let is_refusal = matches!(code, 403 | 422);
                    assert_eq!(
                        failure.kind == FailureKind::Rejected,
                        is_refusal,
                        "{what}: {failure:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_lease_ends_all_writes_and_lists_unreleased_claims() {
    for step in 0..STEPS {
        let scenario = scenario();
        scenario.api.inject(step, InjectedFault::NotLeader);
        let mut harness = Harness::new(&scenario.api);
        let what = format!("lease lost at {step}");
        let failure = harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::NotLeader, "{what}");
        assert_eq!(scenario.api.writes().len(), step, "{what}: no write after it");
        assert_eq!(failure.unreleased.is_empty(), step == 0, "{what}: {failure:?}");
        scenario.assert_undone_but(&failure.unreleased, &what);
        take_over(&scenario, &what).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_leaves_only_the_listed_claims() {
    for fault in
        [InjectedFault::LostBefore, InjectedFault::SilentBefore, InjectedFault::Status(429)]
    {
        for step in 0..STEPS {
            let scenario = scenario();
            scenario.api.inject_from(step, fault);
            let mut harness = Harness::new(&scenario.api);
            let what = format!("{fault:?} from {step}");
            let failure = harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
            let is_sent = step == STEPS - 1 && fault != InjectedFault::Status(429);
            let kind = if is_sent { FailureKind::Indeterminate } else { FailureKind::Unreachable };
            assert_eq!(failure.kind, kind, "{what}");
            scenario.assert_undone_but(&failure.unreleased, &what);
            take_over(&scenario, &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn indeterminate_binding_is_not_rolled_back() {
    for fault in [InjectedFault::LostAfter, InjectedFault::SilentAfter] {
        let scenario = scenario();
        scenario.api.inject(STEPS - 1, fault);
        scenario.api.inject_from(STEPS, InjectedFault::LostBefore);
        let mut harness = Harness::new(&scenario.api);
        // The server is back while a rollback would still be retried.
        let back = scenario.api.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            back.clear_faults();
        });
        let failure = harness.carry_out(OpKind::Bind(scenario.op.clone())).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Indeterminate);
        assert_eq!(failure.unreleased.len(), 3, "{failure:?}");
        scenario.assert_done("bound, with an unknown outcome");
        // The next rollback reads that the pod is bound, and releases nothing.
        scenario.api.clear_faults();
        let claim = seen(&scenario.api, "own");
        let rollback = OpKind::Rollback { pod: scenario.pod.clone(), claim };
        let failure = harness.carry_out(rollback).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::AlreadyBound);
        scenario.assert_done("still bound");
    }
}

#[tokio::test(start_paused = true)]
async fn next_leader_cleans_up_after_a_crash_at_any_step() {
    for step in 0..STEPS {
        for fault in [InjectedFault::SilentBefore, InjectedFault::SilentAfter] {
            let scenario = scenario();
            scenario.api.inject(step, fault);
            let harness = Harness::new(&scenario.api);
            harness.send(1, OpKind::Bind(scenario.op.clone())).await;
            while scenario.api.count() <= step {
                tokio::task::yield_now().await;
            }
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            harness.binder.task.abort();
            drop(harness);
            let what = format!("killed at {step}, {fault:?}");
            if bound_to(&scenario.api, "p").is_some() {
                scenario.assert_done(&what);
            } else {
                take_over(&scenario, &what).await;
            }
        }
    }
}

/// The next leader rolls back all that it observes of the pod, then binds it.
async fn take_over(scenario: &Scenario, what: &str) {
    let Scenario { api, pod, .. } = scenario;
    api.clear_faults();
    let mut harness = Harness::new(api);
    let claims = api.paths().into_iter().filter(|path| path.contains("resourceclaims"));
    for path in claims {
        let claim = seen(api, path.rsplit('/').next().unwrap());
        let rollback_step = harness.carry_out(OpKind::Rollback { pod: pod.clone(), claim }).await;
        assert_eq!(rollback_step, Ok(()), "{what}: {path}");
    }
    assert!(is_clean(api, "own"), "{what}");
    assert!(!is_taken(api, "shared", pod), "{what}");
    assert_eq!(made(api), [""; 0], "{what}");
    scenario.assert_other_keeps_its_claim(what);
    let claims = vec![write(&seen(api, "own"), &["gpu-0"]), reserve_only(&seen(api, "shared"))];
    let op = Bind { extended: Some(extended(&["gpu-2"])), ..bind(pod, claims) };
    assert_eq!(harness.carry_out(OpKind::Bind(op)).await, Ok(()), "{what}");
    scenario.assert_done(what);
}
