//! Sets the SONAME by which programs know the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its own calls go to its own functions, whatever is preloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Its threads stay when a program closes the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
