//! Counting and finding GPUs.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use crate::code::{CallResult, Code};
use crate::pointers::{Out, TextIn};
use crate::session::Session;

use super::identity::PciAddress;

machine_calls! {
    fn nvmlDeviceGetCount(session, count: Out<c_uint>) { count_of(session, count) }

    fn nvmlDeviceGetCount_v2(session, count: Out<c_uint>) { count_of(session, count) }

    fn nvmlDeviceGetHandleByIndex(session, index: c_uint, device: Out<nvmlDevice_t>) {
        device.put(by_index(session, "nvmlDeviceGetHandleByIndex", index)?)
    }

    fn nvmlDeviceGetHandleByIndex_v2(session, index: c_uint, device: Out<nvmlDevice_t>) {
        device.put(by_index(session, "nvmlDeviceGetHandleByIndex_v2", index)?)
    }

    fn nvmlDeviceGetHandleByUUID(session, uuid: TextIn, device: Out<nvmlDevice_t>) {
        let uuid = uuid.read()?;
        let call = "nvmlDeviceGetHandleByUUID";
        if uuid.starts_with("MIG-") {
            return device.put(session.find_slice(call, uuid)?);
        }
        device.put(session.find(call, Code::NOT_FOUND, &|_, gpu| gpu.uuid.as_deref() == Some(uuid))?)
    }

    fn nvmlDeviceGetHandleBySerial(session, serial: TextIn, device: Out<nvmlDevice_t>) {
        let serial = serial.read()?;
        let call = "nvmlDeviceGetHandleBySerial";
        let wanted = |_: u32, gpu: &octavo_machine::Gpu| gpu.serial.as_deref() == Some(serial);
        device.put(session.find(call, Code::NOT_FOUND, &wanted)?)
    }

    fn nvmlDeviceGetHandleByPciBusId(session, address: TextIn, device: Out<nvmlDevice_t>) {
        device.put(by_address(session, "nvmlDeviceGetHandleByPciBusId", address)?)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(session, address: TextIn, device: Out<nvmlDevice_t>) {
        device.put(by_address(session, "nvmlDeviceGetHandleByPciBusId_v2", address)?)
    }
}

fn count_of(session: &Session, count: Out<c_uint>) -> CallResult {
    count.put(c_uint::try_from(session.count()).unwrap_or(c_uint::MAX))
}

fn by_index(session: &Session, call: &str, wanted: u32) -> Result<nvmlDevice_t, Code> {
    session.find(call, Code::INVALID_ARGUMENT, &|index, _| index == wanted)
}

fn by_address(session: &Session, call: &str, address: TextIn) -> Result<nvmlDevice_t, Code> {
    let wanted = PciAddress::parse(address.read()?).ok_or(Code::INVALID_ARGUMENT)?;
    let here = |gpu: &octavo_machine::Gpu| PciAddress::parse(&gpu.pci) == Some(wanted);
    session.find(call, Code::NOT_FOUND, &|_, gpu| here(gpu))
}
