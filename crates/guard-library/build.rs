//! Builds the guard's shared objects, which `src/lib.rs` embeds.
//!
//! A nested cargo with a target folder of its own builds them. They need another profile and
//! another crate type than the programs that embed them, and the outer cargo holds the lock of the
//! outer folder.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let crates = here.parent().ok_or("this crate has no parent folder")?;
    for source in ["guard", "guard-abi"] {
        let folder = crates.join(source);
        for part in ["Cargo.toml", "build.rs", "src"] {
            let part = folder.join(part);
            if part.exists() {
                println!("cargo::rerun-if-changed={}", part.display());
            }
        }
    }
    println!("cargo::rerun-if-changed=build.rs");

    let target = env::var("TARGET")?;
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    for (feature, variable) in
        [("library", "OCTAVO_GUARD_LIBRARY"), ("preload", "OCTAVO_GUARD_PRELOAD")]
    {
        let library = built(&here, &target, &folder.join(feature), feature)?;
        println!("cargo::rustc-env={variable}={}", library.display());
    }
    Ok(())
}

fn built(
    here: &Path,
    target: &str,
    folder: &Path,
    feature: &str,
) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    cargo
        .args(["rustc", "--package", "octavo-guard", "--profile", "guard"])
        .args(["--crate-type", "cdylib", "--features", feature, "--offline", "--locked"])
        .args(["--target", target, "--target-dir"])
        .arg(folder)
        .current_dir(here);
    // Settings of the outer cargo's compilers do not apply here: wrappers of clippy and coverage,
    // flags of the programs that embed the library.
    for variable in [
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_MAKEFLAGS",
        "MAKEFLAGS",
        "CLIPPY_ARGS",
        "RUSTDOC",
        "RUSTDOCFLAGS",
    ] {
        cargo.env_remove(variable);
    }
    let output = cargo.output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!(
            "the guard could not be built: {cargo:?} failed with {}\n{stderr}",
            output.status
        )
        .into());
    }
    let library = folder.join(target).join("guard").join("liboctavo_guard.so");
    if !library.is_file() {
        return Err(format!("the guard was built, but {} does not exist", library.display()).into());
    }
    Ok(library)
}
