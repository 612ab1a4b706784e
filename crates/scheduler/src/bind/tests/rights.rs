//! A server that starts and does not know yet who may do what, and rights that are really missing.

use super::fake_api::Trouble;
use super::faults::{STEPS, scene};
use super::*;

/// The server knows its users again after this long.
fn knows_after(api: &FakeApi, seconds: u64) {
    let api = api.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        api.calm();
    });
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_anybody_yet_hinders_no_order() {
    for trouble in [Trouble::Forbidden, Trouble::Answer(401)] {
        for step in 0..STEPS {
            let scene = scene();
            scene.api.trouble_from(step, trouble);
            knows_after(&scene.api, 3);
            let mut bench = Bench::new(&scene.api);
            let what = format!("{trouble:?} from {step}");
            let result = bench.carry_out(Task::Bind(scene.order.clone())).await;
            assert_eq!(result, Ok(()), "{what}");
            scene.assert_done(&what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_for_until_the_server_knows_who_asks() {
    for trouble in [Trouble::LostBefore, Trouble::LostAfter, Trouble::Answer(500)] {
        for step in 0..STEPS {
            let scene = scene();
            scene.api.trouble(step, trouble);
            scene.api.trouble_from(step + 1, Trouble::Forbidden);
            knows_after(&scene.api, 3);
            let mut bench = Bench::new(&scene.api);
            let what = format!("{trouble:?} at {step}");
            let result = bench.carry_out(Task::Bind(scene.order.clone())).await;
            assert_eq!(result, Ok(()), "{what}");
            scene.assert_done(&what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_told_and_holds_up_the_first_order_alone() {
    let api = FakeApi::default();
    let pods: Vec<_> = (0..4).map(|number| put_pod(&api, &format!("p{number}"))).collect();
    let order = |number: usize| Task::Bind(bind(&pods[number], Vec::new()));
    api.trouble_from(0, Trouble::Forbidden);
    let mut bench = Bench::new(&api);
    let failure = bench.carry_out(order(0)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.message.contains("cannot post"), "{failure}");
    assert!(api.count() > 2, "it was repeated");
    let before = api.count();
    let failure = bench.carry_out(order(1)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert_eq!(api.count() - before, 2, "the binding and a look at the pod, once each");
    // Somebody has given it. From then on it may be missing for a while again.
    api.calm();
    assert_eq!(bench.carry_out(order(2)).await, Ok(()));
    api.trouble_from(api.count(), Trouble::Forbidden);
    knows_after(&api, 3);
    assert_eq!(bench.carry_out(order(3)).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_anybody_is_not_taken_for_overloaded() {
    let api = FakeApi::default();
    let options = BinderOptions { most_in_flight: 8, ..BinderOptions::default() };
    api.trouble_from(0, Trouble::Forbidden);
    let mut bench = Bench::with(&api, options);
    for number in 0..8 {
        let pod = put_pod(&api, &format!("p{number}"));
        bench.send(number, Task::Bind(bind(&pod, Vec::new()))).await;
    }
    knows_after(&api, 3);
    for _ in 0..8 {
        assert_eq!(bench.outcome().await.result, Ok(()));
    }
    // All at once again, and nothing is open that was shut: the window is as wide as it was.
    api.interleave(vec![(20, 0); 8]);
    for number in 8..16 {
        let pod = put_pod(&api, &format!("p{number}"));
        bench.send(number, Task::Bind(bind(&pod, Vec::new()))).await;
    }
    for _ in 0..8 {
        assert_eq!(bench.outcome().await.result, Ok(()));
    }
    assert_eq!(api.most_flying(), 8);
}
