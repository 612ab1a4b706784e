//! The amount of a GPU in an allocation.

use std::collections::BTreeMap;

use octavo_api::names::{CAPACITY_COMPUTE, CAPACITY_MEMORY, DRIVER};
use octavo_dra::Quantity;
use octavo_gpu::Gpu;

use crate::checkpoint::{HeldKind, HeldShare};

/// A share's memory is counted in these.
const MEBIBYTE: u64 = 1 << 20;
/// All of a GPU's time, in thousandths of a percent.
pub(crate) const FULL_TIME: u32 = 100_000;

/// The part of a GPU that the consumed capacities describe, or the error in them. All memory means the whole GPU: no other
/// container could run beside it.
///
/// A GPU's capacity is NVML's total, of which driver and firmware reserve `reserved_bytes`. A share bears its portion of
/// them. Otherwise the shares of a full GPU would add up to more than CUDA can give.
pub(super) fn kind(
    consumed: &BTreeMap<String, String>,
    memory_bytes: u64,
    reserved_bytes: u64,
) -> Result<HeldKind, String> {
    let mut memory = None;
    let mut compute = None;
    for (name, text) in consumed {
        let amount: Quantity =
            text.parse().map_err(|error| format!("its {name} {text:?} is no quantity: {error}"))?;
        let plain = name.strip_prefix(DRIVER).and_then(|rest| rest.strip_prefix('/'));
        let place = match plain.unwrap_or(name) {
            CAPACITY_MEMORY => &mut memory,
            CAPACITY_COMPUTE => &mut compute,
            _ => return Err(format!("it is also of the capacity {name}, which no GPU here has")),
        };
        if place.replace(amount).is_some() {
            return Err(format!("it gives {name} twice, with and without the driver's domain"));
        }
    }
    let memory = memory.ok_or("it gives no memory")?;
    let all = memory_bytes / MEBIBYTE * MEBIBYTE;
    let bytes = u64::try_from(memory.value()).ok().filter(|_| memory.is_whole());
    let part_bytes = bytes.filter(|bytes| (1..=memory_bytes).contains(bytes)).ok_or_else(|| {
        format!("its memory is {memory} and the GPU gives from 1 byte to {} MiB", all / MEBIBYTE)
    })?;
    let compute = compute.unwrap_or(Quantity::ZERO);
    let compute_milli_percent = u32::try_from(compute.milli_value())
        .ok()
        .filter(|milli| *milli <= FULL_TIME)
        .ok_or_else(|| format!("its compute is {compute} and the GPU gives 0 to 100 percent"))?;
    if part_bytes >= all {
        return Ok(HeldKind::Whole);
    }
    let memory_bytes = Gpu::usable_part(part_bytes, memory_bytes, reserved_bytes);
    Ok(HeldKind::Share(HeldShare { memory_bytes, compute_milli_percent }))
}
