use insta::assert_snapshot;

use super::{TextOptions, WaitReason, explain_pod, render};
use crate::explain::PodExplanation;
use crate::fixtures::{now, object, read};

/// One full node, one of another product with a free GPU, and the class for both.
const CLUSTER: &str = "
    node  dgx-h100-0 gpus=2 product=NVIDIA_H100_80GB_HBM3 memory=81559Mi
    node  l4-0 gpus=2 product=NVIDIA_L4 memory=23034Mi
    class gpu.nvidia.com extended=nvidia.com/gpu
    claim b/train class=gpu.nvidia.com count=2 on=dgx-h100-0/gpu-0,dgx-h100-0/gpu-1 for=train at=2026-01-05T10:00:00Z
    claim b/serve class=gpu.nvidia.com on=l4-0/gpu-0 for=serve at=2026-01-05T10:00:00Z
";

fn explain(fixture: &str) -> PodExplanation {
    let (snapshot, events) = read(&format!("{CLUSTER}{fixture}"));
    explain_pod(&snapshot, &object("a/job"), events).unwrap()
}

fn text(fixture: &str) -> String {
    let options = TextOptions { wide: false, headers: true, colour: false, now: now() };
    render(&explain(fixture), options)
}

fn reasons(fixture: &str) -> Vec<WaitReason> {
    explain(fixture).advice.into_iter().map(|advice| advice.reason).collect()
}

#[test]
fn holders_on_the_nearest_node_are_named() {
    assert_snapshot!(text("
        claim a/job class=gpu.nvidia.com count=2
        when  a/job device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*h100.*$')
        pod   a/job phase=Pending created=2026-01-05T11:56:48Z gpu=@two-gpus made=two-gpus:job
        cond  a/job False Unschedulable 0/2 nodes are available: 2 cannot allocate all claims.
        event Warning FailedScheduling default-scheduler 0/2 nodes are available: 2 cannot allocate all claims.
        event Normal Waiting other the words of another
    "), @r"
    Pod a/job waits for a node, created 3m12s ago

    Claims
      gpu: from template two-gpus; claim job, not allocated
        request gpu: 2 devices of class gpu.nvidia.com
          selector as written:
            device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*h100.*$')

    The scheduler says
      Unschedulable: 0/2 nodes are available: 2 cannot allocate all claims.

    Events
      2m  Waiting  other  the words of another (x3)

    GPUs of driver gpu.nvidia.com, regardless of selectors
      NODE        PRODUCT                MEMORY   GPUS  FREE  HELD  OTHER
      dgx-h100-0  NVIDIA H100 80GB HBM3  81559Mi  2     0     2
      l4-0        NVIDIA L4              23034Mi  2     1     1

    What this means
      - The pod asks for 2 GPUs, and no node has that many free. The nearest is l4-0: 1 of 2 held by b/serve, 1 free. It needs 1 more there: wait until one is released, or delete a pod that holds one. The selectors above may exclude this node.
    ");
}

#[test]
fn request_larger_than_any_node_says_waiting_does_not_help() {
    assert_snapshot!(text("
        claim a/job class=gpu.nvidia.com count=9
        pod   a/job phase=Pending gpu=job
        cond  a/job False Unschedulable 0/2 nodes are available: 2 cannot allocate all claims.
    "), @r"
    Pod a/job waits for a node

    Claims
      gpu: a ResourceClaim; claim job, not allocated
        request gpu: 9 devices of class gpu.nvidia.com

    The scheduler says
      Unschedulable: 0/2 nodes are available: 2 cannot allocate all claims.

    GPUs of driver gpu.nvidia.com, regardless of selectors
      NODE        PRODUCT                MEMORY   GPUS  FREE  HELD  OTHER
      dgx-h100-0  NVIDIA H100 80GB HBM3  81559Mi  2     0     2
      l4-0        NVIDIA L4              23034Mi  2     1     1

    What this means
      - The pod asks for 9 GPUs on one node; the largest node has 2 (dgx-h100-0). Waiting does not help: ask for at most 2, or spread the work over several pods.
    ");
}

#[test]
fn when_enough_is_free_the_selectors_are_shown_and_not_judged() {
    assert_snapshot!(text("
        claim a/job class=gpu.nvidia.com
        when  a/job device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('100Gi')) >= 0
        pod   a/job phase=Pending gpu=job
        cond  a/job False Unschedulable 0/2 nodes are available: 2 cannot allocate all claims.
    "), @r"
    Pod a/job waits for a node

    Claims
      gpu: a ResourceClaim; claim job, not allocated
        request gpu: 1 device of class gpu.nvidia.com
          selector as written:
            device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('100Gi')) >= 0

    The scheduler says
      Unschedulable: 0/2 nodes are available: 2 cannot allocate all claims.

    GPUs of driver gpu.nvidia.com, regardless of selectors
      NODE        PRODUCT                MEMORY   GPUS  FREE  HELD  OTHER
      dgx-h100-0  NVIDIA H100 80GB HBM3  81559Mi  2     0     2
      l4-0        NVIDIA L4              23034Mi  2     1     1

    What this means
      - 1 GPU would be free on l4-0, so the number of GPUs is not the problem. The selectors above narrow the choice: compare them with `kubectl get resourceslices -o yaml`. The pod's node selector, affinity, tolerations, CPU and memory narrow it too: see the scheduler's message.
    ");
}

#[test]
fn running_pod_shows_devices_and_driver_conditions() {
    assert_snapshot!(text("
        claim a/job class=gpu.nvidia.com on=l4-0/gpu-1 for=job,other at=2026-01-05T11:00:00Z
        says  a/job l4-0/gpu-1 Ready=True:Prepared prepared for its containers
        pod   a/job phase=Running node=l4-0 gpu=job
        cond  a/job True
    "), @r"
    Pod a/job runs on l4-0

    Claims
      gpu: a ResourceClaim; claim job, allocated
        request gpu: 1 device of class gpu.nvidia.com
        gpu-1 on l4-0 for request gpu: NVIDIA L4, GPU-l4-0-1
          Ready is True, Prepared: prepared for its containers
        shared by pods job, other
    ");
}

#[test]
fn extended_resource_is_explained_by_its_class() {
    assert_snapshot!(text("
        pod   a/job phase=Pending limit=nvidia.com/gpu:4
        cond  a/job False Unschedulable 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.
    "), @r"
    Pod a/job waits for a node

    Claims
      from limits nvidia.com/gpu; no claim yet
        request main: 4 devices of class gpu.nvidia.com

    The scheduler says
      Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.

    GPUs of driver gpu.nvidia.com, regardless of selectors
      NODE        PRODUCT                MEMORY   GPUS  FREE  HELD  OTHER
      dgx-h100-0  NVIDIA H100 80GB HBM3  81559Mi  2     0     2
      l4-0        NVIDIA L4              23034Mi  2     1     1

    What this means
      - The pod asks for 4 GPUs on one node; the largest node has 2 (dgx-h100-0). Waiting does not help: ask for at most 2, or spread the work over several pods.
    ");
}

#[test]
fn failed_prepare_shows_the_driver_message() {
    assert_snapshot!(text("
        claim a/job class=gpu.nvidia.com on=l4-0/gpu-1 for=job at=2026-01-05T11:00:00Z
        says  a/job l4-0/gpu-1 Ready=False:NotYetSupported GpuConfig with sharing strategy MPS cannot act yet
        pod   a/job phase=Pending node=l4-0 gpu=job
        cond  a/job True
    "), @r"
    Pod a/job is starting on l4-0

    Claims
      gpu: a ResourceClaim; claim job, allocated
        request gpu: 1 device of class gpu.nvidia.com
        gpu-1 on l4-0 for request gpu: NVIDIA L4, GPU-l4-0-1
          Ready is False, NotYetSupported: GpuConfig with sharing strategy MPS cannot act yet

    What this means
      - Node l4-0 could not prepare the pod's claims and keeps trying. Its message: GpuConfig with sharing strategy MPS cannot act yet
    ");
}

#[test]
fn a_pod_without_claims_says_that_it_asks_for_no_devices() {
    assert_snapshot!(text("pod a/job phase=Running node=l4-0"), @r"
    Pod a/job runs on l4-0

    It asks for no devices: it has no claims, and no limits that a DeviceClass serves.
    ");
}

#[test]
fn unreadable_objects_are_named_and_prove_nothing() {
    let fixture = "
        claim a/job class=gpu.nvidia.com
        pod   a/job phase=Pending gpu=job
        cond  a/job False Unschedulable words
        gap   claimsElsewhere resourceclaims is forbidden: User \"jo\" cannot list
    ";
    assert_eq!(reasons(fixture), []);
    assert!(text(fixture).ends_with(
        "Not taken into account, because it could not be read\n  resourceclaims of other namespaces: \
         resourceclaims is forbidden: User \"jo\" cannot list\n"
    ));
}

#[test]
fn missing_objects_are_named() {
    assert_eq!(
        reasons("pod a/job phase=Pending gpu=absent\ncond a/job False x y"),
        [WaitReason::ClaimNotFound { claim: "absent".to_owned() }]
    );
    assert_eq!(
        reasons("pod a/job phase=Pending gpu=@absent\ncond a/job False x y"),
        [WaitReason::TemplateNotFound { template: "absent".to_owned() }]
    );
    assert_eq!(
        reasons("template a/t\npod a/job phase=Pending gpu=@t\ncond a/job False x y"),
        [WaitReason::ClaimNotMade { template: "t".to_owned() }]
    );
    assert_eq!(
        reasons("claim a/job class=gpu\npod a/job phase=Pending gpu=job\ncond a/job False x y"),
        [WaitReason::ClassNotFound {
            class: "gpu".to_owned(),
            known: vec!["gpu.nvidia.com".to_owned()],
        }]
    );
    assert_eq!(
        reasons("pod a/job phase=Pending limit=amd.com/gpu:1\ncond a/job False x y"),
        [WaitReason::ResourceNotServed { resource: "amd.com/gpu".to_owned() }]
    );
}

#[test]
fn device_plugin_resource_is_no_claim_and_hides_no_reason() {
    let plugin = "node nic-0 gpus=1 product=NVIDIA_L4 memory=23034Mi plugin=rdma/hca\n";
    let found = explain(&format!(
        "{plugin}pod a/job phase=Pending limit=rdma/hca:1 gpu=absent\ncond a/job False x y"
    ));
    let claims: Vec<&str> = found.claims.iter().map(|claim| &*claim.name).collect();
    assert_eq!(claims, ["gpu"]);
    assert_eq!(
        found.advice.into_iter().map(|advice| advice.reason).collect::<Vec<_>>(),
        [WaitReason::ClaimNotFound { claim: "absent".to_owned() }]
    );
    let bound = explain("pod a/job phase=Running node=l4-0 limit=rdma/hca:1");
    assert_eq!(bound.claims, [], "its scheduler made no claim");
    let unread = "gap nodes no\npod a/job phase=Pending limit=rdma/hca:1\ncond a/job False x y";
    assert_eq!(reasons(unread), [], "who serves it is not known");
}

#[test]
fn while_slices_are_missing_no_count_is_proof() {
    let found = reasons(
        "node  big-0 gpus=0 slices=2 product=NVIDIA_L4 memory=23034Mi
         claim a/job class=gpu.nvidia.com count=9
         pod   a/job phase=Pending gpu=job
         cond  a/job False Unschedulable words",
    );
    let pools = vec!["big-0 (1 of 2 slices)".to_owned()];
    assert_eq!(found, [WaitReason::PoolsIncomplete { pools }]);
}

#[test]
fn prepare_failure_before_a_later_success_is_ignored() {
    let failed = "
        claim a/job class=gpu.nvidia.com on=l4-0/gpu-1 for=job at=2026-01-05T11:00:00Z
        pod   a/job phase=Pending node=l4-0 gpu=job
        event Warning FailedPrepareDynamicResources kubelet the words
    ";
    let node = "l4-0".to_owned();
    let words = "the words".to_owned();
    assert_eq!(reasons(failed), [WaitReason::PrepareFailed { node: node.clone(), words }]);
    let pulling = format!("{failed}event Normal Pulling kubelet Pulling image");
    assert_eq!(reasons(&pulling), [WaitReason::Starting { node }]);
}

#[test]
fn pod_without_its_claim_gets_no_gpu_or_scheduler_advice() {
    let found = explain("pod a/job phase=Pending gpu=@absent");
    assert_eq!(found.candidates, []);
    assert_eq!(found.advice.len(), 1);
}

#[test]
fn a_claim_that_others_use_fixes_the_node() {
    let found = reasons(
        "
        claim a/shared class=gpu.nvidia.com on=dgx-h100-0/gpu-0 for=other
        claim a/more class=gpu.nvidia.com
        pod   a/job phase=Pending one=shared two=more
        cond  a/job False Unschedulable words
    ",
    );
    assert_eq!(
        found[0],
        WaitReason::NodeFixed { claim: "shared".to_owned(), node: "dgx-h100-0".to_owned() }
    );
    assert!(matches!(&found[1], WaitReason::NotEnoughFree { asked: 1, free: 0, .. }));
}

#[test]
fn tainted_gpus_are_unusable_without_tolerations() {
    let fixture = "
        taint l4-0/gpu-1 gpu.nvidia.com/xid=79:NoSchedule
        pod   a/job phase=Pending gpu=job
        cond  a/job False Unschedulable words
    ";
    let strict = reasons(&format!("claim a/job class=gpu.nvidia.com{fixture}"));
    assert!(matches!(&*strict, [WaitReason::NotEnoughFree { .. }]));
    let tolerant = reasons(&format!("claim a/job class=gpu.nvidia.com tolerates{fixture}"));
    assert!(matches!(&*tolerant, [WaitReason::EnoughFree { .. }]));
}

#[test]
fn classes_that_select_by_their_own_rules_are_not_counted() {
    let found = reasons(
        "
        class mine.example.com
        claim a/job class=mine.example.com count=99
        pod   a/job phase=Pending gpu=job
        cond  a/job False Unschedulable words
    ",
    );
    assert_eq!(found, []);
}

#[test]
fn a_pod_that_no_scheduler_has_seen_says_so() {
    assert_eq!(
        reasons("claim a/job class=gpu.nvidia.com\npod a/job phase=Pending gpu=job").last(),
        Some(&WaitReason::NotYetConsidered { scheduler: "default-scheduler".to_owned() })
    );
}

#[test]
fn scheduling_gates_come_before_everything_else() {
    assert_eq!(
        reasons("pod a/job phase=Pending gate=example.com/wait gpu=absent"),
        [WaitReason::SchedulingGated { gates: vec!["example.com/wait".to_owned()] }]
    );
}

#[test]
fn only_pending_pods_wait() {
    assert!(explain("pod a/job phase=Pending").waits);
    assert!(!explain("pod a/job phase=Running node=l4-0").waits);
    assert!(!explain("pod a/job phase=Succeeded node=l4-0").waits);
}

#[test]
fn the_json_form_is_an_api() {
    let explanation = explain(
        "
        claim a/job class=gpu.nvidia.com count=9
        pod   a/job phase=Pending gpu=job
        cond  a/job False Unschedulable words
        event Warning FailedScheduling default-scheduler words
    ",
    );
    let mut explanation = explanation;
    explanation.candidates.truncate(1);
    assert_snapshot!(crate::output::json("PodExplanation", &explanation).unwrap(), @r#"
    {
      "apiVersion": "cli.octavo.dev/v1alpha1",
      "kind": "PodExplanation",
      "namespace": "a",
      "name": "job",
      "phase": "Pending",
      "stage": "unscheduled",
      "waits": true,
      "scheduler": "default-scheduler",
      "scheduled": {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "words"
      },
      "claims": [
        {
          "name": "gpu",
          "source": {
            "kind": "resourceClaim",
            "name": "job"
          },
          "claim": "job",
          "exists": true,
          "allocated": false,
          "requests": [
            {
              "name": "gpu",
              "alternatives": [
                {
                  "class": "gpu.nvidia.com",
                  "count": 9
                }
              ]
            }
          ]
        }
      ],
      "events": [
        {
          "lastSeen": "2026-01-05T11:58:00Z",
          "source": "default-scheduler",
          "type": "Warning",
          "reason": "FailedScheduling",
          "message": "words",
          "count": 3
        }
      ],
      "candidates": [
        {
          "node": "dgx-h100-0",
          "device": "gpu-0",
          "uuid": "GPU-dgx-h100-0-0",
          "product": "NVIDIA H100 80GB HBM3",
          "memory": "81559Mi",
          "state": "used",
          "holders": [
            {
              "namespace": "b",
              "claim": "train",
              "pods": [
                "train"
              ],
              "since": "2026-01-05T10:00:00Z"
            }
          ]
        }
      ],
      "advice": [
        {
          "reason": "LargerThanAnyNode",
          "asked": 9,
          "most": 2,
          "node": "dgx-h100-0",
          "message": "The pod asks for 9 GPUs on one node; the largest node has 2 (dgx-h100-0). Waiting does not help: ask for at most 2, or spread the work over several pods."
        }
      ]
    }
    "#);
}
