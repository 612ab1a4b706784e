//! Safe calls of NVML's functions, by their shapes.
//!
//! JUSTIFICATION (of every `unsafe` here): NVML is a C library that is loaded at run time; there is
//! no other way to call it. NVML's functions have few shapes, so a handful of blocks serves all of
//! them and the rest of the crate calls safe functions.
//!
//! The blocks are sound for the same reasons:
//! * Only `call!` makes a [`Call`]. It takes the pointer from the bindings' field of the same name,
//!   so the pointer has the type of NVML's header. The [`Library`](super::library::Library) of the
//!   pointer is borrowed for the call.
//! * A handle of a device, instance or event set comes from the same library, which stays
//!   initialised until it is dropped. NVML thus knows it, and returns an error code if its object
//!   is gone.
//! * Out-parameters are exclusive, initialised, and live through the call. Versioned structures
//!   carry the version that belongs to their size, so NVML writes no more than that.

use std::ffi::{CStr, c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t, nvmlGpuInstance_t,
    nvmlGpuInstancePlacement_t, nvmlProcessInfo_t, nvmlReturn_t,
};

use crate::DriverError;

/// A function of the library and its name; see the module for the safety of calls.
#[derive(Clone, Copy)]
pub(super) struct Call<F> {
    pub(super) name: &'static str,
    pub(super) function: F,
}

impl<F: Copy> Call<F> {
    /// The function, or an error if the loader did not find it, because the driver is too old.
    pub(super) fn found<E>(name: &'static str, symbol: &Result<F, E>) -> Result<Self, DriverError> {
        match symbol {
            Ok(function) => Ok(Self { name, function: *function }),
            Err(_) => Err(DriverError::Missing { call: name }),
        }
    }
}

/// The function of a [`Library`](super::library::Library) by its name in NVML's header, as
/// `Result<Call<_>, DriverError>`.
macro_rules! call {
    ($library:expr, $name:ident) => {
        $crate::nvml::call::Call::found(stringify!($name), &$library.symbols().$name)
    };
}
pub(super) use call;

/// Function without parameters.
pub(super) type Bare = unsafe extern "C" fn() -> nvmlReturn_t;
/// Function of flags.
pub(super) type Flags = unsafe extern "C" fn(c_uint) -> nvmlReturn_t;
/// Function that returns one value about the system.
pub(super) type Out<T> = unsafe extern "C" fn(*mut T) -> nvmlReturn_t;
/// Function that returns one value for a key.
pub(super) type KeyedOut<K, T> = unsafe extern "C" fn(K, *mut T) -> nvmlReturn_t;
/// Function that returns one value for two keys, usually a device first.
pub(super) type TwoKeyedOut<D, K, T> = unsafe extern "C" fn(D, K, *mut T) -> nvmlReturn_t;
/// Function that sets a number of a device.
pub(super) type DeviceSet = unsafe extern "C" fn(nvmlDevice_t, c_uint) -> nvmlReturn_t;
/// Function that returns two values about a device.
pub(super) type DeviceOutPair<A, B> =
    unsafe extern "C" fn(nvmlDevice_t, *mut A, *mut B) -> nvmlReturn_t;
/// Function that returns one value for a device or an instance and two numbers.
pub(super) type ThreeKeyedOut<D, K, L, T> = unsafe extern "C" fn(D, K, L, *mut T) -> nvmlReturn_t;
/// Function that returns a list for a device or an instance and a number.
pub(super) type List<D, T> = unsafe extern "C" fn(D, c_uint, *mut T, *mut c_uint) -> nvmlReturn_t;
/// Function that returns four values about a device.
pub(super) type DeviceOutFour = unsafe extern "C" fn(
    nvmlDevice_t,
    *mut c_uint,
    *mut c_uint,
    *mut c_uint,
    *mut c_uint,
) -> nvmlReturn_t;
/// Function that returns text about the system.
pub(super) type Text = unsafe extern "C" fn(*mut c_char, c_uint) -> nvmlReturn_t;
/// Function that returns text about a device.
pub(super) type DeviceText =
    unsafe extern "C" fn(nvmlDevice_t, *mut c_char, c_uint) -> nvmlReturn_t;

/// Length that fits any text of NVML, whose largest buffer size is 96.
const TEXT_LENGTH: c_uint = 128;

pub(super) fn bare(call: Call<Bare>) -> nvmlReturn_t {
    // SAFETY: the function takes nothing; see the module.
    unsafe { (call.function)() }
}

pub(super) fn flags(call: Call<Flags>, flags: c_uint) -> nvmlReturn_t {
    // SAFETY: the function takes a number; see the module.
    unsafe { (call.function)(flags) }
}

pub(super) fn out<T>(call: Call<Out<T>>, value: &mut T) -> nvmlReturn_t {
    // SAFETY: `value` is exclusive and initialised; see the module.
    unsafe { (call.function)(value) }
}

pub(super) fn keyed_out<K, T>(call: Call<KeyedOut<K, T>>, key: K, value: &mut T) -> nvmlReturn_t {
    // SAFETY: `key` is a number or a handle of this library, `value` is exclusive and initialised;
    // see the module.
    unsafe { (call.function)(key, value) }
}

pub(super) fn two_keyed_out<D, K, T>(
    call: Call<TwoKeyedOut<D, K, T>>,
    first: D,
    second: K,
    value: &mut T,
) -> nvmlReturn_t {
    // SAFETY: keys are numbers or handles of this library, `value` is exclusive and initialised;
    // see the module.
    unsafe { (call.function)(first, second, value) }
}

/// Reads the values of fields.
pub(super) fn field_values<const N: usize>(
    call: Call<unsafe extern "C" fn(nvmlDevice_t, c_int, *mut nvmlFieldValue_t) -> nvmlReturn_t>,
    device: nvmlDevice_t,
    values: &mut [nvmlFieldValue_t; N],
) -> nvmlReturn_t {
    let count = c_int::try_from(N).unwrap_or(0);
    // SAFETY: `device` is a handle of this library; the list is exclusive, initialised and has `count` entries; see the module.
    unsafe { (call.function)(device, count, values.as_mut_ptr()) }
}

pub(super) fn device_set(
    call: Call<DeviceSet>,
    device: nvmlDevice_t,
    value: c_uint,
) -> nvmlReturn_t {
    // SAFETY: `device` is a handle of this library; see the module.
    unsafe { (call.function)(device, value) }
}

pub(super) fn device_out_pair<A, B>(
    call: Call<DeviceOutPair<A, B>>,
    device: nvmlDevice_t,
    first: &mut A,
    second: &mut B,
) -> nvmlReturn_t {
    // SAFETY: `device` is a handle of this library, both values are exclusive and initialised; see
    // the module.
    unsafe { (call.function)(device, first, second) }
}

pub(super) fn three_keyed_out<D, K, L, T>(
    call: Call<ThreeKeyedOut<D, K, L, T>>,
    first: D,
    second: K,
    third: L,
    value: &mut T,
) -> nvmlReturn_t {
    // SAFETY: `first` is a handle of this library, the other keys are numbers, `value` is exclusive
    // and initialised; see the module.
    unsafe { (call.function)(first, second, third, value) }
}

pub(super) fn device_out_four(
    call: Call<DeviceOutFour>,
    device: nvmlDevice_t,
    [first, second, third, fourth]: &mut [c_uint; 4],
) -> nvmlReturn_t {
    // SAFETY: `device` is a handle of this library, the four values are exclusive, distinct and
    // initialised; see the module.
    unsafe { (call.function)(device, first, second, third, fourth) }
}

/// Calls a function that only takes a key.
pub(super) fn keyed<K>(
    call: Call<unsafe extern "C" fn(K) -> nvmlReturn_t>,
    key: K,
) -> nvmlReturn_t {
    // SAFETY: `key` is a number or a handle of this library; see the module.
    unsafe { (call.function)(key) }
}

/// Calls a function that takes a device, a number and a handle.
pub(super) fn three_keyed<K, H>(
    call: Call<unsafe extern "C" fn(nvmlDevice_t, K, H) -> nvmlReturn_t>,
    device: nvmlDevice_t,
    key: K,
    handle: H,
) -> nvmlReturn_t {
    // SAFETY: `device` and `handle` are of this library, `key` is a number; see the module.
    unsafe { (call.function)(device, key, handle) }
}

/// Waits on an event set for at most `timeout` milliseconds.
pub(super) fn event_set_wait(
    call: Call<unsafe extern "C" fn(nvmlEventSet_t, *mut nvmlEventData_t, c_uint) -> nvmlReturn_t>,
    set: nvmlEventSet_t,
    data: &mut nvmlEventData_t,
    timeout: c_uint,
) -> nvmlReturn_t {
    // SAFETY: `set` is of this library and not freed before its owner is dropped, `data` is
    // exclusive and initialised; see the module.
    unsafe { (call.function)(set, data, timeout) }
}

/// Length that fits any list of NVML about MIG. A GPU has at most eight memory slices, so eight
/// placements and eight instances of a profile.
pub(super) const MAX_LISTED: usize = 64;

/// Reads a list; `count` is the number of entries in the buffer afterwards.
pub(super) fn list<D, T>(
    call: Call<List<D, T>>,
    first: D,
    second: c_uint,
    buffer: &mut [T; MAX_LISTED],
    count: &mut usize,
) -> nvmlReturn_t {
    let mut room = c_uint::try_from(MAX_LISTED).unwrap_or(c_uint::MAX);
    // SAFETY: `first` is a handle of this library, the buffer is exclusive and initialised, and has
    // room for more than NVML documents to write, whether it looks at `room` or not; see the
    // module.
    let code = unsafe { (call.function)(first, second, buffer.as_mut_ptr(), &raw mut room) };
    *count = MAX_LISTED.min(usize::try_from(room).unwrap_or(usize::MAX));
    code
}

/// Function that lists the processes of a device.
pub(super) type Processes =
    unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

/// Reads the processes of a device; `count` is their number, which may exceed the buffer.
pub(super) fn processes(
    call: Call<Processes>,
    device: nvmlDevice_t,
    buffer: &mut [nvmlProcessInfo_t],
    count: &mut usize,
) -> nvmlReturn_t {
    let mut room = c_uint::try_from(buffer.len()).unwrap_or(c_uint::MAX);
    // SAFETY: `device` is a handle of this library, the buffer is exclusive, initialised and as long as said;
    // see the module.
    let code = unsafe { (call.function)(device, &raw mut room, buffer.as_mut_ptr()) };
    *count = usize::try_from(room).unwrap_or(usize::MAX);
    code
}

/// Creates a GPU instance of a profile at a placement.
pub(super) fn create_placed(
    call: Call<
        unsafe extern "C" fn(
            nvmlDevice_t,
            c_uint,
            *const nvmlGpuInstancePlacement_t,
            *mut nvmlGpuInstance_t,
        ) -> nvmlReturn_t,
    >,
    device: nvmlDevice_t,
    profile: c_uint,
    placement: &nvmlGpuInstancePlacement_t,
    instance: &mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    // SAFETY: `device` is a handle of this library, `placement` is initialised and only read,
    // `instance` is exclusive and initialised; see the module.
    unsafe { (call.function)(device, profile, placement, instance) }
}

pub(super) fn text(call: Call<Text>, answer: &mut String) -> nvmlReturn_t {
    let mut buffer = [0; TEXT_LENGTH as usize];
    // SAFETY: the buffer is exclusive and as long as said; see the module.
    let code = unsafe { (call.function)(buffer.as_mut_ptr(), TEXT_LENGTH) };
    *answer = string(&buffer);
    code
}

pub(super) fn device_text(
    call: Call<DeviceText>,
    device: nvmlDevice_t,
    answer: &mut String,
) -> nvmlReturn_t {
    let mut buffer = [0; TEXT_LENGTH as usize];
    // SAFETY: `device` is a handle of this library, the buffer is exclusive and as long as said;
    // see the module.
    let code = unsafe { (call.function)(device, buffer.as_mut_ptr(), TEXT_LENGTH) };
    *answer = string(&buffer);
    code
}

/// A constant text of the library, as `nvmlErrorString` returns it.
pub(super) fn constant(
    call: Call<unsafe extern "C" fn(nvmlReturn_t) -> *const c_char>,
    code: nvmlReturn_t,
) -> Option<String> {
    // SAFETY: the function takes any number; see the module.
    let text = unsafe { (call.function)(code) };
    if text.is_null() {
        return None;
    }
    // SAFETY: NVML documents the answer as a constant, so it is terminated and stays.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// The text before the first NUL of a buffer.
pub(super) fn string(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer
        .iter()
        .map(|c| u8::from_ne_bytes(c.to_ne_bytes()))
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
