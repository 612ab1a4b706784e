//! Loaded libraries and their exports.
//!
//! The guard gets the list of libraries from the dynamic linker and reads their symbol tables
//! itself. `dlsym` could be interposed, by the guard itself among others.

mod image;
mod loaded;

pub(crate) use image::{Image, Segment, Symbol};
pub(crate) use loaded::{each, is_listed, library_at};

/// Address of a function in any part of the C library; 0 if there is none.
pub(crate) fn c_library(name: &[u8]) -> usize {
    let mut address = 0;
    each(|library| {
        if address == 0 && is_c_library(library.base_name()) {
            address = library.image.function(name).unwrap_or(0);
        }
        address == 0
    });
    address
}

/// Whether a file is (a part of) the C library: musl, or glibc, which had several files before
/// 2.34.
fn is_c_library(file: &[u8]) -> bool {
    [&b"libc.so"[..], b"libc-2.", b"libpthread", b"libdl", b"ld-musl-", b"libc.musl-"]
        .iter()
        .any(|start| file.starts_with(start))
}

#[cfg(test)]
mod tests;
