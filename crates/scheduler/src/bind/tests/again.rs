//! Orders that ended undecided and are sent again, as they were.

use proptest::prelude::*;

use super::fake_api::Trouble;
use super::faults::{STEPS, Scene, scene};
use super::*;

/// Ways in which an answer is lost.
const LOST: [Trouble; 4] =
    [Trouble::LostBefore, Trouble::LostAfter, Trouble::SilentBefore, Trouble::SilentAfter];

impl Scene {
    fn again(&self) -> Task {
        Task::Bind(Bind { is_again: true, ..self.order.clone() })
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
async fn an_order_whose_answer_was_lost_at_any_step_is_carried_out_once_when_sent_again() {
    for trouble in LOST {
        for step in 0..STEPS {
            let scene = scene();
            scene.api.trouble(step, trouble);
            scene.api.trouble_from(step + 1, Trouble::LostBefore);
            let mut bench = Bench::new(&scene.api);
            let what = format!("{trouble:?} at {step}");
            let failure = bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
            let is_last = step == STEPS - 1;
            assert_eq!(failure.kind == FailureKind::Undecided, is_last, "{what}: {failure:?}");
            scene.api.calm();
            assert_eq!(bench.carry_out(scene.again()).await, Ok(()), "{what}");
            scene.assert_bound_once(&what);
            // Once more does nothing but look.
            let writes = scene.api.writes().len();
            assert_eq!(bench.carry_out(scene.again()).await, Ok(()), "{what}");
            assert_eq!(scene.api.writes().len(), writes, "{what}");
        }
    }
}

/// The order is refused at a step, and its undoing is cut short at any of its own.
#[tokio::test(start_paused = true)]
async fn an_order_that_was_undone_half_way_is_carried_out_when_sent_again() {
    for (step, undone) in (0..STEPS).flat_map(|step| (0..10).map(move |undone| (step, undone))) {
        for trouble in [Trouble::LostBefore, Trouble::LostAfter] {
            let scene = scene();
            let cut = step + 1 + undone;
            scene.api.trouble(step, Trouble::Answer(403));
            scene.api.trouble(cut, trouble);
            scene.api.trouble_from(cut + 1, Trouble::LostBefore);
            let mut bench = Bench::new(&scene.api);
            let what = format!("refused at {step}, {trouble:?} at {cut}");
            bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
            scene.api.calm();
            assert_eq!(bench.carry_out(scene.again()).await, Ok(()), "{what}");
            scene.assert_bound_once(&what);
        }
    }
}

/// What was taken back by the order's own undoing may have been found allocated by it.
#[tokio::test(start_paused = true)]
async fn a_pod_is_not_bound_with_a_claim_that_its_own_order_gave_back() {
    let api = FakeApi::default();
    let (pod, other) = (put_pod(&api, "p"), put_claim(&api, "other"));
    put_claim(&api, "found");
    api.edit(&claim_path("found"), |claim| {
        claim["metadata"]["finalizers"] = json!([answers::FINALIZER]);
        claim["status"] = json!({
            "allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com",
                "pool": NODE, "device": "gpu-7"}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": *pod.uid}],
        });
    });
    let order = bind(&pod, vec![reserve_only(&seen(&api, "found")), write(&other, &["gpu-0"])]);
    // Finalizer and status of the other, binding; then the undoing: two looks and four writes, the claim that was
    // found last.
    api.trouble(2, Trouble::Answer(403));
    api.trouble_from(9, Trouble::LostBefore);
    let mut bench = Bench::new(&api);
    let failure = bench.carry_out(Task::Bind(order.clone())).await.unwrap_err();
    assert_eq!(failure.left, [ObjectName::new("team", "found")], "{:?}", api.seen());
    assert!(api.object(&claim_path("found")).unwrap()["status"]["allocation"].is_null());
    api.calm();
    let again = Bind { is_again: true, ..order };
    let failure = bench.carry_out(Task::Bind(again)).await.unwrap_err();
    assert_eq!((failure.kind, failure.left), (FailureKind::Conflict, Vec::new()));
    assert_eq!(bound_to(&api, "p"), None);
    assert!(is_clean(&api, "found") && is_clean(&api, "other"));
}

/// Refused at every request of its second sending, with all written by the first.
#[tokio::test(start_paused = true)]
async fn an_order_that_fails_when_sent_again_takes_back_what_it_left_the_first_time() {
    for (step, refused) in (1..STEPS).flat_map(|step| (1..12).map(move |one| (step, one))) {
        let scene = scene();
        scene.api.trouble(step, Trouble::LostAfter);
        scene.api.trouble_from(step + 1, Trouble::LostBefore);
        let mut bench = Bench::new(&scene.api);
        let what = format!("lost at {step}, refused at request {refused} of the second");
        bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
        scene.api.calm();
        scene.api.trouble(scene.api.count() + refused, Trouble::Answer(403));
        match bench.carry_out(scene.again()).await {
            Ok(()) => scene.assert_bound_once(&what),
            Err(failure) => {
                assert_eq!(failure.left, [], "{what}: {failure:?}");
                assert_eq!(bound_to(&scene.api, "p"), None, "{what}");
                scene.assert_undone_but(&[], &what);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_from_a_pod_that_is_bound_though_nobody_can_be_asked_again() {
    let scene = scene();
    scene.api.trouble(STEPS - 1, Trouble::LostAfter);
    scene.api.trouble_from(STEPS, Trouble::LostBefore);
    let mut bench = Bench::new(&scene.api);
    for order in [Task::Bind(scene.order.clone()), scene.again(), scene.again()] {
        let failure = bench.carry_out(order).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Undecided);
        assert_eq!(failure.left.len(), 3, "{failure:?}");
        scene.assert_done("bound, and nobody knew");
    }
    scene.api.calm();
    assert_eq!(bench.carry_out(scene.again()).await, Ok(()));
    scene.assert_bound_once("known at last");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_gone_meanwhile_leaves_nothing() {
    let spoil: [fn(&FakeApi); 2] = [
        |api| api.remove(&pod_path("p")),
        |api| {
            api.edit(&pod_path("p"), |pod| {
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            });
        },
    ];
    for (number, spoil) in spoil.iter().enumerate() {
        let scene = scene();
        scene.api.trouble(STEPS - 1, Trouble::LostBefore);
        scene.api.trouble_from(STEPS, Trouble::LostBefore);
        let mut bench = Bench::new(&scene.api);
        bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
        scene.api.calm();
        spoil(&scene.api);
        let failure = bench.carry_out(scene.again()).await.unwrap_err();
        assert_eq!((failure.kind, &failure.left[..]), (FailureKind::PodGone, &[][..]));
        scene.assert_undone_but(&[], &format!("{number}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_others_bound_meanwhile_keeps_its_node_and_its_claims() {
    let scene = scene();
    scene.api.trouble(STEPS - 1, Trouble::LostBefore);
    scene.api.trouble_from(STEPS, Trouble::LostBefore);
    let mut bench = Bench::new(&scene.api);
    bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
    scene.api.calm();
    scene.api.edit(&pod_path("p"), |pod| pod["spec"]["nodeName"] = "elsewhere".into());
    let failure = bench.carry_out(scene.again()).await.unwrap_err();
    assert_eq!((failure.kind, failure.left), (FailureKind::BoundAlready, Vec::new()));
    assert_eq!(bound_to(&scene.api, "p").as_deref(), Some("elsewhere"));
    assert!(is_taken(&scene.api, "own", &scene.pod));
}

#[tokio::test(start_paused = true)]
async fn an_undecided_plain_pod_is_said_to_be_undecided_although_it_has_no_claims() {
    let api = FakeApi::default();
    let pod = put_pod(&api, "p");
    api.trouble(0, Trouble::LostAfter);
    api.trouble_from(1, Trouble::LostBefore);
    let mut bench = Bench::new(&api);
    let failure = bench.carry_out(Task::Bind(bind(&pod, Vec::new()))).await.unwrap_err();
    assert_eq!((failure.kind, failure.left), (FailureKind::Undecided, Vec::new()));
}

/// Who reads what an order left must see all of it.
#[tokio::test(start_paused = true)]
async fn what_an_order_left_is_told_when_nothing_of_it_can_land_any_more() {
    for step in 0..STEPS {
        let scene = scene();
        scene.api.trouble(step, Trouble::LostAfter);
        scene.api.trouble_from(step + 1, Trouble::LostBefore);
        let patience = Duration::from_secs(1);
        let options = BinderOptions { patience, ..BinderOptions::default() };
        let mut bench = Bench::with(&scene.api, options);
        let begun = tokio::time::Instant::now();
        let failure = bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
        assert!(!failure.left.is_empty(), "{step}: {failure:?}");
        // The server was told of this deadline with the request.
        assert!(begun.elapsed() > options.timeout, "{step}: {:?}", begun.elapsed());
    }
}

fn any_trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        Just(Trouble::Answer(403)),
        Just(Trouble::Answer(409)),
        Just(Trouble::Answer(422)),
        Just(Trouble::Answer(429)),
        Just(Trouble::Answer(500)),
        Just(Trouble::Forbidden),
        Just(Trouble::LostBefore),
        Just(Trouble::LostAfter),
        Just(Trouble::SilentBefore),
        Just(Trouble::SilentAfter),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn an_order_that_is_sent_until_its_end_is_known_is_carried_out_once_or_leaves_nothing(
        sendings in proptest::collection::vec(
            (proptest::collection::btree_map(0..14_usize, any_trouble(), 0..4), 1..20_usize),
            1..4,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let scene = scene();
            let mut bench = Bench::new(&scene.api);
            let mut order = Task::Bind(scene.order.clone());
            let mut sendings = sendings.into_iter();
            loop {
                scene.api.calm();
                let begin = scene.api.count();
                if let Some((troubles, away)) = sendings.next() {
                    for (number, trouble) in troubles {
                        scene.api.trouble(begin + number, trouble);
                    }
                    scene.api.trouble_from(begin + away, Trouble::LostBefore);
                }
                let result = bench.carry_out(order.clone()).await;
                scene.api.calm();
                match result {
                    Ok(()) => return scene.assert_bound_once("carried out"),
                    Err(failure)
                        if failure.left.is_empty() && failure.kind != FailureKind::Undecided =>
                    {
                        assert_eq!(bound_to(&scene.api, "p"), None, "{failure:?}");
                        // What a pod was told its next order tells anew.
                        scene.api.edit(&pod_path("p"), |pod| pod["status"] = json!({}));
                        return scene.assert_undone_but(&[], &failure.to_string());
                    }
                    Err(_) => order = scene.again(),
                }
            }
        });
    }
}
