//! Requirements of the program of CDI hooks on the node that runs it: none but the kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may fail loudly")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use object::Endianness;
use object::elf;
use object::read::elf::{Dyn as _, ElfFile64, ProgramHeader as _};
use octavo_embedded::HOOK;

/// Largest size in bytes: each node has a copy, and each start of a container loads it.
const MAX_BYTES: usize = 2 << 20;

#[test]
fn it_needs_no_interpreter_and_no_library() {
    let file = ElfFile64::<Endianness>::parse(HOOK).expect("an ELF file");
    let endian = file.endian();
    for header in file.elf_program_headers() {
        assert_ne!(header.p_type(endian), elf::PT_INTERP, "it names a dynamic linker");
        for entry in header.dynamic(endian, HOOK).expect("readable").into_iter().flatten() {
            assert_ne!(entry.d_tag(endian), elf::DT_NEEDED, "it names a library");
        }
    }
}

#[test]
fn it_is_small_and_says_its_version_without_an_environment() {
    assert!(HOOK.len() < MAX_BYTES, "{} bytes", HOOK.len());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hook");
    fs::write(&path, HOOK).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(path).arg("--version").env_clear().output().unwrap();
    let expected = concat!("octavo-cdi-hook ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
