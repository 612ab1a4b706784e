//! Initialisation, versions, errors and function lookup.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::code::Code;
use crate::export_tables;
use crate::library;
use crate::names::{self, Found};
use crate::pointers::{In, Out, TextIn};

calls! { BARE = bare_call;
    fn cuInit(flags: c_uint) { library::init(flags) }

    /// Needs a machine, but no initialisation.
    fn cuDriverGetVersion(version: Out<c_int>) {
        version.check()?;
        version.put(library::version()?)
    }

    fn cuGetErrorName(error: u32, text: Out<*const c_char>) {
        let named = Code::named(error);
        text.put(named.map_or(std::ptr::null(), |(name, _)| name.as_ptr()))?;
        named.map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetErrorString(error: u32, text: Out<*const c_char>) {
        let words: Option<&CStr> = Code::named(error).map(|(_, words)| words);
        text.put(words.map_or(std::ptr::null(), CStr::as_ptr))?;
        words.map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetExportTable(table: Out<usize>, id: In<[u8; 16]>) {
        let found = export_tables::find(id.read()?);
        table.put(found.unwrap_or(0))?;
        found.map(drop).ok_or(Code::NOT_FOUND)
    }

    fn cuGetProcAddress(symbol: TextIn, function: Out<usize>, version: c_int, flags: u64) {
        function.check()?;
        let (address, found) = names::find(symbol.read()?, version, flags)?;
        function.put(address)?;
        if found == Found::Yes { Ok(()) } else { Err(Code::NOT_FOUND) }
    }

    fn cuGetProcAddress_v2(
        symbol: TextIn,
        function: Out<usize>,
        version: c_int,
        flags: u64,
        status: Out<u32>,
    ) {
        function.check()?;
        let (address, found) = names::find(symbol.read()?, version, flags)?;
        function.put(address)?;
        status.offer(found as u32);
        if found == Found::Yes { Ok(()) } else { Err(Code::NOT_FOUND) }
    }
}

calls! { CALLS = call;
    fn cuProfilerStart() { Ok(()) }
    fn cuProfilerStop() { Ok(()) }
}
