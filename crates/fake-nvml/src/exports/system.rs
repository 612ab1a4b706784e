//! Versions.

use std::ffi::{c_int, c_uint};

use crate::code::{CallResult, Code};
use crate::pointers::{Out, TextOut};
use crate::session::Session;

machine_calls! {
    fn nvmlSystemGetDriverVersion(session, version: TextOut, length: c_uint) {
        version.put_whole(length, &session.machine().driver.version)
    }

    fn nvmlSystemGetNVMLVersion(session, version: TextOut, length: c_uint) {
        version.put_whole(length, &session.machine().driver.nvml)
    }

    fn nvmlSystemGetCudaDriverVersion(session, version: Out<c_int>) {
        cuda_version(session, version)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(session, version: Out<c_int>) {
        cuda_version(session, version)
    }
}

/// 13.0 is reported as 13000, 12.8 as 12080.
fn cuda_version(session: &Session, version: Out<c_int>) -> CallResult {
    let (major, minor) = two_numbers(&session.machine().driver.cuda)?;
    version.put(major * 1000 + minor * 10)
}

/// `9.0` as two numbers.
pub(super) fn two_numbers(text: &str) -> Result<(c_int, c_int), Code> {
    let (major, minor) = text.split_once('.').ok_or(Code::UNKNOWN)?;
    let number = |text: &str| text.parse::<u16>().map(c_int::from).map_err(|_| Code::UNKNOWN);
    Ok((number(major)?, number(minor)?))
}
