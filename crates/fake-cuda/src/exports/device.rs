//! Devices and their primary contexts.

use std::ffi::{c_int, c_uint};

use crate::abi::{DevProp, DevResource};
use crate::attributes;
use crate::code::Code;
use crate::context::{self, CONTEXTS};
use crate::library::{self, device, driver};
use crate::machine::parse_version;
use crate::pointers::{Out, TextIn, TextOut};
use crate::table::{Handle, lock};

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;

calls! { CALLS = call;
    fn cuDeviceGet(handle: Out<c_int>, ordinal: c_int) {
        device(ordinal)?;
        handle.put(ordinal)
    }

    fn cuDeviceGetCount(count: Out<c_int>) {
        count.put(c_int::try_from(driver()?.devices.len()).unwrap_or(0))
    }

    fn cuDeviceGetName(name: TextOut, length: c_int, ordinal: c_int) {
        device(ordinal)?;
        name.put_cut(length, &driver()?.machine.model.name)
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, ordinal: c_int) { uuid.put(device(ordinal)?.uuid) }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, ordinal: c_int) { uuid.put(device(ordinal)?.uuid) }

    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, ordinal: c_int) {
        value.put(attributes::value(&driver()?.machine, device(ordinal)?, attribute)?)
    }

    fn cuDeviceTotalMem(bytes: Out<u32>, ordinal: c_int) {
        bytes.put(u32::try_from(device(ordinal)?.capacity).unwrap_or(u32::MAX))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<u64>, ordinal: c_int) {
        bytes.put(device(ordinal)?.capacity)
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, ordinal: c_int) {
        device(ordinal)?;
        let capability = parse_version(&driver()?.machine.model.compute_capability);
        major.put(capability.0)?;
        minor.put(capability.1)
    }

    fn cuDeviceGetProperties(properties: Out<DevProp>, ordinal: c_int) {
        let value = |number| attributes::value(&driver()?.machine, device(ordinal)?, number);
        properties.put(DevProp {
            threads_per_block: value(1)?,
            block: [value(2)?, value(3)?, value(4)?],
            grid: [value(5)?, value(6)?, value(7)?],
            rest: [value(8)?, value(9)?, value(10)?, value(11)?, value(12)?, value(13)?, value(14)?],
        })
    }

    fn cuDeviceGetPCIBusId(address: TextOut, length: c_int, ordinal: c_int) {
        address.put_cut(length, &device(ordinal)?.pci.to_uppercase())
    }

    fn cuDeviceGetByPCIBusId(handle: Out<c_int>, address: TextIn) {
        let wanted = address.read()?.to_lowercase();
        // With or without the domain, which may have eight digits.
        let known = |pci: &str| pci == wanted || pci.ends_with(&format!(":{wanted}"))
            || wanted.strip_prefix("0000").is_some_and(|rest| rest == pci);
        let found = driver()?.devices.iter().find(|device| known(&device.pci));
        let found = found.ok_or(Code::INVALID_DEVICE)?;
        handle.put(c_int::try_from(found.ordinal).unwrap_or(0))
    }

    fn cuDeviceGetLuid(_luid: Out<[u8; 8]>, _mask: Out<c_uint>, ordinal: c_int) {
        device(ordinal)?;
        Err(Code::NOT_SUPPORTED)
    }

    /// GPUs of a machine have peer access if they have links.
    fn cuDeviceCanAccessPeer(answer: Out<c_int>, one: c_int, other: c_int) {
        device(one)?;
        device(other)?;
        let has_links = driver()?.machine.model.nvlink.is_some();
        answer.put(c_int::from(one != other && has_links))
    }

    fn cuDeviceGetP2PAttribute(value: Out<c_int>, attribute: c_uint, one: c_int, other: c_int) {
        device(one)?;
        device(other)?;
        if one == other || !(1..=4).contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        let has_links = driver()?.machine.model.nvlink.is_some();
        value.put(c_int::from(has_links && attribute != 1))
    }

    fn cuDeviceGetExecAffinitySupport(answer: Out<c_int>, _kind: c_uint, ordinal: c_int) {
        device(ordinal)?;
        answer.put(0)
    }

    fn cuDeviceGetDevResource(ordinal: c_int, resource: Out<DevResource>, kind: c_uint) {
        device(ordinal)?;
        resource.put(multiprocessors(kind)?)
    }

    fn cuCtxGetDevResource(context: Handle, resource: Out<DevResource>, kind: c_uint) {
        CONTEXTS.with(context, |_| Ok(()))?;
        resource.put(multiprocessors(kind)?)
    }

    /// A description is the number of multiprocessors in a pointer's type.
    fn cuDevResourceGenerateDesc(
        description: Out<usize>,
        resources: Out<DevResource>,
        count: c_uint,
    ) {
        if count != 1 {
            return Err(Code::INVALID_VALUE);
        }
        let resource = resources.read()?;
        if resource.kind != MULTIPROCESSORS || resource.multiprocessors == 0 {
            return Err(Code::INVALID_VALUE);
        }
        description.put(resource.multiprocessors as usize)
    }

    fn cuDevSmResourceSplitByCount(
        result: Out<DevResource>,
        groups: Out<c_uint>,
        input: Out<DevResource>,
        rest: Out<DevResource>,
        _flags: c_uint,
        min_count: c_uint,
    ) {
        let input = input.read()?;
        // Multiprocessors come in groups of eight since Hopper; earlier GPUs allow that as well.
        let size = min_count.max(1).next_multiple_of(8);
        let max_groups = input.multiprocessors / size;
        let count = if result.is_null() { max_groups } else { groups.read()?.min(max_groups) };
        if max_groups == 0 {
            return Err(Code::INVALID_VALUE);
        }
        groups.put(count)?;
        if !result.is_null() {
            let part = DevResource { multiprocessors: size, ..input };
            result.put_list(&vec![part; count as usize], count as usize)?;
            rest.offer(DevResource {
                multiprocessors: input.multiprocessors - size * count,
                ..input
            });
        }
        Ok(())
    }
}

fn multiprocessors(kind: c_uint) -> Result<DevResource, Code> {
    if kind != MULTIPROCESSORS {
        return Err(Code::INVALID_VALUE);
    }
    let multiprocessors = library::driver()?.machine.model.multiprocessors;
    Ok(DevResource { kind, padding: [0; 92], multiprocessors, rest: [0; 11] })
}

calls! { PRIMARY = call;
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, ordinal: c_int) {
        context.check()?;
        context.put(context::retain_primary(device(ordinal)?)?)
    }

    fn cuDevicePrimaryCtxRelease(ordinal: c_int) { context::release_primary(device(ordinal)?) }

    fn cuDevicePrimaryCtxRelease_v2(ordinal: c_int) { context::release_primary(device(ordinal)?) }

    fn cuDevicePrimaryCtxReset(ordinal: c_int) { context::reset_primary(device(ordinal)?) }

    fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) { context::reset_primary(device(ordinal)?) }

    fn cuDevicePrimaryCtxSetFlags(ordinal: c_int, flags: c_uint) {
        let mut primary = lock(&device(ordinal)?.primary);
        if primary.retained > 0 {
            return Err(Code::PRIMARY_CONTEXT_ACTIVE);
        }
        primary.flags = flags;
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(ordinal: c_int, flags: c_uint) {
        let mut primary = lock(&device(ordinal)?.primary);
        primary.flags = flags;
        if primary.retained > 0 {
            CONTEXTS.with(primary.handle, |context| {
                context.flags = flags;
                Ok(())
            })?;
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: Out<c_uint>, is_active: Out<c_int>) {
        let primary = lock(&device(ordinal)?.primary);
        flags.put(primary.flags)?;
        is_active.put((primary.retained > 0).into())
    }
}
