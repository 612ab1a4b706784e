use super::*;
use crate::gpu::{Slices, WHOLE};

/// A G2 node of the openb trace: 96 CPUs are 48 cores in two packages of 32, and the GPUs are A10s.
fn node() -> (NodeClass, GpuModel) {
    let class = NodeClass {
        capacity: Resources { cpu_milli: 96_000, memory_mib: 393_216, pods: 100 },
        gpus: 8,
        idle_watts: 40,
        full_watts: 540,
        package_cores: 32,
        ..NodeClass::default()
    };
    let model = GpuModel {
        name: "G2".to_owned(),
        memory_mib: 0,
        idle_watts: 30,
        full_watts: 150,
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
    // 104,000 milli are 52 cores in three packages of 24.
    let three = NodeClass {
        capacity: Resources { cpu_milli: 104_000, ..Resources::default() },
        idle_watts: 60,
        full_watts: 495,
        package_cores: 24,
        ..NodeClass::default()
    };
    assert_eq!(with_free(&three, 103_999), 20 + 20 + 165);
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
