//! Size of an array in bytes.

use octavo_guard_abi::charge::{ALLOCATION_GRANULE, PHYSICAL_GRANULE, rounded};

/// `CUDA_ARRAY3D_LAYERED`: the depth is a number of layers.
const LAYERED: u32 = 0x01;
/// `CUDA_ARRAY3D_CUBEMAP`: the depth is a number of faces.
const CUBEMAP: u32 = 0x04;
/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: the array gets mapped memory, which
/// is charged where it is created.
const MAPPED_LATER: u32 = 0x40 | 0x80;

/// Shape and format of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Width, height and depth in elements; 0 for a missing dimension.
    pub(super) sides: [u64; 3],
    pub(super) format: u32,
    pub(super) channels: u32,
    pub(super) flags: u32,
}

/// Bounds of the size of an array, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    /// Bytes of its elements.
    pub(super) min: u64,
    /// Upper bound with padding.
    pub(super) max: u64,
}

impl Shape {
    /// Whether it has no memory of its own.
    pub(super) fn has_no_memory(&self) -> bool {
        self.flags & MAPPED_LATER != 0
    }

    /// Size with up to `levels` levels; an array has a limited number of them.
    pub(super) fn bytes(&self, levels: u32) -> Bytes {
        let largest = self.sides.into_iter().max().unwrap_or(0).max(1);
        let levels = levels.clamp(1, largest.ilog2() + 1);
        let (min, max) =
            (0..levels).map(|level| self.level(level)).fold((0_u64, 0_u64), |(min, max), level| {
                (min.saturating_add(level.min), max.saturating_add(level.max))
            });
        Bytes { min: rounded(min, ALLOCATION_GRANULE), max: rounded(max, PHYSICAL_GRANULE) }
    }

    fn level(&self, level: u32) -> Bytes {
        let side_at = |side: u64| (side >> level).max(1);
        let [width, height, depth] = self.sides;
        let is_layered = self.flags & (LAYERED | CUBEMAP) != 0;
        let (width, rows) = (side_at(width), side_at(height));
        let slices = if is_layered { depth.max(1) } else { side_at(depth) };
        let element = element(self.format, self.channels);
        let of = |sides: [u64; 3]| sides.into_iter().fold(1, u64::saturating_mul);
        // Elements lie in tiles of 64 bytes by 8 rows. Tiles are stacked up to 16 high as far as
        // there are rows, and up to 32 deep as far as there are slices.
        let padded_rows = if height == 0 { 1 } else { pad(rows, 128).max(8) };
        let padded_slices = if is_layered { slices } else { pad(slices, 32) };
        Bytes {
            min: of([width.saturating_mul(element.min), rows, slices]),
            max: of([rounded(width.saturating_mul(element.max), 512), padded_rows, padded_slices]),
        }
    }
}

/// Rounds a side up to a power of two, or to a multiple of `largest` if it is larger.
fn pad(side: u64, largest: u64) -> u64 {
    if side >= largest { rounded(side, largest) } else { side.next_power_of_two() }
}

/// Bytes of an element (`CUarray_format`).
fn element(format: u32, channels: u32) -> Bytes {
    let each = u64::from(channels.max(1));
    let exactly = |bytes| Bytes { min: bytes, max: bytes };
    match format {
        0x01 | 0x08 => exactly(each),
        0x02 | 0x09 | 0x10 => exactly(2 * each),
        0x03 | 0x0a | 0x20 => exactly(4 * each),
        // Normalised integer formats, channels included.
        0xc0 | 0xc6 => exactly(1),
        0xc1 | 0xc3 | 0xc7 | 0xc9 => exactly(2),
        0xc2 | 0xc4 | 0xc8 | 0xca | 0x50 => exactly(4),
        0xc5 | 0xcb => exactly(8),
        // Compressed blocks of sixteen elements, 8 or 16 bytes. Whether a side counts blocks or
        // elements is unknown, so the larger size applies. The same for new formats.
        _ => Bytes { min: 1, max: 16 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn shape(sides: [u64; 3], flags: u32) -> Shape {
        Shape { sides, format: 0x20, channels: 4, flags }
    }

    #[test]
    fn elements_are_counted_by_format_and_channels() {
        let bytes = shape([1024, 1024, 0], 0).bytes(1);
        assert_eq!(bytes, Bytes { min: 16 * MIB, max: 16 * MIB });
        let bytes = Shape { format: 0x01, channels: 1, ..shape([4096, 4096, 0], 0) }.bytes(1);
        assert_eq!(bytes, Bytes { min: 16 * MIB, max: 16 * MIB });
        let bytes = Shape { format: 0xc5, channels: 4, ..shape([1024, 1024, 0], 0) }.bytes(1);
        assert_eq!(bytes.min, 8 * MIB);
    }

    #[test]
    fn padding_is_in_the_most_and_not_in_the_least() {
        let bytes = shape([33, 129, 0], 0).bytes(1);
        assert_eq!(bytes.min, rounded(33 * 16 * 129, 512));
        assert!(bytes.max >= 64 * 16 * 256 && bytes.max.is_multiple_of(PHYSICAL_GRANULE));
    }

    #[test]
    fn levels_halve_all_sides_but_layers() {
        let one = shape([256, 256, 256], 0).bytes(1).min;
        let all = shape([256, 256, 256], 0).bytes(100).min;
        assert!(all > one && all < one + one / 4);
        let layers = shape([256, 256, 6], LAYERED).bytes(2).min;
        assert_eq!(layers, (256 * 256 + 128 * 128) * 6 * 16);
    }

    #[test]
    fn a_shape_that_wraps_fits_nowhere() {
        assert_eq!(shape([u64::MAX, 2, 2], 0).bytes(1).max, u64::MAX);
    }

    #[test]
    fn arrays_that_memory_is_mapped_to_have_none_of_their_own() {
        assert!(shape([1, 1, 1], 0x40).has_no_memory());
        assert!(shape([1, 1, 1], 0x80 | LAYERED).has_no_memory());
        assert!(!shape([1, 1, 1], LAYERED).has_no_memory());
    }
}
