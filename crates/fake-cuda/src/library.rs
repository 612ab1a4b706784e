//! State of this copy of the library, and its entry points from C.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use crate::checkpoint::server;
use crate::code::{CallResult, Code, CuResult};
use crate::context;
use crate::device::Device;
use crate::fork;
use crate::gate;
use crate::machine::{self, Driver, cuda_version};
use crate::table::lock;

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// `cuInit`: finds the machine the first time, then does nothing.
pub(crate) fn init(flags: u32) -> CallResult {
    static INIT_LOCK: Mutex<()> = Mutex::new(());
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if fork::is_child() {
        return Err(Code::NOT_INITIALIZED);
    }
    let _turn = lock(&INIT_LOCK);
    if DRIVER.get().is_none() {
        let driver = Driver::open()?;
        driver.state.check_call("cuInit", None)?;
        fork::watch();
        let _ = DRIVER.set(driver);
        server::start(self::driver()?);
    }
    driver()?.state.refresh();
    driver()?.state.check_call("cuInit", None)
}

/// CUDA version of the driver, also available before `cuInit`.
pub(crate) fn version() -> Result<i32, Code> {
    match DRIVER.get() {
        Some(driver) => {
            driver.state.refresh();
            Ok(driver.cuda_version())
        }
        None => Ok(cuda_version(&machine::read()?)),
    }
}

/// The driver, if `cuInit` was called.
pub(crate) fn opened() -> Option<&'static Driver> {
    DRIVER.get()
}

/// The driver.
pub(crate) fn driver() -> Result<&'static Driver, Code> {
    if fork::is_child() {
        return Err(Code::NOT_INITIALIZED);
    }
    DRIVER.get().ok_or(Code::NOT_INITIALIZED)
}

/// The visible GPU with an ordinal.
pub(crate) fn device(ordinal: i32) -> Result<&'static Device, Code> {
    let ordinal = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
    driver()?.devices.get(ordinal).ok_or(Code::INVALID_DEVICE)
}

/// A call that refreshes the state first, and fails if the state or an earlier kernel says so.
pub(crate) fn call(name: &str, body: impl FnOnce() -> CallResult) -> CuResult {
    catch_panics(|| {
        let driver = driver()?;
        let _passed = gate::pass()?;
        driver.state.refresh();
        check_allowed(name)?;
        body()
    })
}

/// A call about another process: it needs no context, and the lock of this process does not stop it.
pub(crate) fn control_call(name: &str, body: impl FnOnce() -> CallResult) -> CuResult {
    catch_panics(|| {
        driver()?.state.refresh();
        driver()?.state.check_call(name, None)?;
        body()
    })
}

/// A frequent call: it sees changes of the state a few milliseconds late.
pub(crate) fn hot_call(name: &str, body: impl FnOnce() -> CallResult) -> CuResult {
    catch_panics(|| {
        let driver = driver()?;
        let _passed = gate::pass()?;
        driver.state.refresh_if_due();
        check_allowed(name)?;
        body()
    })
}

/// A launch. It is so cheap that even the coarse clock is read only once per `REFRESH_INTERVAL`
/// launches of a thread.
pub(crate) fn launch_call(name: &str, body: impl FnOnce() -> CallResult) -> CuResult {
    const REFRESH_INTERVAL: u32 = 32;
    thread_local! {
        static LAUNCHES: Cell<u32> = const { Cell::new(0) };
    }
    catch_panics(|| {
        let driver = driver()?;
        let _passed = gate::pass()?;
        let launches = LAUNCHES.get();
        LAUNCHES.set(launches.wrapping_add(1));
        if launches.is_multiple_of(REFRESH_INTERVAL) {
            driver.state.refresh_if_due();
        }
        check_allowed(name)?;
        body()
    })
}

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Number of calls of this thread so far, for tests of libraries that stand before this one.
/// NVIDIA's library has no such function.
#[unsafe(no_mangle)]
extern "C" fn octavoCalls() -> u64 {
    CALLS.get()
}

thread_local! {
    static DELAY: Cell<u32> = const { Cell::new(0) };
}

/// Makes each later call of this thread take so many microseconds longer.
#[unsafe(no_mangle)]
extern "C" fn octavoDelay(microseconds: u32) {
    DELAY.set(microseconds);
}

/// A call that needs no initialisation.
pub(crate) fn bare_call(_name: &str, body: impl FnOnce() -> CallResult) -> CuResult {
    catch_panics(body)
}

fn check_allowed(name: &str) -> CallResult {
    let here = context::current_device();
    driver()?.state.check_call(name, here.map(|device| device.index))?;
    context::check_fault(name)
}

/// Runs a call so that no panic reaches the C caller, where unwinding is undefined.
fn catch_panics(body: impl FnOnce() -> CallResult) -> CuResult {
    CALLS.set(CALLS.get() + 1);
    if DELAY.get() > 0 {
        thread::sleep(Duration::from_micros(DELAY.get().into()));
    }
    Code::of(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN)))
}
