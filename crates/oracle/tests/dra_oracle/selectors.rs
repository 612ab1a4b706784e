//! Selectors on devices with random attributes: the expressions of `crates/cel/testdata`, checked
//! against Kubernetes' own evaluator.

use k8s_openapi::api::resource::v1 as api;
use octavo_cel::{CelError, DeviceView, Selector};
use octavo_dra::Slice;
use octavo_kube_io::slices;
use octavo_oracle::program;
use octavo_testkit::Rng;
use serde_json::{Value, json};

use crate::oracle::Allocator;

const TABLE: &str = include_str!("../../../cel/testdata/selectors.txt");

const DRIVER: &str = "gpu.nvidia.com";

/// Features that Octavo's CEL leaves out (crates/cel/src/lib.rs). They give an error where
/// Kubernetes has a value.
const UNSUPPORTED: [&str; 7] = [
    "timestamp(",
    "url(",
    "isURL(",
    "format.",
    "%e",
    "google.protobuf.",
    // Beyond 128 bits.
    "9999999999999999999999999999999999999G",
];

#[test]
fn selectors_select_as_in_kubernetes() {
    let mut oracle = Allocator::start(&program().unwrap());
    let mut rng = Rng::new(1);
    let devices: Vec<api::Device> = (0..4).map(|number| device(&mut rng, number)).collect();
    let spec = api::ResourceSliceSpec {
        devices: Some(devices.clone()),
        driver: DRIVER.to_owned(),
        node_name: Some("node".to_owned()),
        ..Default::default()
    };
    let slice = api::ResourceSlice { spec, ..Default::default() };
    let slice: Slice = slices::from_api(&slice).unwrap();
    let lines = TABLE.lines().map(str::trim);
    // Expressions that only test the cost are slow, and their answers are recorded beside the
    // table.
    let is_dear = |line: &str| line.contains("lists.range(") || line.matches(".all(").count() > 2;
    let expressions =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#') && !is_dear(line));
    let (mut asked, mut selected, mut different) = (0, 0, Vec::new());
    for expression in expressions {
        let theirs = oracle.select(expression, DRIVER, &devices);
        let theirs: Vec<String> = match theirs.compile_error {
            Some(_) => vec!["error".to_owned(); devices.len()],
            None => theirs.selected,
        };
        let compiled = Selector::compile(expression);
        for (device, theirs) in slice.devices.iter().zip(theirs) {
            let answer = compiled
                .as_ref()
                .map_err(CelError::clone)
                .and_then(|selector| selector.matches(DeviceView { driver: DRIVER, device }));
            let ours = answer.as_ref().map_or_else(|_| "error".to_owned(), bool::to_string);
            asked += 1;
            selected += usize::from(theirs == "true");
            let left_out =
                ours == "error" && UNSUPPORTED.iter().any(|word| expression.contains(word));
            if !theirs.starts_with(&ours) && !left_out {
                different.push(format!("{expression}\n  {device:?}\n  {theirs}, ours {answer:?}"));
            }
        }
    }
    println!("{asked} questions, {selected} selections");
    assert!(selected * 20 > asked, "too few devices are selected for this to mean much");
    let shown = different.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(different.is_empty(), "{} answers differ:\n{shown}", different.len());
}

/// A device with the names and types of real GPU attributes, and occasionally others.
fn device(rng: &mut Rng, number: usize) -> api::Device {
    let texts = |rng: &mut Rng, words: &[&'static str]| json!({"string": rng.word(words)});
    let mut attributes = json!({
        "type": texts(rng, &["gpu", "mig", "GPU"]),
        "productName": texts(rng, &["NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "L4"]),
        "profile": texts(rng, &["1g.10gb", "2g.20gb", ""]),
        "architecture": texts(rng, &["Hopper", "Ampere", "Blackwell"]),
        "uuid": texts(rng, &["GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c", "GPU-2"]),
        "index": json!({"int": rng.below(6)}),
        "healthy": json!({"bool": rng.chance(60)}),
        "driverVersion": json!({"version": rng.word(&["580.95.5", "535.0.0", "580.95.5-rc.1"])}),
        "cudaComputeCapability": json!({"version": rng.word(&["9.0.0", "8.0.0"])}),
        "resource.kubernetes.io/pcieRoot": texts(rng, &["pci0000:05", "pci0000:06"]),
        "resource.kubernetes.io/numaNode": json!({"int": rng.below(2)}),
        "dra.example.com/oneBool": json!({"bool": true}),
        "dra.example.com/anotherBool": json!({"bool": rng.chance(50)}),
    });
    let odd = [
        json!({"int": -7}),
        json!({"bool": false}),
        json!({"string": "odd"}),
        json!({"version": "1.0.0"}),
    ];
    let named = attributes.as_object_mut().unwrap();
    named.retain(|_, _| rng.chance(85));
    for value in named.values_mut() {
        if rng.chance(7) {
            *value = rng.pick(&odd).clone();
        }
    }
    let memory = rng.word(&["80Gi", "40Gi", "10Gi", "4G", "1500m"]);
    let device: Value = json!({
        "name": format!("gpu-{number}"),
        "attributes": attributes,
        "capacity": {"memory": {"value": memory}, "multiprocessors": {"value": "132"}},
        "allowMultipleAllocations": rng.chance(50),
    });
    serde_json::from_value(device).unwrap()
}
