//! Enforcement for every way to look driver functions up.

use octavo_guard_abi::limits::{STRICT, ShareGate, Terms};

use crate::built::built;
use crate::container::{Container, GIB, Interposition, terms};

/// Allocates 3 of 8 GiB and requests 6 more.
fn is_limited(interposition: Interposition, mode: &str) {
    let container = Container::of(8 * GIB);
    let mut program = container.start(interposition, mode);
    assert_eq!(program.say("init"), "0", "{interposition:?} {mode}");
    assert_eq!(program.say("retain 0"), "0", "{interposition:?} {mode}");
    assert_eq!(program.allocate(3 * GIB), 0, "{interposition:?} {mode}");
    assert_eq!(program.allocate(6 * GIB), 2, "{interposition:?} {mode}");
    assert_eq!(program.say("total 0"), format!("0 {}", 8 * GIB), "{interposition:?} {mode}");
    assert_eq!(program.say("launch"), "0", "{interposition:?} {mode}");
}

#[test]
fn the_same_program_without_a_guard_has_the_whole_gpu() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::None);
    assert_eq!(program.allocate(3 * GIB), 0);
    assert_eq!(program.allocate(6 * GIB), 0);
}

#[test]
fn a_linked_program_is_limited() {
    is_limited(Interposition::Proxy, "linked");
    is_limited(Interposition::Preload, "linked");
}

#[test]
fn a_program_that_uses_dlsym_is_limited() {
    for mode in ["dlsym", "versioned", "default"] {
        is_limited(Interposition::Proxy, mode);
        is_limited(Interposition::Preload, mode);
    }
}

#[test]
fn a_program_that_uses_cu_get_proc_address_is_limited() {
    is_limited(Interposition::Proxy, "proc");
    is_limited(Interposition::Preload, "proc");
}

#[test]
fn a_program_that_walks_the_symbol_table_is_limited() {
    is_limited(Interposition::Proxy, "walk");
    is_limited(Interposition::Preload, "walk");
}

#[test]
fn a_dlmopen_namespace_is_limited() {
    is_limited(Interposition::Proxy, "own");
    is_limited(Interposition::Preload, "own");
}

#[test]
fn a_deepbind_plugin_is_limited() {
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(interposition);
        let plugin = built().plugin.display();
        assert_eq!(program.say(&format!("plugin {plugin} {}", 9 * GIB)), "2", "{interposition:?}");
        assert_eq!(program.say(&format!("plugin {plugin} {GIB}")), "0", "{interposition:?}");
    }
}

#[test]
fn a_preloaded_guard_leaves_next_to_the_linker() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Interposition::Preload, "dlsym");
    // The guard follows the program in the search order, and has a function of that name.
    assert_eq!(program.say("next"), "0 found");
    let mut program = container.start(Interposition::None, "dlsym");
    assert_eq!(program.say("next"), "0 nothing");
}

#[test]
fn a_name_that_the_driver_lacks_is_not_found_in_the_proxy() {
    let container = Container::of(8 * GIB);
    for (interposition, mode) in [
        (Interposition::Proxy, "dlsym"),
        (Interposition::Proxy, "default"),
        (Interposition::None, "default"),
    ] {
        let mut program = container.start(interposition, mode);
        let is_global = u32::from(mode == "default");
        assert_eq!(
            program.say("has cuMemAlloc_v2"),
            format!("1 {is_global}"),
            "{interposition:?} {mode}"
        );
        // Hooks that this driver does not need.
        for name in ["cuMemCreate", "cuMulticastBindMem_v2", "nvmlDeviceGetMemoryInfo"] {
            assert_eq!(
                program.say(&format!("has {name}")),
                "0 0",
                "{interposition:?} {mode} {name}"
            );
        }
    }
}

#[test]
fn proxy_and_preload_together_count_once() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Interposition::Both, "dlsym");
    assert_eq!(program.say("init"), "0");
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(3 * GIB), 0);
    assert_eq!(container.used("one"), 3 * GIB + (256 << 20));
}

#[test]
fn two_guards_from_two_files_count_once() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Interposition::Twice, "dlsym");
    assert_eq!(program.say("init"), "0");
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(3 * GIB), 0);
    assert_eq!(program.allocate(6 * GIB), 2);
    assert_eq!(container.used("one"), 3 * GIB + (256 << 20));
}

#[test]
fn a_name_means_what_it_means_to_the_driver() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    // The runtime library's first request has an empty name and version 0.
    assert_eq!(program.say("ask 0 0 "), "0 0 null");
    assert_eq!(program.say("ask 12000 0 cuMemAlloc"), "0 0 octavo_hook_cuMemAlloc_v2");
    assert_eq!(program.say("ask 2000 0 cuMemAlloc"), "500 1 null");
    // Functions with the per-thread default stream stay distinct.
    assert_eq!(program.say("ask 12000 0 cuLaunchKernel"), "0 0 octavo_hook_cuLaunchKernel");
    assert_eq!(program.say("ask 12000 2 cuLaunchKernel"), "0 0 octavo_hook_cuLaunchKernel_ptsz");
    assert_eq!(program.say("ask 12000 0 cuGetProcAddress"), "0 0 octavo_hook_cuGetProcAddress_v2");
    assert_eq!(program.say("ask 11030 0 cuGetProcAddress"), "0 0 octavo_hook_cuGetProcAddress");
    assert_eq!(program.say("ask 12000 0 cuDeviceGet"), "0 0 other");
}

#[test]
fn an_address_that_is_no_exports_is_known_by_its_name() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("ask 12000 0 cuMemAllocManaged"), "0 0 octavo_hook_cuMemAllocManaged");
}

#[test]
fn a_newer_version_of_a_hooked_function_is_no_hooks() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("ask 13050 0 cuMemAlloc"), "0 0 octavo_hook_cuMemAlloc_v2");
    assert_eq!(program.say("ask 14000 0 cuMemAlloc"), "0 0 other");
    // The driver returns an address that it does not export, with unknown arguments.
    assert_eq!(program.say("ask 14000 0 cuMemAllocManaged"), "0 0 other");
    assert_eq!(container.slots("one")[0].unknown, 0, "nothing was called");

    let container = Container::empty();
    container.share("one", &Terms { flags: STRICT, ..terms(0, 8 * GIB) });
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("ask 14000 0 cuMemAlloc"), "500 1 null");
    assert_eq!(program.say("ask 14000 0 cuMemAllocManaged"), "500 1 null");
    assert_eq!(program.say("ask 13050 0 cuMemAlloc"), "0 0 octavo_hook_cuMemAlloc_v2");
    assert_eq!(container.slots("one")[0].unknown, 0, "nothing was called");
}

#[test]
fn unknown_functions_are_counted_and_keep_their_arguments() {
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(interposition);
        assert_eq!(program.say("novel"), "0 7654321 402");
        assert_eq!(program.say("ask 13000 0 cuMemNovelAlloc"), "0 0 other");
        let slot = container.slots("one")[0];
        assert_eq!((slot.unknown, slot.launches), (2, 1), "{interposition:?}");
    }
}

#[test]
fn unknown_functions_that_are_looked_up_count_when_they_are_called() {
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(interposition);
        let counts = || {
            let slot = container.slots("one")[0];
            (slot.unknown, slot.launches)
        };
        for _ in 0..100 {
            assert_eq!(program.say("ask 13000 0 cuLaunchNovelKernel"), "0 0 other");
        }
        assert_eq!(counts(), (0, 0));
        for calls in 1..=3 {
            assert_eq!(program.say("novel-by-name"), "0 7654321 402");
            assert_eq!(counts(), (2 * calls, calls));
        }
    }
}

#[test]
fn unknown_functions_fail_in_a_fenced_share() {
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(interposition);
        for command in ["novel", "novel-by-name"] {
            container.set_gate("one", ShareGate::Fenced, 1);
            assert_eq!(program.say(command), "0 801 801");
            container.set_gate("one", ShareGate::Open, 2);
            assert_eq!(program.say(command), "0 7654321 402");
        }
    }
}

#[test]
fn strict_shares_refuse_unknown_functions() {
    let container = Container::empty();
    container.share("one", &Terms { flags: STRICT, ..terms(0, 8 * GIB) });
    let mut program = container.ready(Interposition::Proxy);
    assert_eq!(program.say("novel"), "0 801 801");
    assert_eq!(program.say("ask 13000 0 cuMemNovelAlloc"), "500 1 null");
    assert_eq!(program.say("novel-by-name"), "500");
    assert_eq!(container.slots("one")[0].unknown, 2);
    assert_eq!(program.allocate(GIB), 0);
    drop(program);
    let mut program = container.ready(Interposition::Preload);
    assert_eq!(program.say("novel"), "no cuMemNovelAlloc");
}

#[test]
fn a_library_may_use_the_gpu_while_it_is_loaded() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Interposition::Proxy, "dlsym");
    let library = built().constructor.display();
    assert_eq!(program.say(&format!("constructor {library}")), "0");
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(9 * GIB), 2);
}

#[test]
fn a_driver_that_is_loaded_again_is_limited() {
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(interposition);
        assert_eq!(program.allocate(3 * GIB), 0);
        assert_eq!(program.say("reload"), "0");
        assert_eq!(program.allocate(6 * GIB), 2);
        assert_eq!(program.say("free 0"), "0");
    }
}
