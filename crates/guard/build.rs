//! Linker arguments of the shared object, when it is being built.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_LIBRARY").is_none() {
        return;
    }
    let soname = if std::env::var_os("CARGO_FEATURE_PRELOAD").is_some() {
        "-Wl,-soname,liboctavo_guard_preload.so"
    } else {
        "-Wl,-soname,liboctavo_guard.so"
    };
    for argument in [
        // No C library: linking one would require its version in every image.
        "-nostartfiles",
        "-nodefaultlibs",
        soname,
        // Its own calls go to its own functions, whatever else is preloaded.
        "-Wl,-Bsymbolic",
        "-Wl,-z,now",
        "-Wl,-z,relro",
        // The driver's symbol tables and a thread refer to its code.
        "-Wl,-z,nodelete",
        "-Wl,-z,noexecstack",
        "-Wl,--gc-sections",
        "-Wl,--hash-style=both",
        "-Wl,--build-id=none",
        "-Wl,--strip-all",
    ] {
        println!("cargo::rustc-link-arg={argument}");
    }
}
