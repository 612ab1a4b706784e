//! Gives the built library the name that programs know it by.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its own calls are its own, whatever was preloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
