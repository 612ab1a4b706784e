use super::WaitReason;
use crate::explain::{PodExplanation, TextOptions, explain_pod, render};
use crate::fixtures::{allocator_input, object, read};

/// Two full GPUs of one product, and one of two free of another.
const CLUSTER: &str = "
    node  dgx-0 gpus=2 product=H100 memory=81559Mi
    node  l4-0 gpus=2 product=L4 memory=23034Mi
    class gpu.nvidia.com extended=nvidia.com/gpu
    claim b/train class=gpu.nvidia.com count=2 on=dgx-0/gpu-0,dgx-0/gpu-1 for=train
    claim b/serve class=gpu.nvidia.com on=l4-0/gpu-0 for=serve
";
const H100: &str = "device.attributes['gpu.nvidia.com'].productName == 'H100'";

/// Explains pod `a/job` of a cluster of which an allocator has seen all.
fn explain(fixture: &str) -> PodExplanation {
    let (mut snapshot, events) = read(&format!("{CLUSTER}{fixture}\ncond a/job False x y"));
    snapshot.allocator = Some(allocator_input(&snapshot));
    explain_pod(&snapshot, &object("a/job"), events).unwrap()
}

fn reasons(fixture: &str) -> Vec<WaitReason> {
    explain(fixture).advice.into_iter().map(|advice| advice.reason).collect()
}

const ONE: &str = "claim a/job class=gpu.nvidia.com\npod a/job phase=Pending gpu=job\n";

fn one_h100() -> String {
    format!("{ONE}when a/job {H100}\n")
}

#[test]
fn devices_that_fit_are_named_by_their_nodes() {
    assert_eq!(reasons(ONE), [WaitReason::DevicesFit { nodes: vec!["l4-0".to_owned()] }]);
    // Claims of others may hold them, and an object that is not understood may, too.
    assert_eq!(reasons(&format!("{ONE}gap claimsElsewhere no")), []);
    let found = reasons(&format!("{ONE}gap unreadable no"));
    assert!(matches!(&*found, [WaitReason::EnoughFree { .. }]), "{found:?}");
}

#[test]
fn nearest_node_is_named_with_the_requests_it_lacks() {
    let lacking = vec!["a/job/gpu".to_owned()];
    let expected = [WaitReason::DevicesDoNotFit { node: "dgx-0".to_owned(), lacking }];
    assert_eq!(reasons(&one_h100()), expected);
    // Nodes that are not known may serve it.
    let found = reasons(&format!("{}gap nodes no", one_h100()));
    assert!(matches!(&*found, [WaitReason::EnoughFree { .. }]), "{found:?}");
    // Claims that are not known only take more.
    assert_eq!(reasons(&format!("{}gap claimsElsewhere no", one_h100())), expected);
}

#[test]
fn allocator_result_replaces_a_count_that_selectors_may_rule_out() {
    let two = format!(
        "claim a/job class=gpu.nvidia.com count=2\npod a/job phase=Pending gpu=job\nwhen a/job {H100}"
    );
    let found = reasons(&two);
    assert!(matches!(&*found, [WaitReason::DevicesDoNotFit { .. }]), "{found:?}");
    let found =
        reasons("claim a/job class=gpu.nvidia.com count=2\npod a/job phase=Pending gpu=job");
    assert!(matches!(&*found, [WaitReason::NotEnoughFree { selectors: false, .. }]), "{found:?}");
}

#[test]
fn claim_no_node_can_serve_is_a_defect() {
    let many = "claim a/job class=gpu.nvidia.com count=33\npod a/job phase=Pending gpu=job\n";
    let found = reasons(many);
    let [WaitReason::LargerThanAnyNode { .. }, WaitReason::ClaimDefect { defect }] = &*found else {
        panic!("{found:?}")
    };
    assert_eq!(defect, "claim a/job asks for 33 devices; a claim may have 32");
    let message = &explain(many).advice[1].message;
    assert!(message.ends_with("Correct the claim, its template or its class."), "{message}");
}

#[test]
fn unevaluated_selector_is_no_claim_defect() {
    let found = explain(&format!("{ONE}when a/job timestamp('2026-01-05T10:00:00Z') != null"));
    let [.., last] = &*found.advice else { panic!("{:?}", found.advice) };
    assert!(matches!(&last.reason, WaitReason::NotEvaluated { .. }), "{last:?}");
    assert!(!last.message.contains("Correct"), "{last:?}");
}

#[test]
fn where_a_device_plugin_serves_the_pod_no_lack_is_concluded() {
    let found = reasons(
        "node  old-0 gpus=0 product=V100 memory=16Gi plugin=nvidia.com/gpu
         pod   a/job phase=Pending limit=nvidia.com/gpu:4",
    );
    assert_eq!(found, []);
}

/// The cluster in which each GPU of a node is a scheduler's.
fn owned(node: &str, gpus: usize) -> String {
    let taint = |gpu| format!("taint {node}/gpu-{gpu} octavo.dev/scheduler=octavo:NoSchedule\n");
    (0..gpus).map(taint).collect()
}

#[test]
fn pod_of_another_scheduler_sees_the_owner_of_free_gpus() {
    let found = explain(&format!("{ONE}{}", owned("l4-0", 2)));
    let reason = &found.advice[0];
    let expected = WaitReason::OwnedByScheduler {
        nodes: vec!["l4-0".to_owned()],
        owner: "octavo".to_owned(),
        scheduler: "default-scheduler".to_owned(),
    };
    assert_eq!(reason.reason, expected);
    assert!(reason.message.contains("spec.schedulerName"), "{}", reason.message);
    assert!(reason.message.contains("octavo.dev/scheduler"), "{}", reason.message);
    let Some(WaitReason::NotEnoughFree { node, .. }) = found.advice.get(1).map(|a| &a.reason)
    else {
        panic!("{:?}", found.advice)
    };
    assert_eq!(node, "dgx-0", "what is another's is not counted");
    let report = found.devices.unwrap();
    assert_eq!(report.fits, [""; 0]);
    let devices = report.nodes.iter().flat_map(|node| &node.requests[0].devices);
    let words: Vec<_> = devices.filter_map(|device| device.ruled_out.as_deref()).collect();
    assert!(words.contains(&"tainted octavo.dev/scheduler=octavo:NoSchedule"), "{words:?}");
}

#[test]
fn owner_is_the_only_reason_if_it_owns_all_nodes() {
    let found = reasons(&format!("{ONE}{}{}", owned("l4-0", 2), owned("dgx-0", 2)));
    let Some(WaitReason::OwnedByScheduler { nodes, .. }) = found.first() else {
        panic!("{found:?}")
    };
    assert_eq!(nodes, &["dgx-0", "l4-0"]);
    let by_count = |reason: &WaitReason| {
        matches!(reason, WaitReason::NotEnoughFree { .. } | WaitReason::LargerThanAnyNode { .. })
    };
    assert!(!found.iter().any(by_count), "{found:?}");
}

#[test]
fn a_pod_of_the_owner_may_have_what_the_owner_gives() {
    let ours = ONE.replace("phase=Pending", "phase=Pending scheduler=octavo");
    let found = reasons(&format!("{ours}{}", owned("l4-0", 2)));
    assert_eq!(found, [WaitReason::DevicesFit { nodes: vec!["l4-0".to_owned()] }]);
}

/// A cluster in which only `dgx-0` could serve the claim, if its GPUs were cut.
fn explain_mig(fixture: &str) -> PodExplanation {
    let cluster = "
        node  dgx-0 gpus=2 product=A100 memory=40960Mi
        node  l4-0 gpus=2 product=L4 memory=23034Mi
        class mig.nvidia.com
        claim a/job class=mig.nvidia.com
        pod   a/job phase=Pending gpu=job
        cond  a/job False x y
    ";
    let (mut snapshot, events) = read(&format!("{cluster}{fixture}"));
    let selector = "device.attributes['gpu.nvidia.com'].type == 'mig'".to_owned();
    snapshot.classes.get_mut("mig.nvidia.com").unwrap().selectors.push(selector);
    snapshot.allocator = Some(allocator_input(&snapshot));
    explain_pod(&snapshot, &object("a/job"), events).unwrap()
}

#[test]
fn warning_of_an_agent_is_preferred_to_what_the_class_excludes() {
    let warning = "
        warns dgx-0 DynamicMigNeedsReset gpu-0 is opted into dynamic MIG but its MIG mode is off
        warns dgx-0 DynamicMigNeedsReset gpu-0 is opted into dynamic MIG but its MIG mode is off
        warns other GpuUnhealthy it has no devices
    ";
    let found = explain_mig(warning);
    let warned = WaitReason::NodesWarn {
        nodes: vec!["dgx-0".to_owned()],
        warnings: vec!["DynamicMigNeedsReset".to_owned()],
    };
    let reasons: Vec<_> = found.advice.iter().map(|advice| advice.reason.clone()).collect();
    assert_eq!(reasons, [warned]);
    let options =
        TextOptions { wide: false, headers: true, colour: false, now: crate::fixtures::now() };
    let text = render(&found, options);
    let start = text.find("Warnings").unwrap();
    insta::assert_snapshot!(&text[start..], @r"
    Warnings of the nodes' agents
      dgx-0: DynamicMigNeedsReset, 2m ago
        gpu-0 is opted into dynamic MIG but its MIG mode is off

    Devices that an allocator finds
      dgx-0, l4-0
        request gpu of a/job wants 1; 0 of 2 devices could serve
          gpu-0, gpu-1: class mig.nvidia.com excludes it: device.attributes['gpu.nvidia.com'].type == 'mig'

    What this means
      - No node has devices that serve all claims of the pod. The agent warns of DynamicMigNeedsReset on dgx-0: the messages above say what to do.
    ");
}

#[test]
fn warning_on_a_further_node_does_not_hide_the_nearest() {
    let found = explain_mig("warns l4-0 FieldsDropped words");
    let reasons: Vec<_> = found.advice.iter().map(|advice| &advice.reason).collect();
    let [WaitReason::NodesWarn { .. }, WaitReason::DevicesDoNotFit { node, .. }] = &*reasons else {
        panic!("{reasons:?}")
    };
    assert_eq!(node, "dgx-0");
}

#[test]
fn few_warnings_are_shown_and_none_where_devices_fit() {
    let many: String = (0..5)
        .map(|n| format!("warns dgx-0 GpuUnhealthy gpu-{n} is ill\n"))
        .collect::<Vec<_>>()
        .concat();
    let found = explain_mig(&many);
    assert_eq!(found.node_warnings.len(), 5);
    let options =
        TextOptions { wide: false, headers: true, colour: false, now: crate::fixtures::now() };
    let text = render(&found, options);
    assert_eq!(text.matches("GpuUnhealthy, 2m ago").count(), 3, "{text}");
    assert!(text.contains("and 2 more (-o wide, -o json)"), "{text}");
    assert_eq!(explain(&format!("{ONE}warns dgx-0 GpuUnhealthy words")).node_warnings, []);
}
