//! Two pods share a claim, with faults and in any order.

use proptest::prelude::*;

use super::fake_api::InjectedFault;
use super::*;

fn any_fault() -> impl Strategy<Value = Option<(usize, InjectedFault)>> {
    let fault = prop_oneof![
        Just(InjectedFault::Status(403)),
        Just(InjectedFault::Status(409)),
        Just(InjectedFault::Status(422)),
        Just(InjectedFault::Status(429)),
        Just(InjectedFault::Status(500)),
        Just(InjectedFault::LostBefore),
        Just(InjectedFault::LostAfter),
        Just(InjectedFault::SilentBefore),
        Just(InjectedFault::SilentAfter),
    ];
    proptest::option::of((0..12_usize, fault))
}

/// How the second pod depends on the claim.
#[derive(Clone, Copy, Debug)]
enum Second {
    /// It waits for the first pod's allocation.
    Waits,
    /// Both write the same allocation.
    AllocatesToo,
    /// It wants other devices, so one of the two must fail.
    WantsOthers,
}

#[tokio::test(start_paused = true)]
async fn pods_sharing_a_claim_wait_for_its_allocation() {
    let api = FakeApi::default();
    let (claim, own) = (put_claim(&api, "shared"), put_claim(&api, "own"));
    // The first pod is slow with its own claim. The others reach the shared one long before it.
    api.interleave(vec![(100, 100), (100, 100)]);
    let mut harness = Harness::new(&api);
    let first = put_pod(&api, "p0");
    let claims = vec![write(&own, &["gpu-1"]), write(&claim, &["gpu-0"])];
    harness.send(0, OpKind::Bind(bind(&first, claims))).await;
    for number in 1..10 {
        let pod = put_pod(&api, &format!("p{number}"));
        harness.send(number, OpKind::Bind(bind(&pod, vec![reserve_only(&claim)]))).await;
    }
    for _ in 0..10 {
        assert_eq!(harness.outcome().await.result.map(drop), Ok(()));
    }
    assert_eq!(api.count(), 5 + 9 * 2, "no request was in vain");
    let object = api.object(&claim_path("shared")).unwrap();
    assert_eq!(list(&object["status"]["reservedFor"]).len(), 10);
}

proptest! {
    #[test]
    fn each_pod_is_bound_with_its_claim_or_leaves_nothing(
        yields in proptest::collection::vec((0..6_u8, 0..6_u8), 40),
        first in any_fault(),
        second in any_fault(),
        third in any_fault(),
        kind in prop_oneof![
            Just(Second::Waits), Just(Second::AllocatesToo), Just(Second::WantsOthers)
        ],
        has_own in any::<bool>(),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let api = FakeApi::default();
            let (one, two) = (put_pod(&api, "one"), put_pod(&api, "two"));
            let (claim, own) = (put_claim(&api, "shared"), put_claim(&api, "own"));
            api.interleave(yields);
            for (number, fault) in [first, second, third].into_iter().flatten() {
                api.inject(number, fault);
            }
            let mut first_claims = vec![write(&claim, &["gpu-0"])];
            if has_own {
                first_claims.insert(0, write(&own, &["gpu-1"]));
            }
            let second_claim = match kind {
                Second::Waits => reserve_only(&claim),
                Second::AllocatesToo => write(&claim, &["gpu-0"]),
                Second::WantsOthers => write(&claim, &["gpu-2"]),
            };
            let retry_timeout = Duration::from_mins(2);
            let options = BinderOptions { retry_timeout, ..BinderOptions::default() };
            let mut harness = Harness::with(&api, options);
            let ops = [bind(&one, first_claims), bind(&two, vec![second_claim])];
            harness.send(1, OpKind::Bind(ops[0].clone())).await;
            harness.send(2, OpKind::Bind(ops[1].clone())).await;
            let mut results = [harness.outcome().await, harness.outcome().await];
            results.sort_by_key(|outcome| outcome.id);
            let refusals = [InjectedFault::Status(403), InjectedFault::Status(422)];
            let faults = [first, second, third].into_iter().flatten();
            let may_leave = faults.map(|(_, fault)| fault).any(|t| refusals.contains(&t));
            api.clear_faults();
            for (outcome, op) in results.iter_mut().zip(ops) {
                // The read of a pod with an indeterminate binding may be rejected too, so the bind
                // is retried.
                let failure = outcome.result.as_ref().err();
                if may_leave && failure.is_some_and(|one| one.kind == FailureKind::Indeterminate) {
                    let retry = OpKind::Bind(Bind { is_retry: true, ..op });
                    harness.send(3, retry).await;
                    outcome.result = harness.outcome().await.result;
                }
            }
            for (pod, outcome) in [(&one, &results[0]), (&two, &results[1])] {
                let name = &pod.name.name;
                let is_bound = bound_to(&api, name).is_some();
                assert_eq!(is_bound, outcome.result.is_ok(), "{name}: {outcome:?}");
                let unreleased = outcome.result.clone().err().map_or(Vec::new(), |failure| failure.unreleased);
                assert!(unreleased.is_empty() || may_leave, "{name}: {outcome:?}");
                // A rejected rollback is completed by the next one.
                for claim in unreleased {
                    let claim = seen(&api, &claim.name);
                    let rollback = OpKind::Rollback { pod: pod.clone(), claim };
                    assert_eq!(harness.carry_out(rollback).await, Ok(()));
                }
            }
            let users = [&one, &two].map(|pod| {
                let is_bound = bound_to(&api, &pod.name.name).is_some();
                assert_eq!(is_bound, is_taken(&api, "shared", pod), "{pod:?}: {results:?}");
                usize::from(is_bound)
            });
            let users: usize = users.iter().sum();
            assert!(users > 0 || is_clean(&api, "shared"), "{:?}", api.object(&claim_path("shared")));
            let is_first_bound = results[0].result.is_ok();
            assert_eq!(has_own && is_first_bound, is_taken(&api, "own", &one));
            assert!(is_first_bound || is_clean(&api, "own"), "{results:?}");
            if matches!(kind, Second::WantsOthers) {
                assert!(users < 2, "one device for two");
            }
        });
    }
}
