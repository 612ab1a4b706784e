use std::time::Duration;

use octavo_arbiter::ShareTime;
use prometheus_client::registry::Registry;

use super::{EnforcementMetrics, ShareFigures, ShareLabels};

fn labels(share: &str) -> ShareLabels {
    ShareLabels {
        node: "node-1".to_owned(),
        namespace: "team".to_owned(),
        claim: "train".to_owned(),
        share: share.to_owned(),
        device: "gpu-0".to_owned(),
        gpu: "GPU-1".to_owned(),
    }
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

#[test]
fn a_share_s_figures_are_there_as_long_as_the_share() {
    let mut registry = Registry::default();
    let metrics = EnforcementMetrics::new(&mut registry);
    let figures = ShareFigures { limit: 10, used: 4, untracked: 3, gate: 1, ..Default::default() };
    metrics.set(&labels("a"), figures);
    metrics.count(&labels("a"), 5, 6);
    let time = |used| ShareTime { used, waited: 500_000_000, turns: 7, ..Default::default() };
    metrics.set_time(&labels("a"), time(1_000_000_000));
    metrics.set_time(&labels("a"), time(2_500_000_000));
    metrics.overflow(&labels("a"), "kill");
    metrics.set_swapped(&labels("a"), 8);
    metrics.count_move(&labels("a"), true, true, Duration::from_millis(1_500));
    metrics.count_move(&labels("a"), false, false, Duration::ZERO);
    metrics.foreign("node-1", "GPU-1", Some(2));
    let of = r#"node="node-1",namespace="team",claim="train",share="a",device="gpu-0",gpu="GPU-1""#;
    let reported = text(&registry);
    for line in [
        format!("octavo_agent_share_memory_limit_bytes{{{of}}} 10"),
        format!("octavo_agent_share_memory_used_bytes{{{of}}} 4"),
        format!("octavo_agent_share_memory_untracked_bytes{{{of}}} 3"),
        format!("octavo_agent_share_gate{{{of}}} 1"),
        format!("octavo_agent_share_time_used_seconds_total{{{of}}} 2.5"),
        format!("octavo_agent_share_time_waited_seconds_total{{{of}}} 0.5"),
        format!("octavo_agent_share_turns_total{{{of}}} 7"),
        format!("octavo_agent_share_time_debt_seconds{{{of}}} 0.0"),
        format!("octavo_agent_share_refused_allocations_total{{{of}}} 5"),
        format!("octavo_agent_share_unknown_calls_total{{{of}}} 6"),
        format!(r#"octavo_agent_share_overflows_total{{{of},action="kill"}} 1"#),
        format!("octavo_agent_share_memory_swapped_bytes{{{of}}} 8"),
        format!(r#"octavo_agent_share_swaps_total{{{of},direction="out",result="moved"}} 1"#),
        format!(r#"octavo_agent_share_swaps_total{{{of},direction="in",result="failed"}} 1"#),
        format!(
            r#"octavo_agent_share_swap_seconds_total{{{of},direction="out",result="moved"}} 1.5"#
        ),
        r#"octavo_agent_foreign_processes{node="node-1",gpu="GPU-1"} 2"#.to_owned(),
    ] {
        assert!(reported.contains(&line), "{line} in\n{reported}");
    }
    metrics.remove(&labels("a"));
    metrics.foreign("node-1", "GPU-1", None);
    let reported = text(&registry);
    assert!(!reported.contains("train") && !reported.contains("GPU-1"), "{reported}");
}
