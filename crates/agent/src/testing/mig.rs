//! GPUs with MIG.

use octavo_gpu::mig::{
    MigComputeInstance, MigInstance, MigPlacement, MigProfile, MigShape, MigVariant,
};
use octavo_gpu::{Gpu, Inventory, Mig};

/// Name, id, NVML's number, slices, multiprocessors, copy engines, decoders, JPEG engines, optical flow engines, memory
/// in MiB, first slices, size.
type Row = (&'static str, u32, u32, u32, [u32; 5], u64, &'static [u32], u32);

/// An H100 80 GB. Geometry and engines are those of NVIDIA's MIG user guide; memory is that of an A100 80 GB.
const H100: [Row; 7] = [
    ("1g.10gb", 19, 0, 1, [16, 1, 1, 1, 0], 9856, &[0, 1, 2, 3, 4, 5, 6], 1),
    ("1g.10gb+me", 20, 7, 1, [16, 1, 1, 1, 1], 9856, &[0, 1, 2, 3, 4, 5, 6], 1),
    ("1g.20gb", 15, 9, 1, [26, 1, 1, 1, 0], 19968, &[0, 2, 4, 6], 2),
    ("2g.20gb", 14, 1, 2, [32, 2, 2, 2, 0], 19968, &[0, 2, 4], 2),
    ("3g.40gb", 9, 2, 3, [60, 3, 3, 3, 0], 40192, &[0, 4], 4),
    ("4g.40gb", 5, 3, 4, [64, 4, 4, 4, 0], 40192, &[0], 4),
    ("7g.80gb", 0, 4, 7, [132, 8, 7, 7, 1], 80384, &[0], 8),
];

/// The profiles of an H100 80 GB, in order of NVML's numbers.
pub(crate) fn profiles() -> Vec<MigProfile> {
    let mut profiles: Vec<_> = H100.iter().map(profile).collect();
    profiles.sort_by_key(|profile| profile.number);
    profiles
}

fn profile(row: &Row) -> MigProfile {
    let (name, id, number, slices, engines, memory_mib, starts, size) = *row;
    let [multiprocessors, copy_engines, decoders, jpeg_engines, ofa_engines] = engines;
    let variant = if number == 7 { MigVariant::Media } else { MigVariant::Plain };
    MigProfile {
        number,
        id,
        name: name.to_owned(),
        shape: MigShape { compute_slices: slices, gpu_slices: slices, variant },
        memory_mib,
        instances: u32::try_from(starts.len()).unwrap(),
        multiprocessors,
        copy_engines,
        decoders,
        encoders: 0,
        jpeg_engines,
        ofa_engines,
        placements: starts.iter().map(|&start| MigPlacement { start, size }).collect(),
    }
}

/// An H100 with MIG, with this mode.
pub(crate) fn gpu(index: u32, is_on: bool) -> Gpu {
    Gpu {
        mig: Some(Mig { enabled: is_on, pending: is_on }),
        mig_profiles: profiles(),
        ..super::gpu(index)
    }
}

/// A node of such GPUs with the mode off.
pub(crate) fn inventory(count: u32) -> Inventory {
    let gpus = (0..count).map(|index| gpu(index, false)).collect();
    Inventory { gpus, ..super::inventory(0) }
}

/// An instance of the profile with this id, filled by one compute instance.
pub(crate) fn instance(id: u32, profile_id: u32, start: u32) -> MigInstance {
    let profile = profiles().into_iter().find(|profile| profile.id == profile_id).unwrap();
    let placement = *profile.placements.iter().find(|place| place.start == start).unwrap();
    MigInstance {
        gpu_instance: id,
        profile_id,
        placement,
        compute_instances: vec![MigComputeInstance { id: 0, uuid: format!("MIG-{id}"), index: id }],
    }
}

/// A GPU of the model with this key, in MIG mode and without instances.
pub(crate) fn model(key: &str) -> Gpu {
    let table = octavo_machine::MigTable::find(key).unwrap();
    let profile = |it: &octavo_machine::MigProfile| MigProfile {
        number: it.number,
        id: it.id,
        name: it.name.to_owned(),
        shape: MigShape::of_profile(it.number, it.compute_slices),
        memory_mib: it.memory_mib,
        instances: it.instances,
        multiprocessors: it.multiprocessors,
        copy_engines: it.copy_engines,
        decoders: it.decoders,
        encoders: 0,
        jpeg_engines: it.jpeg_engines,
        ofa_engines: it.ofa_engines,
        placements: it
            .starts
            .iter()
            .map(|&start| MigPlacement { start, size: it.memory_slices })
            .collect(),
    };
    Gpu { mig_profiles: table.profiles.iter().map(profile).collect(), ..gpu(0, true) }
}

/// A GPU of each model with a table.
pub(crate) fn all_models() -> Vec<Gpu> {
    octavo_machine::MigTable::keys().map(model).collect()
}
