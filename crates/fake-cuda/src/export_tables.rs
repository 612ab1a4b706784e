//! Tables of functions that NVIDIA's own libraries take from the driver (`cuGetExportTable`). Its runtime library does not start
//! without some of them.
//!
//! NVIDIA documents none. Ids, lengths and meanings are those that the ZLUDA project has published (its crate `dark_api`). Where it
//! has no meaning for an entry, the entry is null, as there.
//!
//! The first entry of most tables is the size of the table in bytes.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::AtomicU32;

use crate::code::{Code, CuResult};
use crate::context::{self, Destructor};
use crate::execution::module;
use crate::library::{self, device};
use crate::pointers::{Out, TextIn};
use crate::table::Handle;

mod integrity;

/// A table.
#[repr(transparent)]
struct ExportTable<const LENGTH: usize>([*const (); LENGTH]);

// SAFETY: the addresses are those of functions, or numbers, and nothing changes them.
unsafe impl<const LENGTH: usize> Sync for ExportTable<LENGTH> {}

impl<const LENGTH: usize> ExportTable<LENGTH> {
    /// A table whose first entry is its size, with these entries.
    const fn sized(entries: &[(usize, *const ())]) -> Self {
        let mut table = Self::plain(entries);
        table.0[0] = std::ptr::without_provenance(LENGTH * size_of::<usize>());
        table
    }

    /// A table with these entries.
    const fn plain(entries: &[(usize, *const ())]) -> Self {
        let mut table = [std::ptr::null(); LENGTH];
        let mut next = 0;
        while next < entries.len() {
            table[entries[next].0] = entries[next].1;
            next += 1;
        }
        Self(table)
    }

    fn address(&'static self) -> usize {
        self.0.as_ptr().expose_provenance()
    }
}

/// What the runtime library needs: contexts and modules.
static RUNTIME: ExportTable<13> = ExportTable::sized(&[
    (1, load_module as *const ()),
    (2, retain_primary as *const ()),
    (6, load_module_with_options as *const ()),
    (7, nothing as *const ()),
    (8, load_module_of_header as *const ()),
    (12, load_compilers as *const ()),
]);

/// State of tools in threads.
static TOOLS_THREADS: ExportTable<4> = ExportTable::sized(&[]);

/// Where tools switch callbacks of the runtime library on.
static TOOLS_CALLBACKS: ExportTable<7> =
    ExportTable::sized(&[(2, callback_switches as *const ()), (6, domain_switches as *const ())]);

/// Values that libraries keep in contexts.
static CONTEXT_STORAGE: ExportTable<4> = ExportTable::plain(&[
    (0, put_in_context as *const ()),
    (1, remove_from_context as *const ()),
    (2, get_from_context as *const ()),
]);

/// Contexts by another way than the driver's exports.
static CONTEXT_CREATION: ExportTable<2> = ExportTable::sized(&[(1, create_context as *const ())]);

/// More attributes of GPUs.
static DEVICE_ATTRIBUTES: ExportTable<26> =
    ExportTable::sized(&[(5, unknown_attribute as *const ()), (13, unknown_property as *const ())]);

/// The check by which the runtime library recognises its driver.
static INTEGRITY: ExportTable<3> = ExportTable::sized(&[(1, check_integrity as *const ())]);

/// States of contexts.
static CONTEXT_CHECKS: ExportTable<4> =
    ExportTable::sized(&[(2, check_context as *const ()), (3, check_all as *const ())]);

/// Asked for by runtime libraries from 13.4 on. Its entries are not known.
static SINCE_13_4: ExportTable<16> = ExportTable::sized(&[]);

/// The address of the table with an id.
pub(crate) fn find(id: [u8; 16]) -> Option<usize> {
    Some(match u128::from_be_bytes(id) {
        0x6bd5_fb6c_5bf4_e74a_8987_d939_12fd_9df9 => RUNTIME.address(),
        0x42d8_5a81_23f6_cb47_8298_f6e7_8a3a_ecdc => TOOLS_THREADS.address(),
        0xa094_798c_2e74_2e74_93f2_0800_200c_0a66 => TOOLS_CALLBACKS.address(),
        0xc693_336e_1121_df11_a8c3_68f3_55d8_9593 => CONTEXT_STORAGE.address(),
        0x0ca5_0b8c_1004_929a_89a7_d0df_10e7_7286 => CONTEXT_CREATION.address(),
        0xb105_41e1_f7c7_c74a_9f64_f223_be99_f1e2 => DEVICE_ATTRIBUTES.address(),
        0xd408_2055_bde6_704b_8d34_ba12_3c66_e1f2 => INTEGRITY.address(),
        0x263e_8860_7cd2_6143_92f6_bbd5_006d_fa7e => CONTEXT_CHECKS.address(),
        0x2131_8c60_9714_3248_8ca6_41ff_7324_c8f2 => SINCE_13_4.address(),
        _ => return None,
    })
}

extern "C" fn load_module(handle: Out<Handle>, image: TextIn) -> CuResult {
    library::call("cuModuleLoadFatBinary", || {
        handle.check()?;
        handle.put(module::load(image)?)
    })
}

extern "C" fn load_module_with_options(
    handle: Out<Handle>,
    image: TextIn,
    _: usize,
    _: usize,
    _: c_uint,
) -> CuResult {
    load_module(handle, image)
}

extern "C" fn load_module_of_header(
    image: TextIn,
    handle: Out<Handle>,
    _: usize,
    _: usize,
    _: c_uint,
) -> CuResult {
    load_module(handle, image)
}

/// The runtime library has the primary context without [`cuDevicePrimaryCtxRetain`](crate::exports::device).
extern "C" fn retain_primary(context: Out<Handle>, ordinal: c_int) -> CuResult {
    library::call("cuDevicePrimaryCtxRetain", || {
        context.check()?;
        context.put(context::retain_primary(device(ordinal)?)?)
    })
}

extern "C" fn nothing(_: usize) {}

extern "C" fn load_compilers() -> CuResult {
    Code::of(Ok(()))
}

/// Tells where tools switch callbacks on: a word for each function of the library. None is on here.
fn put_switches(switches: &'static [AtomicU32], address: Out<usize>, length: Out<usize>) {
    address.offer(switches.as_ptr().expose_provenance());
    length.offer(switches.len());
}

extern "C" fn callback_switches(address: Out<usize>, length: Out<usize>) {
    static SWITCHES: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];
    put_switches(&SWITCHES, address, length);
}

extern "C" fn domain_switches(address: Out<usize>, length: Out<usize>) {
    static SWITCHES: [AtomicU32; 14] = [const { AtomicU32::new(0) }; 14];
    put_switches(&SWITCHES, address, length);
}

extern "C" fn put_in_context(
    context: Handle,
    key: usize,
    value: usize,
    destructor: Option<Destructor>,
) -> CuResult {
    library::call("cuGetExportTable", || context::store(context, key, (value, destructor)))
}

extern "C" fn remove_from_context(context: Handle, key: usize) -> CuResult {
    library::call("cuGetExportTable", || context::remove_stored(context, key))
}

extern "C" fn get_from_context(value: Out<usize>, context: Handle, key: usize) -> CuResult {
    library::call("cuGetExportTable", || value.put(context::stored(context, key)?))
}

extern "C" fn create_context(context: Out<Handle>, flags: c_uint, ordinal: c_int) -> CuResult {
    library::call("cuCtxCreate", || {
        context.check()?;
        let handle = context::create(device(ordinal)?, flags, false)?;
        context::push(handle)?;
        context.put(handle)
    })
}

extern "C" fn unknown_attribute(_: c_int, _: c_uint, _: c_int, _: Out<[usize; 2]>) -> CuResult {
    Code::of(Err(Code::NOT_SUPPORTED))
}

extern "C" fn unknown_property(_: Out<u8>, _: c_int) -> CuResult {
    Code::of(Err(Code::NOT_SUPPORTED))
}

extern "C" fn check_integrity(version: c_uint, seconds: u64, result: Out<[u8; 16]>) -> CuResult {
    library::bare_call("cuGetExportTable", || {
        let addresses =
            [RUNTIME.address(), INTEGRITY.address(), (check_integrity as *const ()).addr()];
        result.put(integrity::answer(version, seconds, addresses)?)
    })
}

extern "C" fn check_context(_: Handle, is_bad: Out<u32>, _: usize) -> CuResult {
    is_bad.offer(0);
    Code::of(Ok(()))
}

extern "C" fn check_all() -> c_uint {
    0
}
