//! The table of GPU models, and what is read of nodes.

use std::sync::Arc;

use octavo_dra::{AttributeValue, DeviceTaint, TaintEffect};
use octavo_engine::gpu::ModelId;
use octavo_kube_io::objects::{Delta, Kind, ResourceSlice};

use super::fixtures::{MIG, PLAIN, changed, cluster, node, slices};
use crate::devices::{Devices, GpuSource, UnmodeledReason};

/// A node whose GPUs have another name and less memory.
fn smaller(name: &str, product: &str, mib: i64) -> Vec<Arc<ResourceSlice>> {
    let change = |slice: &Arc<ResourceSlice>| {
        changed(slice, |slice| {
            for device in &mut slice.devices {
                let name = AttributeValue::String(product.to_owned());
                device.attributes.insert("productName".to_owned(), name);
                let memory = octavo_dra::Quantity::binary(mib << 20);
                device.capacity.insert("memory".to_owned(), octavo_dra::Capacity::whole(memory));
            }
        })
    };
    slices(PLAIN, name).iter().map(change).collect()
}

fn names(devices: &Devices) -> Vec<&str> {
    devices.models().iter().map(|model| model.name.as_str()).collect()
}

#[test]
fn models_have_unique_names_in_any_order() {
    let product = "NVIDIA H100 80GB HBM3";
    let mut all = [slices(PLAIN, "a"), slices(MIG, "b"), smaller("c", product, 1000)].concat();
    all.extend(smaller("d", "NVIDIA L4", 24_000));
    let expected = [
        "NVIDIA H100 80GB HBM3 1000 MiB",
        "NVIDIA H100 80GB HBM3 81559 MiB",
        "NVIDIA H100 80GB HBM3 81559 MiB MIG",
        "NVIDIA L4",
    ];
    for turn in 0..all.len() {
        all.rotate_left(turn);
        let mut devices = Devices::default();
        for slice in &all {
            devices.apply_slices(&Delta::Upsert(Arc::clone(slice)));
        }
        assert_eq!(names(&devices), expected);
        let models = ["a", "b", "c", "d"].map(|node| devices.gpus(node).unwrap().model);
        assert_eq!(models, [1, 2, 0, 3].map(ModelId));
    }
}

#[test]
fn single_model_has_the_plain_product_name() {
    let mut devices = cluster(&[("a", PLAIN)]);
    assert_eq!(names(&devices), ["NVIDIA H100 80GB HBM3"]);
    let other = slices(MIG, "b");
    let touched: Vec<bool> = other
        .iter()
        .map(|slice| devices.apply_slices(&Delta::Upsert(Arc::clone(slice))).are_models_changed)
        .collect();
    assert!(touched.contains(&true));
    assert_eq!(names(&devices), ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3 MIG"]);
    let touched = devices.apply_slices(&Delta::Replace(Kind::default(), slices(PLAIN, "a")));
    assert!(touched.are_models_changed);
    assert!(touched.hardware.contains("b") && !touched.hardware.contains("a"));
    assert!(devices.gpus("b").is_none());
}

#[test]
fn incomplete_pool_keeps_old_gpus_and_accepts_nothing() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let before = devices.gpus("a").unwrap().clone();
    assert!(before.is_settled);
    let half = changed(&slices(PLAIN, "a")[0], |slice| {
        slice.generation += 1;
        slice.slice_count = 2;
    });
    devices.apply_slices(&Delta::Upsert(half));
    let now = devices.gpus("a").unwrap();
    assert!(!now.is_settled);
    assert_eq!(now.devices, before.devices);
}

#[test]
fn unmodeled_nodes_have_a_reason() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let mixed = changed(&slices(PLAIN, "a")[0], |slice| {
        let other = AttributeValue::String("NVIDIA L4".to_owned());
        slice.devices[0].attributes.insert("productName".to_owned(), other);
    });
    devices.apply_slices(&Delta::Upsert(mixed));
    assert!(devices.gpus("a").is_none());
    assert!(devices.unmodeled["a"].to_string().contains("allocator alone"));
    devices.apply_slices(&Delta::Upsert(Arc::clone(&slices(PLAIN, "a")[0])));
    assert!(devices.gpus("a").is_some());
    devices.apply_nodes(&Delta::Upsert(node("a", &[("nvidia.com/gpu", 8)])));
    assert_eq!(devices.unmodeled.get("a"), Some(&UnmodeledReason::ServedTwice));
}

#[test]
fn device_plugin_gpus_are_whole_gpus_of_their_own_model() {
    let mut devices = cluster(&[("a", PLAIN)]);
    let mut plugin = node("p", &[("nvidia.com/gpu", 4)]);
    let labels =
        [("nvidia.com/gpu.product", "NVIDIA H100 80GB HBM3"), ("nvidia.com/gpu.memory", "81559")];
    Arc::make_mut(&mut plugin).meta.labels =
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    devices.apply_nodes(&Delta::Upsert(plugin));
    let gpus = devices.gpus("p").unwrap();
    assert_eq!((gpus.devices.gpus.len(), &gpus.source), (4, &GpuSource::Plugin));
    assert_ne!(gpus.model, devices.gpus("a").unwrap().model);
    assert!(devices.models.plugin_models().has(gpus.model));
    assert!(names(&devices).contains(&"NVIDIA H100 80GB HBM3 (device plugin)"));
}

#[test]
fn octavo_taint_does_not_close_devices() {
    let taint = |key: &str| DeviceTaint {
        key: key.to_owned(),
        value: "octavo".to_owned(),
        effect: TaintEffect::NoSchedule,
    };
    for (key, is_closed) in [("octavo.dev/scheduler", false), ("example.com/else", true)] {
        let mut devices = Devices::default();
        let tainted = changed(&slices(PLAIN, "a")[0], |slice| {
            slice.devices.iter_mut().for_each(|device| device.taints.push(taint(key)));
        });
        devices.apply_slices(&Delta::Upsert(tainted));
        let gpus = &devices.gpus("a").unwrap().devices.gpus;
        assert!(gpus.iter().all(|gpu| gpu.is_closed == is_closed), "{key}");
    }
}
