use std::collections::BTreeSet;

use insta::assert_snapshot;

use super::{
    AgentReadings, GateState, ShareFigures, ShareKey, SharesReport, TimeFigures, UnreadNode,
    render, shares,
};
use crate::fixtures::{now, snapshot};
use crate::top::TableOptions;

const CLUSTER: &str = "
    node  dgx-0 gpus=2 product=NVIDIA_H100_80GB_HBM3 memory=81559Mi
    node  dgx-1 gpus=1 product=NVIDIA_H100_80GB_HBM3 memory=81559Mi
    claim b/serve class=gpu.nvidia.com on=dgx-0/gpu-1 for=web-1,web-2 share=s1 memory=20Gi compute=25
    claim a/train class=gpu.nvidia.com on=dgx-0/gpu-1 for=train share=s2 memory=40Gi compute=50
    claim a/idle class=gpu.nvidia.com on=dgx-1/gpu-0 share=s3 memory=1536Mi compute=0
    claim a/whole class=gpu.nvidia.com on=dgx-0/gpu-0 for=big
";

fn key(claim: &str, share: &str) -> ShareKey {
    let (namespace, claim) = claim.split_once('/').unwrap();
    ShareKey {
        node: "dgx-0".to_owned(),
        namespace: namespace.to_owned(),
        claim: claim.to_owned(),
        share: share.to_owned(),
    }
}

fn readings() -> AgentReadings {
    let serve = ShareFigures {
        limit_bytes: 20 << 30,
        used_bytes: 12 << 30,
        driver_bytes: 25 << 30,
        untracked_bytes: 13 << 30,
        peak_bytes: (25 << 30) + (600 << 20),
        processes: 2,
        refused: 17,
        unknown_calls: 1,
        overflows: 3,
        gate: GateState::Held,
        swapped_bytes: None,
        time: None,
    };
    let train =
        ShareFigures { limit_bytes: 40 << 30, used_bytes: 300 << 20, ..ShareFigures::default() };
    let other = ShareFigures { limit_bytes: 1, ..ShareFigures::default() };
    let figures = [
        (key("b/serve", "s1"), serve),
        (key("a/train", "s2"), train),
        (key("a/train", "old"), other),
    ];
    let unread = vec![UnreadNode {
        node: "dgx-1".to_owned(),
        message: "agent o/agent-1 could not be asked: 503".to_owned(),
    }];
    AgentReadings { figures: figures.into(), unread }
}

fn table(report: &SharesReport, wide: bool) -> String {
    render(report, TableOptions { wide, headers: true, colour: false, now: now() })
}

#[test]
fn every_share_has_a_line_with_what_its_agent_says() {
    let report = shares(&snapshot(CLUSTER)).with(readings());
    assert_snapshot!(table(&report, false), @r"
    NODE   GPU    CLAIM    POD           LIMIT   USED        DRIVER  UNTRACKED  PEAK    PROCESSES  REFUSED  GATE
    dgx-0  gpu-1  a/train  train         40Gi    300Mi (0%)  0       0          0       0          0        open
    dgx-0  gpu-1  b/serve  web-1, web-2  20Gi    12Gi (60%)  25Gi    13Gi       25.5Gi  2          17       held
    dgx-1  gpu-0  a/idle   -             1536Mi  -           -       -          -       -          -        -

    No figures for dgx-1: agent o/agent-1 could not be asked: 503.
    ");
}

#[test]
fn the_wide_form_names_share_and_gpu() {
    let report = shares(&snapshot(CLUSTER)).with(readings());
    let report = report.select(&BTreeSet::from(["dgx-0".to_owned()]), Some("b"));
    assert_eq!(report.shares.len(), 1);
    assert_snapshot!(table(&report, true), @r"
    NODE   GPU    CLAIM    POD           LIMIT  USED        DRIVER  UNTRACKED  PEAK    PROCESSES  REFUSED  GATE  UNKNOWN CALLS  OVERFLOWS  SHARE  UUID
    dgx-0  gpu-1  b/serve  web-1, web-2  20Gi   12Gi (60%)  25Gi    13Gi       25.5Gi  2          17       held  1              3          s1     GPU-dgx-0-1

    No figures for dgx-1: agent o/agent-1 could not be asked: 503.
    ");
}

#[test]
fn nodes_that_give_leases_show_the_time_of_their_shares() {
    let mut readings = readings();
    let serve = readings.figures.get_mut(&key("b/serve", "s1")).unwrap();
    serve.time =
        Some(TimeFigures { used_ms: 61_250, waited_ms: 990, throttled_ms: 0, debt_ms: 40 });
    let report = shares(&snapshot(CLUSTER)).with(readings);
    let report = report.select(&BTreeSet::from(["dgx-0".to_owned()]), None);
    assert_snapshot!(table(&report, false), @r"
    NODE   GPU    CLAIM    POD           LIMIT  USED        DRIVER  UNTRACKED  PEAK    PROCESSES  REFUSED  GATE  GPU TIME  WAITED  THROTTLED  DEBT
    dgx-0  gpu-1  a/train  train         40Gi   300Mi (0%)  0       0          0       0          0        open  -         -       -          -
    dgx-0  gpu-1  b/serve  web-1, web-2  20Gi   12Gi (60%)  25Gi    13Gi       25.5Gi  2          17       held  61.2s     0.9s    0.0s       0.0s

    No figures for dgx-1: agent o/agent-1 could not be asked: 503.
    ");
}

#[test]
fn nodes_that_swap_show_what_is_on_the_host() {
    let mut readings = readings();
    readings.figures.get_mut(&key("b/serve", "s1")).unwrap().swapped_bytes = Some(3 << 30);
    let report = shares(&snapshot(CLUSTER)).with(readings);
    let report = report.select(&BTreeSet::from(["dgx-0".to_owned()]), None);
    assert_snapshot!(table(&report, false), @r"
    NODE   GPU    CLAIM    POD           LIMIT  USED        DRIVER  UNTRACKED  PEAK    PROCESSES  REFUSED  GATE  SWAPPED
    dgx-0  gpu-1  a/train  train         40Gi   300Mi (0%)  0       0          0       0          0        open  -
    dgx-0  gpu-1  b/serve  web-1, web-2  20Gi   12Gi (60%)  25Gi    13Gi       25.5Gi  2          17       held  3Gi

    No figures for dgx-1: agent o/agent-1 could not be asked: 503.
    ");
}

#[test]
fn a_cluster_without_shares_says_so() {
    let report = shares(&snapshot("node dgx-0 gpus=2 product=H100 memory=81559Mi"));
    assert!(report.nodes().is_empty());
    assert_eq!(table(&report, false), "No GPU is held in shares.\n");
}

#[test]
fn json_has_bytes_and_gate_names() {
    let report = shares(&snapshot(CLUSTER)).with(readings());
    let report = report.select(&BTreeSet::new(), Some("b"));
    assert_snapshot!(crate::output::json("Shares", &report).unwrap(), @r#"
    {
      "apiVersion": "cli.octavo.dev/v1alpha1",
      "kind": "Shares",
      "shares": [
        {
          "node": "dgx-0",
          "device": "gpu-1",
          "gpu": "GPU-dgx-0-1",
          "namespace": "b",
          "claim": "serve",
          "share": "s1",
          "pods": [
            "web-1",
            "web-2"
          ],
          "asked": "20Gi",
          "figures": {
            "limitBytes": 21474836480,
            "usedBytes": 12884901888,
            "driverBytes": 26843545600,
            "untrackedBytes": 13958643712,
            "peakBytes": 27472691200,
            "processes": 2,
            "refused": 17,
            "unknownCalls": 1,
            "overflows": 3,
            "gate": "held"
          }
        }
      ],
      "unread": [
        {
          "node": "dgx-1",
          "message": "agent o/agent-1 could not be asked: 503"
        }
      ]
    }
    "#);
}
