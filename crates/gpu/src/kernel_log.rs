//! What the driver writes about errors to the kernel's log.
//!
//! NVML delivers XIDs as events, but not those after which it cannot reach the GPU, and none of switches. The kernel's log has all of them:
//!
//! ```text
//! NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
//! NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=1234, name=python, Ch 00000008
//! NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 13 (0x00000004 0x80000001 ...)
//! nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
//! ```
//!
//! The forms are those of NVIDIA's "XID Errors" guide, and of the driver's open kernel modules.

mod source;

pub use source::{KernelLog, KernelLogError, KernelLogPosition};

use std::ops::RangeInclusive;

use crate::PciAddress;

/// An error that the driver wrote to the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelLogEvent {
    /// An XID: an error of a GPU.
    Xid {
        /// The GPU's address; the function is 0.
        gpu: PciAddress,
        /// Its number.
        number: u64,
        /// The process that it is about, by its PID on the host.
        pid: Option<u32>,
        /// The GPU instance of MIG that it is about.
        instance: Option<u32>,
        /// Whether it is fatal, for errors of `NVLink`s: 144 to 150. Other lines do not say.
        is_fatal: Option<bool>,
    },
    /// An SXID: an error of an `NVSwitch`.
    SwitchXid {
        /// The switch's address.
        switch: PciAddress,
        /// Its number.
        number: u64,
        /// Whether the switch's links are lost until it is reset.
        is_fatal: bool,
        /// The link that it is about.
        link: Option<u32>,
    },
}

impl KernelLogEvent {
    /// The event of a line; `None` for all other lines.
    pub fn parse(line: &str) -> Option<Self> {
        if let Some((_, rest)) = line.split_once("NVRM: Xid (PCI:") {
            return xid(rest);
        }
        let (_, rest) = line.split_once("nvidia-nvswitch")?;
        let (_, rest) = rest.split_once(": SXid (PCI:")?;
        switch_xid(rest)
    }
}

/// `0000:3b:00): 79, pid=1234, name=python, ...`
fn xid(rest: &str) -> Option<KernelLogEvent> {
    let (place, _) = rest.split_once("): ")?;
    let (gpu, number, fields) = numbered(rest)?;
    let pid = fields.split(',').find_map(|field| field.trim().strip_prefix("pid="));
    let pid = pid.and_then(|pid| pid.trim_matches('\'').parse().ok());
    let instance = place.split(' ').find_map(|word| word.strip_prefix("GPU-I:"));
    let instance = instance.and_then(|number| number.parse().ok());
    let is_fatal = LINK_ERRORS.contains(&number).then(|| severity(fields)).flatten();
    Some(KernelLogEvent::Xid { gpu, number, pid, instance, is_fatal })
}

/// XIDs of `NVLink`s from the fifth generation on, whose lines have a severity.
const LINK_ERRORS: RangeInclusive<u64> = 144..=150;

/// Whether the line of a link's error says that it is fatal.
fn severity(fields: &str) -> Option<bool> {
    fields.split(' ').find_map(|word| match word {
        "Fatal" => Some(true),
        "Nonfatal" => Some(false),
        _ => None,
    })
}

/// `0000:c1:00.0): 20034, Fatal, Link 30 ...`
fn switch_xid(rest: &str) -> Option<KernelLogEvent> {
    let (switch, number, fields) = numbered(rest)?;
    let mut fields = fields.split(',').map(str::trim);
    let is_fatal = match fields.next()? {
        "Fatal" => true,
        "Non-fatal" => false,
        _ => return None,
    };
    let link = fields.next().and_then(|field| field.strip_prefix("Link "));
    let link = link.and_then(|link| link.split(' ').next()?.parse().ok());
    Some(KernelLogEvent::SwitchXid { switch, number, is_fatal, link })
}

/// An address, a number, and the text after them.
fn numbered(rest: &str) -> Option<(PciAddress, u64, &str)> {
    let (place, rest) = rest.split_once("): ")?;
    // That of a MIG instance is followed by the instance.
    let address = place.split(' ').next()?;
    // A GPU's address has no function.
    let with_function = format!("{address}.0");
    let address = address.parse().or_else(|_| with_function.parse()).ok()?;
    let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (number, fields) = rest.split_at(end);
    Some((address, number.parse().ok()?, fields.trim_start_matches([',', ' '])))
}

#[cfg(test)]
mod tests;
