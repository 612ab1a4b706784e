//! What the shared object asks of the programs that load it: next to nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests may fail loudly, and some print figures"
)]

use std::collections::BTreeSet;

use object::elf;
use object::read::elf::{Dyn as _, ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};
use octavo_guard_library::{CUDA_HOOKS, LIBRARY, NAME, NVML_HOOKS};

fn library() -> ElfFile64<'static, Endianness> {
    ElfFile64::parse(LIBRARY).expect("an ELF file")
}

/// Values of the dynamic section's entries of a kind.
fn dynamic(tag: elf::DynamicTag) -> Vec<u64> {
    let file = library();
    let endian = file.endian();
    let mut values = Vec::new();
    for header in file.elf_program_headers() {
        for entry in header.dynamic(endian, LIBRARY).expect("readable").into_iter().flatten() {
            if entry.d_tag(endian) == tag {
                values.push(entry.d_val(endian));
            }
        }
    }
    values
}

#[test]
fn it_needs_no_other_library_and_no_version_of_one() {
    assert!(dynamic(elf::DT_NEEDED).is_empty());
    assert!(dynamic(elf::DT_VERNEED).is_empty());
    assert!(dynamic(elf::DT_VERSYM).is_empty());
    assert_eq!(dynamic(elf::DT_SONAME).len(), 1);
    assert_eq!(NAME, "liboctavo_guard.so");
}

#[test]
fn nothing_runs_when_it_is_loaded() {
    for tag in
        [elf::DT_INIT, elf::DT_INIT_ARRAY, elf::DT_FINI, elf::DT_FINI_ARRAY, elf::DT_PREINIT_ARRAY]
    {
        assert!(dynamic(tag).is_empty(), "{tag:?}");
    }
}

#[test]
fn it_has_no_memory_of_threads_and_no_code_that_can_be_written() {
    let file = library();
    let endian = file.endian();
    for header in file.elf_program_headers() {
        let (kind, flags) = (header.p_type(endian), header.p_flags(endian));
        assert_ne!(kind, elf::PT_TLS);
        assert_ne!(flags & (elf::PF_W | elf::PF_X), elf::PF_W | elf::PF_X);
    }
}

#[test]
fn it_asks_the_dynamic_linker_for_one_function_which_may_be_missing() {
    let undefined: Vec<_> = library()
        .dynamic_symbols()
        .filter(object::ObjectSymbol::is_undefined)
        .map(|symbol| (symbol.name().expect("a name").to_owned(), symbol.is_weak()))
        .collect();
    assert_eq!(undefined, [("dl_iterate_phdr".to_owned(), true)]);
}

#[test]
fn every_hook_is_there_for_proxies_and_for_preloading() {
    let file = library();
    let exported: BTreeSet<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .map(|symbol| symbol.name().expect("a name"))
        .collect();
    let mut expected: BTreeSet<String> =
        ["dlsym", "dlvsym", "octavo_unknown_entry"].map(str::to_owned).into();
    for name in CUDA_HOOKS.iter().chain(NVML_HOOKS) {
        assert!(expected.insert((*name).to_owned()), "{name} is hooked twice");
        expected.insert(format!("octavo_hook_{name}"));
    }
    // Nothing else: what is exported replaces the program's own when preloaded.
    assert_eq!(exported, expected.iter().map(String::as_str).collect());
}

#[test]
fn no_two_hooks_are_one_function() {
    let file = library();
    let hooks: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.name().is_ok_and(|name| name.starts_with("octavo_hook_")))
        .map(|symbol| symbol.address())
        .collect();
    assert_eq!(hooks.len(), CUDA_HOOKS.len() + NVML_HOOKS.len());
    assert_eq!(hooks.iter().collect::<BTreeSet<_>>().len(), hooks.len());
}

#[test]
fn it_is_small() {
    assert!(LIBRARY.len() < 512 << 10, "{} bytes", LIBRARY.len());
}
