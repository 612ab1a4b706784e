use super::{percent, size};

#[test]
fn sizes_are_short_and_never_rounded_up() {
    for (bytes, words) in [
        (0, "0"),
        (1023, "1023"),
        (1024, "1Ki"),
        ((1 << 30) - 1, "1023Mi"),
        (20 << 30, "20Gi"),
        ((20 << 30) - 1, "19.9Gi"),
        (3 << 29, "1.5Gi"),
        (150 << 30, "150Gi"),
        ((150 << 30) + (900 << 20), "150Gi"),
        (u64::MAX, "16777215Ti"),
    ] {
        assert_eq!(size(bytes), words);
    }
}

#[test]
fn a_part_of_nothing_is_no_error() {
    assert_eq!(
        (percent(5, 0), percent(1, 3), percent(u64::MAX, 1)),
        (500, 33, u128::from(u64::MAX) * 100)
    );
}
