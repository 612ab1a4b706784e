//! The stubs of a driver's functions, and the addresses of stubs, slots and records.

use crate::Plan;
use crate::architecture::{Architecture, HOOK_STUB_BYTES, TRAP_BYTES, UNKNOWN_STUB_BYTES};
use crate::driver::{Driver, ExportKind};

/// Size of a slot.
pub(crate) const SLOT_BYTES: usize = 8;

/// Size of an unknown name's record: address of the name, its length, space for the driver's
/// function.
pub(crate) const RECORD_BYTES: usize = 24;

/// The functions with a stub, each once, in order.
#[derive(Debug)]
pub(crate) struct Stubs<'a> {
    pub(crate) hooks: Vec<&'a [u8]>,
    pub(crate) unknown: Vec<&'a [u8]>,
}

/// Addresses of the parts that stubs refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) text: usize,
    pub(crate) slots: usize,
    pub(crate) records: usize,
}

impl<'a> Stubs<'a> {
    pub(crate) fn choose(driver: &Driver<'a>, plan: &Plan<'_>) -> Self {
        let hooks: Vec<&[u8]> = plan.hooks.iter().map(|hook| hook.as_bytes()).collect();
        let mut stubs = Self { hooks: Vec::new(), unknown: Vec::new() };
        // Ordered by name, so that the versions of a name are adjacent.
        for export in driver.exports.iter().filter(|export| export.kind == ExportKind::Function) {
            let names = match hooks.binary_search(&export.name) {
                Ok(_) => &mut stubs.hooks,
                Err(_) if (plan.is_suspicious)(export.name) => &mut stubs.unknown,
                Err(_) => continue,
            };
            if names.last() != Some(&export.name) {
                names.push(export.name);
            }
        }
        stubs
    }

    /// Number of slots: one for each hook, one for all unknown names.
    pub(crate) fn slots(&self) -> usize {
        self.hooks.len() + usize::from(!self.unknown.is_empty())
    }

    /// Size of all stubs and the trap.
    pub(crate) fn text_size(&self) -> usize {
        self.trap() + TRAP_BYTES
    }

    /// Stub of a name: its offset in the code, and its size.
    pub(crate) fn stub(&self, name: &[u8]) -> Option<(usize, usize)> {
        if let Ok(index) = self.hooks.binary_search(&name) {
            return Some((index * HOOK_STUB_BYTES, HOOK_STUB_BYTES));
        }
        let index = self.unknown.binary_search(&name).ok()?;
        Some((self.unknown_stubs() + index * UNKNOWN_STUB_BYTES, UNKNOWN_STUB_BYTES))
    }

    /// Offset of the trap in the code.
    pub(crate) fn trap(&self) -> usize {
        self.unknown_stubs() + self.unknown.len() * UNKNOWN_STUB_BYTES
    }

    fn unknown_stubs(&self) -> usize {
        (self.hooks.len() * HOOK_STUB_BYTES).next_multiple_of(UNKNOWN_STUB_BYTES)
    }

    /// The code.
    pub(crate) fn text(&self, machine: Architecture, addresses: Addresses) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.text_size());
        for index in 0..self.hooks.len() {
            let at = addresses.text + text.len();
            text.extend(machine.hook_stub(at, addresses.slots + index * SLOT_BYTES));
        }
        text.resize(self.unknown_stubs(), 0);
        let slot = addresses.slots + self.hooks.len() * SLOT_BYTES;
        for index in 0..self.unknown.len() {
            let at = addresses.text + text.len();
            text.extend(machine.unknown_stub(at, addresses.records + index * RECORD_BYTES, slot));
        }
        text.extend(machine.trap());
        text
    }
}
