use super::super::TimeFigures;
use super::{GateState, ShareFigures, ShareKey, parse};

fn key(claim: &str) -> ShareKey {
    ShareKey {
        node: "n".to_owned(),
        namespace: "team".to_owned(),
        claim: claim.to_owned(),
        share: "s".to_owned(),
    }
}

#[test]
fn figures_are_read_by_name_and_other_metrics_are_passed_over() {
    let text = r#"
# HELP octavo_agent_share_memory_limit_bytes Memory that a share may have.
# TYPE octavo_agent_share_memory_limit_bytes gauge
octavo_agent_share_memory_limit_bytes{node="n",namespace="team",claim="a",share="s",device="gpu-0",gpu="GPU-1"} 100
octavo_agent_share_memory_used_bytes{node="n",namespace="team",claim="a",share="s",device="gpu-0",gpu="GPU-1"} 40
octavo_agent_share_memory_driver_bytes{node="n",namespace="team",claim="a",share="s",gpu="GPU-1"} 50.0
octavo_agent_share_memory_untracked_bytes{claim="a",share="s",node="n",namespace="team"} 10 1700000000
octavo_agent_share_memory_peak_bytes{node="n",namespace="team",claim="a",share="s"} 60
octavo_agent_share_memory_swapped_bytes{node="n",namespace="team",claim="a",share="s",device="gpu-0"} 70
octavo_agent_share_processes{node="n",namespace="team",claim="a",share="s"} 3
octavo_agent_share_gate{node="n",namespace="team",claim="a",share="s"} 1
octavo_agent_share_refused_allocations_total{node="n",namespace="team",claim="a",share="s"} 7
octavo_agent_share_unknown_calls_total{node="n",namespace="team",claim="a",share="s"} 8
octavo_agent_share_overflows_total{node="n",namespace="team",claim="a",share="s",action="hold"} 1
octavo_agent_share_overflows_total{node="n",namespace="team",claim="a",share="s",action="kill"} 2
octavo_agent_share_time_used_seconds_total{node="n",namespace="team",claim="a",share="s"} 12.3456
octavo_agent_share_time_waited_seconds_total{node="n",namespace="team",claim="a",share="s"} 2.0
octavo_agent_share_time_throttled_seconds_total{node="n",namespace="team",claim="a",share="s"} 0
octavo_agent_share_time_debt_seconds{node="n",namespace="team",claim="a",share="s"} 0.5
octavo_agent_share_turns_total{node="n",namespace="team",claim="a",share="s"} 12
octavo_agent_share_tomorrow{node="n",namespace="team",claim="a",share="s"} 9
octavo_agent_shares{node="n"} 1
# EOF
"#;
    let expected = ShareFigures {
        limit_bytes: 100,
        used_bytes: 40,
        driver_bytes: 50,
        untracked_bytes: 10,
        peak_bytes: 60,
        processes: 3,
        refused: 7,
        unknown_calls: 8,
        overflows: 3,
        gate: GateState::Held,
        swapped_bytes: Some(70),
        time: Some(TimeFigures {
            used_ms: 12_345,
            waited_ms: 2_000,
            throttled_ms: 0,
            debt_ms: 500,
        }),
    };
    assert_eq!(parse(text), [(key("a"), expected)].into());
}

#[test]
fn lines_that_are_no_share_sample_are_ignored() {
    for line in [
        "",
        "octavo_agent_share_memory_limit_bytes",
        "octavo_agent_share_memory_limit_bytes{",
        "octavo_agent_share_memory_limit_bytes{node=\"n",
        "octavo_agent_share_memory_limit_bytes{node}",
        "octavo_agent_share_memory_limit_bytes{node=\"n\"}",
        "octavo_agent_share_memory_limit_bytes{node=\"n\"} lots",
        "octavo_agent_share_refused_allocations_total{node=\"n\"} 5",
        "octavo_agent_share_memory_limit_bytes{node=\"\\",
    ] {
        assert!(parse(line).is_empty(), "{line}");
    }
    let odd = "octavo_agent_share_memory_limit_bytes{node=\"n\",namespace=\"team\",claim=\"a\\\"b\\\\}\",share=\"s\"} 1";
    assert!(parse(odd).contains_key(&key("a\"b\\}")), "{:?}", parse(odd));
}
