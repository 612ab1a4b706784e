//! How the shared object is linked, when it is the shared object that is built.

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
        // No C library: a version of it that this machine has would become one that every image must have.
        "-nostartfiles",
        "-nodefaultlibs",
        soname,
        // Its own functions are its own, whatever else is preloaded.
        "-Wl,-Bsymbolic",
        "-Wl,-z,now",
        "-Wl,-z,relro",
        // The driver's tables and a thread point into it.
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
