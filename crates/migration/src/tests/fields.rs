use serde_json::{Value, json};

use super::fixtures::{
    H100, L4, T4, annotated, devices, exactly, options, pod, translated, try_translate,
};
use crate::{Options, Origin, translate};

fn gpu(more: Value) -> Value {
    let mut request = json!({"deviceClassName": "gpu.nvidia.com"});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn requests(amounts: Value) -> Value {
    gpu(json!({"capacity": {"requests": amounts}}))
}

fn selected(expressions: &[&str]) -> Value {
    let cel = |expression: &&str| json!({"cel": {"expression": expression}});
    gpu(json!({"selectors": expressions.iter().map(cel).collect::<Vec<_>>()}))
}

#[test]
fn resources_of_hami_become_capacities() {
    for (limits, expected) in [
        (
            json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}),
            requests(json!({"memory": "3000Mi"})),
        ),
        (json!({"nvidia.com/gpumem": "3k"}), requests(json!({"memory": "3000Mi"}))),
        (
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}),
            requests(json!({"memory": "3000Mi", "compute": "30"})),
        ),
        // 0 is not given.
        (
            json!({"nvidia.com/gpumem": 0, "nvidia.com/gpucores": 25}),
            requests(json!({"compute": "25"})),
        ),
        (
            json!({"nvidia.com/gpumem": 1000, "nvidia.com/gpumem-percentage": 0}),
            requests(json!({"memory": "1000Mi"})),
        ),
        (json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 100}), gpu(json!({}))),
        (
            json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 100, "nvidia.com/gpucores": 100}),
            gpu(json!({"count": 2})),
        ),
        // 100 percent of time exclude others, so the memory is a minimum.
        (
            json!({"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 100}),
            selected(&[
                "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('3000Mi')) >= 0",
            ]),
        ),
        (json!({"nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 100}), gpu(json!({}))),
    ] {
        assert_eq!(exactly(&pod(limits.clone(), json!({}))), expected, "{limits}");
    }
}

#[test]
fn a_pod_names_its_claim_and_keeps_the_rest() {
    let mut pod = pod(
        json!({"cpu": "2", "nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}),
        json!({"nvidia.com/vgpu-mode": "hami-core", "mine": "x"}),
    );
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"nvidia.com/gpumem": 3000});
    pod["spec"]["schedulerName"] = "hami-scheduler".into();
    pod["spec"]["runtimeClassName"] = "nvidia".into();
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "mine"}]);
    let translation = translated(&pod);
    let name = &translation.templates[0]["metadata"]["name"];
    assert_eq!(
        translation.pod,
        json!({
            "metadata": {"annotations": {"mine": "x"}},
            "spec": {
                "resourceClaims": [
                    {"name": "gpu", "resourceClaimName": "mine"},
                    {"name": "gpu-2", "resourceClaimTemplateName": name},
                ],
                "containers": [{
                    "name": "main",
                    "resources": {"limits": {"cpu": "2"}, "claims": [{"name": "gpu-2"}]},
                }],
            },
        })
    );
    assert_eq!(translation.changes.len(), 4, "{:?}", translation.changes);
}

#[test]
fn several_shares_are_on_several_gpus() {
    let pod = pod(
        json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/priority": 0}),
        json!({"nvidia.com/numa-bind": "true"}),
    );
    let ask = requests(json!({"memory": "3000Mi"}));
    assert_eq!(
        devices(&pod),
        json!({
            "requests": [{"name": "gpu-0", "exactly": ask}, {"name": "gpu-1", "exactly": ask}],
            "constraints": [
                {"requests": ["gpu-0", "gpu-1"], "distinctAttribute": "gpu.nvidia.com/uuid"},
                {"requests": ["gpu-0", "gpu-1"], "matchAttribute": "resource.kubernetes.io/numaNode"},
            ],
            "config": [{"requests": ["gpu-0", "gpu-1"], "opaque": {
                "driver": "gpu.nvidia.com",
                "parameters": {"apiVersion": "octavo.dev/v1alpha1", "kind": "GpuShareConfig", "class": "LatencyCritical"},
            }}],
        })
    );
}

#[test]
fn parts_of_the_memory_have_an_alternative_for_each_model() {
    let alternative = |name: &str, product: &str, memory: &str| {
        let mut request = requests(json!({"memory": memory, "compute": "30"}));
        let expression = format!("device.attributes['gpu.nvidia.com'].productName == '{product}'");
        request["name"] = name.into();
        request["selectors"] = json!([{"cel": {"expression": expression}}]);
        request
    };
    let percentage =
        pod(json!({"nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 30}), json!({}));
    assert_eq!(
        devices(&percentage),
        json!({"requests": [{"name": "gpu", "firstAvailable": [
            alternative("tesla-t4", T4, "7680Mi"),
            alternative("nvidia-l4", L4, "11517Mi"),
            alternative("nvidia-h100-80gb-hbm3", H100, "40779Mi"),
        ]}]})
    );
    let limits = json!({"nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 30});
    let mut only = alternative("", H100, "40779Mi");
    only.as_object_mut().unwrap().remove("name");
    assert_eq!(exactly(&pod(limits.clone(), json!({"nvidia.com/use-gputype": "A100,h100"}))), only);
    let not_others = json!({"nvidia.com/nouse-gputype": "t4, L4"});
    assert_eq!(exactly(&pod(limits, not_others)), only);
}

#[test]
fn lists_of_gpus_become_selectors() {
    let product = "device.attributes['gpu.nvidia.com'].productName.lowerAscii().contains";
    let uuid = "device.attributes['gpu.nvidia.com'].uuid in";
    for (annotations, expected) in [
        (
            json!({"nvidia.com/use-gputype": "A100, v100"}),
            format!("{product}('a100') || {product}('v100')"),
        ),
        (
            json!({"nvidia.com/use-gputype": "NVIDIA-NVIDIA A100"}),
            format!("{product}('nvidia a100')"),
        ),
        (
            json!({"nvidia.com/nouse-gputype": "1080,2080"}),
            format!("!{product}('1080') && !{product}('2080')"),
        ),
        (json!({"nvidia.com/use-gpuuuid": "GPU-a, GPU-b"}), format!("{uuid} ['GPU-a', 'GPU-b']")),
        (json!({"nvidia.com/nouse-gpuuuid": "GPU-a"}), format!("!({uuid} ['GPU-a'])")),
    ] {
        let pod = pod(json!({"nvidia.com/gpu": 2}), annotations);
        let mut ask = selected(&[expected.as_str()]);
        ask["count"] = 2.into();
        assert_eq!(exactly(&pod), ask);
    }
    for annotations in [
        json!({"nvidia.com/use-gputype": "NVIDIA"}),
        json!({"nvidia.com/use-gputype": " "}),
        json!({"nvidia.com/nouse-gputype": ""}),
        json!({"nvidia.com/use-gpuuuid": ""}),
        json!({"nvidia.com/nouse-gpuuuid": ","}),
        json!({"nvidia.com/numa-bind": "yes"}),
        json!({"hami.io/gpu-scheduler-policy": "topology-aware,binpack"}),
        json!({"hami.io/node-scheduler-policy": "binpack"}),
        json!({"hami.io/vgpu-node": "n1"}),
    ] {
        let limits = json!({"nvidia.com/gpu": 2});
        let translation = translated(&pod(limits.clone(), annotations));
        assert!(translation.templates.is_empty(), "whole GPUs stay as they are");
        assert_eq!(translation.pod["spec"]["containers"][0]["resources"]["limits"], limits);
        assert!(!translation.changes.is_empty());
    }
}

#[test]
fn fractions_of_kai_go_to_one_container() {
    let shares = |pod: &Value| {
        let translation = translated(pod);
        let container = |list: &str, index: usize| {
            translation.pod["spec"][list][index].get("resources").is_some()
        };
        [container("initContainers", 0), container("containers", 0), container("containers", 1)]
    };
    let memory = annotated(json!({"gpu-memory": "2000"}));
    assert_eq!(exactly(&memory), requests(json!({"memory": "2000Mi"})));
    assert_eq!(shares(&memory), [false, true, false]);
    let named =
        |name: &str| annotated(json!({"gpu-memory": "2000", "gpu-fraction-container-name": name}));
    assert_eq!(shares(&named("side")), [false, false, true]);
    assert_eq!(shares(&named("first")), [true, false, false]);
    let fraction =
        devices(&annotated(json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"})));
    assert_eq!(fraction["requests"].as_array().unwrap().len(), 2);
    assert_eq!(
        fraction["requests"][1]["firstAvailable"][2]["capacity"]["requests"]["memory"],
        "40779Mi"
    );
    assert_eq!(fraction["constraints"][0]["distinctAttribute"], "gpu.nvidia.com/uuid");
}

#[test]
fn metadata_of_kai_is_replaced() {
    let pod = json!({
        "metadata": {
            "labels": {"kai.scheduler/queue": "a", "runai/queue": "b", "priorityClassName": "train", "app": "x"},
            "annotations": {
                "kai.scheduler/topology": "cluster",
                "kai.scheduler/topology-required-placement": "example.com/rack",
                "kai.scheduler/topology-preferred-placement": "kubernetes.io/hostname",
                "pod-group-name": "pg-1",
            },
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
    });
    let options = Options { scheduler_name: Some("octavo".to_owned()), ..options() };
    let translation = translate(&pod, &Origin::default(), &options).unwrap().unwrap();
    assert_eq!(
        translation.pod,
        json!({
            "metadata": {
                "labels": {"app": "x"},
                "annotations": {
                    "octavo.dev/topology-required": "example.com/rack",
                    "octavo.dev/topology-preferred": "kubernetes.io/hostname",
                },
            },
            "spec": {"schedulerName": "octavo", "priorityClassName": "train", "containers": [{"name": "main"}]},
        })
    );
}

#[test]
fn init_containers_share_the_claim_of_an_equal_container() {
    let container = |name: &str, memory: u64| json!({"name": name, "resources": {"limits": {"nvidia.com/gpumem": memory}}});
    let mut sidecar = container("sidecar", 1000);
    sidecar["restartPolicy"] = "Always".into();
    let pod = json!({"spec": {
        "initContainers": [container("equal", 1000), container("other", 2000), sidecar],
        "containers": [container("main", 1000), container("second", 1000)],
    }});
    let translation = translated(&pod);
    let claims = |list: &str| -> Vec<String> {
        let containers = translation.pod["spec"][list].as_array().unwrap();
        let name = |container: &Value| {
            container["resources"]["claims"][0]["name"].as_str().unwrap().to_owned()
        };
        containers.iter().map(name).collect()
    };
    // The sidecar takes over from the init container that has ended; those that run together have one claim each.
    assert_eq!(claims("initContainers"), ["gpu-sidecar", "gpu-other", "gpu-sidecar"]);
    assert_eq!(claims("containers"), ["gpu-main", "gpu-second"]);
    assert_eq!(translation.templates.len(), 2, "equal claims have one template");
}

#[test]
fn others_are_untouched() {
    for pod in [
        pod(json!({"nvidia.com/gpu": 1}), json!({})),
        pod(json!({"cpu": 1}), json!({"mps": "true", "pod-group-name": "x"})),
        json!({"metadata": {"labels": {"priorityClassName": "x"}}, "spec": {"schedulerName": "volcano"}}),
        json!({"spec": {"runtimeClassName": "nvidia"}}),
        json!({}),
        json!(null),
        json!([1]),
    ] {
        assert_eq!(try_translate(&pod), Ok(None), "{pod}");
    }
}

#[test]
fn names_come_from_the_workload_and_the_content() {
    let name = |memory: u64, base: &str| {
        let pod = pod(json!({"nvidia.com/gpumem": memory}), json!({}));
        let origin = Origin { name: base, namespace: Some("team"), ..Origin::default() };
        let translation = translate(&pod, &origin, &options()).unwrap().unwrap();
        assert_eq!(translation.templates[0]["metadata"]["namespace"], "team");
        translation.templates[0]["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(1000, "train"), name(1000, "train"));
    assert_ne!(name(1000, "train"), name(2000, "train"));
    assert!(name(1000, "train").starts_with("train-gpu-"));
    assert!(name(1000, "").starts_with("gpu-"));
    assert!(name(1000, "My.Name_").starts_with("my-name-gpu-"));
    assert!(name(1000, &"x".repeat(253)).len() <= 63);
}
