//! Requirements of the shared object on the programs that load it: almost none.

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
use octavo_embedded::guard::{CUDA_HOOKS, LIBRARY, NAME, NVML_HOOKS, PRELOAD, PRELOAD_NAME};

/// Both shared objects, by name.
const BOTH: [(&str, &[u8]); 2] = [(NAME, LIBRARY), (PRELOAD_NAME, PRELOAD)];

fn parsed(bytes: &'static [u8]) -> ElfFile64<'static, Endianness> {
    ElfFile64::parse(bytes).expect("an ELF file")
}

/// Values of the dynamic section's entries with a tag.
fn dynamic(bytes: &'static [u8], tag: elf::DynamicTag) -> Vec<u64> {
    let file = parsed(bytes);
    let endian = file.endian();
    let mut values = Vec::new();
    for header in file.elf_program_headers() {
        for entry in header.dynamic(endian, bytes).expect("readable").into_iter().flatten() {
            if entry.d_tag(endian) == tag {
                values.push(entry.d_val(endian));
            }
        }
    }
    values
}

#[test]
fn it_needs_no_other_library_and_no_version_of_one() {
    for (name, bytes) in BOTH {
        assert!(dynamic(bytes, elf::DT_NEEDED).is_empty(), "{name}");
        assert!(dynamic(bytes, elf::DT_VERNEED).is_empty(), "{name}");
        assert!(dynamic(bytes, elf::DT_VERSYM).is_empty(), "{name}");
        assert_eq!(dynamic(bytes, elf::DT_SONAME).len(), 1, "{name}");
    }
    // Guards recognise one another by this part of their names.
    assert_eq!((NAME, PRELOAD_NAME), ("liboctavo_guard.so", "liboctavo_guard_preload.so"));
}

#[test]
fn nothing_runs_when_it_is_loaded() {
    for (name, bytes) in BOTH {
        for tag in [
            elf::DT_INIT,
            elf::DT_INIT_ARRAY,
            elf::DT_FINI,
            elf::DT_FINI_ARRAY,
            elf::DT_PREINIT_ARRAY,
        ] {
            assert!(dynamic(bytes, tag).is_empty(), "{name} {tag:?}");
        }
    }
}

#[test]
fn it_has_no_memory_of_threads_and_no_code_that_can_be_written() {
    for (name, bytes) in BOTH {
        let file = parsed(bytes);
        let endian = file.endian();
        for header in file.elf_program_headers() {
            let (kind, flags) = (header.p_type(endian), header.p_flags(endian));
            assert_ne!(kind, elf::PT_TLS, "{name}");
            assert_ne!(flags & (elf::PF_W | elf::PF_X), elf::PF_W | elf::PF_X, "{name}");
        }
    }
}

#[test]
fn it_asks_the_dynamic_linker_for_one_function_which_may_be_missing() {
    for (name, bytes) in BOTH {
        let undefined: Vec<_> = parsed(bytes)
            .dynamic_symbols()
            .filter(object::ObjectSymbol::is_undefined)
            .map(|symbol| (symbol.name().expect("a name").to_owned(), symbol.is_weak()))
            .collect();
        assert_eq!(undefined, [("dl_iterate_phdr".to_owned(), true)], "{name}");
    }
}

fn exported(bytes: &'static [u8]) -> BTreeSet<String> {
    parsed(bytes)
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .map(|symbol| symbol.name().expect("a name").to_owned())
        .collect()
}

#[test]
fn only_hooks_are_exported() {
    let mut expected = BTreeSet::from(["octavo_unknown_entry".to_owned()]);
    for name in CUDA_HOOKS.iter().chain(NVML_HOOKS) {
        let is_new = expected.insert(format!("octavo_hook_{name}"));
        assert!(is_new, "{name} is hooked twice");
    }
    // Names in the scope of a proxy's handle must not include names that the driver may lack.
    assert_eq!(exported(LIBRARY), expected);
    let plain = CUDA_HOOKS.iter().chain(NVML_HOOKS).chain(&["dlsym", "dlvsym"]);
    expected.extend(plain.map(|name| (*name).to_owned()));
    // An exported name replaces the program's own when preloaded.
    assert_eq!(exported(PRELOAD), expected);
}

#[test]
fn no_two_hooks_are_one_function() {
    for (name, bytes) in BOTH {
        let hooks: Vec<_> = parsed(bytes)
            .dynamic_symbols()
            .filter(|symbol| symbol.name().is_ok_and(|name| name.starts_with("octavo_hook_")))
            .map(|symbol| symbol.address())
            .collect();
        assert_eq!(hooks.len(), CUDA_HOOKS.len() + NVML_HOOKS.len(), "{name}");
        assert_eq!(hooks.iter().collect::<BTreeSet<_>>().len(), hooks.len(), "{name}");
    }
}

#[test]
fn it_is_small() {
    for (name, bytes) in BOTH {
        assert!(bytes.len() < 512 << 10, "{name}: {} bytes", bytes.len());
    }
}
