//! Invalid files.

use proptest::prelude::*;

use super::*;

/// Offsets of header fields that the tests change.
const CLASS: usize = 4;
const ORDER: usize = 5;
const TYPE: usize = 16;
const MACHINE: usize = 18;

fn refused(driver: &[u8]) -> ProxyError {
    proxy(driver, &["cuInit"]).unwrap_err()
}

fn changed(place: usize, byte: u8) -> Vec<u8> {
    let mut driver = driver();
    driver[place] = byte;
    driver
}

#[test]
fn what_is_no_elf_file_is_refused() {
    for bytes in [&b""[..], b"\x7fEL", b"GROUP ( libcuda.so.1 )", b"MZ\0\0\0\0", &[0; 4096]] {
        assert_eq!(refused(bytes), ProxyError::NotElf);
    }
}

#[test]
fn a_library_of_another_processor_is_refused() {
    for (place, byte, found) in [
        (CLASS, 1, "32 bits"),
        (ORDER, 2, "big-endian"),
        (MACHINE, 3, "machine 3 of ELF"),
        (MACHINE, 243, "machine 243 of ELF"),
    ] {
        let found = found.to_owned();
        assert_eq!(refused(&changed(place, byte)), ProxyError::Foreign { found });
    }
}

#[test]
fn what_is_not_loaded_by_programs_is_refused() {
    for (kind, found) in
        [(1, "an object file"), (2, "a program"), (4, "neither program nor library")]
    {
        assert_eq!(refused(&changed(TYPE, kind)), ProxyError::NotShared { found });
    }
    // The type of the program header of the dynamic section.
    let bytes = changed(64 + 3 * 56, 0);
    assert_eq!(refused(&bytes), ProxyError::NotShared { found: "statically linked" });
}

#[test]
fn a_library_that_is_cut_short_is_refused_wherever_it_is_cut() {
    let whole = driver();
    // Only linkers and human readers use the remainder.
    let loaded = 0x3000;
    for size in 0..loaded {
        match refused(&whole[..size]) {
            ProxyError::NotElf => assert!(size < 4, "{size} bytes"),
            ProxyError::Damaged { .. } => {}
            other => panic!("{size} bytes: {other}"),
        }
    }
    assert!(proxy(&whole[..loaded], &["cuInit"]).is_ok());
}

#[test]
fn another_library_is_refused() {
    let hooks = BTreeSet::from(["cuInit"]);
    let plan = Plan { soname: "libnvidia-ml.so.1", ..plan(&hooks) };
    let (found, expected) = (SONAME.to_owned(), "libnvidia-ml.so.1".to_owned());
    assert_eq!(write(&driver(), &plan), Err(ProxyError::OtherLibrary { found, expected }));
}

#[test]
fn a_library_without_any_hook_is_refused() {
    let refused = proxy(&driver(), &["cuNotThere"]);
    assert_eq!(refused, Err(ProxyError::NothingToHook { exports: 5 }));
    assert_eq!(proxy(&driver(), &[]), Err(ProxyError::NothingToHook { exports: 5 }));
}

#[test]
fn a_proxy_is_refused() {
    let first = proxy(&driver(), &["cuInit"]).unwrap();
    assert_eq!(refused(&first.bytes), ProxyError::IsProxy);
}

#[test]
fn paths_that_the_dynamic_linker_would_search_for_are_refused() {
    let hooks = BTreeSet::from(["cuInit"]);
    for path in ["", "libcuda.so.1", "real/libcuda.so", "/real/\0libcuda.so"] {
        let path = Path::new(path);
        let expected = Err(ProxyError::Path { path: path.to_path_buf() });
        assert_eq!(write(&driver(), &Plan { real: path, ..plan(&hooks) }), expected);
        assert_eq!(write(&driver(), &Plan { guard: path, ..plan(&hooks) }), expected);
    }
}

#[test]
fn a_library_with_more_names_than_any_driver_is_refused() {
    let names: Vec<String> = (0..40_000).map(|number| format!("cu{number}")).collect();
    let functions: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let driver = library(Architecture::X86_64, &functions, &[]);
    let refused = proxy(&driver, &["cu1"]);
    assert!(matches!(refused, Err(ProxyError::TooMany { limit: 32_768 })), "{refused:?}");
}

#[test]
fn a_name_longer_than_those_of_functions_is_left_to_the_driver() {
    let u64_le = "cu".repeat(300);
    let driver = library(Architecture::X86_64, &[("cuInit", 1), (&u64_le, 1)], &[]);
    let proxy = proxy(&driver, &["cuInit", &u64_le]).unwrap();
    assert_eq!((proxy.hooked, proxy.missing), (vec!["cuInit".to_owned()], vec![u64_le]));
}

#[test]
fn a_version_that_is_not_defined_is_refused() {
    let driver = library(Architecture::X86_64, &[("cuInit", 5)], &[("NEW", 2)]);
    let what = "a name has a version that is not defined";
    assert_eq!(refused(&driver), ProxyError::Damaged { what });
}

#[test]
fn a_library_of_a_terabyte_is_read_in_parts() {
    const TERABYTE: u64 = 1 << 40;
    // A sparse file, in which a segment claims to be all of it.
    let sparse = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = driver();
        change(&mut bytes);
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        file.set_len(TERABYTE).unwrap();
        let hooks = ["cuInit"].into();
        write_from(&ReadCache::new(file), &plan(&hooks)).map(|proxy| proxy.hooked)
    };
    let size_of_segment = |index: usize| 64 + index * 56 + 32;
    for index in [0, 3] {
        let hooked = sparse(&|bytes| {
            bytes[size_of_segment(index)..][..8]
                .copy_from_slice(&(TERABYTE - (1 << 20)).to_le_bytes());
        });
        assert_eq!(hooked, Ok(vec!["cuInit".to_owned()]), "segment {index}");
    }
    let what = "it has too many program headers";
    let headers = sparse(&|bytes| bytes[56..58].copy_from_slice(&u16::MAX.to_le_bytes()));
    assert_eq!(headers, Err(ProxyError::Damaged { what }));
}

#[test]
fn errors_say_what_to_do() {
    let path = "libcuda.so.1".into();
    let (found, expected) = ("libcuda.so.1".to_owned(), "libnvidia-ml.so.1".to_owned());
    for error in [
        ProxyError::NotElf,
        ProxyError::Foreign { found: "32 bits".to_owned() },
        ProxyError::NotShared { found: "a program" },
        ProxyError::Damaged { what: "a name does not end" },
        ProxyError::TooMany { limit: 7 },
        ProxyError::IsProxy,
        ProxyError::OtherLibrary { found, expected },
        ProxyError::NothingToHook { exports: 7 },
        ProxyError::Path { path },
    ] {
        let text = error.to_string();
        let advice = ["give the", "check that", "install the"];
        assert!(advice.iter().any(|advice| text.contains(advice)), "{text}");
    }
}

/// Maximum size of a proxy for a file of this size: a symbol of 24 bytes may have a name of 512
/// bytes that overlaps with others.
fn bound(driver: usize) -> usize {
    driver * 64 + (1 << 20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_damage_makes_it_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        arm in any::<bool>(),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let machine = if arm { Architecture::Aarch64 } else { Architecture::X86_64 };
        let functions = [("cuInit", 2), ("cuMemAllocNew", 2), ("cuMemAllocNew", 0x8003), ("cuOther", 1)];
        let mut driver = library(machine, &functions, &[("NEW", 2), ("OLD", 3)]);
        // Relevant bytes are at the beginning and in the dynamic section.
        let page = machine.page();
        let offsets: Vec<usize> = (0..0x400).chain(2 * page..2 * page + 0x180).collect();
        for (place, byte) in damage {
            driver[*place.get(&offsets)] = byte;
        }
        if let Some(cut) = cut {
            driver.truncate(cut.index(driver.len()));
        }
        if let Ok(proxy) = proxy(&driver, &["cuInit", "cuMemAlloc_v2"]) {
            prop_assert!(proxy.bytes.len() <= bound(driver.len()));
            prop_assert!(Driver::read(proxy.bytes.as_slice()).is_ok());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600), is_elf: bool) {
        if is_elf && bytes.len() > 64 {
            bytes[..64].copy_from_slice(&driver()[..64]);
        }
        let _ = proxy(&bytes, &["cuInit"]);
    }
}
