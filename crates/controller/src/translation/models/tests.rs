use serde_json::json;

use super::*;

fn slice(name: &str, driver: &str, devices: &[(&str, &str, &str)]) -> ResourceSlice {
    let devices = devices.iter().map(|(kind, product, memory)| {
        json!({
            "name": "gpu-0",
            "attributes": {"type": {"string": kind}, "productName": {"string": product}},
            "capacity": {"memory": {"value": memory}},
        })
    });
    let spec = json!({
        "driver": driver, "nodeName": "n", "devices": devices.collect::<Vec<_>>(),
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
    });
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn listed(models: &ClusterModels) -> Vec<(String, u64)> {
    let models = models.models();
    models.as_slice().iter().map(|it| (it.product_name.clone(), it.memory_mib)).collect()
}

#[test]
fn models_are_whole_gpus_of_the_driver_with_the_smallest_memory_first() {
    let mut models = ClusterModels::new(&[GpuModel::parse("B200", "183359Mi").unwrap()]);
    assert!(models.put(&slice(
        "a",
        DRIVER,
        &[("gpu", "H100", "81559Mi"), ("mig", "H100", "9856Mi")]
    )));
    assert!(models.put(&slice("b", DRIVER, &[("gpu", "L4", "23034Mi"), ("gpu", "", "1Gi")])));
    assert!(!models.put(&slice("c", "nic.example.com", &[("gpu", "NIC", "1Gi")])));
    // The same model with ECC off has more.
    assert!(models.put(&slice(
        "d",
        DRIVER,
        &[("gpu", "L4", "24564Mi"), ("gpu", "A10", "23034Mi")]
    )));
    let expected = [("A10", 23034), ("L4", 23034), ("H100", 81559), ("B200", 183_359)];
    assert_eq!(listed(&models), expected.map(|(name, mib)| (name.to_owned(), mib)));
}

#[test]
fn only_other_models_are_a_change() {
    let mut models = ClusterModels::default();
    let gpu = slice("a", DRIVER, &[("gpu", "H100", "81559Mi")]);
    assert!(models.put(&gpu));
    assert!(!models.put(&gpu));
    assert!(models.put(&slice("a", DRIVER, &[])));
    assert!(!models.remove(&gpu));
    assert!(models.put(&gpu));
    assert!(models.remove(&gpu));
    assert!(listed(&models).is_empty());
    assert!(models.put(&gpu));
    models.clear();
    assert!(listed(&models).is_empty());
}
