//! Modules and their functions.
//!
//! No code runs: any image is accepted and contains any function, except that PTX (text) must name
//! it. The duration of a function is derived from its name.

use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::code::{CallResult, Code};
use crate::context::{self, device_of};
use crate::library;
use crate::memory::arena::GRANULE;
use crate::pointers::TextIn;
use crate::table::{Handle, HandleKind, Table};

/// A module.
pub(crate) struct Module {
    device: usize,
    context: Handle,
    /// The PTX; empty for binary images.
    text: String,
}

/// A function of a module.
pub(crate) struct Function {
    pub(crate) name: CString,
    pub(crate) module: Handle,
    pub(crate) nanos: u64,
}

/// All modules of the process, including libraries.
pub(crate) static MODULES: Table<Module> = Table::new(HandleKind::Module);
/// All functions of the process.
pub(crate) static FUNCTIONS: Table<Function> = Table::new(HandleKind::Function);

/// Memory of a module's code.
const CODE: u64 = GRANULE;

/// Loads a module into the current context.
pub(crate) fn load(image: TextIn) -> Result<Handle, Code> {
    image.check()?;
    let is_text = [&b".version"[..], b"//", b"\n", b".target"];
    let text = if is_text.iter().any(|beginning| image.begins_with(beginning)) {
        image.read().map_err(|_| Code::INVALID_IMAGE)?.to_owned()
    } else {
        String::new()
    };
    insert(text)
}

/// Loads a module from a file.
pub(crate) fn load_file(path: TextIn) -> Result<Handle, Code> {
    let bytes = std::fs::read(path.read()?).map_err(|_| Code::FILE_NOT_FOUND)?;
    let is_text = bytes.first().is_some_and(u8::is_ascii_graphic) && !bytes.contains(&0);
    insert(if is_text { String::from_utf8(bytes).unwrap_or_default() } else { String::new() })
}

fn insert(text: String) -> Result<Handle, Code> {
    let (context, device) = (context::current()?, context::here()?);
    device.charge(CODE)?;
    let module = Module { device: device.ordinal, context, text };
    MODULES.insert(module).inspect_err(|_| device.refund(CODE))
}

/// Number of unloaded modules.
static UNLOADED: AtomicU64 = AtomicU64::new(0);

/// Duration of a function. Threads launch the same function repeatedly, so the last one is cached.
pub(crate) fn nanos_of_function(handle: Handle) -> Result<u64, Code> {
    thread_local! {
        /// Function, number of unloaded modules at that time, nanoseconds.
        static LAST: Cell<(Handle, u64, u64)> = const { Cell::new((0, 0, 0)) };
    }
    let unloaded = UNLOADED.load(Acquire);
    let (last, then, nanos) = LAST.get();
    if last == handle && then == unloaded {
        return Ok(nanos);
    }
    let nanos = FUNCTIONS.with(handle, |function| Ok(function.nanos))?;
    LAST.set((handle, unloaded, nanos));
    Ok(nanos)
}

/// Unloads a module and its functions.
pub(crate) fn unload(handle: Handle) -> CallResult {
    let module = MODULES.remove(handle)?;
    device_of(module.device)?.refund(CODE);
    for function in FUNCTIONS.handles() {
        if FUNCTIONS.with(function, |function| Ok(function.module == handle)) == Ok(true) {
            // It is removed already.
            let _ = FUNCTIONS.remove(function);
        }
    }
    UNLOADED.fetch_add(1, AcqRel);
    Ok(())
}

/// Unloads all modules of a context.
pub(crate) fn unload_of(context: Handle) {
    for handle in MODULES.handles() {
        if MODULES.with(handle, |module| Ok(module.context == context)) == Ok(true) {
            // It is unloaded already.
            let _ = unload(handle);
        }
    }
}

/// A function of a module; the same handle each time.
pub(crate) fn function(handle: Handle, name: &str) -> Result<Handle, Code> {
    if name.is_empty() {
        return Err(Code::NOT_FOUND);
    }
    MODULES.with(handle, |module| {
        let is_there = module.text.is_empty() || names_entry(&module.text, name);
        if is_there { Ok(()) } else { Err(Code::NOT_FOUND) }
    })?;
    let same = |function: &mut Function| {
        Ok(function.module == handle && function.name.as_bytes() == name.as_bytes())
    };
    let known =
        FUNCTIONS.handles().into_iter().find(|known| FUNCTIONS.with(*known, same) == Ok(true));
    if let Some(known) = known {
        return Ok(known);
    }
    let nanos = nanos_of(name)?;
    let name = CString::new(name).map_err(|_| Code::NOT_FOUND)?;
    FUNCTIONS.insert(Function { name, module: handle, nanos })
}

/// Whether PTX has an entry of that name.
fn names_entry(text: &str, name: &str) -> bool {
    text.split(".entry").skip(1).any(|after| {
        let after = after.trim_start();
        after.strip_prefix(name).is_some_and(|rest| {
            !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$')
        })
    })
}

/// Duration of a function, derived from its name.
fn nanos_of(name: &str) -> Result<u64, Code> {
    let simulation = &library::driver()?.machine.simulation;
    // FNV-1a with a final mixing step: names differ in their last letters.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ simulation.seed, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let range = simulation.longest_kernel_nanos - simulation.shortest_kernel_nanos;
    let within = (u128::from(hash) * (u128::from(range) + 1)) >> 64;
    Ok(simulation.shortest_kernel_nanos + u64::try_from(within).unwrap_or(0))
}
