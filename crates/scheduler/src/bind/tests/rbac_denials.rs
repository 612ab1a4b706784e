//! A starting server without RBAC data, and rights that are really missing.

use super::fake_api::InjectedFault;
use super::faults::{STEPS, scenario};
use super::*;

/// The server has its RBAC data after this long.
fn knows_after(api: &FakeApi, seconds: u64) {
    let api = api.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        api.clear_faults();
    });
}

#[tokio::test(start_paused = true)]
async fn starting_server_does_not_fail_binds() {
    for fault in [InjectedFault::Forbidden, InjectedFault::Status(401)] {
        for step in 0..STEPS {
            let scenario = scenario();
            scenario.api.inject_from(step, fault);
            knows_after(&scenario.api, 3);
            let mut harness = Harness::new(&scenario.api);
            let what = format!("{fault:?} from {step}");
            let result = harness.carry_out(OpKind::Bind(scenario.op.clone())).await;
            assert_eq!(result, Ok(()), "{what}");
            scenario.assert_done(&what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_response_is_resolved_once_access_is_granted() {
    for fault in [InjectedFault::LostBefore, InjectedFault::LostAfter, InjectedFault::Status(500)] {
        for step in 0..STEPS {
            let scenario = scenario();
            scenario.api.inject(step, fault);
            scenario.api.inject_from(step + 1, InjectedFault::Forbidden);
            knows_after(&scenario.api, 3);
            let mut harness = Harness::new(&scenario.api);
            let what = format!("{fault:?} at {step}");
            let result = harness.carry_out(OpKind::Bind(scenario.op.clone())).await;
            assert_eq!(result, Ok(()), "{what}");
            scenario.assert_done(&what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn missing_right_is_reported_and_delays_the_first_op_only() {
    let api = FakeApi::default();
    let pods: Vec<_> = (0..4).map(|number| put_pod(&api, &format!("p{number}"))).collect();
    let op = |number: usize| OpKind::Bind(bind(&pods[number], Vec::new()));
    api.inject_from(0, InjectedFault::Forbidden);
    let mut harness = Harness::new(&api);
    let failure = harness.carry_out(op(0)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Rejected);
    assert!(failure.message.contains("cannot post"), "{failure}");
    assert!(api.count() > 2, "it was repeated");
    let before = api.count();
    let failure = harness.carry_out(op(1)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Rejected);
    assert_eq!(api.count() - before, 2, "the binding and a look at the pod, once each");
    // The right is granted. From then on a denial is retried again.
    api.clear_faults();
    assert_eq!(harness.carry_out(op(2)).await, Ok(()));
    api.inject_from(api.count(), InjectedFault::Forbidden);
    knows_after(&api, 3);
    assert_eq!(harness.carry_out(op(3)).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn access_denials_do_not_count_as_overload() {
    let api = FakeApi::default();
    let options = BinderOptions { max_in_flight: 8, ..BinderOptions::default() };
    api.inject_from(0, InjectedFault::Forbidden);
    let mut harness = Harness::with(&api, options);
    for number in 0..8 {
        let pod = put_pod(&api, &format!("p{number}"));
        harness.send(number, OpKind::Bind(bind(&pod, Vec::new()))).await;
    }
    knows_after(&api, 3);
    for _ in 0..8 {
        assert_eq!(harness.outcome().await.result.map(drop), Ok(()));
    }
    // All run at once again: the concurrency limit was not lowered.
    api.interleave(vec![(20, 0); 8]);
    for number in 8..16 {
        let pod = put_pod(&api, &format!("p{number}"));
        harness.send(number, OpKind::Bind(bind(&pod, Vec::new()))).await;
    }
    for _ in 0..8 {
        assert_eq!(harness.outcome().await.result.map(drop), Ok(()));
    }
    assert_eq!(api.max_in_flight(), 8);
}
