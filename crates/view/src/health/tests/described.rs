use insta::assert_snapshot;

use super::facts;
use crate::fixtures::{now, snapshot};
use crate::health::{
    DeviceReport, DeviceTextOptions, HealthError, Name, describe, name, render_device,
};
use crate::output;
use crate::snapshot::{ClusterSnapshot, Gap, GapKind};

const CLUSTER: &str = "
    node  n-1 gpus=2 product=NVIDIA_H100_80GB_HBM3 memory=81559Mi
    claim a/train class=gpu.nvidia.com on=n-1/gpu-1 for=train at=2026-01-05T10:00:00Z
";

/// The cluster, in which the fixtures' UUIDs are those of the objects.
fn cluster() -> ClusterSnapshot {
    let mut snapshot = snapshot(CLUSTER);
    for device in &mut snapshot.pools.get_mut("n-1").unwrap().devices {
        let uuid = device.name.replace("gpu-", "GPU-1-");
        device.attributes.insert("uuid".to_owned(), octavo_dra::AttributeValue::String(uuid));
    }
    snapshot
}

fn parsed(words: &[&str]) -> Result<Name, HealthError> {
    name(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
}

fn described(words: &[&str]) -> DeviceReport {
    describe(&facts(), &cluster(), &parsed(words).unwrap()).unwrap()
}

fn text(report: &DeviceReport) -> String {
    render_device(report, DeviceTextOptions { colour: false, now: now() })
}

#[test]
fn a_fenced_gpu_is_described_in_sentences() {
    assert_snapshot!(text(&described(&["n-1/gpu-1"])), @r"
    gpu-1 of node n-1 (GPU-1-1, NVIDIA H100 80GB HBM3) is Fenced since 2026-01-05T10:00:00Z (2h ago).
    It is out of service. Why: the driver reported XID 48 (Xid).

    What happens next
      - The controller evicts its pods.
      - It needs a reset of its PCIe function (resetFunction).
      - Processes use it, or a GPU that the remedy reaches: it begins once they have ended.
      - A test follows.
      - If the test passes, it returns on probation. If not, the next harsher remedy follows, and after the last one it is retired.

    What a person can do
      - End the pods that hold it, or wait for their end.
      - `octavo health release n-1 gpu-1 --reason TEXT` returns it without a test.
      - `octavo health retire n-1 gpu-1 --reason TEXT` takes it out of service for good.

    Policy
      - The agent decides by the HealthPolicy h100, in the mode Act.

    History
      - It last returned after a fault of its own at 2026-01-04T10:00:00Z (1d2h ago).
      - Relapses in a row: 1.
      - It had a fault of its own since it was last in service.
      - The harshest remedy since it was last in service is a reset of its PCIe function (resetFunction).
      - Failures that are attributed to it: 1.500. Older ones count less.
      - Its last remedy or test has the number 3.
      - The class of its risk is raised.
      - A reset of it reaches gpu-0, gpu-10, too.

    Orders
      - The controller has permitted a reset of its PCIe function (resetFunction) for 10m.
      - The controller has evicted its pods for 5m.

    Held by
      - a/train, by the claim a/train, for 2h.
    ");
}

#[test]
fn an_order_that_the_agent_has_not_carried_out_is_what_comes_next() {
    assert_snapshot!(text(&described(&["n-2", "0"])), @r"
    gpu-0 of node n-2 (GPU-2-0) is Retired since 2026-01-03T00:00:00Z (2d12h ago).
    It is out of service until a person releases it. Why: an operator decided so (Operator).

    What happens next
      - The agent of the node carries out order 5 (Release).

    What a person can do
      - Look at the agent of the node if order 5 stays: `octavo doctor n-2`, and its log.
      - Replace the board, or decide that it is good. Then `octavo health release n-2 gpu-0 --reason TEXT` lets it be tested and return.

    Policy
      - No HealthPolicy is in force on the node: the agent decides by its defaults. It fences and tests, and resets nothing.

    Orders
      - Order 5 of a person (Release) is not carried out yet. Its reason: the board is new.

    Held by
      - No claim has it, and no process uses it.
    ");
}

#[test]
fn each_state_says_what_happens_and_what_a_person_can_do() {
    let of = |gpu: &str| {
        let report = described(&["n-1", gpu]);
        (report.next.join(" "), report.options.join(" "))
    };
    let (next, options) = of("gpu-0");
    assert_eq!(next, "Nothing: it is in service.");
    assert!(options.contains("`octavo health fence n-1 gpu-0 --reason TEXT`"), "{options}");
    let (next, options) = of("GPU-1-2");
    assert_eq!(next, "It is Healthy again 1h after its last warning.", "the time is the policy's");
    assert!(options.contains("ends the watch"), "{options}");
    let (next, options) = of("10");
    assert!(next.starts_with("A reset through the bus (resetBus) runs."), "{next}");
    assert!(next.contains("has not ended after 10m. A test follows."), "{next}");
    assert!(options.contains("retire"), "{options}");
}

#[test]
fn what_a_gpu_waits_for_decides_what_helps() {
    let with = |state: &str, needs: &str, waits: &str| {
        let mut facts = facts();
        let health = facts.nodes.get_mut("n-1").unwrap();
        health.spec.devices.clear();
        let gpus = &mut health.status.as_mut().unwrap().devices;
        let gpu = gpus.iter_mut().find(|gpu| gpu.name == "gpu-1").unwrap();
        state.clone_into(&mut gpu.state);
        gpu.needs = serde_json::from_value(needs.into()).unwrap();
        gpu.waits = Some(waits.to_owned()).filter(|waits| !waits.is_empty());
        let report = describe(&facts, &cluster(), &parsed(&["n-1/1"]).unwrap()).unwrap();
        (report.next.join(" "), report.options.join(" "))
    };
    let (next, options) = with("Fenced", "reboot", "RemedyByPerson");
    assert!(next.contains("leaves remedies to a person"), "{next}");
    assert!(options.contains("`kubectl drain n-1 --ignore-daemonsets`"), "{options}");
    let (_, options) = with("Fenced", "resetFunction", "RemedyByPerson");
    assert!(options.contains("`octavo driver release n-1`"), "{options}");
    assert!(options.contains("`nvidia-smi --gpu-reset -i GPU-1-1`"), "{options}");
    let (next, _) = with("Suspect", "test", "Storm");
    assert!(next.contains("stopped until 2026-01-05T12:20:00Z"), "{next}");
    let (_, options) = with("Suspect", "test", "ObserveOnly");
    assert!(options.contains("the mode Fence or Act"), "{options}");
    let (next, options) = with("Fenced", "test", "TestNotPossible");
    assert!(next.contains("cannot be tried now") && options.contains("tried again"), "{next}");
    let (next, _) = with("Suspect", "test", "");
    assert!(next.contains("It begins next."), "{next}");
    let (next, _) = with("Fenced", "test", "SomethingNew");
    assert!(next.contains("It waits: SomethingNew."), "{next}");
}

#[test]
fn a_gpu_is_named_in_three_ways() {
    let on = |gpu: &str| Name::OnNode { node: "n-1".to_owned(), gpu: gpu.to_owned() };
    assert_eq!(parsed(&["n-1/gpu-0"]).unwrap(), on("gpu-0"));
    assert_eq!(parsed(&["n-1", "0"]).unwrap(), on("0"));
    assert_eq!(parsed(&["GPU-1-1"]).unwrap(), Name::Uuid("GPU-1-1".to_owned()));
    assert_eq!(described(&["GPU-1-1"]).health.gpu, "gpu-1");
    for wrong in [&["n-1"][..], &["n-1/"], &["/gpu-0"], &["n-1/gpu-0/1"], &["n-1", ""]] {
        let error = parsed(wrong).unwrap_err();
        assert!(matches!(error, HealthError::NoName { .. }), "{error}");
    }
}

#[test]
fn unknown_gpus_and_nodes_are_errors_with_those_that_are_known() {
    let error = |words: &[&str]| {
        let error = describe(&facts(), &cluster(), &parsed(words).unwrap()).unwrap_err();
        (error.to_string(), error.hint().unwrap())
    };
    let (text, hint) = error(&["n-1/gpu-7"]);
    assert_eq!(text, "node \"n-1\" has no GPU \"gpu-7\"");
    assert_eq!(
        hint,
        "its GPUs are: gpu-0 (GPU-1-0), gpu-1 (GPU-1-1), gpu-2 (GPU-1-2), gpu-10 (GPU-1-10)"
    );
    assert_eq!(error(&["n-3/gpu-0"]).0, "node \"n-3\" has no NodeHealth");
    assert_eq!(error(&["GPU-9"]).0, "no NodeHealth has the GPU \"GPU-9\"");
}

#[test]
fn nothing_is_claimed_beyond_what_was_read() {
    let gap = Gap { kind: GapKind::ClaimsElsewhere, message: "no right".to_owned() };
    let blind = ClusterSnapshot { gaps: vec![gap], ..ClusterSnapshot::default() };
    let mut facts = facts();
    let health = facts.nodes.get_mut("n-1").unwrap();
    for gpu in &mut health.status.as_mut().unwrap().devices {
        gpu.record = Some(serde_json::json!({"track": {"state": "unheardOf"}}));
    }
    let report = describe(&facts, &blind, &parsed(&["n-1/gpu-1"]).unwrap()).unwrap();
    let text = text(&report);
    assert!(!text.contains("Held by"), "{text}");
    assert!(text.contains("(no right)"), "{text}");
    assert!(text.contains("Its record cannot be read by this version of octavo"), "{text}");
}

#[test]
fn programs_get_history_and_sentences() {
    let text = output::json("HealthDevice", &described(&["n-1/gpu-1"])).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["kind"], "HealthDevice");
    assert_eq!(value["state"], "Fenced");
    assert_eq!(value["history"]["blameMilli"], 1500);
    assert_eq!(value["history"]["relapses"], 1);
    assert_eq!(value["permit"]["remedy"], "resetFunction");
    assert_eq!(value["holders"][0]["pods"][0], "train");
    assert_eq!(value["resetReaches"], serde_json::json!(["gpu-0", "gpu-10"]));
    assert!(value["next"].as_array().is_some_and(|next| !next.is_empty()));
}
