use octavo_dra::slice::{Device, NodeScope, Slice};

use super::newest_generations;

fn slice(pool: &str, generation: i64, slice_count: i64, devices: &[&str]) -> Slice {
    Slice {
        driver: "gpu.nvidia.com".to_owned(),
        pool: pool.to_owned(),
        generation,
        slice_count,
        nodes: NodeScope::Node(pool.to_owned()),
        devices: devices
            .iter()
            .map(|name| Device { name: (*name).to_owned(), ..Device::default() })
            .collect(),
        ..Slice::default()
    }
}

fn names(slices: Vec<Slice>) -> Vec<String> {
    newest_generations(slices)
        .into_iter()
        .map(|(name, pool)| {
            let devices: Vec<&str> = pool.devices.iter().map(|device| &*device.name).collect();
            format!("{name} {} {}", pool.is_complete(), devices.join(","))
        })
        .collect()
}

#[test]
fn slices_of_one_generation_are_joined_in_order() {
    let slices = vec![slice("a", 3, 2, &["gpu-0"]), slice("a", 3, 2, &["gpu-1"])];
    assert_eq!(names(slices), ["a true gpu-0,gpu-1"]);
}

#[test]
fn an_older_generation_is_dropped_wherever_it_stands() {
    let new = slice("a", 2, 1, &["gpu-1"]);
    let old = slice("a", 1, 1, &["gpu-0"]);
    assert_eq!(names(vec![new.clone(), old.clone()]), ["a true gpu-1"]);
    assert_eq!(names(vec![old, new]), ["a true gpu-1"]);
}

#[test]
fn a_pool_with_a_missing_slice_offers_nothing() {
    let slices = vec![slice("a", 2, 2, &["gpu-0"]), slice("a", 1, 1, &["gpu-9"])];
    assert_eq!(names(slices), ["a false "]);
}

#[test]
fn pools_are_apart() {
    let slices = vec![slice("b", 1, 1, &["gpu-0"]), slice("a", 7, 1, &["gpu-0"])];
    assert_eq!(names(slices), ["a true gpu-0", "b true gpu-0"]);
}
