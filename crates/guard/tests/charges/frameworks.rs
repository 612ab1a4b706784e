//! Real frameworks behind the guard, on the simulated driver: `torch` and CUDA's Python bindings. `make frameworks` installs them and
//! runs these tests; otherwise they do nothing.
//!
//! The simulated driver runs no kernels, so what they compute is not checked. Each program checks what it is refused and what it
//! is shown; its arguments are the bytes of its share.

use std::env;
use std::path::Path;
use std::process::Command;

use octavo_fake_gpu::{Clock, FakeGpu};

use crate::container;
use crate::cuda::GIB;

/// Environment variable with the folder of the Python environments: `cuda12` and `cuda13`.
const ENVIRONMENTS: &str = "OCTAVO_TEST_FRAMEWORKS";

/// Bytes of the share.
const LIMIT: u64 = 4 * GIB;

/// Runs a program of an environment in a share, with settings of `torch`'s allocator. Afterwards the GPU is free.
#[allow(clippy::print_stdout, reason = "the figures are for the reader of `make frameworks`")]
fn runs(environment: &str, program: &str, allocator: &str) {
    let Some(environments) = env::var_os(ENVIRONMENTS) else { return };
    let python = Path::new(&environments).join(environment).join("bin/python");
    let container = container::made(LIMIT, 80 * GIB);
    let folder = container.path();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charges/frameworks");
    let mut command: Command = container::guarded(&python, folder);
    let output = command
        .arg(programs.join(program))
        .arg(LIMIT.to_string())
        .env("LD_LIBRARY_PATH", folder.join("driver"))
        .env("PYTORCH_ALLOC_CONF", allocator)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("started");
    let text =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{program}: {}{}", text.concat(), output.status);
    assert!(text[0].ends_with("all checked\n"), "{program}: {}", text.concat());
    println!("{environment} {program} {allocator}\n{}", text[0]);
    let gpu = FakeGpu::existing(&folder.join("driver"), 0, Clock::Virtual).expect("a GPU");
    assert_eq!(gpu.used(), 0, "{program}: the GPU is free");
}

#[test]
fn pytorch_s_allocator_ends_at_the_share() {
    runs("cuda13", "memory.py", "");
}

#[test]
fn pytorch_s_expandable_segments_end_at_the_share() {
    runs("cuda13", "memory.py", "expandable_segments:True");
}

#[test]
fn pytorch_on_the_driver_s_pools_ends_at_the_share() {
    runs("cuda13", "memory.py", "backend:cudaMallocAsync");
}

#[test]
fn pytorch_captures_graphs() {
    runs("cuda13", "graphs.py", "");
}

#[test]
fn pytorch_shares_memory_between_processes() {
    runs("cuda13", "processes.py", "");
}

#[test]
fn bindings_of_cuda_13_end_at_the_share() {
    runs("cuda13", "bindings.py", "");
}

#[test]
fn bindings_of_cuda_12_end_at_the_share() {
    runs("cuda12", "bindings.py", "");
}
