//! The expected numbers were printed by Go 1.26's `math/rand` (`GODEBUG=randseednop=0`).

use super::*;

/// FNV-1a over lines, as Go's `hash/fnv`.
struct Lines(u64);

impl Lines {
    fn add(&mut self, number: u64) {
        for byte in format!("{number}\n").bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Hashes of 2,000 draws of every kind, one hash after another kind was added.
fn draws(seed: i64) -> [u64; 4] {
    let mut rand = GoRand::new(seed);
    let mut lines = Lines(0xcbf2_9ce4_8422_2325);
    let bound = |bound: u64| NonZeroU64::new(bound).unwrap();
    for _ in 0..2000 {
        lines.add(rand.int63());
    }
    let plain = lines.0;
    for i in 0..2000u64 {
        lines.add(rand.intn(bound(1 + i * i * i)));
        lines.add(rand.intn(bound(1 << (i % 62))));
        lines.add(
            rand.int31n(NonZeroU32::new(1 + u32::try_from(i).unwrap() * 1073).unwrap()).into(),
        );
        lines.add(rand.int63n(bound(1 + (i << 51))));
        lines.add(rand.int63());
        lines.add(rand.uint32().into());
    }
    let bounded = lines.0;
    for item in rand.perm(2000) {
        lines.add(item as u64);
    }
    let permuted = lines.0;
    let mut items: Vec<u64> = (0..2000).collect();
    rand.shuffle(&mut items);
    for item in items {
        lines.add(item);
    }
    [plain, bounded, permuted, lines.0]
}

#[test]
fn seeds_give_gos_numbers() {
    let mut rand = GoRand::new(42);
    let first: Vec<u64> = (0..4).map(|_| rand.int63()).collect();
    let go = [
        3_440_579_354_231_278_675,
        608_747_136_543_856_411,
        5_571_782_338_101_878_760,
        1_926_012_586_526_624_009,
    ];
    assert_eq!(first, go);
    assert_eq!(GoRand::new(42).perm(10), [7, 5, 8, 9, 2, 1, 6, 0, 3, 4]);
}

#[test]
fn two_thousand_draws_of_every_kind_are_gos_for_any_seed() {
    #[rustfmt::skip]
    let go = [
        (0, [0x7de1_f413_539a_02b6, 0xf8f9_07bc_1645_7584, 0x2088_3348_14ce_e622, 0xec51_6350_842f_a07e]),
        (1, [0xb848_e105_c1b7_e29f, 0x41fb_8edb_8701_b223, 0x0334_501f_913b_5f5d, 0x0638_612c_0c4a_d0b1]),
        (42, [0x8f42_dfe2_640a_6cbd, 0x4e01_6fe7_3120_c4a1, 0x6a14_3c87_f9f5_e8c1, 0xc69d_5b00_8d11_f1a3]),
        (43, [0xd028_34b5_f522_6048, 0x7ba3_ad56_5097_0239, 0x3440_f57a_6882_06fb, 0x4dda_7d39_06ab_6843]),
        (51, [0xbe4e_8f26_8f32_b86d, 0xc0c5_d42a_0151_e8af, 0x273d_0219_c8d4_9eab, 0x0d4b_f3d2_1407_31e5]),
        (-7, [0x3aff_35de_cd7d_88a1, 0xb9e3_6303_710c_1ba9, 0xf80d_e155_9efd_4ad3, 0x2582_21cd_48ac_506d]),
        (2_147_483_647, [0x7de1_f413_539a_02b6, 0xf8f9_07bc_1645_7584, 0x2088_3348_14ce_e622, 0xec51_6350_842f_a07e]),
        (1 << 40, [0xd88b_ce92_dde7_968b, 0x44f5_af63_e5df_9e18, 0xea42_5aee_6c0d_b6b8, 0x786c_cd40_8849_a6a4]),
        (i64::MIN, [0x17a8_2fd9_b067_7030, 0xe5ba_4792_cf68_c96e, 0xfdee_4afd_40a8_3fe4, 0x98c4_afe6_ce15_2fa0]),
    ];
    for (seed, hashes) in go {
        assert_eq!(draws(seed), hashes, "seed {seed}");
    }
}

#[test]
fn drawing_from_nothing_gives_nothing() {
    let mut rand = GoRand::new(1);
    assert_eq!(rand.index(0), None);
    assert_eq!(rand.perm(0), Vec::<usize>::new());
    rand.shuffle::<u8>(&mut []);
    rand.shuffle(&mut [1]);
    assert_eq!(rand.int63(), GoRand::new(1).int63(), "none of these draws");
}
