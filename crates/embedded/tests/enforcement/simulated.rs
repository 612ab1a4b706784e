//! Enforcement before the simulated driver, with the agent's proxy.

use crate::container::{Container, GIB, Interposition, MIB};

#[test]
fn the_simulated_gpu_is_as_large_as_the_share() {
    let container = Container::simulated(20 * GIB);
    let mut program = container.ready(Interposition::Simulated);
    assert_eq!(program.say("total 0"), format!("0 {}", 20 * GIB));
    let left = 20 * GIB - 256 * MIB;
    assert_eq!(program.say("info"), format!("0 {left} {}", 20 * GIB));
    assert_eq!(program.allocate(12 * GIB), 0);
    assert_eq!(program.allocate(8 * GIB), 2);
    assert_eq!(program.allocate(7 * GIB), 0);
    assert_eq!(program.say("free 0"), "0");
    assert_eq!(program.allocate(12 * GIB), 0);
    assert_eq!(container.used("one"), 19 * GIB + 256 * MIB);
}

#[test]
fn contexts_of_the_simulated_driver_count_while_they_are_there() {
    let container = Container::simulated(20 * GIB);
    let mut program = container.ready(Interposition::Simulated);
    assert_eq!(program.say("retain 0"), "0");
    assert_eq!(program.allocate(GIB), 0);
    assert_eq!(program.say("create 0"), "0");
    assert_eq!(program.allocate(GIB), 0);
    assert_eq!(container.used("one"), 2 * GIB + 512 * MIB);
    assert_eq!(program.say("destroy 0"), "0");
    assert_eq!(container.used("one"), GIB + 256 * MIB);
    assert_eq!(program.say("release 0"), "0");
    assert_eq!(container.used("one"), GIB + 256 * MIB);
    assert_eq!(program.say("release 0"), "0");
    assert_eq!(container.used("one"), 0);
}

#[test]
fn racing_processes_never_exceed_the_simulated_gpu() {
    let container = Container::simulated(4 * GIB);
    let mut programs: Vec<_> = (0..4).map(|_| container.ready(Interposition::Simulated)).collect();
    for (seed, program) in programs.iter_mut().enumerate() {
        program.tell(&format!("storm {} 2000", seed + 1));
    }
    for program in &mut programs {
        assert!(program.hear().starts_with("0 "));
    }
    assert_eq!(container.used("one"), 4 * 256 * MIB);
}

#[test]
fn names_mean_what_they_mean_to_the_simulated_driver() {
    let container = Container::simulated(8 * GIB);
    let mut program = container.ready(Interposition::Simulated);
    for (request, answer) in [
        ("ask 12000 0 cuMemAlloc", "0 0 octavo_hook_cuMemAlloc_v2"),
        ("ask 12000 0 cuLaunchKernel", "0 0 octavo_hook_cuLaunchKernel"),
        ("ask 12000 2 cuLaunchKernel", "0 0 octavo_hook_cuLaunchKernel_ptsz"),
        ("ask 12000 0 cuGetProcAddress", "0 0 octavo_hook_cuGetProcAddress_v2"),
        ("ask 12000 0 cuDeviceGet", "0 0 other"),
    ] {
        assert_eq!(program.say(request), answer, "{request}");
    }
    // A driver that returns other addresses than it exports: names decide.
    let state = container.path().join("octavo/real/state.json");
    std::fs::write(state, r#"{"pointerIdentity": false}"#).expect("written");
    let mut program = container.ready(Interposition::Simulated);
    for (request, answer) in [
        ("ask 12000 0 cuMemAlloc", "0 0 octavo_hook_cuMemAlloc_v2"),
        ("ask 12000 0 cuLaunchKernel", "0 0 octavo_hook_cuLaunchKernel"),
        ("ask 12000 2 cuLaunchKernel", "0 0 octavo_hook_cuLaunchKernel_ptsz"),
        ("ask 3020 0 cuCtxCreate", "0 0 octavo_hook_cuCtxCreate_v2"),
        ("ask 12000 0 cuGetProcAddress", "0 0 octavo_hook_cuGetProcAddress_v2"),
    ] {
        assert_eq!(program.say(request), answer, "{request}");
    }
    assert_eq!(program.allocate(9 * GIB), 2);
}
