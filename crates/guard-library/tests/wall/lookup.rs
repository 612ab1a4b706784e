//! Every way by which a program comes by the driver's functions leads to the wall.

use octavo_guard_abi::limits::{STRICT, Terms};

use crate::built::built;
use crate::container::{Container, GIB, Way, terms};

/// Holds 3 GiB of 8 and asks for 6 more.
fn meets_the_wall(way: Way, mode: &str) {
    let container = Container::of(8 * GIB);
    let mut program = container.start(way, mode);
    assert_eq!(program.say("init"), "0", "{way:?} {mode}");
    assert_eq!(program.say("retain 0"), "0", "{way:?} {mode}");
    assert_eq!(program.allocate(3 * GIB), 0, "{way:?} {mode}");
    assert_eq!(program.allocate(6 * GIB), 2, "{way:?} {mode}");
    assert_eq!(program.say("total 0"), format!("0 {}", 8 * GIB), "{way:?} {mode}");
    assert_eq!(program.say("launch"), "0", "{way:?} {mode}");
}

#[test]
fn the_same_program_without_a_guard_has_the_whole_gpu() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Way::None);
    assert_eq!(program.allocate(3 * GIB), 0);
    assert_eq!(program.allocate(6 * GIB), 0);
}

#[test]
fn a_linked_program_meets_the_wall() {
    meets_the_wall(Way::Proxy, "linked");
    meets_the_wall(Way::Preload, "linked");
}

#[test]
fn a_program_that_looks_up_by_dlsym_meets_the_wall() {
    for mode in ["dlsym", "versioned", "default"] {
        meets_the_wall(Way::Proxy, mode);
        meets_the_wall(Way::Preload, mode);
    }
}

#[test]
fn a_program_that_asks_the_driver_meets_the_wall() {
    meets_the_wall(Way::Proxy, "proc");
    meets_the_wall(Way::Preload, "proc");
}

#[test]
fn a_program_that_walks_the_drivers_table_meets_the_wall() {
    meets_the_wall(Way::Proxy, "walk");
    meets_the_wall(Way::Preload, "walk");
}

#[test]
fn a_namespace_of_its_own_has_a_wall_of_its_own() {
    meets_the_wall(Way::Proxy, "own");
    meets_the_wall(Way::Preload, "own");
}

#[test]
fn a_plugin_that_prefers_its_own_dependencies_meets_the_wall() {
    for way in [Way::Proxy, Way::Preload] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(way);
        let plugin = built().plugin.display();
        assert_eq!(program.say(&format!("plugin {plugin} {}", 9 * GIB)), "2", "{way:?}");
        assert_eq!(program.say(&format!("plugin {plugin} {GIB}")), "0", "{way:?}");
    }
}

#[test]
fn a_preloaded_guard_leaves_next_to_the_linker() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Way::Preload, "dlsym");
    // Behind the program comes the guard, which has a function of that name.
    assert_eq!(program.say("next"), "0 found");
    let mut program = container.start(Way::None, "dlsym");
    assert_eq!(program.say("next"), "0 nothing");
}

#[test]
fn a_name_that_the_driver_lacks_is_not_found_in_the_proxy() {
    let container = Container::of(8 * GIB);
    for (way, mode) in [(Way::Proxy, "dlsym"), (Way::Proxy, "default"), (Way::None, "default")] {
        let mut program = container.start(way, mode);
        let is_global = u32::from(mode == "default");
        assert_eq!(program.say("has cuMemAlloc_v2"), format!("1 {is_global}"), "{way:?} {mode}");
        // Hooks that this driver has no use for.
        for name in ["cuMemCreate", "cuMulticastBindMem_v2", "nvmlDeviceGetMemoryInfo"] {
            assert_eq!(program.say(&format!("has {name}")), "0 0", "{way:?} {mode} {name}");
        }
    }
}

#[test]
fn proxy_and_preload_together_count_once() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Way::Both, "dlsym");
    assert_eq!(program.say("init"), "0");
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(3 * GIB), 0);
    assert_eq!(container.used("one"), 3 * GIB + (256 << 20));
}

#[test]
fn two_guards_from_two_files_count_once() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Way::Twice, "dlsym");
    assert_eq!(program.say("init"), "0");
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(3 * GIB), 0);
    assert_eq!(program.allocate(6 * GIB), 2);
    assert_eq!(container.used("one"), 3 * GIB + (256 << 20));
}

#[test]
fn a_name_means_what_it_means_to_the_driver() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Way::Proxy);
    // The runtime library's first request has an empty name and version 0.
    assert_eq!(program.say("ask 0 0 "), "0 0 null");
    assert_eq!(program.say("ask 12000 0 cuMemAlloc"), "0 0 octavo_hook_cuMemAlloc_v2");
    assert_eq!(program.say("ask 2000 0 cuMemAlloc"), "500 1 null");
    // Streams of the thread's own are another function, and stay one.
    assert_eq!(program.say("ask 12000 0 cuLaunchKernel"), "0 0 octavo_hook_cuLaunchKernel");
    assert_eq!(program.say("ask 12000 2 cuLaunchKernel"), "0 0 octavo_hook_cuLaunchKernel_ptsz");
    assert_eq!(program.say("ask 12000 0 cuGetProcAddress"), "0 0 octavo_hook_cuGetProcAddress_v2");
    assert_eq!(program.say("ask 11030 0 cuGetProcAddress"), "0 0 octavo_hook_cuGetProcAddress");
    assert_eq!(program.say("ask 12000 0 cuDeviceGet"), "0 0 other");
}

#[test]
fn an_address_that_is_no_exports_is_known_by_its_name() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Way::Proxy);
    assert_eq!(program.say("ask 12000 0 cuMemAllocManaged"), "0 0 octavo_hook_cuMemAllocManaged");
}

#[test]
fn a_newer_version_of_a_hooked_function_is_no_hooks() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Way::Proxy);
    assert_eq!(program.say("ask 13050 0 cuMemAlloc"), "0 0 octavo_hook_cuMemAlloc_v2");
    assert_eq!(program.say("ask 14000 0 cuMemAlloc"), "0 0 other");
    // The driver gives an address that it does not export, and nobody knows what it takes.
    assert_eq!(program.say("ask 14000 0 cuMemAllocManaged"), "0 0 other");
    assert_eq!(container.slots("one")[0].unknown, 2);

    let container = Container::empty();
    container.share("one", &Terms { flags: STRICT, ..terms(0, 8 * GIB) });
    let mut program = container.ready(Way::Proxy);
    assert_eq!(program.say("ask 14000 0 cuMemAlloc"), "500 1 null");
    assert_eq!(program.say("ask 14000 0 cuMemAllocManaged"), "500 1 null");
    assert_eq!(program.say("ask 13050 0 cuMemAlloc"), "0 0 octavo_hook_cuMemAlloc_v2");
    assert_eq!(container.slots("one")[0].unknown, 2);
}

#[test]
fn unknown_functions_are_counted_and_keep_their_arguments() {
    let container = Container::of(8 * GIB);
    let mut program = container.ready(Way::Proxy);
    assert_eq!(program.say("novel"), "0 7654321 402");
    assert_eq!(program.say("ask 13000 0 cuMemNovelAlloc"), "0 0 other");
    assert_eq!(container.slots("one")[0].unknown, 3);
}

#[test]
fn strict_shares_refuse_unknown_functions() {
    let container = Container::empty();
    container.share("one", &Terms { flags: STRICT, ..terms(0, 8 * GIB) });
    let mut program = container.ready(Way::Proxy);
    assert_eq!(program.say("novel"), "0 801 801");
    assert_eq!(program.say("ask 13000 0 cuMemNovelAlloc"), "500 1 null");
    assert_eq!(container.slots("one")[0].unknown, 3);
    assert_eq!(program.allocate(GIB), 0);
}

#[test]
fn a_library_may_use_the_gpu_while_it_is_loaded() {
    let container = Container::of(8 * GIB);
    let mut program = container.start(Way::Proxy, "dlsym");
    let library = built().constructor.display();
    assert_eq!(program.say(&format!("constructor {library}")), "0");
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(9 * GIB), 2);
}

#[test]
fn a_driver_that_is_unloaded_and_loaded_again_still_has_its_wall() {
    for way in [Way::Proxy, Way::Preload] {
        let container = Container::of(8 * GIB);
        let mut program = container.ready(way);
        assert_eq!(program.allocate(3 * GIB), 0);
        assert_eq!(program.say("reload"), "0");
        assert_eq!(program.allocate(6 * GIB), 2);
        assert_eq!(program.say("free 0"), "0");
    }
}
