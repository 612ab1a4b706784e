//! The check by which NVIDIA's runtime library recognises its driver: an HMAC with MD2 (RFC 1319, RFC 2104) over the process that
//! asks, the driver's tables and all GPUs. The library computes it, too, and compares.
//!
//! So a driver is refused whose tables are copied, or whose GPUs have other UUIDs or PCI addresses.

use hmac::{Hmac, KeyInit as _, Mac as _};
use md2::Md2;

use crate::attributes;
use crate::code::Code;
use crate::library;

/// The key, as a fixed first step of the library makes it.
const KEY: [u8; 16] = 0x146a_ddae_53a9_a752_aa08_4136_0bf5_5a9f_u128.to_be_bytes();
/// Answers for two kinds of versions, which depend on nothing.
const FIXED: [[u64; 2]; 2] = [
    [0x3341_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
    [0x1841_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
];
/// `CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID`, `_BUS_ID` and `_DEVICE_ID`.
const PCI: [u32; 3] = [50, 33, 34];

/// A GPU in the check: UUID; PCI domain, bus and device.
type Gpu = ([u8; 16], [i32; 3]);

/// What is checked besides the GPUs.
struct Check {
    /// CUDA version of the driver.
    driver: u32,
    /// Version that the library asks with.
    version: u32,
    process: u32,
    /// The lower half of the thread's handle (`pthread_self`).
    thread: u32,
    /// Addresses of the runtime library's table, of the check's table and of the check.
    addresses: [usize; 3],
    /// Time in seconds, from the library.
    seconds: u64,
}

/// The answer for the calling thread.
pub(super) fn answer(version: u32, seconds: u64, addresses: [usize; 3]) -> Result<[u8; 16], Code> {
    if let Some([low, high]) = FIXED.get(version as usize % 10) {
        return Ok(halves(*low, *high));
    }
    let driver = library::driver()?;
    let mut gpus = Vec::new();
    for device in &driver.devices {
        let mut pci = [0; 3];
        for (value, attribute) in pci.iter_mut().zip(PCI) {
            *value = attributes::value(&driver.machine, device, attribute)?;
        }
        gpus.push((device.uuid, pci));
    }
    // JUSTIFICATION: the library compares the C library's handle of the thread.
    // SAFETY: it has no arguments and cannot fail.
    let thread = unsafe { libc::pthread_self() };
    let [_, _, _, _, low @ ..] = thread.to_be_bytes();
    let check = Check {
        driver: library::version()?.cast_unsigned(),
        version,
        process: std::process::id(),
        thread: u32::from_be_bytes(low),
        addresses,
        seconds,
    };
    Ok(code(&check, &gpus))
}

fn code(check: &Check, gpus: &[Gpu]) -> [u8; 16] {
    // Any length serves as a key.
    let Ok(mut mac) = Hmac::<Md2>::new_from_slice(&KEY) else { return [0; 16] };
    for number in [check.driver, check.version, check.process, check.thread] {
        mac.update(&number.to_ne_bytes());
    }
    for address in check.addresses {
        mac.update(&address.to_ne_bytes());
    }
    mac.update(&check.seconds.to_ne_bytes());
    for (uuid, pci) in gpus {
        mac.update(uuid);
        for number in pci {
            mac.update(&number.to_ne_bytes());
        }
    }
    mac.finalize().into_bytes().into()
}

fn halves(low: u64, high: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&low.to_ne_bytes());
    bytes[8..].copy_from_slice(&high.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1319, A.5. That the whole is right shows where the runtime library starts, in the guard's tests.
    #[test]
    fn the_hash_is_that_of_the_standard() {
        use md2::Digest as _;
        let digest: [u8; 16] = Md2::digest(b"abc").into();
        assert_eq!(digest, 0xda85_3b0d_3f88_d99b_3028_3a69_e6de_d6bb_u128.to_be_bytes());
    }

    #[test]
    fn every_part_of_a_check_matters() {
        let check = || Check {
            driver: 12080,
            version: 12082,
            process: 1,
            thread: 2,
            addresses: [3, 4, 5],
            seconds: 6,
        };
        let gpu: Gpu = ([7; 16], [0, 2, 0]);
        let plain = code(&check(), &[gpu]);
        assert_eq!(code(&check(), &[gpu]), plain);
        let changes: [fn(&mut Check); 6] = [
            |it| it.driver += 1,
            |it| it.version += 1,
            |it| it.process += 1,
            |it| it.thread += 1,
            |it| it.addresses[0] += 1,
            |it| it.seconds += 1,
        ];
        for change in changes {
            let mut other = check();
            change(&mut other);
            assert_ne!(code(&other, &[gpu]), plain);
        }
        let others: [&[Gpu]; 4] = [&[], &[gpu, gpu], &[([8; 16], gpu.1)], &[(gpu.0, [0, 2, 1])]];
        for others in others {
            assert_ne!(code(&check(), others), plain);
        }
    }
}
