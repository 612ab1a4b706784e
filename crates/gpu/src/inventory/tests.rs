use super::*;
use crate::describe::tests::gpu;

const MIB: u64 = 1 << 20;

#[test]
fn parts_of_all_memory_fit_into_what_is_not_reserved() {
    for (total, reserved) in [(81_559, 551), (15_360, 455), (40_960, 571), (100, 0)] {
        let usable = total - reserved;
        for count in [1, 2, 3, 7, 8, 64] {
            let part = Gpu::usable_part(total * MIB / count, total * MIB, reserved * MIB);
            assert!(part * count <= usable * MIB, "{count} of {total}");
            assert!(
                part * count > usable.saturating_sub(count * 2) * MIB,
                "{count} of {total} waste memory"
            );
        }
    }
    assert_eq!(Gpu::usable_part(10 * MIB, 100 * MIB, 0), 10 * MIB);
    assert_eq!(Gpu::usable_part(MIB, 100 * MIB, 50 * MIB), MIB, "no share is empty");
    assert_eq!(Gpu::usable_part(MIB, 0, 0), MIB, "a GPU that does not tell its memory");
}

#[test]
fn a_known_gpu_keeps_its_number_where_its_minor_number_moves() {
    let versions = DriverVersions { driver: String::new(), cuda: (13, 0), nvml: String::new() };
    let of = |gpus| Inventory { versions: versions.clone(), gpus, unreadable: Vec::new() };
    let known = of(vec![gpu(0), gpu(1)]);
    let moved = |index: u32, minor: u32| Gpu { minor, number: minor, ..gpu(index) };
    let mut found = of(vec![moved(0, 5), gpu(1)]);
    found.keep_numbers(&known);
    assert_eq!((found.gpus[0].minor, found.gpus[0].number), (5, 0));
    // And once more, from what was kept.
    let mut again = of(vec![moved(0, 6), gpu(1)]);
    again.keep_numbers(&found);
    assert_eq!((again.gpus[0].minor, again.gpus[0].number), (6, 0));
    // A new GPU has the number: no two devices may have one name.
    let mut taken = of(vec![moved(0, 5), gpu(1), moved(2, 0)]);
    taken.keep_numbers(&found);
    let numbers: Vec<u32> = taken.gpus.iter().map(|gpu| gpu.number).collect();
    assert_eq!(numbers, [5, 1, 0]);
}
