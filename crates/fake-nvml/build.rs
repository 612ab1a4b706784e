//! Keeps the built library small: each simulated node has a copy, and there are hundreds.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Without the symbols that only debuggers read; exports stay.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-all");
}
