use std::collections::BTreeSet;

use insta::assert_snapshot;

use super::{Selection, TableOptions, render, top};
use crate::fixtures::{now, snapshot};

/// Four nodes. One GPU is tainted, two pods share a claim, and one claim is unused.
const CLUSTER: &str = "
    node  dgx-h100-0 gpus=8 product=NVIDIA_H100_80GB_HBM3 memory=81559Mi
    node  dgx-h100-1 gpus=8 product=NVIDIA_H100_80GB_HBM3 memory=81559Mi cordoned
    node  gb200-tray-10 gpus=4 product=NVIDIA_GB200 memory=189471Mi
    node  gb200-tray-9 gpus=4 product=NVIDIA_GB200 memory=189471Mi notready
    taint dgx-h100-0/gpu-3 gpu.nvidia.com/xid=79:NoSchedule
    taint dgx-h100-0/gpu-6 gpu.nvidia.com/unmonitored:None
    taint gb200-tray-10/gpu-0 gpu.nvidia.com/xid=48:NoSchedule
    claim a/train class=gpu.nvidia.com count=2 on=dgx-h100-0/gpu-0,dgx-h100-0/gpu-1 for=train at=2026-01-05T10:00:00Z
    claim a/shared class=gpu.nvidia.com on=gb200-tray-10/gpu-0 for=one,two at=2026-01-05T11:59:30Z
    claim b/forgotten class=gpu.nvidia.com on=dgx-h100-0/gpu-2 at=2026-01-01T00:00:00Z
    claim b/onlooker class=gpu.nvidia.com on=dgx-h100-0/gpu-5 for=monitor admin
    claim b/waiting class=gpu.nvidia.com
";

fn table(fixture: &str, wide: bool) -> String {
    let report = top(&snapshot(fixture));
    render(&report, TableOptions { wide, headers: true, colour: false, now: now() })
}

#[test]
fn nodes_and_holders_are_listed_and_free_gpus_share_a_line() {
    assert_snapshot!(table(CLUSTER, false), @r"
    NODE           STATUS    PRODUCT                GPUS  USED  SPLIT  FREE  TAINTED
    dgx-h100-0     Ready     NVIDIA H100 80GB HBM3  8     3     0      4     1
    dgx-h100-1     Cordoned  NVIDIA H100 80GB HBM3  8     0     0      0     0
    gb200-tray-9   NotReady  NVIDIA GB200           4     0     0      0     0
    gb200-tray-10  Ready     NVIDIA GB200           4     1     0      3     1
    TOTAL                    4 nodes                24    4     0      7     2

    NODE           GPU             STATE                                     MEMORY    HELD BY                     SINCE
    dgx-h100-0     gpu-0           used                                      81559Mi   a/train                     2h
    dgx-h100-0     gpu-1           used                                      81559Mi   a/train                     2h
    dgx-h100-0     gpu-2           used                                      81559Mi   claim b/forgotten (no pod)  4d12h
    dgx-h100-0     gpu-3           tainted gpu.nvidia.com/xid=79:NoSchedule  81559Mi
    dgx-h100-0     gpu-4 to gpu-7  free                                      81559Mi
    dgx-h100-1     gpu-0 to gpu-7  node unavailable                          81559Mi
    gb200-tray-9   gpu-0 to gpu-3  node unavailable                          189471Mi
    gb200-tray-10  gpu-0           used, gpu.nvidia.com/xid=48:NoSchedule    189471Mi  a/one, a/two                30s
    gb200-tray-10  gpu-1 to gpu-3  free                                      189471Mi

    Claim b/forgotten holds dgx-h100-0/gpu-2 and no pod uses it. Delete it to free the device.
    ");
}

#[test]
fn gpu_owned_by_a_scheduler_is_free_and_names_its_owner() {
    let owned = "
        node  l4-0 gpus=3 product=NVIDIA_L4 memory=23034Mi
        taint l4-0/gpu-0 octavo.dev/scheduler=octavo:NoSchedule
        taint l4-0/gpu-1 octavo.dev/scheduler=octavo:NoSchedule
        taint l4-0/gpu-2 octavo.dev/scheduler=octavo:NoSchedule
        taint l4-0/gpu-2 gpu.nvidia.com/xid=79:NoSchedule
        claim a/serve class=gpu.nvidia.com on=l4-0/gpu-1 for=serve at=2026-01-05T11:00:00Z
    ";
    assert_snapshot!(table(owned, false), @r"
    NODE  STATUS  PRODUCT    GPUS  USED  SPLIT  FREE  TAINTED
    l4-0  Ready   NVIDIA L4  3     1     0      1     1

    NODE  GPU    STATE                                     MEMORY   HELD BY  SINCE
    l4-0  gpu-0  free, by scheduler octavo                 23034Mi
    l4-0  gpu-1  used                                      23034Mi  a/serve  1h
    l4-0  gpu-2  tainted gpu.nvidia.com/xid=79:NoSchedule  23034Mi
    ");
    assert!(table(owned, true).contains("free, by scheduler octavo"));
    let gpus = top(&snapshot(owned)).gpus;
    assert!(gpus.iter().all(|gpu| gpu.scheduler.as_deref() == Some("octavo")));
    assert_eq!(gpus.iter().filter(|gpu| gpu.taints.is_empty()).count(), 2);
}

#[test]
fn the_wide_form_has_a_line_for_each_gpu() {
    let one_node = "
        node  l4-0 gpus=2 product=NVIDIA_L4 memory=23034Mi
        claim a/serve class=gpu.nvidia.com on=l4-0/gpu-1 for=serve at=2026-01-05T11:00:00Z
    ";
    assert_snapshot!(table(one_node, true), @r"
    NODE  STATUS  PRODUCT    GPUS  USED  SPLIT  FREE  TAINTED
    l4-0  Ready   NVIDIA L4  2     1     0      1     0

    NODE  GPU    STATE  MEMORY   HELD BY  SINCE  CLAIM    PRODUCT    UUID        TAINTS
    l4-0  gpu-0  free   23034Mi                           NVIDIA L4  GPU-l4-0-0
    l4-0  gpu-1  used   23034Mi  a/serve  1h     a/serve  NVIDIA L4  GPU-l4-0-1
    ");
}

#[test]
fn an_empty_cluster_says_so() {
    assert_snapshot!(table("", false), @"No GPUs are published.");
}

#[test]
fn devices_that_are_held_and_not_published_are_named() {
    let fixture = "
        node  dgx-0 gpus=1 product=H100 memory=81559Mi
        claim a/train class=gpu.nvidia.com on=dgx-0/gpu-7,gone/gpu-0 for=train
    ";
    assert_snapshot!(table(fixture, false), @r"
    NODE   STATUS  PRODUCT  GPUS  USED  SPLIT  FREE  TAINTED
    dgx-0  Ready   H100     1     0     0      1     0

    NODE   GPU    STATE  MEMORY   HELD BY  SINCE
    dgx-0  gpu-0  free   81559Mi

    dgx-0/gpu-7 is held by a/train and no longer published. Is the agent of that node running?
    gone/gpu-0 is held by a/train and no longer published. Is the agent of that node running?
    ");
}

#[test]
fn a_pool_that_is_being_published_is_named_and_counts_nothing() {
    let mut snapshot = snapshot("node dgx-0 gpus=0 slices=2 product=H100 memory=1Gi");
    snapshot.gaps.clear();
    let report = top(&snapshot);
    assert_eq!(report.incomplete_pools, ["dgx-0 (1 of 2 slices)"]);
    assert_eq!(report.totals.gpus, 0);
}

#[test]
fn without_the_right_to_read_nodes_gpus_count_as_free() {
    let fixture = "
        node dgx-0 gpus=2 product=H100 memory=81559Mi gone
        gap  nodes nodes is forbidden
    ";
    assert_snapshot!(table(fixture, false), @r"
    NODE   STATUS   PRODUCT  GPUS  USED  SPLIT  FREE  TAINTED
    dgx-0  Unknown  H100     2     0     0      2     0

    NODE   GPU             STATE  MEMORY   HELD BY  SINCE
    dgx-0  gpu-0 to gpu-1  free   81559Mi

    Not shown, because reading is denied: nodes (nodes is forbidden).
    ");
}

#[test]
fn a_node_that_is_gone_offers_nothing() {
    let report = top(&snapshot("node dgx-0 gpus=2 product=H100 memory=81559Mi gone"));
    assert_eq!((report.totals.gpus, report.totals.free), (2, 0));
    assert_eq!(report.nodes[0].status, "Missing");
}

#[test]
fn a_namespace_keeps_its_gpus_and_the_nodes_keep_their_counts() {
    let selection = Selection { namespace: Some("b".to_owned()), ..Selection::default() };
    let report = top(&snapshot(CLUSTER)).select(&selection).unwrap();
    let gpus: Vec<&str> = report.gpus.iter().map(|gpu| &*gpu.device).collect();
    assert_eq!(gpus, ["gpu-2"]);
    assert_eq!(report.totals.used, 4);
}

#[test]
fn nodes_can_be_chosen_and_a_wrong_name_is_an_error() {
    let choose = |name: &str| {
        let nodes = BTreeSet::from([name.to_owned()]);
        top(&snapshot(CLUSTER)).select(&Selection { nodes, namespace: None })
    };
    assert_eq!(choose("gb200-tray-9").unwrap().totals.gpus, 4);
    assert_eq!(choose("gb200-tray-8").unwrap_err(), "gb200-tray-8");
}

#[test]
fn the_json_form_is_an_api() {
    let fixture = "
        node  l4-0 gpus=2 product=NVIDIA_L4 memory=23034Mi
        taint l4-0/gpu-0 gpu.nvidia.com/xid=79:NoSchedule
        claim a/serve class=gpu.nvidia.com on=l4-0/gpu-1 for=serve at=2026-01-05T11:00:00Z
    ";
    let text = crate::output::json("Top", &top(&snapshot(fixture))).unwrap();
    assert_snapshot!(text, @r#"
    {
      "apiVersion": "cli.octavo.dev/v1alpha1",
      "kind": "Top",
      "totals": {
        "nodes": 1,
        "gpus": 2,
        "used": 1,
        "split": 0,
        "free": 0,
        "tainted": 1
      },
      "nodes": [
        {
          "name": "l4-0",
          "status": "Ready",
          "products": [
            "NVIDIA L4"
          ],
          "gpus": 2,
          "used": 1,
          "split": 0,
          "free": 0,
          "tainted": 1
        }
      ],
      "gpus": [
        {
          "node": "l4-0",
          "device": "gpu-0",
          "uuid": "GPU-l4-0-0",
          "product": "NVIDIA L4",
          "memory": "23034Mi",
          "state": "tainted",
          "taints": [
            "gpu.nvidia.com/xid=79:NoSchedule"
          ]
        },
        {
          "node": "l4-0",
          "device": "gpu-1",
          "uuid": "GPU-l4-0-1",
          "product": "NVIDIA L4",
          "memory": "23034Mi",
          "state": "used",
          "holders": [
            {
              "namespace": "a",
              "claim": "serve",
              "pods": [
                "serve"
              ],
              "since": "2026-01-05T11:00:00Z"
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn the_yaml_form_says_the_same() {
    let report = top(&snapshot("node l4-0 gpus=1 product=NVIDIA_L4 memory=23034Mi"));
    assert_snapshot!(crate::output::yaml("Top", &report).unwrap(), @r"
    apiVersion: cli.octavo.dev/v1alpha1
    kind: Top
    totals:
      nodes: 1
      gpus: 1
      used: 0
      split: 0
      free: 1
      tainted: 0
    nodes:
    - name: l4-0
      status: Ready
      products:
      - NVIDIA L4
      gpus: 1
      used: 0
      split: 0
      free: 1
      tainted: 0
    gpus:
    - node: l4-0
      device: gpu-0
      uuid: GPU-l4-0-0
      product: NVIDIA L4
      memory: 23034Mi
      state: free
    ");
}

#[test]
fn shares_and_mig_devices_stand_below_their_gpu() {
    let fixture = "
        node  dgx-0 gpus=3 product=NVIDIA_H100_80GB_HBM3 memory=80000Mi
        mig   dgx-0/gpu-1-mig-1g10gb-19-6 parent=GPU-dgx-0-1 profile=1g.10gb memory=9984Mi
        mig   dgx-0/gpu-1-mig-1g10gb-19-5 parent=GPU-dgx-0-1 profile=1g.10gb memory=9984Mi
        claim a/share class=gpu.nvidia.com on=dgx-0/gpu-0 share=s-1 memory=20Gi compute=25 for=serve at=2026-01-05T10:00:00Z
        claim b/share class=gpu.nvidia.com on=dgx-0/gpu-0 share=s-2 memory=10Gi compute=0 for=notebook at=2026-01-05T11:00:00Z
        claim a/small class=mig.nvidia.com on=dgx-0/gpu-1-mig-1g10gb-19-6 for=small at=2026-01-05T11:30:00Z
        made  a/small dgx-0/gpu-1-mig-1g10gb-19-6 MIG-1
        claim a/all class=gpu.nvidia.com on=dgx-0/gpu-2 share=s-3 memory=80000Mi compute=0 for=train at=2026-01-05T11:30:00Z
    ";
    assert_snapshot!(table(fixture, false), @r"
    NODE   STATUS  PRODUCT                GPUS  USED  SPLIT  FREE  TAINTED
    dgx-0  Ready   NVIDIA H100 80GB HBM3  3     3     2      0     0

    NODE   GPU                    STATE                         MEMORY   HELD BY     SINCE
    dgx-0  gpu-0                  shared, 49280Mi and 75% free  80000Mi
    dgx-0  gpu-0 share            25% of time                   20Gi     a/serve     2h
    dgx-0  gpu-0 share            idle time                     10Gi     b/notebook  1h
    dgx-0  gpu-1                  partitioned                   80000Mi
    dgx-0  gpu-1-mig-1g10gb-19-6  used                          9984Mi   a/small     30m
    dgx-0  gpu-2                  used                          80000Mi  a/train     30m
    ");
    let report = top(&snapshot(fixture));
    assert_eq!((report.totals.used, report.totals.split, report.totals.free), (3, 2, 0));
    let mig = report.gpus.iter().find(|gpu| gpu.device.contains("mig")).unwrap();
    assert_eq!(mig.uuid.as_deref(), Some("MIG-1"));
}

#[test]
fn gpus_in_mig_mode_are_counted_by_their_mig_devices() {
    let fixture = "
        node  a-0 gpus=0 product=A100 memory=1Gi
        mig   a-0/gpu-0-mig-3g20gb-9-0 parent=GPU-0 profile=3g.20gb memory=19968Mi uuid=MIG-0 productName=A100
        mig   a-0/gpu-0-mig-3g20gb-9-4 parent=GPU-0 profile=3g.20gb memory=19968Mi uuid=MIG-1 productName=A100
        mig   a-0/gpu-1-mig-7g40gb-0-0 parent=GPU-1 profile=7g.40gb memory=40192Mi uuid=MIG-2 productName=A100
        mig   a-0/gpu-2-mig-7g40gb-0-0 parent=GPU-2 profile=7g.40gb memory=40192Mi productName=A100
        mig   a-0/gpu-3-mig-7g40gb-0-0 parent=GPU-3 profile=7g.40gb memory=40192Mi productName=A100
        taint a-0/gpu-3-mig-7g40gb-0-0 gpu.nvidia.com/xid=79:NoSchedule
        claim a/small class=mig.nvidia.com on=a-0/gpu-0-mig-3g20gb-9-4 for=small at=2026-01-05T11:30:00Z
    ";
    assert_snapshot!(table(fixture, false), @r"
    NODE  STATUS  PRODUCT  GPUS  USED  SPLIT  FREE  TAINTED
    a-0   Ready   A100     4     1     1      2     1

    NODE  GPU                   STATE                                     MEMORY   HELD BY  SINCE
    a-0   gpu-0                 partitioned, 1 of 2 MIG devices held
    a-0   gpu-0-mig-3g20gb-9-4  used                                      19968Mi  a/small  30m
    a-0   gpu-1                 free, 0 of 1 MIG devices held
    a-0   gpu-2                 free, in MIG mode
    a-0   gpu-3                 tainted gpu.nvidia.com/xid=79:NoSchedule
    ");
    let report = top(&snapshot(fixture));
    assert_eq!((report.totals.gpus, report.totals.used, report.totals.free), (4, 1, 2));
    assert_eq!(report.gpus[0].uuid.as_deref(), Some("GPU-0"));
    let selection = Selection { namespace: Some("a".to_owned()), ..Selection::default() };
    let rows = report.select(&selection).unwrap().gpus;
    let rows: Vec<&str> = rows.iter().map(|gpu| &*gpu.device).collect();
    assert_eq!(rows, ["gpu-0", "gpu-0-mig-3g20gb-9-4"]);
}
