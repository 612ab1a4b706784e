//! Requests of synthetic pods.

use std::sync::Arc;

use octavo_engine::gpu::WHOLE;
use octavo_engine::snapshot::ShapeRecord;
use octavo_engine::{GpuDemand, Resources, Shape};

use super::machines::MachineSpec;
use super::mix::WorkloadKind;
use super::random::Random;

/// Thousandths of GPUs that shares are of, and how often.
const SHARE_SIZES: [(u32, u16); 6] = [(2, 100), (3, 200), (4, 250), (1, 300), (4, 500), (1, 750)];

/// How much CPU and memory pods take of their part of the node, in percent.
const HOST_RESOURCE_PERCENTS: [(u32, i64); 4] = [(2, 25), (3, 50), (3, 75), (1, 100)];

/// The request of a pod of this kind, sized for this machine. `None` if the machine cannot run such
/// pods.
pub(super) fn shape(
    kind: WorkloadKind,
    machine: &MachineSpec,
    random: &mut Random,
) -> Option<Shape> {
    let gpus = match kind {
        WorkloadKind::Gang | WorkloadKind::Node => GpuDemand::Whole { count: machine.gpus },
        WorkloadKind::One => GpuDemand::Whole { count: 1 },
        WorkloadKind::Share => {
            let milli = *random.weighted(&SHARE_SIZES)?;
            let memory_mib = machine.model.memory_mib / u32::from(WHOLE) * u32::from(milli);
            GpuDemand::Share { count: 1, milli, memory_mib }
        }
        WorkloadKind::Mig => {
            // Small instances are requested most, the whole GPU as an instance hardly ever.
            let wanted: Vec<(u32, &str)> = machine
                .model
                .mig
                .iter()
                .map(|profile| match (profile.has_media, profile.size) {
                    (false, 1) => (5, &*profile.name),
                    (false, 2) => (3, &*profile.name),
                    (false, 4) => (2, &*profile.name),
                    _ => (0, &*profile.name),
                })
                .collect();
            GpuDemand::Mig { count: 1, profile: Arc::from(*random.weighted(&wanted)?) }
        }
    };
    let milli = milli_of(&gpus, machine);
    let percent = match kind {
        // A pod with all GPUs takes most of the node; the remaining resources are for daemons.
        WorkloadKind::Gang | WorkloadKind::Node => 90,
        _ => *random.weighted(&HOST_RESOURCE_PERCENTS)?,
    };
    let all = i64::from(machine.gpus) * i64::from(WHOLE);
    let part = |amount: i64, step: i64| {
        let part = amount * milli / all.max(1) * percent / 100;
        (part / step * step).max(step)
    };
    let plain = machine.capacity();
    let resources = Resources::of_pod(part(plain.cpu_milli, 500), part(plain.memory_mib, 512));
    Some(Shape::new(resources, gpus))
}

/// Compute of a demand in thousandths of a GPU, MIG instances by their profile.
pub(super) fn milli_of(gpus: &GpuDemand, machine: &MachineSpec) -> i64 {
    match gpus {
        GpuDemand::Mig { count, profile } => {
            let profile = machine.model.profile(profile);
            profile.map_or(0, |profile| i64::from(profile.milli) * i64::from(*count))
        }
        gpus => gpus.total_milli(),
    }
}

/// The shape in a document.
pub(super) fn form(shape: &Shape) -> ShapeRecord {
    let (resources, gpus) = (shape.resources, shape.gpus.clone());
    ShapeRecord { resources, gpus, ..ShapeRecord::default() }
}
