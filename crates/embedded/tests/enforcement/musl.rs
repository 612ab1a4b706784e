//! Programs of another C library: musl, as in Alpine's images. The guard is the same file.
//!
//! Without `musl-gcc` these tests do nothing and report that.

use crate::container::{Container, GIB, Interposition, MIB, Program};

/// A prepared program: driver initialised, context on GPU 0.
fn ready(container: &Container, interposition: Interposition, mode: &str) -> Option<Program> {
    let Some(mut program) = container.start_musl(interposition, mode) else {
        println!("skipped: there is no musl-gcc; install musl-tools");
        return None;
    };
    assert_eq!(program.say("init"), "0", "{interposition:?} {mode}");
    assert_eq!(program.say("retain 0"), "0", "{interposition:?} {mode}");
    Some(program)
}

#[test]
fn a_musl_program_without_a_guard_has_the_whole_gpu() {
    let container = Container::of(8 * GIB);
    let Some(mut program) = ready(&container, Interposition::None, "dlsym") else { return };
    assert_eq!(program.allocate(9 * GIB), 0);
}

#[test]
fn a_musl_program_is_limited_on_every_path() {
    for interposition in [Interposition::Proxy, Interposition::Preload, Interposition::Both] {
        for mode in ["dlsym", "default", "proc", "walk"] {
            let container = Container::of(8 * GIB);
            let Some(mut program) = ready(&container, interposition, mode) else { return };
            assert_eq!(program.allocate(3 * GIB), 0, "{interposition:?} {mode}");
            assert_eq!(program.allocate(6 * GIB), 2, "{interposition:?} {mode}");
            assert_eq!(
                program.say("total 0"),
                format!("0 {}", 8 * GIB),
                "{interposition:?} {mode}"
            );
            assert_eq!(container.used("one"), 3 * GIB + 256 * MIB, "{interposition:?} {mode}");
        }
    }
}

#[test]
fn forks_threads_and_closed_files_of_musl_change_nothing() {
    for interposition in [Interposition::Proxy, Interposition::Preload] {
        let container = Container::of(8 * GIB);
        let Some(mut program) = ready(&container, interposition, "dlsym") else { return };
        assert_eq!(program.allocate(3 * GIB), 0);
        program.tell(&format!("fork alloc {GIB}"));
        assert_eq!(program.hear(), "0 0", "a child has a slot of its own");
        assert_eq!(program.hear(), "forked 0");
        assert_eq!(program.say("close"), "0");
        let Some(mut other) = ready(&container, interposition, "dlsym") else { return };
        assert_eq!(other.allocate(6 * GIB), 2);
        assert_eq!(program.say("free 0"), "0");
        let answer = other.say("threads 4");
        assert!(answer.starts_with("0 ") && answer != "0 0", "{answer}");
        program.kill();
        assert_eq!(other.allocate(8 * GIB - 256 * MIB), 0);
    }
}
