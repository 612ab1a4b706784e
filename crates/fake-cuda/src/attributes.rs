//! Attributes of devices: from the machine's description, or common to all GPUs since Turing.

use octavo_machine::Machine;

use crate::code::Code;
use crate::device::Device;
use crate::machine::parse_version;

/// Maximum resident threads of a multiprocessor, for stacks.
pub(crate) const THREADS_PER_MULTIPROCESSOR: u64 = 2048;

/// Value of an attribute by number (`CUdevice_attribute`).
pub(crate) fn value(machine: &Machine, device: &Device, attribute: u32) -> Result<i32, Code> {
    let model = &machine.model;
    let (major, minor) = parse_version(&model.compute_capability);
    let whole = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let pci = |part: usize| {
        let parts: Vec<&str> = device.pci.split([':', '.']).collect();
        parts.get(part).and_then(|part| i32::from_str_radix(part, 16).ok()).unwrap_or(0)
    };
    Ok(match attribute {
        // Maximum threads of a block, and its dimensions.
        1..=3 | 111 => 1024,
        4 => 64,
        // Maximum grid dimensions; pitch.
        5 | 11 => i32::MAX,
        6 | 7 => 65535,
        // Shared memory of a block; warp size.
        8 => 48 << 10,
        10 | 51 | 106 => 32,
        // Constant memory; registers of a block and of a multiprocessor; texture height.
        9 | 12 | 23 | 82 => 65536,
        13 => whole(model.sm_clock_mhz) * 1000,
        // Alignment of textures and surfaces.
        14 | 30 => 512,
        16 => whole(model.multiprocessors),
        21 | 22 => 131_072,
        24..=26 => 16384,
        27 | 28 => 32768,
        29 | 39 => i32::try_from(THREADS_PER_MULTIPROCESSOR).unwrap_or(0),
        32 => i32::from(model.ecc),
        33 => pci(1),
        34 => pci(2),
        50 => pci(0),
        36 => whole(model.memory_clock_mhz) * 1000,
        37 => 5120,
        38 => 50 << 20,
        40 => 3,
        75 => major,
        76 => minor,
        81 => {
            if major >= 9 {
                228 << 10
            } else {
                164 << 10
            }
        }
        87 => 2,
        88 => i32::from(model.addressing_mode.is_some()),
        97 => {
            if major >= 9 {
                227 << 10
            } else {
                163 << 10
            }
        }
        // Persisting L2 cache.
        108 | 109 => 32 << 20,
        // Thread block clusters, and fabric handles: an H100 has them in no fabric, too (driver 580).
        120 | 128 => i32::from(major >= 9),
        // Features of all GPUs: host memory mapping, concurrent kernels, unified addressing, stream
        // priorities, caches, managed memory, compute preemption, stream memory operations,
        // cooperative launches, virtual memory management, file descriptor handles, memory pools.
        15 | 19 | 31 | 41 | 78..=80 | 83 | 89..=95 | 99 | 102 | 103 | 110 | 112..=119 | 121 => 1,
        // Features of none, and attributes that programs do not query.
        ..=165 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}
