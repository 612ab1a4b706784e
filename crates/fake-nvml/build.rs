//! Keeps the built library small: a simulated node has a copy of its own, and there are hundreds.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Without the symbols that only debuggers read; what is exported stays.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-all");
}
