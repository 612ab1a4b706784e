//! The program of the nodes, without a node.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::process::{Command, Output, Stdio};

fn run(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_octavo-agent");
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn it_has_the_version_and_the_arguments_of_the_agent() {
    let version = run(&["--version"]);
    let expected = concat!("octavo-agent ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&version.stdout), expected);
    let missing = run(&["--config", "/no/such.yaml"]);
    assert_eq!(missing.status.code(), Some(1));
    let text = String::from_utf8_lossy(&missing.stderr);
    assert!(text.starts_with("error: ") && text.contains("/no/such.yaml"), "{text}");
    assert_eq!(run(&["--no-such-flag"]).status.code(), Some(2));
}

#[test]
fn it_is_the_program_of_the_hooks_too() {
    let hook = run(&["cdi-hook", "create-symlinks"]);
    assert_eq!(hook.status.code(), Some(1));
    let text = String::from_utf8_lossy(&hook.stderr);
    assert!(text.contains("state"), "it reads the container's state: {text}");
}
