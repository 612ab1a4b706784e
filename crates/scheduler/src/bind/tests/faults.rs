//! Every step of the protocol meets every trouble.

use super::fake_api::Trouble;
use super::*;

/// Troubles after which the server is well: the order must succeed in the end.
const PASSING: [Trouble; 8] = [
    Trouble::Forbidden,
    Trouble::Answer(401),
    Trouble::Answer(429),
    Trouble::Answer(500),
    Trouble::LostBefore,
    Trouble::LostAfter,
    Trouble::SilentBefore,
    Trouble::SilentAfter,
];

/// A pod with a claim of its own, a shared one that another pod has, and extended resources.
pub(super) struct Scene {
    pub(super) api: FakeApi,
    pub(super) pod: PodRef,
    pub(super) order: Bind,
}

const OTHER: &str = "uid-other";

pub(super) fn scene() -> Scene {
    let api = FakeApi::default();
    let (pod, own) = (put_pod(&api, "p"), put_claim(&api, "own"));
    put_claim(&api, "shared");
    api.edit(&claim_path("shared"), |claim| {
        claim["metadata"]["finalizers"] = json!([answers::FINALIZER]);
        claim["status"] = json!({
            "allocation": {"devices": {"results": [{"request": "gpu", "driver": "gpu.nvidia.com",
                "pool": NODE, "device": "gpu-7"}]}},
            "reservedFor": [{"resource": "pods", "name": "other", "uid": OTHER}],
        });
    });
    let claims = vec![write(&own, &["gpu-0"]), reserve_only(&seen(&api, "shared"))];
    let order = Bind { extended: Some(extended(&["gpu-1"])), ..bind(&pod, claims) };
    Scene { api, pod, order }
}

/// Requests of the scene's order when all goes well: create, status, tell; finalizer, status; reserve; bind.
pub(super) const STEPS: usize = 7;

impl Scene {
    pub(super) fn assert_done(&self, what: &str) {
        let Self { api, pod, .. } = self;
        assert_eq!(bound_to(api, "p").as_deref(), Some(NODE), "{what}");
        let made = made(api);
        assert_eq!(made.len(), 1, "{what}: {made:?}");
        for claim in ["own", "shared", &made[0]] {
            assert!(is_taken(api, claim, pod), "{what}: {claim}");
        }
        let told = &api.object(&pod_path("p")).unwrap()["status"]["extendedResourceClaimStatus"];
        assert_eq!(told["resourceClaimName"], made[0], "{what}");
        self.assert_other_keeps_its_claim(what);
    }

    /// What is not named as left has nothing of the order on it.
    pub(super) fn assert_undone_but(&self, left: &[ObjectName], what: &str) {
        let Self { api, pod, .. } = self;
        let is_left = |claim: &str| left.iter().any(|name| *name.name == *claim);
        assert!(is_left("own") || is_clean(api, "own"), "{what}: {:?}", api.object("own"));
        assert!(is_left("shared") || !is_taken(api, "shared", pod), "{what}");
        for claim in made(api) {
            assert!(is_left(&claim), "{what}: {claim} is there, and {left:?} was said");
        }
        if left.is_empty() && api.object(&pod_path("p")).is_some() {
            let told =
                &api.object(&pod_path("p")).unwrap()["status"]["extendedResourceClaimStatus"];
            assert!(told.is_null(), "{what}: {told}");
        }
        self.assert_other_keeps_its_claim(what);
    }

    fn assert_other_keeps_its_claim(&self, what: &str) {
        let other = PodRef { uid: OTHER.into(), ..pod_ref("other") };
        assert!(is_taken(&self.api, "shared", &other), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_passes_does_not_hinder_a_binding_at_any_step() {
    for trouble in PASSING {
        for step in 0..STEPS {
            let scene = scene();
            scene.api.trouble(step, trouble);
            let mut bench = Bench::new(&scene.api);
            let what = format!("{trouble:?} at {step}");
            let result = bench.carry_out(Task::Bind(scene.order.clone())).await;
            assert_eq!(result, Ok(()), "{what}");
            scene.assert_done(&what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_troubles_in_a_row_do_no_harm_wherever_they_meet() {
    for (first, second) in PASSING.iter().flat_map(|a| PASSING.map(|b| (*a, b))) {
        for step in 0..STEPS {
            let scene = scene();
            scene.api.trouble(step, first);
            scene.api.trouble(step + 1, second);
            // Two silences in a row outlast the usual patience.
            let patience = Duration::from_mins(1);
            let options = BinderOptions { patience, ..BinderOptions::default() };
            let mut bench = Bench::with(&scene.api, options);
            let what = format!("{first:?}, {second:?} at {step}");
            assert_eq!(bench.carry_out(Task::Bind(scene.order.clone())).await, Ok(()), "{what}");
            scene.assert_done(&what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_at_any_step_is_undone() {
    for code in [403, 404, 409, 422] {
        for step in 0..STEPS {
            let scene = scene();
            scene.api.trouble(step, Trouble::Answer(code));
            let mut bench = Bench::new(&scene.api);
            let what = format!("{code} at {step}");
            match bench.carry_out(Task::Bind(scene.order.clone())).await {
                Ok(()) => {
                    // A conflict that is none any more.
                    assert_eq!(code, 409, "{what}");
                    scene.assert_done(&what);
                }
                Err(failure) => {
                    assert_eq!(failure.left, [], "{what}: {failure:?}");
                    assert_eq!(bound_to(&scene.api, "p"), None, "{what}");
                    scene.assert_undone_but(&[], &what);
                    let is_refusal = matches!(code, 403 | 422);
                    assert_eq!(
                        failure.kind == FailureKind::Refused,
                        is_refusal,
                        "{what}: {failure:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_ends_all_writes_and_what_is_left_is_said() {
    for step in 0..STEPS {
        let scene = scene();
        scene.api.trouble(step, Trouble::NotLeader);
        let mut bench = Bench::new(&scene.api);
        let what = format!("lease lost at {step}");
        let failure = bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::NotLeader, "{what}");
        assert_eq!(scene.api.writes().len(), step, "{what}: no write after it");
        assert_eq!(failure.left.is_empty(), step == 0, "{what}: {failure:?}");
        scene.assert_undone_but(&failure.left, &what);
        take_over(&scene, &what).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_away_at_any_step_leaves_what_is_said() {
    for trouble in [Trouble::LostBefore, Trouble::SilentBefore, Trouble::Answer(429)] {
        for step in 0..STEPS {
            let scene = scene();
            scene.api.trouble_from(step, trouble);
            let mut bench = Bench::new(&scene.api);
            let what = format!("{trouble:?} from {step}");
            let failure = bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
            let is_sent = step == STEPS - 1 && trouble != Trouble::Answer(429);
            let kind = if is_sent { FailureKind::Undecided } else { FailureKind::Unreachable };
            assert_eq!(failure.kind, kind, "{what}");
            scene.assert_undone_but(&failure.left, &what);
            take_over(&scene, &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_of_which_nobody_can_be_asked_is_not_undone() {
    for trouble in [Trouble::LostAfter, Trouble::SilentAfter] {
        let scene = scene();
        scene.api.trouble(STEPS - 1, trouble);
        scene.api.trouble_from(STEPS, Trouble::LostBefore);
        let mut bench = Bench::new(&scene.api);
        // The server is back while an undo would still be trying.
        let back = scene.api.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            back.calm();
        });
        let failure = bench.carry_out(Task::Bind(scene.order.clone())).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Undecided);
        assert_eq!(failure.left.len(), 3, "{failure:?}");
        scene.assert_done("bound, and nobody knew");
        // The next who asks learns it, and takes nothing from the pod.
        scene.api.calm();
        let claim = seen(&scene.api, "own");
        let undo = Task::Undo { pod: scene.pod.clone(), claim };
        let failure = bench.carry_out(undo).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::BoundAlready);
        scene.assert_done("still bound");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_dies_between_any_two_steps_is_cleaned_up_after() {
    for step in 0..STEPS {
        for trouble in [Trouble::SilentBefore, Trouble::SilentAfter] {
            let scene = scene();
            scene.api.trouble(step, trouble);
            let bench = Bench::new(&scene.api);
            bench.send(1, Task::Bind(scene.order.clone())).await;
            while scene.api.count() <= step {
                tokio::task::yield_now().await;
            }
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            bench.binder.task.abort();
            drop(bench);
            let what = format!("killed at {step}, {trouble:?}");
            if bound_to(&scene.api, "p").is_some() {
                scene.assert_done(&what);
            } else {
                take_over(&scene, &what).await;
            }
        }
    }
}

/// The next leader takes back all that it sees of the pod, then binds it.
async fn take_over(scene: &Scene, what: &str) {
    let Scene { api, pod, .. } = scene;
    api.calm();
    let mut bench = Bench::new(api);
    let claims = api.paths().into_iter().filter(|path| path.contains("resourceclaims"));
    for path in claims {
        let claim = seen(api, path.rsplit('/').next().unwrap());
        let undone = bench.carry_out(Task::Undo { pod: pod.clone(), claim }).await;
        assert_eq!(undone, Ok(()), "{what}: {path}");
    }
    assert!(is_clean(api, "own"), "{what}");
    assert!(!is_taken(api, "shared", pod), "{what}");
    assert_eq!(made(api), [""; 0], "{what}");
    scene.assert_other_keeps_its_claim(what);
    let claims = vec![write(&seen(api, "own"), &["gpu-0"]), reserve_only(&seen(api, "shared"))];
    let order = Bind { extended: Some(extended(&["gpu-2"])), ..bind(pod, claims) };
    assert_eq!(bench.carry_out(Task::Bind(order)).await, Ok(()), "{what}");
    scene.assert_done(what);
}
