//! Rounding: how many bytes an allocation is charged.

/// Granularity of `cuMemCreate` memory, in bytes.
pub const PHYSICAL_GRANULE: u64 = 2 << 20;

/// Alignment of all other allocations, in bytes.
pub const ALLOCATION_GRANULE: u64 = 512;

/// Rounds up to whole granules. Returns `u64::MAX` on overflow, which no limit admits.
pub const fn rounded(bytes: u64, granule: u64) -> u64 {
    match bytes.checked_next_multiple_of(granule) {
        Some(bytes) => bytes,
        None => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_rounded_up_to_whole_granules() {
        assert_eq!(rounded(0, ALLOCATION_GRANULE), 0);
        assert_eq!(rounded(1, ALLOCATION_GRANULE), 512);
        assert_eq!(rounded(PHYSICAL_GRANULE + 1, PHYSICAL_GRANULE), 2 * PHYSICAL_GRANULE);
    }

    #[test]
    fn a_size_that_wraps_fits_nowhere() {
        assert_eq!(rounded(u64::MAX, PHYSICAL_GRANULE), u64::MAX);
    }
}
