//! The webhook's condition, as the API server evaluates it, and the translation name the same pods.

use std::collections::BTreeMap;

use kube::api::PostParams;
use octavo_migration::{Options, Origin, translate};
use octavo_testkit::Rng;
use serde_json::{Value, json};

use super::create;
use crate::testbed::Testbed;

/// Keys that the condition names or almost names. Values are those of labels.
const KEYS: [(&str, &str); 26] = [
    ("nvidia.com/use-gputype", "A100"),
    ("nvidia.com/nouse-gputype", "A100"),
    ("nvidia.com/use-gpuuuid", "GPU-1"),
    ("nvidia.com/nouse-gpuuuid", "GPU-1"),
    ("nvidia.com/numa-bind", "false"),
    ("nvidia.com/vgpu-mode", "hami-core"),
    ("nvidia.com/vgpu-modes", "hami-core"),
    ("hami.io/vgpu-node", "n1"),
    ("hami.io/unknown", "x"),
    ("hami.iox", "x"),
    ("x.hami.io/vgpu-node", "n1"),
    ("gpu-fraction", "0.5"),
    ("gpu-memory", "1000"),
    ("gpu-fraction-num-devices", "1"),
    ("gpu-fraction-container-name", "main"),
    ("gpu-fractions", "0.5"),
    ("kai.scheduler/queue", "q"),
    ("runai/queue", "q"),
    ("run.ai/x", "q"),
    ("runai/shared-gpu-configmap", "q"),
    ("kai.scheduler/topology", "q"),
    ("kai.scheduler/node-pool", "q"),
    ("runai-gpu-group", "q"),
    ("runai-gpu-group/a", "q"),
    ("mps", "true"),
    ("priorityClassName", "train"),
];

const RESOURCES: [&str; 7] = [
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
    "nvidia.com/gpumemory",
    "cpu",
];

const SCHEDULERS: [&str; 6] = [
    "default-scheduler",
    "hami-scheduler",
    "kai-scheduler",
    "runai-scheduler",
    "my-kai-scheduler",
    "octavo",
];

/// Pods that have every key, resource and scheduler by itself, and random ones.
fn pods() -> Vec<Value> {
    let plain = || {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        })
    };
    let mut pods = vec![plain()];
    for (key, value) in KEYS {
        for part in ["annotations", "labels"] {
            let mut pod = plain();
            pod["metadata"][part] = json!({ key: value });
            pods.push(pod);
        }
    }
    for resource in RESOURCES {
        for (part, list) in
            [("containers", "limits"), ("containers", "requests"), ("initContainers", "limits")]
        {
            let mut pod = plain();
            let resources = json!({ list: { resource: 1 } });
            pod["spec"][part] = json!([{"name": "other", "image": "x", "resources": resources}]);
            pods.push(pod);
        }
    }
    for scheduler in SCHEDULERS {
        let mut pod = plain();
        pod["spec"]["schedulerName"] = scheduler.into();
        pods.push(pod);
    }
    let mut rng = Rng::new(7);
    for _ in 0..200 {
        let mut pod = plain();
        for part in ["annotations", "labels"] {
            let keys: BTreeMap<_, _> = (0..rng.below(2)).map(|_| *rng.pick(&KEYS)).collect();
            pod["metadata"][part] = json!(keys);
        }
        for part in ["containers", "initContainers"] {
            let resources: BTreeMap<_, _> =
                (0..rng.below(3)).map(|_| (*rng.pick(&RESOURCES), 1)).collect();
            if part == "containers" || rng.chance(50) {
                pod["spec"][part] = json!([
                    {"name": format!("{}-plain", part.to_lowercase()), "image": "x"},
                    {"name": part.to_lowercase(), "image": "x", "resources": {"limits": resources}},
                ]);
            }
        }
        if rng.chance(30) {
            pod["spec"]["schedulerName"] = (*rng.pick(&SCHEDULERS)).into();
        }
        pods.push(pod);
    }
    // The API server finds no containers after it has asked the webhook.
    let mut empty = plain();
    empty["spec"] = json!({});
    pods.push(empty);
    // The condition has a limit of cost, which a pod without keys of HAMi or KAI must not reach.
    let many: BTreeMap<String, &str> =
        (0..8000).map(|index| (format!("key-{index}.example.com/name"), "")).collect();
    for part in ["annotations", "labels"] {
        let mut pod = plain();
        pod["metadata"][part] = json!(many);
        pods.push(pod);
    }
    pods
}

/// With the webhook down, the API server refuses exactly the pods that a translation changes or refuses.
pub(super) async fn agrees_with_the_translation(testbed: &Testbed) {
    let (pods, params) = (testbed.pods(), PostParams { dry_run: true, ..PostParams::default() });
    let (mut matched, all) = (0, self::pods());
    for pod in &all {
        let options = Options { is_admission: true, ..Options::default() };
        let is_concerned = translate(pod, &Origin::default(), &options) != Ok(None);
        let result = create(&pods, pod, &params).await;
        // A pod that is invalid otherwise was not asked about either.
        let is_matched =
            result.as_ref().is_err_and(|error| error.contains("failed calling webhook"));
        assert_eq!(is_matched, is_concerned, "{result:?} for {pod}");
        if let Err(error) = &result
            && !is_matched
        {
            assert!(error.contains("is invalid"), "not the validation's words: {error}");
        }
        matched += usize::from(is_matched);
    }
    assert!(
        matched >= 40 && all.len() - matched >= 40,
        "{matched} of {} pods are matched",
        all.len()
    );
}
