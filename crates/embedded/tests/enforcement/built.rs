//! Programs and libraries of the tests, built once for all of them.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use octavo_embedded::guard::CUDA_HOOKS;

/// Files that all tests use and none changes.
#[derive(Debug)]
pub(crate) struct Built {
    /// The guard for proxies.
    pub(crate) guard: PathBuf,
    /// The guard for preloading.
    pub(crate) preload: PathBuf,
    /// A folder with the driver under its usual name.
    pub(crate) bare: PathBuf,
    /// A folder with a proxy under that name.
    pub(crate) proxied: PathBuf,
    /// The program that looks functions up.
    pub(crate) program: PathBuf,
    /// The program that was linked with the driver.
    pub(crate) linked: PathBuf,
    /// The library with `RTLD_DEEPBIND`.
    pub(crate) plugin: PathBuf,
    /// The library that uses the GPU while it is loaded.
    pub(crate) constructor: PathBuf,
    /// The same for programs of musl, if there is `musl-gcc`.
    pub(crate) musl: Option<Musl>,
}

/// Files for programs of musl; the guard is the same file.
#[derive(Debug)]
pub(crate) struct Musl {
    /// See [`Built`].
    pub(crate) bare: PathBuf,
    /// See [`Built`].
    pub(crate) proxied: PathBuf,
    /// See [`Built`].
    pub(crate) program: PathBuf,
}

/// Builds them on first use.
pub(crate) fn built() -> &'static Built {
    // A failure is stored as well.
    static BUILT: OnceLock<Option<Built>> = OnceLock::new();
    let built = BUILT.get_or_init(|| std::panic::catch_unwind(build).ok());
    built.as_ref().expect("what the tests are made of is built")
}

fn build() -> Built {
    {
        let root = fresh();
        for folder in ["bare", "proxied", "octavo/real", "octavo/guard"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        let built = Built {
            guard: root.join("octavo/guard/liboctavo_guard.so"),
            preload: root.join("octavo/guard/liboctavo_guard_preload.so"),
            bare: root.join("bare"),
            proxied: root.join("proxied"),
            program: root.join("program"),
            linked: root.join("linked"),
            plugin: root.join("plugin.so"),
            constructor: root.join("constructor.so"),
            musl: musl(&root),
        };
        let real = root.join("octavo/real/libcuda.so.580.1");
        drivers("cc", &root, &built.guard, &real, [&built.bare, &built.proxied]);
        let program = source("program.c");
        cc(&["-O1", &program, "-o", &text(&built.program), "-ldl", "-lpthread"]);
        let bare = text(&built.bare.join("libcuda.so.1"));
        cc(&["-O1", "-DLINKED", &program, "-o", &text(&built.linked), &bare, "-ldl", "-lpthread"]);
        cc(&["-shared", "-fPIC", &source("plugin.c"), "-o", &text(&built.plugin), &bare]);
        let constructor = source("constructor.c");
        cc(&["-shared", "-fPIC", &constructor, "-o", &text(&built.constructor), "-lpthread"]);
        fs::copy(guard("library"), &built.guard).expect("copied");
        fs::copy(guard("preload"), &built.preload).expect("copied");
        built
    }
}

/// Builds driver and proxy: the driver at its own path, and each under its usual name in a folder.
fn drivers(compiler: &str, root: &Path, guard: &Path, real: &Path, folders: [&Path; 2]) {
    let cc = |arguments: &[&str]| run(compiler, arguments);
    let [bare, proxied] = folders.map(|folder| folder.join("libcuda.so.1"));
    // Dependencies without a SONAME are recorded by path.
    for stub in [guard, real] {
        cc(&["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", &text(stub)]);
    }
    let proxy = root.join("proxy.s");
    fs::write(&proxy, proxy_source()).expect("written");
    let flags = ["-shared", "-nostdlib", "-Wl,--no-as-needed,-soname,libcuda.so.1,-z,now"];
    let parts = [text(&proxy), text(guard), text(real)];
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    cc(&[&flags[..], &parts, &["-o", &text(&proxied)]].concat());
    let driver =
        ["-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1,-Bsymbolic,--hash-style=both"];
    for place in [real, &bare] {
        cc(&[&driver[..], &[&source("driver.c"), "-o", &text(place)]].concat());
    }
}

/// The same for musl.
fn musl(root: &Path) -> Option<Musl> {
    Command::new("musl-gcc").arg("--version").output().ok()?;
    let folder = root.join("musl");
    let [bare, proxied, own] = ["bare", "proxied", "octavo/real"].map(|name| folder.join(name));
    for folder in [&bare, &proxied, &own] {
        fs::create_dir_all(folder).expect("a folder");
    }
    let guard = root.join("octavo/guard/liboctavo_guard.so");
    drivers("musl-gcc", &folder, &guard, &own.join("libcuda.so.580.1"), [&bare, &proxied]);
    let program = folder.join("program");
    run("musl-gcc", &["-O1", &source("program.c"), "-o", &text(&program)]);
    Some(Musl { bare, proxied, program })
}

/// A folder of this process; folders of dead processes are removed.
fn fresh() -> PathBuf {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in fs::read_dir(parent).expect("a folder").flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix("guard-test-"));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            // Another run may be removing it, too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    parent.join(format!("guard-test-{}", std::process::id()))
}

/// The guard with paths for tests.
fn guard(feature: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guard").join(feature);
    let mut cargo = Command::new(env::var_os("CARGO").expect("tests are run by cargo"));
    cargo
        .args(["rustc", "--quiet", "--package", "octavo-guard", "--profile", "guard"])
        .args(["--crate-type", "cdylib", "--features", &format!("{feature},test-paths")])
        .args(["--offline", "--locked", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR");
    assert!(cargo.status().expect("cargo runs").success(), "the guard is built");
    target.join("guard/liboctavo_guard.so")
}

fn cc(arguments: &[&str]) {
    run("cc", arguments);
}

fn run(compiler: &str, arguments: &[&str]) {
    let output = Command::new(compiler).args(arguments).output();
    let output = output.expect("a C compiler, as rustc needs one");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {arguments:?}: {stderr}");
}

fn source(name: &str) -> String {
    text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name))
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// Functions that the tests' driver exports and no guard knows.
const NOVEL: [&str; 2] = ["cuMemNovelAlloc", "cuLaunchNovelKernel"];

/// Assembly of a proxy: a jump for each hook of an exported function, and the entry for unknown
/// functions.
fn proxy_source() -> String {
    let driver = fs::read_to_string(source("driver.c")).expect("the driver's source");
    let mut proxy = String::from(".text\n");
    for name in CUDA_HOOKS.iter().filter(|name| driver.contains(&format!("{name}("))) {
        let jump = if cfg!(target_arch = "x86_64") {
            format!("jmp *octavo_hook_{name}@GOTPCREL(%rip)")
        } else {
            format!(
                "adrp x17, :got:octavo_hook_{name}\nldr x17, [x17, :got_lo12:octavo_hook_{name}]\nbr x17"
            )
        };
        writeln!(proxy, ".globl {name}\n.type {name}, %function\n{name}:\n{jump}")
            .expect("written");
    }
    for name in NOVEL {
        let jump = if cfg!(target_arch = "x86_64") {
            format!("lea record_{name}(%rip), %r11\njmp *octavo_unknown_entry@GOTPCREL(%rip)")
        } else {
            format!(
                "adrp x16, record_{name}\nadd x16, x16, :lo12:record_{name}\nadrp x17, :got:octavo_unknown_entry\n\
                 ldr x17, [x17, :got_lo12:octavo_unknown_entry]\nbr x17"
            )
        };
        let length = name.len();
        writeln!(
            proxy,
            ".text\n.globl {name}\n.type {name}, %function\n{name}:\n{jump}\n\
             .data\n.balign 8\nrecord_{name}: .quad text_{name}, {length}, 0\ntext_{name}: .asciz \"{name}\""
        )
        .expect("written");
    }
    proxy
}
