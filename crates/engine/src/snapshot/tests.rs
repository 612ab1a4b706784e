use super::*;
use crate::workload::Coupling;

const DOCUMENT: &str = r#"{
  "version": 1,
  "levels": [{"name": "rack", "label": "rack"}],
  "models": [{"name": "H100", "memoryMib": 80000, "mig": [
    {"name": "1g.10gb", "milli": 142, "memoryMib": 10000, "size": 1, "starts": [0, 1, 2, 3, 4, 5, 6]}
  ]}],
  "classes": {"class-0": {
    "capacity": {"cpuMilli": 64000, "memoryMib": 512000, "pods": 110},
    "gpus": 2, "model": "H100", "centsPerHour": 400, "hazardPpm": 20
  }},
  "nodes": [
    {"name": "a", "class": "class-0", "labels": {"rack": "r1"}},
    {"name": "b", "class": "class-0", "labels": {"rack": "r2"}, "closed": true, "closedGpus": [1],
      "risks": {"0": "high"}}
  ],
  "evictionLimits": {"team/train": 1},
  "running": [{
    "profile": {"name": "train", "tenant": "blue", "priority": 5, "notMovable": true, "required": "rack"},
    "minMembers": 2, "whole": true, "fixed": true,
    "shapes": [{"gpus": {"whole": {"count": 1}}}, {"gpus": {"mig": {"count": 1, "profile": "1g.10gb"}}}],
    "members": [
      {"rank": 0, "node": "a", "limit": "team/train",
        "gpus": [{"gpu": 0, "milli": 1000, "memoryMib": 80000}]},
      {"rank": 2, "shape": 1, "node": "a", "gpus": [
        {"gpu": 1, "milli": 142, "memoryMib": 10000, "start": 3, "size": 1}]}
    ]
  }],
  "waiting": [{
    "profile": {"name": "next", "preferred": "rack"},
    "groups": [{
      "name": "workers", "count": 4, "min": 2, "segment": {"size": 2, "level": "rack"},
      "forbidden": ["b"], "limits": [{"over": 7, "most": 1}],
      "shape": {"resources": {"cpuMilli": 1000, "pods": 1}, "models": ["H100"],
                "gpus": {"share": {"count": 1, "milli": 250, "memoryMib": 20000}}}
    }, {
      "name": "leader", "count": 1, "required": "rack", "together": 3,
      "shape": {"resources": {"cpuMilli": 1000, "pods": 1}}
    }, {
      "name": "followers", "count": 2, "required": "rack", "together": 3,
      "shape": {"resources": {"cpuMilli": 2000, "pods": 1}}
    }]
  }]
}"#;

fn document() -> Snapshot {
    serde_json::from_str(DOCUMENT).unwrap()
}

#[test]
fn a_world_that_is_written_and_read_is_the_same() {
    let document = document();
    let world = document.world().unwrap();
    assert_eq!(world.cluster.totals().used_milli, 1142);
    assert!(!world.cluster.is_open(crate::NodeId(1)));
    let train = world.workloads.named("train").unwrap();
    let train = world.workloads.workload(train).unwrap();
    assert_eq!((train.member_count(), train.members.len()), (2, 3));
    let limits = train.members.iter().map(|member| member.as_ref().and_then(|member| member.limit));
    let allowances = limits.map(|limit| world.workloads.eviction_limits.allowance(limit?).into());
    assert_eq!(allowances.collect::<Vec<Option<u32>>>(), [Some(1), None, None]);
    assert_eq!(train.coupling, Coupling { is_whole: true, is_fixed: true });
    let gangs = document.gangs(&world).unwrap();
    assert_eq!((gangs[0].count(), gangs[0].min()), (7, 5));
    let colocation_id: Vec<_> = gangs[0].groups.iter().map(|group| group.colocation_id).collect();
    assert_eq!(colocation_id, [None, Some(3), Some(3)]);
    assert_eq!(Snapshot::of(&world, &gangs), document);
}

/// The error after one change of the document's text.
fn error(from: &str, to: &str) -> String {
    assert!(DOCUMENT.contains(from), "{from}");
    match serde_json::from_str::<Snapshot>(&DOCUMENT.replacen(from, to, 1)) {
        Err(error) => error.to_string(),
        Ok(document) => match document.world() {
            Err(error) => error.to_string(),
            Ok(world) => document.gangs(&world).unwrap_err().to_string(),
        },
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (from, to, wanted) in [
        ("\"version\": 1", "\"version\": 9", "is of version 9"),
        ("\"model\": \"H100\"", "\"model\": \"H1\"", "no model named \"H1\"; there are: H100"),
        ("\"class\": \"class-0\", \"labels\": {\"rack\": \"r1\"}", "\"class\": \"c\"", "no class"),
        ("\"pods\": 110", "\"pods\": -1", "class \"class-0\": pods is -1; it must be 0 to"),
        ("\"hazardPpm\": 20", "\"hazardPpm\": 2000000", "at most 1000000 (certain)"),
        ("\"closedGpus\": [1]", "\"closedGpus\": [7]", "node \"b\""),
        ("\"node\": \"a\"", "\"node\": \"z\"", "rank 0: there is no node named \"z\""),
        ("\"gpu\": 0", "\"gpu\": 1", "rank 2: node \"a\" cannot allocate"),
        ("\"rank\": 2", "\"rank\": 0", "rank 0 is listed twice"),
        ("\"limit\": \"team", "\"limit\": \"other", "no eviction limit named \"other/train\""),
        ("\"shape\": 1", "\"shape\": 4", "shape is 4; it must be below 2"),
        ("\"required\": \"rack\"", "\"required\": \"row\"", "there are: cluster, rack"),
        ("\"min\": 2", "\"min\": 6", "at least 6 members are wanted, but it has 4"),
        ("\"required\": \"rack\", \"together\"", "\"together\"", "need the same required level"),
        ("\"size\": 2", "\"size\": 3", "segments of 3 members do not divide 4"),
        ("\"milli\": 250", "\"milli\": 1250", "milli is 1250"),
        ("\"priority\": 5", "\"prio\": 5", "unknown field `prio`"),
    ] {
        let message = error(from, to);
        assert!(message.contains(wanted), "{from} -> {to}: {message}");
    }
}
