//! A folder with a driver, its proxy, a guard and programs, all built here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use octavo_guard_abi::names::is_suspicious;
use octavo_proxy::{Plan, Proxy, ProxyError, write};
use tempfile::TempDir;

/// The functions that the guard in `guard.c` hooks, and one that the driver in `driver.c` does not have.
pub(crate) const HOOKS: [&str; 3] = ["cuInit", "cuMemAlloc_v2", "cuNotThereYet"];

/// ```text
/// real/<soname>.1   the driver          link/<soname>   the same, to link to
/// proxy/<soname>    its proxy           guard.so
/// ```
pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) proxy: Proxy,
    soname: &'static str,
    compiler: &'static str,
}

impl Fixture {
    /// With `libcuda.so.1`.
    pub(crate) fn cuda() -> Self {
        Self::with("libcuda.so.1", "driver.c", &[], "guard.c", &[], &HOOKS)
    }

    /// The same with each available C library: the default one, and musl if there is `musl-gcc`.
    pub(crate) fn of_each_c_library() -> Vec<Self> {
        let has_musl = Command::new("musl-gcc").arg("--version").output().is_ok();
        let musl = has_musl.then(|| {
            Self::build("musl-gcc", "libcuda.so.1", "driver.c", &[], "guard.c", &[], &HOOKS)
        });
        [Self::cuda()].into_iter().chain(musl).collect()
    }

    /// With a driver and a guard of the given sources, each with compiler flags.
    pub(crate) fn with(
        soname: &'static str,
        driver: &str,
        driver_flags: &[&str],
        guard: &str,
        guard_flags: &[&str],
        hooks: &[&str],
    ) -> Self {
        Self::build("cc", soname, driver, driver_flags, guard, guard_flags, hooks)
    }

    fn build(
        compiler: &'static str,
        soname: &'static str,
        driver: &str,
        driver_flags: &[&str],
        guard: &str,
        guard_flags: &[&str],
        hooks: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for name in ["real", "proxy", "link"] {
            fs::create_dir(at(name)).unwrap();
        }
        let real = at("real").join(format!("{soname}.1"));
        let name = format!("-Wl,-soname,{soname}");
        let shared = ["-shared", "-fPIC"];
        compile(compiler, driver, &real, &[&shared[..], &[&name], driver_flags].concat());
        fs::copy(&real, at("link").join(soname)).unwrap();
        let define = format!("-DREAL=\"{}\"", real.display());
        compile(
            compiler,
            guard,
            &at("guard.so"),
            &[&shared[..], &[&define, "-ldl"], guard_flags].concat(),
        );
        let hooks: BTreeSet<&str> = hooks.iter().copied().collect();
        let guard = at("guard.so");
        let plan = Plan { hooks: &hooks, is_suspicious, soname, guard: &guard, real: &real };
        let proxy = write(&fs::read(&real).unwrap(), &plan).unwrap();
        fs::write(at("proxy").join(soname), &proxy.bytes).unwrap();
        Self { folder, proxy, soname, compiler }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Builds a program that is not linked with the driver.
    pub(crate) fn program(&self, source: &str) -> PathBuf {
        self.built(source, &["-ldl"])
    }

    /// Builds a program that is linked with the library in a folder (`link`: the driver, `proxy`:
    /// its proxy).
    pub(crate) fn linked(&self, source: &str, folder: &str, flags: &[&str]) -> PathBuf {
        let search = format!("-L{}", self.at(folder).display());
        let library = format!("-l:{}", self.soname);
        self.built(source, &[&[&search, &library, "-ldl"], flags].concat())
    }

    fn built(&self, source: &str, flags: &[&str]) -> PathBuf {
        let program = self.at(source.trim_end_matches(".c"));
        compile(self.compiler, source, &program, flags);
        program
    }

    /// Runs a program with the proxy in the driver's place. Returns its output.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> String {
        self.run_with(program, arguments, &[])
    }

    /// The same with environment variables.
    pub(crate) fn run_with(
        &self,
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> String {
        let (is_well, out, error) = self.ended(program, arguments, variables, "proxy");
        assert!(is_well && error.is_empty(), "{}: {out}{error}", program.display());
        out
    }

    /// Runs a program with the driver itself.
    pub(crate) fn run_bare(&self, program: &Path, arguments: &[&str]) -> String {
        let (is_well, out, error) = self.ended(program, arguments, &[], "link");
        assert!(is_well && error.is_empty(), "{}: {out}{error}", program.display());
        out
    }

    /// Runs a program that must fail. Returns its output, of both streams.
    pub(crate) fn fails(&self, program: &Path) -> String {
        let (is_well, out, error) = self.ended(program, &[], &[], "proxy");
        assert!(!is_well, "{} did not fail: {out}", program.display());
        out + &error
    }

    fn ended(
        &self,
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        folder: &str,
    ) -> (bool, String, String) {
        let output = Command::new(program)
            .args(arguments)
            .env("LD_LIBRARY_PATH", self.at(folder))
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    /// Result of writing a proxy for this fixture's proxy.
    pub(crate) fn proxy_of_proxy(&self) -> Result<Proxy, ProxyError> {
        let hooks = BTreeSet::from(HOOKS);
        let (guard, real) = (self.at("guard.so"), self.at("real"));
        let soname = self.soname;
        let plan = Plan { hooks: &hooks, is_suspicious, soname, guard: &guard, real: &real };
        write(&self.proxy.bytes, &plan)
    }
}

/// Builds a source of this folder. A C compiler exists wherever Rust links.
fn compile(compiler: &str, source: &str, output: &Path, flags: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let built = Command::new(compiler)
        .args(["-O1", "-Wall", "-o"])
        .arg(output)
        .arg(folder.join(source))
        .args(flags)
        .current_dir(&folder)
        .output()
        .unwrap_or_else(|_| panic!("`{compiler}` builds the programs of this test: install it"));
    let error = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{compiler} {source} {flags:?}: {error}");
    assert!(error.is_empty(), "{compiler} {source} {flags:?} warns: {error}");
}

/// The linkers that `cc` finds besides the default one, as flags.
pub(crate) fn linkers() -> Vec<String> {
    let folder = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap().stdout;
    let folder = String::from_utf8(folder).unwrap();
    let own = format!("{}/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld", folder.trim_end());
    let flags = ["-fuse-ld=bfd", "-fuse-ld=gold", "-fuse-ld=lld"];
    let tried = flags.into_iter().filter(|flag| {
        let output =
            Command::new("cc").args([*flag, &format!("-B{own}"), "-Wl,--version"]).output();
        output.is_ok_and(|output| output.status.success())
    });
    tried.map(|flag| format!("{flag} -B{own}")).collect()
}
