//! What a virtual GPU says of its host, in its PCI configuration space. No I/O.
//!
//! ```text
//! capability list --> vendor-specific capability "VF" --> records of (id, length, data) --> record 0: version, branch
//! ```

/// A virtual GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vgpu {
    /// Version of the host's driver.
    pub(crate) host_driver_version: String,
    /// Branch of the host's driver.
    pub(crate) host_driver_branch: String,
}

/// Bytes of a configuration space with capabilities.
const CONFIG_BYTES: usize = 256;
const STATUS: usize = 0x06;
const STATUS_HAS_CAPABILITIES: u8 = 0x10;
/// Where the position of the first capability is.
const CAPABILITIES: usize = 0x34;
/// ID of a vendor-specific capability.
const VENDOR_SPECIFIC: u8 = 0x09;
/// Most capabilities that fit.
const MAX_CAPABILITIES: usize = 64;

/// Where the signature is in the capability, and what it is.
const SIGNATURE_AT: usize = 3;
const SIGNATURE: &[u8] = b"VF";
/// Where the records begin.
const RECORDS_AT: usize = 5;
/// The record with the host's driver.
const DRIVER_RECORD: u8 = 0;
/// Bytes of id and length before a record's data.
const RECORD_HEAD: usize = 2;
/// Bytes of version and branch each, padded with zeros.
const TEXT_BYTES: usize = 10;

/// The virtual GPU with this configuration space. `None`: it is no virtual GPU, or not all of the space could be read.
pub(super) fn vgpu(config: &[u8]) -> Option<Vgpu> {
    let capability = vendor_specific(config.get(..CONFIG_BYTES)?)?;
    let signature = capability.get(SIGNATURE_AT..SIGNATURE_AT + SIGNATURE.len())?;
    if signature != SIGNATURE {
        return None;
    }
    Some(driver(capability.get(RECORDS_AT..)?).unwrap_or_default())
}

/// The vendor-specific capability.
fn vendor_specific(config: &[u8]) -> Option<&[u8]> {
    if config[STATUS] & STATUS_HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = usize::from(config[CAPABILITIES]);
    // A damaged list may be a circle.
    for _ in 0..MAX_CAPABILITIES {
        let [id, next, length] = *config.get(at..at + 3)? else { return None };
        if at == 0 || id == u8::MAX {
            return None;
        }
        if id == VENDOR_SPECIFIC {
            return config.get(at..at + usize::from(length));
        }
        at = usize::from(next);
    }
    None
}

/// The host's driver, if a record names it.
fn driver(mut records: &[u8]) -> Option<Vgpu> {
    loop {
        let [id, length] = *records.get(..RECORD_HEAD)? else { return None };
        if id == DRIVER_RECORD {
            break;
        }
        // A record without a length would never end.
        records = records.get(usize::from(length).max(RECORD_HEAD)..)?;
    }
    let text = |from: usize| {
        let bytes = records.get(from..from + TEXT_BYTES)?;
        Some(String::from_utf8_lossy(bytes).trim_matches('\0').to_owned())
    };
    let (version, branch) = (text(RECORD_HEAD)?, text(RECORD_HEAD + TEXT_BYTES)?);
    Some(Vgpu { host_driver_version: version, host_driver_branch: branch })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A configuration space with an MSI capability, and then this one.
    fn space(capability: &[u8]) -> Vec<u8> {
        let mut space = vec![0; CONFIG_BYTES];
        space[STATUS] = STATUS_HAS_CAPABILITIES;
        space[CAPABILITIES] = 0x68;
        space[0x68..0x6b].copy_from_slice(&[0x05, 0xc0, 0]);
        space[0xc0..0xc0 + capability.len()].copy_from_slice(capability);
        space
    }

    fn capability(records: &[u8]) -> Vec<u8> {
        let length = u8::try_from(RECORDS_AT + records.len()).unwrap();
        [&[VENDOR_SPECIFIC, 0, length], SIGNATURE, records].concat()
    }

    #[test]
    fn a_virtual_gpu_names_its_host_s_driver() {
        let driver = b"\x00\x16570.124\0\0\0r570_00\0\0\0";
        let found = Vgpu {
            host_driver_version: "570.124".to_owned(),
            host_driver_branch: "r570_00".to_owned(),
        };
        assert_eq!(vgpu(&space(&capability(driver))), Some(found.clone()));
        let after_another = [b"\x07\x04ab".as_slice(), driver].concat();
        assert_eq!(vgpu(&space(&capability(&after_another))), Some(found));
        let unknown = Some(Vgpu::default());
        assert_eq!(vgpu(&space(&capability(b"\x07\x04ab\x08\x02"))), unknown, "no such record");
    }

    #[test]
    fn other_devices_are_no_virtual_gpus() {
        assert_eq!(vgpu(&space(&[VENDOR_SPECIFIC, 0, 20, 1])), None, "another signature");
        assert_eq!(vgpu(&space(&[0x01, 0, 0])), None, "no vendor-specific capability");
        assert_eq!(vgpu(&space(&[0x01, 0x68, 0])), None, "a circle");
        assert_eq!(vgpu(&[0; CONFIG_BYTES]), None, "no capabilities");
        let vgpu_space = space(&capability(b"\x00\x16570.124\0\0\0r570_00\0\0\0"));
        assert_eq!(vgpu(&vgpu_space[..64]), None, "what users other than root can read");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 200..300)) {
            drop(vgpu(&bytes));
        }
    }
}
