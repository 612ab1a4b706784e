use super::*;
use crate::gpu::{Slices, WHOLE};

/// A G2 node of the openb trace: 96 CPUs are 48 cores in two packages of 32.
fn node() -> (NodeClass, GpuModel) {
    let power = cpu_beside("G2").unwrap().of_node(96_000);
    let class = NodeClass {
        capacity: Resources { cpu_milli: 96_000, memory_mib: 393_216, pods: 100 },
        gpus: 8,
        idle_watts: power.idle_watts,
        full_watts: power.full_watts,
        package_cores: power.package_cores,
        ..NodeClass::default()
    };
    let gpu = gpu_named("G2").unwrap();
    let model = GpuModel {
        name: gpu.name.to_owned(),
        memory_mib: 0,
        idle_watts: gpu.idle_watts,
        full_watts: gpu.full_watts,
        mig: Vec::new(),
    };
    (class, model)
}

fn with_free(class: &NodeClass, cpu_milli: i64) -> i64 {
    cpu_watts(class, &Resources { cpu_milli, ..Resources::default() })
}

#[test]
fn a_package_draws_full_power_from_its_first_core_on() {
    let (class, _) = node();
    assert_eq!((class.idle_watts, class.full_watts, class.package_cores), (40, 540, 32));
    assert_eq!(with_free(&class, 96_000), 40);
    // The smallest pod uses one of 48 cores; 32 cores are 64,000 milli.
    assert_eq!(with_free(&class, 95_999), 20 + 270);
    assert_eq!(with_free(&class, 32_000), 20 + 270);
    assert_eq!(with_free(&class, 31_999), 270 + 270);
    // Overdrawn: as if nothing were free.
    assert_eq!(with_free(&class, -4000), 540);
}

#[test]
fn cores_and_packages_that_are_begun_count_whole() {
    // 104,000 milli of an 8163 are 52 cores in three packages of 24.
    let power = cpu_named("Intel-Xeon-8163").unwrap().of_node(104_000);
    assert_eq!((power.idle_watts, power.full_watts), (60, 495));
    assert_eq!(cpu_beside("T4").unwrap().name, "Intel-Xeon-8163");
    assert_eq!(cpu_beside("").unwrap().name, "Intel-Xeon-ES-2682-V4");
    assert_eq!(cpu_beside("H100"), None);
    let one = NodeClass {
        capacity: Resources { cpu_milli: 3000, ..Resources::default() },
        idle_watts: 7,
        full_watts: 50,
        ..NodeClass::default()
    };
    assert_eq!(with_free(&one, 3000), 50, "3000 milli are a core and a half: one idle core of two");
    assert_eq!(with_free(&NodeClass { idle_watts: 7, ..NodeClass::default() }, 0), 7);
}

#[test]
fn a_gpu_draws_full_power_however_small_its_share() {
    let (_, model) = node();
    let idle = GpuFree::idle(&model);
    let used = GpuFree { milli: WHOLE - 1, ..idle };
    let cut = GpuFree { slices: Slices::range(0, 1), ..idle };
    let closed = GpuFree { is_closed: true, ..idle };
    assert_eq!(gpu_watts(Some(&model), &[idle; 8]), 8 * 30);
    assert_eq!(gpu_watts(Some(&model), &[used, cut, closed, idle]), 150 + 150 + 30 + 30);
    assert_eq!(gpu_watts(None, &[used]), 0);
}
