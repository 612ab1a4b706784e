//! C programs that look the driver up in every way, with a proxy in its place.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail loudly where a program cannot be built"
)]

mod programs {
    pub(crate) mod fixture;
}

use programs::fixture::{Fixture, linkers};

const LINKED: &str = "init 103\nalloc 100 77\ncount 42\ntwice 5 5\ndefault 104 same\ndefault 42\n";

const OPENED: &str = "init 103\nalloc 100 77\ncount 42\nversion 13050\nmissing none\nnonsense none\n\
                      closed stays\n";

#[test]
fn a_proxy_says_what_is_in_it() {
    let fixture = Fixture::cuda();
    assert_eq!(fixture.proxy.hooked, ["cuInit", "cuMemAlloc_v2"]);
    assert_eq!(fixture.proxy.missing, ["cuNotThereYet"]);
    let unknown = ["cuLaunchTwice", "cuLaunchVarious", "cuMemAllocEverywhere", "cuMemAllocLarge"];
    assert_eq!(fixture.proxy.unknown, unknown);
}

#[test]
fn a_program_that_is_linked_to_the_driver_meets_the_guard() {
    for fixture in Fixture::of_each_c_library() {
        let program = fixture.linked("linked.c", "link", &[]);
        assert_eq!(fixture.run(&program, &[]), LINKED);
        // The proxy makes the difference.
        assert!(fixture.run_bare(&program, &[]).starts_with("init 3\nalloc 0 77\n"));
    }
}

#[test]
fn a_program_without_position_independence_meets_the_guard() {
    let fixture = Fixture::cuda();
    // It has a copy of the driver's variable and its own address of each function.
    let program = fixture.linked("linked.c", "link", &["-no-pie", "-fno-pic", "-DWITH_DATA"]);
    assert_eq!(fixture.run(&program, &[]), format!("{LINKED}version 13050\n"));
}

#[test]
fn a_program_can_be_linked_to_the_proxy_itself_by_any_linker() {
    let fixture = Fixture::cuda();
    let linkers = linkers();
    assert!(!linkers.is_empty(), "`cc` finds no linker");
    for linker in &linkers {
        let flags: Vec<&str> = linker.split(' ').collect();
        for kind in [&["-pie", "-fPIE"][..], &["-no-pie", "-fno-pic"]] {
            let program = fixture.linked("linked.c", "proxy", &[&flags, kind].concat());
            assert_eq!(fixture.run(&program, &[]), LINKED, "{linker} {kind:?}");
        }
        let shared = [&flags[..], &["-shared", "-fPIC", "-Wl,-z,defs"]].concat();
        let plugin = fixture.linked("plugin.c", "proxy", &shared);
        let plugged = fixture.program("plugged.c");
        let plugin = plugin.to_str().unwrap();
        assert_eq!(fixture.run(&plugged, &[plugin, "deep"]), "plugin 103042\n", "{linker}");
    }
}

#[test]
fn what_is_looked_up_by_the_handle_is_the_guards_or_the_drivers() {
    for fixture in Fixture::of_each_c_library() {
        let program = fixture.program("opened.c");
        assert_eq!(fixture.run(&program, &[]), OPENED);
    }
}

#[test]
fn a_namespace_of_its_own_does_not_lead_past_the_guard() {
    let fixture = Fixture::cuda();
    let program = fixture.program("opened.c");
    assert_eq!(fixture.run(&program, &["apart"]), OPENED);
}

#[test]
fn a_plugin_that_prefers_its_own_libraries_meets_the_guard() {
    let fixture = Fixture::cuda();
    let plugin = fixture.linked("plugin.c", "link", &["-shared", "-fPIC"]);
    let program = fixture.program("plugged.c");
    for how in ["deep", "apart"] {
        let printed = fixture.run(&program, &[plugin.to_str().unwrap(), how]);
        assert_eq!(printed, "plugin 103042\n", "{how}");
    }
}

#[test]
fn versions_of_names_stay() {
    let map = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/versions.map");
    let script = format!("-Wl,--version-script={map}");
    // Like NVML: the library's name is the version.
    let default = "-Wl,--default-symver";
    let fixture = Fixture::with(
        "libnvidia-ml.so.1",
        "versions.c",
        &[&script, default],
        "versioned_guard.c",
        &[],
        &["nvmlInit_v2", "nvmlMemory"],
    );
    let expected = "linked 101 2 104 104\nlibnvidia-ml.so.1 101\nOLD_1 104\n\
                    libnvidia-ml.so.1 2\nOLD_1 none\nplain 104\n";
    for folder in ["link", "proxy"] {
        let program = fixture.linked("versioned.c", folder, &[]);
        // The dynamic linker would report a library without the versions on standard error.
        assert_eq!(fixture.run(&program, &[]), expected, "linked to {folder}");
        assert!(fixture.run_bare(&program, &[]).starts_with("linked 1 2 4 3\n"));
    }
    assert_eq!(fixture.proxy.hooked, ["nvmlInit_v2", "nvmlMemory"]);
}

#[test]
fn an_unknown_function_gets_its_arguments_as_they_were() {
    for fixture in Fixture::of_each_c_library() {
        let program = fixture.program("unknown.c");
        let forwarded = fixture.run(&program, &[]);
        let bare = fixture.run_bare(&program, &[]);
        let (results, output) = forwarded.split_once("told").unwrap();
        assert_eq!(results, bare.split_once("told").unwrap().0);
        assert!(results.ends_with("large 3 24\ntwice 5\n"), "{results}");
        assert_eq!(output, " 5\n", "the guard hears of each call");
    }
}

#[test]
fn an_unknown_function_can_be_refused() {
    let fixture = Fixture::cuda();
    let program = fixture.linked("refused.c", "link", &[]);
    let refused = fixture.run_with(&program, &[], &[("GUARD_REFUSES", "1")]);
    assert_eq!(refused, "everywhere 801\ntwice 801\n");
    assert!(fixture.run(&program, &[]).ends_with("twice 5\n"));
}

#[test]
fn a_guard_without_one_of_the_hooks_lets_nothing_past() {
    let hooks = programs::fixture::HOOKS;
    let without = ["-DWITHOUT_ALLOC"];
    let fixture = Fixture::with("libcuda.so.1", "driver.c", &[], "guard.c", &without, &hooks);
    for program in [fixture.program("opened.c"), fixture.linked("linked.c", "link", &[])] {
        let output = fixture.fails(&program);
        assert!(output.contains("undefined symbol: octavo_hook_cuMemAlloc_v2"), "{output}");
        assert!(!output.contains("init"), "{output}");
    }
}

#[test]
fn without_guard_or_driver_the_proxy_does_not_load() {
    for file in ["guard.so", "real/libcuda.so.1.1"] {
        let fixture = Fixture::cuda();
        let program = fixture.program("opened.c");
        std::fs::remove_file(fixture.at(file)).unwrap();
        let output = fixture.fails(&program);
        assert!(
            output.contains(file) && output.contains("cannot open shared object file"),
            "{output}"
        );
    }
}

#[test]
fn slots_are_read_only_after_binding() {
    let fixture = Fixture::cuda();
    let program = fixture.program("maps.c");
    // Tables, code, dynamic section and slots, records.
    assert_eq!(fixture.run(&program, &[]), "r--p\nr-xp\nr--p\nrw-p\n");
}

#[test]
fn a_proxy_of_a_proxy_is_refused() {
    let fixture = Fixture::cuda();
    assert_eq!(fixture.proxy_of_proxy(), Err(octavo_proxy::ProxyError::IsProxy));
}
