//! The amount of a GPU in an allocation.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use octavo_api::config::ComputePart;
use octavo_api::names::{CAPACITY_COMPUTE, CAPACITY_MEMORY, CAPACITY_SHARES, DRIVER};
use octavo_dra::Quantity;
use octavo_gpu::Gpu;

use crate::checkpoint::{HeldKind, HeldShare};
use crate::config::GpuShares;

/// A share's memory is counted in these.
const MEBIBYTE: u64 = 1 << 20;
/// All of a GPU's time, in thousandths of a percent.
pub(crate) const FULL_TIME: u32 = ComputePart::WHOLE.0;

/// The part of a GPU that the consumed capacities describe, or the error in them. All memory means the whole GPU: no other
/// container could run beside it. So do all shares of a GPU whose shares are counted.
///
/// A share that has no memory of its own has its part of it where shares are counted. NVIDIA's driver does not limit it. Where GPUs
/// are shared without limit it has none ([`HeldShare::is_unlimited`]).
///
/// A GPU's capacity is NVML's total, of which driver and firmware reserve `reserved_bytes`. A share bears its portion of
/// them. Otherwise the shares of a full GPU would add up to more than CUDA can give.
pub(super) fn kind(
    consumed: &BTreeMap<String, String>,
    memory_bytes: u64,
    reserved_bytes: u64,
    shares: GpuShares,
) -> Result<HeldKind, String> {
    let [mut memory, mut compute, mut part] = [None, None, None];
    for (name, text) in consumed {
        let amount: Quantity =
            text.parse().map_err(|error| format!("its {name} {text:?} is no quantity: {error}"))?;
        let plain = name.strip_prefix(DRIVER).and_then(|rest| rest.strip_prefix('/'));
        let place = match plain.unwrap_or(name) {
            CAPACITY_MEMORY => &mut memory,
            CAPACITY_COMPUTE => &mut compute,
            // A node that no longer counts them may have claims of before.
            CAPACITY_SHARES => &mut part,
            _ => return Err(format!("it is also of the capacity {name}, which no GPU here has")),
        };
        if place.replace(amount).is_some() {
            return Err(format!("it gives {name} twice, with and without the driver's domain"));
        }
    }
    let memory = memory.ok_or("it gives no memory")?;
    let all = memory_bytes / MEBIBYTE * MEBIBYTE;
    let least = u64::from(shares == GpuShares::Memory);
    let bytes = u64::try_from(memory.value()).ok().filter(|_| memory.is_whole());
    let own_bytes =
        bytes.filter(|bytes| (least..=memory_bytes).contains(bytes)).ok_or_else(|| {
            format!(
                "its memory is {memory} and the GPU gives from {least} byte to {} MiB",
                all / MEBIBYTE
            )
        })?;
    let compute = compute.unwrap_or(Quantity::ZERO);
    let compute_milli_percent = u32::try_from(compute.milli_value())
        .ok()
        .filter(|milli| *milli <= FULL_TIME)
        .ok_or_else(|| format!("its compute is {compute} and the GPU gives 0 to 100 percent"))?;
    let part_bytes = match (own_bytes, shares) {
        (0, GpuShares::Count(count)) => counted_bytes(part, count, all)?,
        (bytes, _) => bytes,
    };
    // Of shares that are counted or without limit, all memory may be that of one claim of several.
    let is_alone = match shares {
        GpuShares::Memory => true,
        GpuShares::Count(count) => part.is_none_or(|part| part.value() >= i128::from(count.get())),
        GpuShares::Unlimited => false,
    };
    if part_bytes >= all && is_alone {
        return Ok(HeldKind::Whole);
    }
    let memory_bytes = match part_bytes {
        0 => 0,
        bytes => Gpu::usable_part(bytes, memory_bytes, reserved_bytes),
    };
    Ok(HeldKind::Share(HeldShare { memory_bytes, compute_milli_percent }))
}

/// What a share may have in addition to its request, by the `memoryLimit` of its config: its limit, if that is above the request, or the
/// error in it. It is rounded and scaled as the request is. No share has more than its GPU gives.
pub(super) fn memory_limit(
    limit_bytes: Option<u64>,
    share: HeldShare,
    memory_bytes: u64,
    reserved_bytes: u64,
) -> Result<Option<u64>, &'static str> {
    let Some(limit_bytes) = limit_bytes else { return Ok(None) };
    if share.is_unlimited() {
        return Err("it has a memoryLimit, and nothing limits the memory of shares on this node");
    }
    let rounded = limit_bytes.div_ceil(MEBIBYTE).saturating_mul(MEBIBYTE).min(memory_bytes);
    let limit = Gpu::usable_part(rounded, memory_bytes, reserved_bytes);
    if limit < share.memory_bytes {
        return Err("its memoryLimit is less than the memory that it asks for");
    }
    Ok((limit > share.memory_bytes).then_some(limit))
}

/// The memory of a number of equal shares.
fn counted_bytes(part: Option<Quantity>, count: NonZeroU32, all: u64) -> Result<u64, String> {
    let part = part.ok_or("it gives neither memory nor shares")?;
    let wanted = u32::try_from(part.value()).ok().filter(|_| part.is_whole());
    let wanted = wanted.filter(|wanted| (1..=count.get()).contains(wanted));
    let wanted =
        wanted.ok_or_else(|| format!("its shares are {part} and the GPU gives 1 to {count}"))?;
    // The last share has what the division leaves.
    if wanted == count.get() {
        return Ok(all);
    }
    Ok(all / u64::from(count.get()) * u64::from(wanted) / MEBIBYTE * MEBIBYTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn of(consumed: &[(&str, &str)], shares: GpuShares) -> Result<HeldKind, String> {
        let consumed = consumed.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        kind(&consumed.collect(), 80 * GIB, 0, shares)
    }

    fn share(memory_bytes: u64) -> HeldKind {
        HeldKind::Share(HeldShare { memory_bytes, compute_milli_percent: 0 })
    }

    #[test]
    fn counted_shares_have_their_part_of_the_memory() {
        let four = GpuShares::Count(NonZeroU32::new(4).unwrap());
        assert_eq!(of(&[("memory", "0"), ("shares", "1")], four), Ok(share(20 * GIB)));
        assert_eq!(of(&[("memory", "0"), ("shares", "3")], four), Ok(share(60 * GIB)));
        assert_eq!(of(&[("memory", "0"), ("shares", "4")], four), Ok(HeldKind::Whole));
        // Memory that is asked for is the limit.
        assert_eq!(of(&[("memory", "2Gi"), ("shares", "1")], four), Ok(share(2 * GIB)));
        assert_eq!(of(&[("memory", "80Gi"), ("shares", "1")], four), Ok(share(80 * GIB)));
        assert_eq!(of(&[("memory", "80Gi"), ("shares", "4")], four), Ok(HeldKind::Whole));
        assert_eq!(of(&[("memory", "80Gi")], four), Ok(HeldKind::Whole), "of before");
        for consumed in [&[("memory", "0")][..], &[("memory", "0"), ("shares", "5")]] {
            assert!(of(consumed, four).is_err(), "{consumed:?}");
        }
        // Three shares never add up to more than the GPU.
        let three = GpuShares::Count(NonZeroU32::new(3).unwrap());
        let Ok(HeldKind::Share(one)) = of(&[("memory", "0"), ("shares", "1")], three) else {
            panic!("is a share");
        };
        assert!(one.memory_bytes * 3 <= 80 * GIB && one.memory_bytes % MEBIBYTE == 0);
    }

    #[test]
    fn a_memory_limit_is_rounded_and_scaled_as_the_request() {
        let (total, reserved) = (80 * GIB, 8 * GIB);
        let share = HeldShare { memory_bytes: 9 * GIB, compute_milli_percent: 0 };
        let of = |limit| memory_limit(limit, share, total, reserved);
        assert_eq!(of(None), Ok(None));
        assert_eq!(of(Some(10 * GIB)), Ok(None), "it is the request");
        assert_eq!(of(Some(20 * GIB)), Ok(Some(18 * GIB)));
        let usable = Gpu::usable_part(20 * GIB + MEBIBYTE, total, reserved);
        assert_eq!(of(Some(20 * GIB + 1)), Ok(Some(usable)), "a MiB that has begun counts");
        assert_eq!(of(Some(u64::MAX)), Ok(Some(72 * GIB)), "all that the GPU gives");
        assert!(of(Some(9 * GIB)).unwrap_err().contains("less than the memory"));
        let unlimited = HeldShare { memory_bytes: 0, ..share };
        assert!(memory_limit(Some(GIB), unlimited, total, reserved).is_err());
    }

    #[test]
    fn without_limit_a_share_has_no_memory_of_its_own() {
        assert_eq!(of(&[("memory", "0")], GpuShares::Unlimited), Ok(share(0)));
        assert_eq!(of(&[("memory", "2Gi")], GpuShares::Unlimited), Ok(share(2 * GIB)));
        assert_eq!(of(&[("memory", "80Gi")], GpuShares::Unlimited), Ok(share(80 * GIB)));
        let error = of(&[("memory", "0")], GpuShares::Memory).unwrap_err();
        assert!(error.contains("from 1 byte"), "{error}");
    }
}
