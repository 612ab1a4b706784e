use serde_json::json;

use super::*;

fn pod(policy: &str, annotations: &serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"restartPolicy": policy, "containers": []},
    }))
    .unwrap()
}

#[test]
fn a_pod_without_annotations_runs_until_it_is_deleted() {
    assert_eq!(Plan::of(&pod("Always", &json!({}))).unwrap().run_for, None);
}

#[test]
fn annotations_say_how_long_and_how_it_ends() {
    for (text, millis) in [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("1h", 3_600_000)] {
        let plan =
            Plan::of(&pod("Never", &json!({RUN_FOR_ANNOTATION: text, EXIT_CODE_ANNOTATION: "3"})))
                .unwrap();
        assert_eq!(plan.run_for, Some(Duration::from_millis(millis)));
        assert_eq!(plan.exit_code, 3);
    }
}

#[test]
fn annotations_that_cannot_be_read_are_refused_with_their_name() {
    for bad in [
        json!({RUN_FOR_ANNOTATION: "5"}),
        json!({RUN_FOR_ANNOTATION: "s"}),
        json!({EXIT_CODE_ANNOTATION: "256"}),
    ] {
        let error = Plan::of(&pod("Never", &bad)).unwrap_err();
        assert!(error.starts_with("annotation lab.octavo.dev/"), "{error}");
    }
}

#[test]
fn the_restart_policy_decides_what_comes_after() {
    let after = |policy: &str, code: &str| {
        Plan::of(&pod(policy, &json!({EXIT_CODE_ANNOTATION: code}))).unwrap().after_exit()
    };
    assert_eq!(after("Never", "0"), AfterExit::Finish { succeeded: true });
    assert_eq!(after("Never", "1"), AfterExit::Finish { succeeded: false });
    assert_eq!(after("OnFailure", "0"), AfterExit::Finish { succeeded: true });
    assert_eq!(after("OnFailure", "1"), AfterExit::Restart);
    assert_eq!(after("Always", "0"), AfterExit::Restart);
}

#[test]
fn pauses_between_restarts_grow_to_a_minute() {
    let seconds: Vec<_> = (0..8).map(|n| restart_delay(n).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
}
