use std::time::Duration;

use octavo_health::remedy::Remedy;

use super::*;

#[test]
fn ends_are_counted_by_outcome_and_timed_if_their_time_is_known() {
    let mut registry = Registry::default();
    let metrics = HealingMetrics::new(&mut registry);
    let remedied = |remedy, outcome, took: Option<u64>| {
        let took = took.map(Duration::from_millis);
        metrics.ended("node-1", Ended::Remedy { remedy, outcome, took });
    };
    remedied(Remedy::ResetFunction, RemedyOutcome::Remedied, Some(1_500));
    remedied(Remedy::ResetFunction, RemedyOutcome::Refused, Some(90));
    remedied(Remedy::ResetFunction, RemedyOutcome::Interrupted, None);
    remedied(Remedy::Reboot, RemedyOutcome::Remedied, None);
    remedied(Remedy::Reboot, RemedyOutcome::TimedOut, Some(1_800_000));
    for outcome in [
        TestOutcome::Passed,
        TestOutcome::Passed,
        TestOutcome::Failed,
        TestOutcome::NotPossible,
        TestOutcome::PutOff,
        TestOutcome::Stopped,
    ] {
        let took = Some(Duration::from_mins(1));
        metrics.ended("node-1", Ended::Test { outcome, took });
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"octavo_agent_health_remedies_total{node="node-1",remedy="reset-function",outcome="remedied"} 1"#,
        r#"octavo_agent_health_remedies_total{node="node-1",remedy="reset-function",outcome="refused"} 1"#,
        r#"octavo_agent_health_remedies_total{node="node-1",remedy="reset-function",outcome="interrupted"} 1"#,
        r#"octavo_agent_health_remedies_total{node="node-1",remedy="reboot",outcome="remedied"} 1"#,
        r#"octavo_agent_health_remedies_total{node="node-1",remedy="reboot",outcome="timed-out"} 1"#,
        r#"octavo_agent_health_remedy_seconds_sum{remedy="reset-function"} 1.59"#,
        r#"octavo_agent_health_remedy_seconds_count{remedy="reset-function"} 2"#,
        r#"octavo_agent_health_remedy_seconds_bucket{le="0.1",remedy="reset-function"} 1"#,
        r#"octavo_agent_health_remedy_seconds_count{remedy="reboot"} 1"#,
        r#"octavo_agent_health_tests_total{node="node-1",outcome="passed"} 2"#,
        r#"octavo_agent_health_tests_total{node="node-1",outcome="failed"} 1"#,
        r#"octavo_agent_health_tests_total{node="node-1",outcome="not-possible"} 1"#,
        r#"octavo_agent_health_tests_total{node="node-1",outcome="put-off"} 1"#,
        r#"octavo_agent_health_tests_total{node="node-1",outcome="stopped"} 1"#,
        r#"octavo_agent_health_test_seconds_count{outcome="passed"} 2"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn counts_of_a_node_that_is_served_begin_at_zero_and_stay() {
    let mut registry = Registry::default();
    let metrics = HealingMetrics::new(&mut registry);
    metrics.serves("node-1");
    let counts = |metric: &str| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let lines = text.lines().filter(|line| line.starts_with(metric));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let remedies = counts("octavo_agent_health_remedies_total{");
    let is_zero = |line: &String| line.contains(r#"{node="node-1","#) && line.ends_with("} 0");
    assert!(remedies.iter().all(is_zero), "{remedies:?}");
    for (remedy, outcomes) in [
        ("reset-function", 4),
        ("reset-bus", 4),
        ("reload-driver", 4),
        ("reboot", 3),
        ("power-cycle", 3),
    ] {
        let label = format!(r#"remedy="{remedy}""#);
        let found = remedies.iter().filter(|line| line.contains(&label)).count();
        assert_eq!(found, outcomes, "{remedy} in {remedies:?}");
    }
    assert_eq!(remedies.len(), 18);
    let tests = counts("octavo_agent_health_tests_total{");
    assert!(tests.len() == 5 && tests.iter().all(is_zero), "{tests:?}");
    metrics.ended("node-1", Ended::Test { outcome: TestOutcome::Passed, took: None });
    // Another agent had the node meanwhile.
    metrics.serves("node-1");
    let tests = counts("octavo_agent_health_tests_total{");
    assert_eq!(tests.len(), 5);
    let passed = r#"octavo_agent_health_tests_total{node="node-1",outcome="passed"} 1"#;
    assert!(tests.iter().any(|line| line == passed), "{tests:?}");
}
