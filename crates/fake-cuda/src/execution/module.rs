//! Modules and their functions.
//!
//! Any image is accepted and contains any function, except that PTX (text) must name it. No code runs but that of PTX that asks to be
//! computed ([`ptx`]). The duration of a function is derived from its name.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::code::{CallResult, Code};
use crate::context::{self, device_of};
use crate::execution::ptx::{self, Kernels, Program};
use crate::library;
use crate::memory::arena::GRANULE;
use crate::pointers::TextIn;
use crate::table::{Handle, HandleKind, Table};

/// A module, or a library.
pub(crate) struct Module {
    /// The contexts that have its code, with the ordinals of their devices: one of a module, any number of a library.
    loaded: Vec<(Handle, usize)>,
    is_library: bool,
    /// The PTX; empty for binary images.
    text: String,
    /// The kernels that are computed.
    kernels: Kernels,
    /// Its functions that were asked for, by name.
    functions: BTreeMap<String, Handle>,
}

/// A function of a module.
pub(crate) struct Function {
    pub(crate) name: CString,
    pub(crate) module: Handle,
    pub(crate) nanos: u64,
    /// Its code, if it is computed.
    pub(crate) program: Option<Arc<Program>>,
}

/// All modules of the process, including libraries.
pub(crate) static MODULES: Table<Module> = Table::new(HandleKind::Module);
/// All functions of the process.
pub(crate) static FUNCTIONS: Table<Function> = Table::new(HandleKind::Function);

/// Memory of a module's code.
const CODE: u64 = GRANULE;

/// Loads a module into the current context.
pub(crate) fn load(image: TextIn) -> Result<Handle, Code> {
    insert(text_of(image)?)
}

/// Loads a library, which belongs to no context. A context has its code once it [uses](use_here) it.
pub(crate) fn load_library(image: TextIn) -> Result<Handle, Code> {
    let text = text_of(image)?;
    let kernels = kernels_of(&text)?;
    MODULES.insert(Module {
        loaded: Vec::new(),
        is_library: true,
        text,
        kernels,
        functions: BTreeMap::new(),
    })
}

/// Loads the code of a library into the current context, if it is not there; that of a module is.
pub(crate) fn use_here(handle: Handle) -> CallResult {
    MODULES.with(handle, |module| {
        if !module.is_library {
            return Ok(());
        }
        let (context, device) = (context::current()?, context::here()?);
        if !module.loaded.iter().any(|(other, _)| *other == context) {
            device.charge(CODE)?;
            module.loaded.push((context, device.ordinal));
        }
        Ok(())
    })
}

/// The text of PTX; empty for binary images.
fn text_of(image: TextIn) -> Result<String, Code> {
    image.check()?;
    let is_text = [&b".version"[..], b"//", b"\n", b".target"];
    if !is_text.iter().any(|beginning| image.begins_with(beginning)) {
        return Ok(String::new());
    }
    image.read().map(str::to_owned).map_err(|_| Code::INVALID_IMAGE)
}

/// Loads a module from a file.
pub(crate) fn load_file(path: TextIn) -> Result<Handle, Code> {
    let bytes = std::fs::read(path.read()?).map_err(|_| Code::FILE_NOT_FOUND)?;
    let is_text = bytes.first().is_some_and(u8::is_ascii_graphic) && !bytes.contains(&0);
    insert(if is_text { String::from_utf8(bytes).unwrap_or_default() } else { String::new() })
}

/// The kernels of PTX that asks to be computed.
fn kernels_of(text: &str) -> Result<Kernels, Code> {
    if text.starts_with(ptx::MARK) { ptx::parse::kernels(text) } else { Ok(Kernels::new()) }
}

fn insert(text: String) -> Result<Handle, Code> {
    let kernels = kernels_of(&text)?;
    let (context, device) = (context::current()?, context::here()?);
    device.charge(CODE)?;
    let loaded = vec![(context, device.ordinal)];
    let module = Module { loaded, is_library: false, text, kernels, functions: BTreeMap::new() };
    MODULES.insert(module).inspect_err(|_| device.refund(CODE))
}

/// Number of unloaded modules.
static UNLOADED: AtomicU64 = AtomicU64::new(0);

/// Duration of a function, and whether it is computed. Threads launch the same function repeatedly, so the last one is cached.
pub(crate) fn traits_of_function(handle: Handle) -> Result<(u64, bool), Code> {
    thread_local! {
        /// Function, number of unloaded modules at that time, nanoseconds, whether it is computed.
        static LAST: Cell<(Handle, u64, (u64, bool))> = const { Cell::new((0, 0, (0, false))) };
    }
    let unloaded = UNLOADED.load(Acquire);
    let (last, then, traits) = LAST.get();
    if last == handle && then == unloaded {
        return Ok(traits);
    }
    let traits =
        FUNCTIONS.with(handle, |function| Ok((function.nanos, function.program.is_some())))?;
    LAST.set((handle, unloaded, traits));
    Ok(traits)
}

/// Unloads a module and its functions.
pub(crate) fn unload(handle: Handle) -> CallResult {
    let module = MODULES.remove(handle)?;
    for (_, device) in &module.loaded {
        device_of(*device)?.refund(CODE);
    }
    for function in module.functions.into_values() {
        FUNCTIONS.remove(function)?;
    }
    UNLOADED.fetch_add(1, AcqRel);
    Ok(())
}

/// Unloads all modules of a context, and the code of libraries in it.
pub(crate) fn unload_of(context: Handle) {
    for handle in MODULES.handles() {
        let leave = |module: &mut Module| {
            let place = module.loaded.iter().position(|(other, _)| *other == context);
            if let Some(place) = place.filter(|_| module.is_library) {
                let (_, device) = module.loaded.swap_remove(place);
                device_of(device)?.refund(CODE);
            }
            Ok(place.is_some() && !module.is_library)
        };
        if MODULES.with(handle, leave) == Ok(true) {
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
        if let Some(known) = module.functions.get(name) {
            return Ok(*known);
        }
        if !module.text.is_empty() && !names_entry(&module.text, name) {
            return Err(Code::NOT_FOUND);
        }
        let nanos = nanos_of(name)?;
        let c_name = CString::new(name).map_err(|_| Code::NOT_FOUND)?;
        let program = module.kernels.get(name).cloned();
        let function = Function { name: c_name, module: handle, nanos, program };
        let function = FUNCTIONS.insert(function)?;
        module.functions.insert(name.to_owned(), function);
        Ok(function)
    })
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
