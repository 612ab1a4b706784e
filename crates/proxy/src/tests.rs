mod damage;
mod structure;

use std::collections::BTreeSet;
use std::path::Path;

use object::elf;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSymbol};

use crate::architecture::Architecture;
use crate::driver::{Driver, Export, ExportKind, Version};
use crate::image;
use crate::stubs::Stubs;
use crate::{Plan, Proxy, ProxyError, ReadCache, hooks_of, write, write_from};

const GUARD: &str = "/run/octavo/guard/liboctavo_guard.so";
const REAL: &str = "/run/octavo/real/libcuda.so.580.95.05";
const SONAME: &str = "libcuda.so.1";

/// Suspicious names of a driver without hooks.
fn is_suspicious(name: &[u8]) -> bool {
    name.windows(5).any(|part| part == b"Alloc")
}

fn plan<'a>(hooks: &'a BTreeSet<&'a str>) -> Plan<'a> {
    let (guard, real) = (Path::new(GUARD), Path::new(REAL));
    Plan { hooks, is_suspicious, soname: SONAME, guard, real }
}

/// The bytes of a driver's library that exports functions, each with the index of its version: a
/// library written by this crate.
fn library(machine: Architecture, functions: &[(&str, u16)], versions: &[(&str, u16)]) -> Vec<u8> {
    let mut exports: Vec<_> = functions
        .iter()
        .map(|(name, version)| Export {
            name: name.as_bytes(),
            version: *version,
            kind: ExportKind::Function,
        })
        .collect();
    exports.sort_unstable();
    let versions = versions.iter().map(|(name, index)| Version {
        name: name.as_bytes(),
        index: *index,
        flags: elf::VersionFlags(0),
    });
    let (soname, needed, versions) = (None, Vec::new(), versions.collect());
    let driver = Driver { machine, soname, needed, exports, versions };
    let hooks: BTreeSet<&str> = functions.iter().map(|(name, _)| *name).collect();
    let (guard, real) = (Path::new("/libm.so.6"), Path::new("/libc.so.6"));
    let plan = Plan { guard, real, ..plan(&hooks) };
    image::write(&driver, &Stubs::choose(&driver, &plan), &plan)
}

/// A driver with a few functions and no versions.
fn driver() -> Vec<u8> {
    let names = ["cuInit", "cuMemAlloc_v2", "cuMemAllocNew", "cuDeviceGetCount", "cuMemAllocOther"];
    library(Architecture::X86_64, &names.map(|name| (name, 1)), &[])
}

fn proxy(driver: &[u8], hooks: &[&str]) -> Result<Proxy, ProxyError> {
    let hooks = hooks.iter().copied().collect();
    let proxy = write(driver, &plan(&hooks));
    let file = ReadCache::new(std::io::Cursor::new(driver));
    assert_eq!(write_from(&file, &plan(&hooks)), proxy, "the same from a file");
    proxy
}

#[test]
fn the_same_driver_and_plan_give_the_same_bytes() {
    let hooks = ["cuInit", "cuMemAlloc_v2"];
    assert_eq!(proxy(&driver(), &hooks), proxy(&driver(), &hooks));
}

#[test]
fn names_are_hooked_missing_unknown_or_the_drivers_own() {
    let proxy = proxy(&driver(), &["cuMemAlloc_v2", "cuNotThere", "cuInit"]).unwrap();
    assert_eq!(proxy.hooked, ["cuInit", "cuMemAlloc_v2"]);
    assert_eq!(proxy.missing, ["cuNotThere"]);
    assert_eq!(proxy.unknown, ["cuMemAllocNew", "cuMemAllocOther"]);
}

#[test]
fn a_function_of_two_versions_is_hooked_in_both() {
    let functions = [("nvmlInit", 2), ("nvmlInit", 3 | 0x8000), ("nvmlShutdown", 2)];
    let driver = library(Architecture::X86_64, &functions, &[("NEW", 2), ("OLD", 3)]);
    let proxy = proxy(&driver, &["nvmlInit"]).unwrap();
    assert_eq!(proxy.hooked, ["nvmlInit"]);
    let read = Driver::read(proxy.bytes.as_slice()).unwrap();
    let versions: Vec<_> = read.exports.iter().map(|export| export.version).collect();
    assert_eq!(versions, [2, 0x8003]);
    // The version without hooks is defined, too: the dynamic linker checks it when programs start.
    let names: Vec<_> = read.versions.iter().map(|version| version.name).collect();
    assert_eq!(names, [SONAME.as_bytes(), b"NEW", b"OLD"]);
}

#[test]
fn what_debuggers_call_is_left_to_the_driver() {
    let names = ["cuDeviceGetCount", "cuInit", "cudbgApiInit", "cudbgReportDriverApiError"];
    let driver = library(Architecture::X86_64, &names.map(|name| (name, 1)), &[]);
    let proxy = proxy(&driver, &["cuInit"]).unwrap();
    let file = ElfFile64::<LittleEndian>::parse(proxy.bytes.as_slice()).unwrap();
    let linked = file.dynamic_symbols().filter(ObjectSymbol::is_definition);
    let names: Vec<_> = linked.map(|symbol| symbol.name().unwrap().to_owned()).collect();
    assert_eq!(names, ["cuDeviceGetCount", "cuInit"]);
}

#[test]
fn the_hooks_of_a_guard_are_its_exports_with_the_prefix() {
    let names =
        ["octavo_hook_cuInit", "octavo_hook_nvmlInit_v2", "octavo_unknown_entry", "hook_cu"];
    let guard = library(Architecture::X86_64, &names.map(|name| (name, 1)), &[]);
    assert_eq!(hooks_of(&guard).unwrap(), BTreeSet::from(["cuInit", "nvmlInit_v2"]));
    assert_eq!(hooks_of(b"no library"), Err(ProxyError::NotElf));
}
