//! Builds what `src/` embeds: the guard's shared objects, and the program of CDI hooks.
//!
//! A nested cargo with a target folder of its own builds each. They need other profiles, crate types and flags than the
//! programs that embed them, and the outer cargo holds the lock of the outer folder.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Links the C library into the program, so that it needs no file of the node.
const STATIC: &str = "-C target-feature=+crt-static";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let crates = here.parent().ok_or("this crate has no parent folder")?;
    for source in ["guard", "guard-abi", "hook", "proxy"] {
        let folder = crates.join(source);
        for part in ["Cargo.toml", "build.rs", "src"] {
            let part = folder.join(part);
            if part.exists() {
                println!("cargo::rerun-if-changed={}", part.display());
            }
        }
    }
    println!("cargo::rerun-if-changed=build.rs");

    let folder = PathBuf::from(env::var("OUT_DIR")?);
    for (feature, variable) in
        [("library", "OCTAVO_GUARD_LIBRARY"), ("preload", "OCTAVO_GUARD_PRELOAD")]
    {
        let target_dir = folder.join(feature);
        let args = ["--package", "octavo-guard", "--profile", "guard", "--crate-type", "cdylib"];
        let args = [args.as_slice(), &["--features", feature]].concat();
        let library = built(&target_dir, &args, "", "guard/liboctavo_guard.so")?;
        println!("cargo::rustc-env={variable}={}", library.display());
    }
    let args = ["--package", "octavo-hook", "--profile", "hook", "--bin", "octavo-cdi-hook"];
    let hook = built(&folder.join("hook"), &args, STATIC, "hook/octavo-cdi-hook")?;
    println!("cargo::rustc-env=OCTAVO_HOOK={}", hook.display());
    Ok(())
}

/// Builds into a target folder. `product` is the path of the result below the target's folder.
fn built(
    folder: &Path,
    args: &[&str],
    flags: &str,
    product: &str,
) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let target = env::var("TARGET")?;
    let mut cargo = Command::new(env::var("CARGO")?);
    cargo
        .arg("rustc")
        .args(args)
        .args(["--offline", "--locked", "--target", &target, "--target-dir"])
        .arg(folder)
        .current_dir(env::var("CARGO_MANIFEST_DIR")?);
    // Settings of the outer cargo's compilers do not apply here: wrappers of clippy and coverage,
    // flags of the programs that embed the result.
    for variable in [
        "RUSTC_WORKSPACE_WRAPPER",
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
    cargo.env("RUSTFLAGS", flags);
    let output = cargo.output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let status = output.status;
        return Err(format!("{product} could not be built: {cargo:?}: {status}\n{stderr}").into());
    }
    let product = folder.join(target).join(product);
    if !product.is_file() {
        return Err(format!("{cargo:?} succeeded, but {} is missing", product.display()).into());
    }
    Ok(product)
}
