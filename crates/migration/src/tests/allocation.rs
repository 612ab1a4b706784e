//! Templates as the API server and Octavo read them: the schema, the config, and an allocation on simulated nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use octavo_api::config::{OpaqueConfig, ShareClass, decode};
use octavo_dra::{
    Allocation, Allocator, AllowedAmounts, AttributeValue, Capacity, Claim, Class, Classes, Device,
    Features, Node, NodeScope, Quantity, RequestPolicy, Slice,
};
use octavo_kube_io::claims::claim_from_api;
use serde_json::{Value, json};

use super::fixtures::{H100, L4, annotated, pod, translated};

/// A device as the agent publishes a GPU.
fn gpu(index: usize, product: &str, memory_mib: i64) -> Device {
    let text = |text: &str| AttributeValue::String(text.to_owned());
    let attributes = [
        ("type", text("gpu")),
        ("productName", text(product)),
        ("uuid", text(&format!("GPU-{index}"))),
        ("resource.kubernetes.io/numaNode", AttributeValue::Int(i64::from(index > 0))),
    ];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value));
    let range = |all, default, min, step| RequestPolicy {
        default: Some(default),
        allowed: AllowedAmounts::Range { min, max: Some(all), step },
    };
    let memory = Quantity::binary(memory_mib << 20);
    let time = Quantity::decimal(100);
    let mib = Quantity::binary(1 << 20);
    let memory_policy = range(memory, memory, mib, Some(mib));
    let time_policy = range(time, Quantity::ZERO, Quantity::ZERO, None);
    Device {
        name: format!("gpu-{index}"),
        attributes: attributes.into(),
        capacity: [
            ("memory".to_owned(), Capacity { value: memory, policy: Some(memory_policy) }),
            ("compute".to_owned(), Capacity { value: time, policy: Some(time_policy) }),
        ]
        .into(),
        allow_multiple: true,
        ..Device::default()
    }
}

/// The claims of a pod, read as the API server and the scheduler read them.
fn claims(pod: &Value) -> Vec<Claim> {
    let claim = |template: Value| {
        let read: ResourceClaimTemplate = serde_json::from_value(template.clone()).unwrap();
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written, template, "a field that the API does not know would be lost");
        for config in template["spec"]["spec"]["devices"]["config"].as_array().into_iter().flatten()
        {
            let config = decode(&config["opaque"]["parameters"], |_| Err(String::new())).unwrap();
            let OpaqueConfig::GpuShare(config) = config else { panic!("{config:?}") };
            assert_eq!(config.class, Some(ShareClass::LatencyCritical));
        }
        let claim = ResourceClaim { metadata: read.metadata, spec: read.spec.spec, status: None };
        claim_from_api(&claim).unwrap()
    };
    translated(pod).templates.into_iter().map(claim).collect()
}

/// Allocates on a node with two H100 and an L4, beside earlier claims.
fn allocate(claims: &[Claim], earlier: &[Claim]) -> Option<Vec<Allocation>> {
    let devices = vec![gpu(0, H100, 81559), gpu(1, H100, 81559), gpu(2, L4, 23034)];
    let slice = Slice {
        name: "n1".to_owned(),
        driver: "gpu.nvidia.com".to_owned(),
        pool: "n1".to_owned(),
        generation: 1,
        slice_count: 1,
        nodes: NodeScope::Node("n1".to_owned()),
        counters: Vec::new(),
        devices,
    };
    let selector =
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'";
    let class = Class {
        name: "gpu.nvidia.com".to_owned(),
        selectors: vec![selector.to_owned()],
        extended_resource: None,
    };
    let classes: Classes = [class].into_iter().collect();
    let slices = [slice];
    let allocator = Allocator::new(&classes, &slices, earlier, Features::default());
    let node = Node { name: "n1".to_owned(), labels: BTreeMap::new() };
    let mut shares = 0;
    let claims: Vec<&Claim> = claims.iter().collect();
    let mut share = || {
        shares += 1;
        format!("share-{}-{shares}", earlier.len())
    };
    allocator.allocate(&node, &claims, &mut share).ok()
}

/// `device=memory` of each result of a pod on an empty node.
fn results(pod: &Value) -> Vec<String> {
    let allocations = allocate(&claims(pod), &[]).expect("the pod fits");
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    let text = |result: &octavo_dra::AllocationResult| {
        let mib = result.consumed["memory"].value() >> 20;
        format!("{}={mib}", result.device)
    };
    results.map(text).collect()
}

#[test]
fn shares_are_allocated_as_asked() {
    let hami = |limits: Value, annotations: Value| results(&pod(limits, annotations));
    let memory = json!({"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30});
    assert_eq!(hami(memory.clone(), json!({})), ["gpu-0=3000"]);
    assert_eq!(hami(memory.clone(), json!({"nvidia.com/use-gputype": "l4"})), ["gpu-2=3000"]);
    assert_eq!(
        hami(memory.clone(), json!({"nvidia.com/nouse-gputype": "H100,A100"})),
        ["gpu-2=3000"]
    );
    assert_eq!(
        hami(memory.clone(), json!({"nvidia.com/use-gpuuuid": "GPU-9,GPU-1"})),
        ["gpu-1=3000"]
    );
    assert_eq!(hami(memory, json!({"nvidia.com/nouse-gpuuuid": "GPU-0,GPU-1"})), ["gpu-2=3000"]);
    let two = json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/priority": 0});
    assert_eq!(hami(two.clone(), json!({})), ["gpu-0=3000", "gpu-1=3000"]);
    assert_eq!(hami(two, json!({"nvidia.com/numa-bind": "true"})), ["gpu-1=3000", "gpu-2=3000"]);
    // The models are asked in their order, and the node has no T4.
    assert_eq!(hami(json!({"nvidia.com/gpumem-percentage": 50}), json!({})), ["gpu-2=11517"]);
    let whole = json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 100});
    assert_eq!(hami(whole, json!({})), ["gpu-0=81559", "gpu-1=81559"]);
    let exclusive = json!({"nvidia.com/gpumem": 30000, "nvidia.com/gpucores": 100});
    assert_eq!(hami(exclusive, json!({})), ["gpu-0=81559"]);
}

#[test]
fn halves_of_a_gpu_fit_together() {
    let half = annotated(json!({"gpu-fraction": "0.5", "nvidia.com/use-gpuuuid": "GPU-0"}));
    let mut earlier = Vec::new();
    for index in 0..3 {
        let mut claims = claims(&half);
        claims[0].uid = format!("uid-{index}");
        let allocated = allocate(&claims, &earlier);
        assert_eq!(allocated.is_some(), index < 2, "{index}");
        if let Some(allocated) = allocated {
            claims[0].allocation = allocated.into_iter().next();
            earlier.append(&mut claims);
        }
    }
}

#[test]
fn names_are_dns_names() {
    for base in ["train", "", "My Job!", "-", "9", &"y".repeat(300)] {
        let origin = crate::Origin { name: base, ..crate::Origin::default() };
        let pod = annotated(json!({"gpu-fraction": "0.5"}));
        let translation =
            crate::translate(&pod, &origin, &super::fixtures::options()).unwrap().unwrap();
        let name = translation.templates[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let is_label = |text: &str| {
            let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
            text.len() <= 63
                && text.starts_with(is_letter)
                && text.ends_with(is_letter)
                && text.chars().all(|letter| is_letter(letter) || letter == '-')
        };
        assert!(is_label(&name), "{name}");
        let request = &translation.templates[0]["spec"]["spec"]["devices"]["requests"][0];
        for alternative in request["firstAvailable"].as_array().unwrap() {
            assert!(is_label(alternative["name"].as_str().unwrap()), "{alternative}");
        }
    }
}
