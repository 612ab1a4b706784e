use super::{MigShape, MigVariant};

const MIB: u64 = 1 << 20;

/// Number, slices, memory in MiB and name of a profile.
type Listed = (u32, u32, u64, &'static str);

/// Profiles by the GPU's total memory in MiB. The names are those of `nvidia-smi mig -lgip`, from
/// the MIG user guide and published listings. The totals are those of NVML.
const LISTINGS: [(u64, &[Listed]); 5] = [
    // A100 40 GB.
    (
        40960,
        &[
            (0, 1, 4864, "1g.5gb"),
            (7, 1, 4864, "1g.5gb+me"),
            (9, 1, 9856, "1g.10gb"),
            (1, 2, 9856, "2g.10gb"),
            (2, 3, 19968, "3g.20gb"),
            (3, 4, 19968, "4g.20gb"),
            (4, 7, 40192, "7g.40gb"),
        ],
    ),
    // A100 80 GB.
    (
        81920,
        &[
            (0, 1, 9856, "1g.10gb"),
            (9, 1, 19968, "1g.20gb"),
            (2, 3, 40192, "3g.40gb"),
            (4, 7, 80384, "7g.80gb"),
        ],
    ),
    // H100 NVL 94 GB.
    (
        95830,
        &[
            (0, 1, 11264, "1g.12gb"),
            (7, 1, 11264, "1g.12gb+me"),
            (2, 3, 47493, "3g.47gb"),
            (4, 7, 95355, "7g.94gb"),
        ],
    ),
    // H200 141 GB.
    (
        143_771,
        &[
            (0, 1, 16384, "1g.18gb"),
            (9, 1, 33024, "1g.35gb"),
            (1, 2, 33024, "2g.35gb"),
            (2, 3, 71168, "3g.71gb"),
            (4, 7, 143_360, "7g.141gb"),
        ],
    ),
    // B200 180 GB.
    (183_359, &[(0, 1, 22528, "1g.23gb"), (9, 1, 45312, "1g.45gb"), (1, 2, 45312, "2g.45gb")]),
];

#[test]
fn names_are_those_that_nvidias_tools_print() {
    for (total, profiles) in LISTINGS {
        for &(number, slices, memory, name) in profiles {
            let shape = MigShape::of_profile(number, slices);
            assert_eq!(shape.name(memory, total * MIB), name);
        }
    }
}

#[test]
fn every_variant_has_its_suffix() {
    let named = |number, slices| MigShape::of_profile(number, slices).name(24192, 97887 * MIB);
    assert_eq!(named(0, 1), "1g.24gb");
    assert_eq!(named(7, 1), "1g.24gb+me");
    assert_eq!(named(10, 1), "1g.24gb+gfx");
    assert_eq!(named(13, 1), "1g.24gb-me");
    assert_eq!(named(15, 1), "1g.24gb+me.all");
    assert_eq!(named(17, 3), "3g.24gb+gfx");
}

#[test]
fn a_compute_instance_of_a_part_is_named_before_its_gpu_instance() {
    let shape = MigShape { compute_slices: 1, gpu_slices: 2, variant: MigVariant::Plain };
    assert_eq!(shape.name(9856, 40960 * MIB), "1c.2g.10gb");
}

#[test]
fn a_gpu_without_memory_is_no_division_by_zero() {
    assert_eq!(MigShape::of_profile(0, 1).name(100, 0), "1g.0gb");
}
