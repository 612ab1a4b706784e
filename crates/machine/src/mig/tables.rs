//! MIG profiles by GPU.
//!
//! Names, ids, slices and engines are from NVIDIA's MIG user guide and from published `nvidia-smi
//! mig -lgip` listings. Placements of H200, GH200, B200 and GB200 are those of H100, which has the
//! same shape.
//!
//! Values without a published listing are marked `derived`. Memory is 98 % of the slices' share of
//! the GPU's memory, in whole 128 MiB. Multiprocessors are twice those of an instance of half the
//! size, four less with one compute slice less, and all of the GPU for the largest. Programs should
//! query the driver and not rely on these values.

use super::{MigProfile, MigTable};

/// Number, id, compute slices, memory slices, instances and starts of a profile: the same for all
/// GPUs of a family.
type ProfileShape = (u32, u32, u32, u32, u32, &'static [u32]);

/// Name, MiB, multiprocessors, copy engines, decoders, JPEG and optical flow engines.
type ProfileRow = (&'static str, u64, u32, u32, u32, u32, u32);

/// Seven compute and eight memory slices. No single-slice instance uses the last memory slice.
const SEVEN_SLICES: [ProfileShape; 7] = [
    (0, 19, 1, 1, 7, &[0, 1, 2, 3, 4, 5, 6]),
    (1, 14, 2, 2, 3, &[0, 2, 4]),
    (2, 9, 3, 4, 2, &[0, 4]),
    (3, 5, 4, 4, 1, &[0]),
    (4, 0, 7, 8, 1, &[0]),
    (7, 20, 1, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    (9, 15, 1, 2, 4, &[0, 2, 4, 6]),
];

/// Four compute and four memory slices.
const FOUR_SLICES: [ProfileShape; 5] = [
    (0, 14, 1, 1, 4, &[0, 1, 2, 3]),
    (1, 5, 2, 2, 2, &[0, 2]),
    (3, 0, 4, 4, 1, &[0]),
    (7, 21, 1, 1, 1, &[0, 1, 2, 3]),
    (8, 6, 2, 2, 1, &[0, 2]),
];

const A100_40: [ProfileRow; 7] = [
    ("1g.5gb", 4864, 14, 1, 0, 0, 0),
    ("2g.10gb", 9856, 28, 2, 1, 0, 0),
    ("3g.20gb", 19968, 42, 3, 2, 0, 0),
    ("4g.20gb", 19968, 56, 4, 2, 0, 0),
    ("7g.40gb", 40192, 98, 7, 5, 1, 1),
    ("1g.5gb+me", 4864, 14, 1, 1, 1, 1),
    ("1g.10gb", 9856, 14, 1, 1, 0, 0),
];

const A100_80: [ProfileRow; 7] = [
    ("1g.10gb", 9856, 14, 1, 1, 0, 0),
    ("2g.20gb", 19968, 28, 2, 1, 0, 0),
    ("3g.40gb", 40192, 42, 3, 2, 0, 0),
    ("4g.40gb", 40192, 56, 4, 2, 0, 0),
    ("7g.80gb", 80384, 98, 7, 5, 1, 1),
    ("1g.10gb+me", 9856, 14, 1, 1, 1, 1),
    ("1g.20gb", 19968, 14, 1, 1, 0, 0),
];

/// Memory from a published listing: 9.75, 19.62, 39.50 and 79.25 GiB.
const H100_80: [ProfileRow; 7] = [
    ("1g.10gb", 9984, 16, 1, 1, 1, 0),
    ("2g.20gb", 20096, 32, 2, 2, 2, 0),
    ("3g.40gb", 40448, 60, 3, 3, 3, 0),
    ("4g.40gb", 40448, 64, 4, 4, 4, 0),
    ("7g.80gb", 81152, 132, 8, 7, 7, 1),
    ("1g.10gb+me", 9984, 16, 1, 1, 1, 1),
    ("1g.20gb", 20096, 26, 1, 1, 1, 0),
];

/// Derived: memory of two slices.
const H100_NVL_94: [ProfileRow; 7] = [
    ("1g.12gb", 11264, 16, 1, 1, 1, 0),
    ("2g.24gb", 23424, 32, 2, 2, 2, 0),
    ("3g.47gb", 47493, 60, 3, 3, 3, 0),
    ("4g.47gb", 47493, 64, 4, 4, 4, 0),
    ("7g.94gb", 95355, 132, 8, 7, 7, 1),
    ("1g.12gb+me", 11264, 16, 1, 1, 1, 1),
    ("1g.24gb", 23424, 26, 1, 1, 1, 0),
];

const H200_141: [ProfileRow; 7] = [
    ("1g.18gb", 16384, 16, 1, 1, 1, 0),
    ("2g.35gb", 33024, 32, 2, 2, 2, 0),
    ("3g.71gb", 71168, 60, 3, 3, 3, 0),
    ("4g.71gb", 71168, 64, 4, 4, 4, 0),
    ("7g.141gb", 143_360, 132, 8, 7, 7, 1),
    ("1g.18gb+me", 16384, 16, 1, 1, 1, 1),
    ("1g.35gb", 33024, 26, 1, 1, 1, 0),
];

/// Derived: memory of four and eight slices.
const GH200_144: [ProfileRow; 7] = [
    ("1g.18gb", 17920, 16, 1, 1, 1, 0),
    ("2g.36gb", 36096, 32, 2, 2, 2, 0),
    ("3g.72gb", 72192, 60, 3, 3, 3, 0),
    ("4g.72gb", 72192, 64, 4, 4, 4, 0),
    ("7g.144gb", 144_384, 132, 8, 7, 7, 1),
    ("1g.18gb+me", 17920, 16, 1, 1, 1, 1),
    ("1g.36gb", 36096, 26, 1, 1, 1, 0),
];

/// Derived: memory and multiprocessors of three, four and seven compute slices.
const B200_180: [ProfileRow; 7] = [
    ("1g.23gb", 22528, 18, 2, 1, 1, 0),
    ("2g.45gb", 45312, 36, 4, 2, 2, 0),
    ("3g.90gb", 89728, 68, 6, 3, 3, 0),
    ("4g.90gb", 89728, 72, 8, 4, 4, 0),
    ("7g.180gb", 179_584, 148, 16, 7, 7, 1),
    ("1g.23gb+me", 22528, 18, 2, 1, 1, 1),
    ("1g.45gb", 45312, 30, 2, 1, 1, 0),
];

/// Derived: memory and multiprocessors of three, four and seven compute slices.
const GB200_186: [ProfileRow; 7] = [
    ("1g.23gb", 22528, 18, 2, 1, 1, 0),
    ("2g.47gb", 46592, 38, 4, 2, 2, 0),
    ("3g.93gb", 92800, 72, 6, 3, 3, 0),
    ("4g.93gb", 92800, 76, 8, 4, 4, 0),
    ("7g.186gb", 185_600, 152, 16, 7, 7, 1),
    ("1g.23gb+me", 22528, 18, 2, 1, 1, 1),
    ("1g.47gb", 46592, 32, 2, 1, 1, 0),
];

const A30_24: [ProfileRow; 5] = [
    ("1g.6gb", 5952, 14, 1, 0, 0, 0),
    ("2g.12gb", 11968, 28, 2, 2, 0, 0),
    ("4g.24gb", 24000, 56, 4, 4, 1, 1),
    ("1g.6gb+me", 5952, 14, 1, 1, 1, 1),
    ("2g.12gb+me", 11968, 28, 2, 2, 1, 1),
];

/// All tables by key: the shapes of the family and the rows of the model.
const TABLES: [(&str, &[ProfileShape], &[ProfileRow]); 9] = [
    ("a100-40", &SEVEN_SLICES, &A100_40),
    ("a100-80", &SEVEN_SLICES, &A100_80),
    ("h100-80", &SEVEN_SLICES, &H100_80),
    ("h100-nvl-94", &SEVEN_SLICES, &H100_NVL_94),
    ("h200-141", &SEVEN_SLICES, &H200_141),
    ("gh200-144", &SEVEN_SLICES, &GH200_144),
    ("b200-180", &SEVEN_SLICES, &B200_180),
    ("gb200-186", &SEVEN_SLICES, &GB200_186),
    ("a30-24", &FOUR_SLICES, &A30_24),
];

pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(key, ..)| *key)
}

pub(super) fn find(key: &str) -> Option<MigTable> {
    let &(key, shapes, rows) = TABLES.iter().find(|(table_key, ..)| *table_key == key)?;
    let profiles: Vec<MigProfile> =
        shapes.iter().zip(rows).map(|(shape, row)| profile(*shape, *row)).collect();
    let max = |slices: fn(&MigProfile) -> u32| profiles.iter().map(slices).max().unwrap_or(0);
    Some(MigTable {
        key,
        compute_slices: max(|profile| profile.compute_slices),
        memory_slices: max(|profile| profile.memory_slices),
        profiles,
    })
}

fn profile(shape: ProfileShape, row: ProfileRow) -> MigProfile {
    let (number, id, compute_slices, memory_slices, instances, starts) = shape;
    let (name, memory_mib, multiprocessors, copy_engines, decoders, jpeg_engines, ofa_engines) =
        row;
    MigProfile {
        name,
        number,
        id,
        compute_slices,
        memory_slices,
        instances,
        starts,
        memory_mib,
        multiprocessors,
        copy_engines,
        decoders,
        jpeg_engines,
        ofa_engines,
    }
}
