//! A cluster of two nodes that report health, and one whose agent is too old.

mod described;
mod listed;
mod manifests;
mod ordered;
mod policies;
mod reading;

use octavo_api::{HealthPolicy, NodeHealth};
use octavo_health::decide::Device as Record;
use octavo_health::remedy::Remedy;
use octavo_health::risk::{Blame, History, Settings};
use octavo_health::state::Track;
use serde::de::DeserializeOwned;

use super::facts::HealthFacts;
use crate::top::TableOptions;

const NODE_1: &str = "
metadata: {name: n-1, resourceVersion: '7', generation: 2}
spec:
  devices:
    - uuid: GPU-1-1
      permit: {afterAttempt: 3, remedy: resetFunction, since: 2026-01-05T11:50:00Z}
      evictsSince: 2026-01-05T11:55:00Z
status:
  policy: {name: h100, generation: 3, mode: Act}
  inService: 2
  total: 4
  devices:
    - {uuid: GPU-1-10, name: gpu-10, state: Resetting, reason: UncorrectedMemoryErrors, message: memory errors were not corrected,
       since: 2026-01-05T11:59:30Z, remedy: resetBus, attempt: 9, island: 0}
    - {uuid: GPU-1-0, name: gpu-0, state: Healthy, since: 2026-01-01T00:00:00Z, island: 0, risk: usual}
    - {uuid: GPU-1-1, name: gpu-1, state: Fenced, reason: Xid, message: the driver reported XID 48, since: 2026-01-05T10:00:00Z,
       needs: resetFunction, waits: Clients, occupied: true, attempt: 3, island: 0, risk: raised}
    - {uuid: GPU-1-2, name: gpu-2, state: Watch, reason: HighRisk, since: 2026-01-05T06:00:00Z, island: 2, resetsAlone: true}
";

const NODE_2: &str = "
metadata: {name: n-2, resourceVersion: '8', generation: 5}
spec:
  devices:
    - uuid: GPU-2-0
      order: {word: Release, number: 5, reason: the board is new}
status:
  inService: 0
  total: 1
  conditions:
    - {type: PolicyAccepted, status: 'False', reason: InvalidPolicy, message: 'the HealthPolicy a100 is not valid',
       lastTransitionTime: 2026-01-05T00:00:00Z}
  devices:
    - {uuid: GPU-2-0, name: gpu-0, state: Retired, reason: Operator, message: an operator decided so, since: 2026-01-03T00:00:00Z,
       order: 4, island: 0, resetsAlone: true}
";

const POLICIES: [&str; 3] = [
    "
metadata: {name: a100, generation: 1}
spec: {nodeSelector: {pool: a100}, budget: {remediesPercent: 500}}
status:
  observedGeneration: 1
  conditions:
    - {type: Accepted, status: 'False', reason: InvalidPolicy, lastTransitionTime: 2026-01-05T00:00:00Z,
       message: 'budget.remediesPercent: it is 500, and must be from 0 to 100'}
",
    "
metadata: {name: h100, generation: 3}
spec: {nodeSelector: {pool: h100}, mode: Act, times: {watchSeconds: 3600, remedyLimitSeconds: 600}}
status:
  observedGeneration: 3
  nodes: 1
  remedies: 1
  evictions: 1
  devices: {healthy: 1, watch: 1, fenced: 1, resetting: 1}
  breakerOpenUntil: 2026-01-05T12:20:00Z
  conditions:
    - {type: Accepted, status: 'True', reason: Accepted, message: the policy is in use, lastTransitionTime: 2026-01-05T00:00:00Z}
    - {type: BreakerOpen, status: 'True', reason: ManyFailures, message: no remedy begins until 12:20, lastTransitionTime: 2026-01-05T00:00:00Z}
    - {type: RecordsReadable, status: 'True', reason: RecordsRead, message: all can be read, lastTransitionTime: 2026-01-05T00:00:00Z}
",
    "
metadata: {name: new, generation: 1}
spec: {nodeSelector: {pool: new}}
",
];

/// Parses an object. The fixtures have neither kind nor version.
fn object<T: DeserializeOwned>(text: &str) -> T {
    let mut value: serde_json::Value = serde_saphyr::from_str(text).unwrap();
    value["apiVersion"] = "octavo.dev/v1alpha1".into();
    value["kind"] = "Any".into();
    serde_json::from_value(value).unwrap()
}

/// A GPU that failed again soon after a return.
fn record() -> serde_json::Value {
    let at = 1_767_600_000;
    let mut history = History::default();
    history.fail(&Settings::default(), at, Blame::WHOLE);
    history.fail(&Settings::default(), at, Blame::one_of(2));
    let track = Track {
        since: at,
        returned: Some(1_767_520_800),
        has_failed: true,
        relapses: 1,
        tried: Remedy::ResetFunction,
        ..Track::default()
    };
    serde_json::to_value(Record { track, history, evicts_since: None }).unwrap()
}

fn facts() -> HealthFacts {
    let mut first: NodeHealth = object(NODE_1);
    let gpus = &mut first.status.as_mut().unwrap().devices;
    gpus.iter_mut().find(|gpu| gpu.name == "gpu-1").unwrap().record = Some(record());
    let policies = POLICIES.map(object::<HealthPolicy>);
    HealthFacts {
        is_defined: true,
        nodes: [("n-1".to_owned(), first), ("n-2".to_owned(), object(NODE_2))].into(),
        policies: policies
            .into_iter()
            .map(|policy| (policy.metadata.name.clone().unwrap(), policy))
            .collect(),
        agents: ["n-1", "n-2", "n-10"].map(str::to_owned).into(),
        ..HealthFacts::default()
    }
}

fn options(wide: bool) -> TableOptions {
    TableOptions { wide, headers: true, colour: false, now: crate::fixtures::now() }
}
