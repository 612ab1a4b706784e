//! Libraries that the process has loaded, and what they export.
//!
//! The guard asks the dynamic linker for the list of libraries and reads their symbol tables itself: asking
//! `dlsym` would ask whoever stands in for it, the guard included.

mod image;
mod loaded;

pub(crate) use image::{Image, Segment, Symbol};
pub(crate) use loaded::{each, is_listed, library_at};

/// The address of a function in one of the C library's parts; zero if there is none.
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

/// Whether a file is (a part of) the C library: glibc's, which was in several files before 2.34, or musl's.
fn is_c_library(file: &[u8]) -> bool {
    [&b"libc.so"[..], b"libc-2.", b"libpthread", b"libdl", b"ld-musl-", b"libc.musl-"]
        .iter()
        .any(|start| file.starts_with(start))
}

#[cfg(test)]
mod tests;
