//! Contexts: the primary context of each device, and others.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::code::{CallResult, Code};
use crate::device::Device;
use crate::execution::{graph, module, stream};
use crate::library;
use crate::memory::{arrays, heap, pool};
use crate::table::{Handle, HandleKind, Table, lock};

/// A context.
pub(crate) struct Context {
    /// Ordinal of its device.
    pub(crate) device: usize,
    pub(crate) flags: u32,
    /// Result of `cuCtxGetApiVersion`.
    pub(crate) version: u32,
    pub(crate) is_primary: bool,
    /// Values of the limits by number.
    pub(crate) limits: [u64; 8],
    /// The legacy default stream (0 and 1) and the per-thread default stream (2).
    pub(crate) legacy: Handle,
    pub(crate) per_thread: Handle,
    /// Memory of the context and of its limits, in bytes.
    pub(crate) bytes: u64,
    /// A mark after which the context is broken, and the error.
    fault: Option<(u64, Code)>,
    /// Values that libraries keep in it, by key.
    stored: BTreeMap<usize, Stored>,
}

/// Called with a context, a key and its value when the context ends.
pub(crate) type Destructor = extern "C" fn(Handle, usize, usize);

/// A value that a library keeps in a context.
type Stored = (usize, Option<Destructor>);

/// All contexts of the process.
pub(crate) static CONTEXTS: Table<Context> = Table::new(HandleKind::Context);

/// A device's primary context.
#[derive(Default)]
pub(crate) struct Primary {
    pub(crate) handle: Handle,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
}

/// Cached data of a thread's current context.
#[derive(Clone, Copy, Default)]
struct Current {
    handle: Handle,
    device: usize,
    legacy: Handle,
    per_thread: Handle,
}

thread_local! {
    static CURRENT: Cell<Current> = const {
        Cell::new(Current { handle: 0, device: 0, legacy: 0, per_thread: 0 })
    };
    static CONTEXT_STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// Whether any kernel has broken its context.
static HAS_FAULTS: AtomicBool = AtomicBool::new(false);

/// API version of contexts.
const API_VERSION: u32 = 3020;

/// Default limits by number: stack per thread, `printf` buffer, heap.
pub(crate) const DEFAULT_LIMITS: [u64; 8] = [1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0];

/// Creates a context on a device, which is not current on any thread.
pub(crate) fn create(device: &Device, flags: u32, is_primary: bool) -> Result<Handle, Code> {
    let driver = library::driver()?;
    driver.state.check_call("cuCtxCreate", Some(device.index))?;
    let bytes = driver.context_bytes();
    device.charge(bytes)?;
    let made = make(device, flags, is_primary, bytes);
    if made.is_err() {
        device.refund(bytes);
    }
    let process = device.process_handle()?;
    made.inspect(|_| process.add_context())
}

fn make(device: &Device, flags: u32, is_primary: bool, bytes: u64) -> Result<Handle, Code> {
    let handle = CONTEXTS.insert(Context::new(device.ordinal, flags, is_primary, 0))?;
    open(device.ordinal, handle, bytes)?;
    Ok(handle)
}

/// Gives a context its default streams, and its memory, which is charged.
fn open(ordinal: usize, handle: Handle, bytes: u64) -> CallResult {
    let legacy = stream::create(ordinal, handle, 0, 0)?;
    let per_thread = stream::create(ordinal, handle, 0, 0)?;
    CONTEXTS.with(handle, |context| {
        (context.legacy, context.per_thread, context.bytes) = (legacy, per_thread, bytes);
        Ok(())
    })
}

impl Context {
    fn new(device: usize, flags: u32, is_primary: bool, bytes: u64) -> Self {
        Self {
            device,
            flags,
            version: API_VERSION,
            is_primary,
            limits: DEFAULT_LIMITS,
            legacy: 0,
            per_thread: 0,
            bytes,
            fault: None,
            stored: BTreeMap::new(),
        }
    }
}

/// Destroys a green context (`cuGreenCtxDestroy`). It is part of its device's primary context,
/// which keeps the memory allocated in it.
pub(crate) fn destroy_green(handle: Handle) -> CallResult {
    let device = CONTEXTS.with(handle, |context| Ok(context.device))?;
    let home = lock(&device_of(device)?.primary).handle;
    heap::move_to(handle, home);
    destroy(handle)
}

/// Destroys a context with all its objects and work.
pub(crate) fn destroy(handle: Handle) -> CallResult {
    end(handle, CONTEXTS.remove(handle)?)?;
    if current_handle() == Some(handle) {
        CURRENT.set(Current::default());
    }
    Ok(())
}

/// Ends what a context has: its objects, its memory, its work.
fn end(handle: Handle, context: Context) -> CallResult {
    for (key, (value, destructor)) in context.stored {
        if let Some(destructor) = destructor {
            destructor(handle, key, value);
        }
    }
    let device = device_of(context.device)?;
    stream::destroy_of(handle);
    module::unload_of(handle);
    arrays::destroy_of(handle);
    heap::free_of(handle);
    device.refund(context.bytes);
    if let Some(process) = device.attached() {
        process.remove_context();
    }
    if !CONTEXTS.handles().iter().any(|&other| other != handle && is_on(other, context.device)) {
        pool::release_all(device);
        graph::trim(device);
    }
    Ok(())
}

fn is_on(context: Handle, device: usize) -> bool {
    CONTEXTS.with(context, |context| Ok(context.device == device)).unwrap_or(false)
}

/// Retains a device's primary context, and creates it the first time.
pub(crate) fn retain_primary(device: &Device) -> Result<Handle, Code> {
    let mut primary = lock(&device.primary);
    if primary.handle == 0 {
        primary.handle = create(device, primary.flags, true)?;
    } else if primary.retained == 0 {
        activate(device, primary.handle)?;
    }
    primary.retained += 1;
    Ok(primary.handle)
}

/// Releases a device's primary context; the last release destroys it.
pub(crate) fn release_primary(device: &Device) -> CallResult {
    let mut primary = lock(&device.primary);
    primary.retained = primary.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    if primary.retained > 0 {
        return Ok(());
    }
    let handle = std::mem::take(&mut primary.handle);
    drop(primary);
    destroy(handle)
}

/// Ends what a device's primary context has, regardless of its references. It keeps its handle, and is active again once it is
/// retained or current.
pub(crate) fn reset_primary(device: &Device) -> CallResult {
    let mut primary = lock(&device.primary);
    if primary.retained == 0 {
        return Ok(());
    }
    primary.retained = 0;
    let handle = primary.handle;
    let context = CONTEXTS.with(handle, |context| {
        let inactive = Context::new(device.ordinal, primary.flags, true, 0);
        Ok(std::mem::replace(context, inactive))
    })?;
    // Destructors may call the driver.
    drop(primary);
    if current_handle() == Some(handle) {
        CURRENT.set(Current::default());
    }
    end(handle, context)
}

/// Makes a primary context active that was reset.
fn activate(device: &Device, handle: Handle) -> CallResult {
    let bytes = library::driver()?.context_bytes();
    device.charge(bytes)?;
    open(device.ordinal, handle, bytes).inspect_err(|_| device.refund(bytes))?;
    device.process_handle()?.add_context();
    Ok(())
}

/// Makes a context active that is about to be current, if it was reset.
fn activate_if_reset(handle: Handle) -> CallResult {
    let of = CONTEXTS.with(handle, |context| Ok((context.is_primary, context.device)));
    let Ok((true, ordinal)) = of else { return Ok(()) };
    let device = device_of(ordinal)?;
    let mut primary = lock(&device.primary);
    if primary.handle == handle && primary.retained == 0 {
        activate(device, handle)?;
        primary.retained = 1;
    }
    Ok(())
}

/// Replaces the current context of the thread; 0 for none.
pub(crate) fn set_current(handle: Handle) -> CallResult {
    if handle == 0 {
        CURRENT.set(Current::default());
        return Ok(());
    }
    activate_if_reset(handle)?;
    let known = |context: &mut Context| {
        let (legacy, per_thread) = (context.legacy, context.per_thread);
        Ok(Current { handle, device: context.device, legacy, per_thread })
    };
    CURRENT.set(CONTEXTS.with(handle, known).map_err(|_| Code::INVALID_CONTEXT)?);
    Ok(())
}

/// Pushes a context onto the thread's stack, which makes it current.
pub(crate) fn push(handle: Handle) -> CallResult {
    let before = CURRENT.get().handle;
    if handle == 0 {
        return Err(Code::INVALID_CONTEXT);
    }
    set_current(handle)?;
    CONTEXT_STACK.with_borrow_mut(|below| below.push(before));
    Ok(())
}

/// Pops the current context; the one below it becomes current.
pub(crate) fn pop() -> Result<Handle, Code> {
    let top = current()?;
    let below = CONTEXT_STACK.with_borrow_mut(Vec::pop).unwrap_or(0);
    // The one below may be destroyed.
    if set_current(below).is_err() {
        CURRENT.set(Current::default());
    }
    Ok(top)
}

/// The current context of the thread.
pub(crate) fn current() -> Result<Handle, Code> {
    current_handle().ok_or(Code::INVALID_CONTEXT)
}

/// The current context of the thread, if any.
pub(crate) fn current_handle() -> Option<Handle> {
    Some(CURRENT.get().handle).filter(|handle| *handle != 0)
}

/// The device of the current context.
pub(crate) fn here() -> Result<&'static Device, Code> {
    current_device().ok_or(Code::INVALID_CONTEXT)
}

/// The device of the current context, if any.
pub(crate) fn current_device() -> Option<&'static Device> {
    let current = CURRENT.get();
    let devices = &library::opened()?.devices;
    devices.get(current.device).filter(|_| current.handle != 0)
}

/// The device with an ordinal that was checked before.
pub(crate) fn device_of(ordinal: usize) -> Result<&'static Device, Code> {
    library::driver()?.devices.get(ordinal).ok_or(Code::INVALID_DEVICE)
}

/// The default stream of the current context: the legacy one (0 and 1) or the per-thread one (2).
pub(crate) fn default_stream(is_legacy: bool) -> Result<Handle, Code> {
    let current = CURRENT.get();
    if current.handle == 0 {
        return Err(Code::INVALID_CONTEXT);
    }
    Ok(if is_legacy { current.legacy } else { current.per_thread })
}

/// Breaks a context once the work up to `mark` is done.
pub(crate) fn break_at(context: Handle, mark: u64, code: Code) -> CallResult {
    HAS_FAULTS.store(true, Relaxed);
    CONTEXTS.with(context, |context| {
        context.fault.get_or_insert((mark, code));
        Ok(())
    })
}

/// Fails if the current context is broken, except for calls that end contexts.
pub(crate) fn check_fault(call: &str) -> CallResult {
    if !HAS_FAULTS.load(Relaxed) || CALLS_ON_BROKEN_CONTEXT.contains(&crate::state::base_of(call)) {
        return Ok(());
    }
    let Some(handle) = current_handle() else { return Ok(()) };
    let Ok((device, fault)) = CONTEXTS.with(handle, |c| Ok((c.device, c.fault))) else {
        return Ok(());
    };
    let Some((mark, code)) = fault else { return Ok(()) };
    if device_of(device)?.process_handle()?.done_at(mark).is_some() { Err(code) } else { Ok(()) }
}

/// Calls that work with a broken context.
const CALLS_ON_BROKEN_CONTEXT: [&str; 8] = [
    "cuCtxDestroy",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPopCurrent",
    "cuCtxSetCurrent",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset",
    "cuDevicePrimaryCtxGetState",
];

/// Keeps a value in a context; 0 is the current one.
pub(crate) fn store(context: Handle, key: usize, value: Stored) -> CallResult {
    CONTEXTS.with(or_current(context)?, |context| {
        context.stored.insert(key, value);
        Ok(())
    })
}

/// Removes a value from a context; 0 is the current one.
pub(crate) fn remove_stored(context: Handle, key: usize) -> CallResult {
    CONTEXTS.with(or_current(context)?, |context| {
        context.stored.remove(&key);
        Ok(())
    })
}

/// A value of a context; 0 is the current one.
pub(crate) fn stored(context: Handle, key: usize) -> Result<usize, Code> {
    CONTEXTS.with(or_current(context).map_err(|_| Code::INVALID_HANDLE)?, |context| {
        context.stored.get(&key).map(|(value, _)| *value).ok_or(Code::INVALID_HANDLE)
    })
}

fn or_current(context: Handle) -> Result<Handle, Code> {
    if context == 0 { current() } else { Ok(context) }
}

/// The device of a context.
pub(crate) fn device_of_handle(handle: Handle) -> Result<&'static Device, Code> {
    let device = CONTEXTS.with(handle, |context| Ok(context.device));
    device_of(device.map_err(|_| Code::INVALID_CONTEXT)?)
}

/// Waits for all work of a context.
pub(crate) fn synchronize(handle: Handle) -> CallResult {
    let device = device_of_handle(handle)?;
    stream::refuse_captures(handle)?;
    device.wait(device.process_handle()?.submitted())?;
    stream::wait_for_callbacks_of(handle);
    pool::synchronized(device);
    check_fault("cuCtxSynchronize")
}
