//! NVIDIA's own runtime library behind the guard: of CUDA 12 and 13, as a library of its own and as a part of the program.
//!
//! The libraries are those of NVIDIA's Python packages, which pip fetches once. Where it cannot, the tests say that they are skipped.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use octavo_fake_gpu::{Clock, FakeGpu};

use crate::container;
use crate::cuda::{CONTEXT, GIB, MIB};

/// A package with a runtime library.
struct Package {
    name: &'static str,
    version: &'static str,
    /// SHA-256 of the file.
    hash: &'static str,
    /// The folder with the libraries, in the package.
    libraries: &'static str,
    soname: &'static str,
    /// Answer of `cudaRuntimeGetVersion`.
    number: u64,
}

const CUDA_12: Package = Package {
    name: "nvidia-cuda-runtime-cu12",
    version: "12.9.79",
    hash: "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
    libraries: "nvidia/cuda_runtime/lib",
    soname: "libcudart.so.12",
    number: 12090,
};
const CUDA_13: Package = Package {
    name: "nvidia-cuda-runtime",
    version: "13.5.37",
    hash: "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d",
    libraries: "nvidia/cu13/lib",
    soname: "libcudart.so.13",
    number: 13050,
};

/// Bits of signals in a set: SIGTERM; and 32 to 34, by which glibc and musl reach all threads.
const TERMINATE: u64 = 1 << 14;
const OF_THE_C_LIBRARY: u64 = 7 << 31;

/// How a program has the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linked {
    Dynamically,
    Statically,
}

impl Package {
    /// Folder of its libraries; `None`, with a line that says so, if it cannot be had.
    fn libraries(&self) -> Option<PathBuf> {
        static FETCHING: Mutex<()> = Mutex::new(());
        let _turn = FETCHING.lock().expect("no test panics meanwhile");
        let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        let folder = packages.join(format!("{}-{}", self.name, self.version));
        if !folder.exists() {
            fs::create_dir_all(&packages).expect("a folder");
            let fresh = tempfile::tempdir_in(&packages).expect("a folder");
            let wanted = fresh.path().join("requirements.txt");
            let line = format!("{}=={} --hash=sha256:{}\n", self.name, self.version, self.hash);
            fs::write(&wanted, line).expect("written");
            let target = fresh.path().join("installed");
            let fetched = Command::new("python3")
                .args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"])
                .args([
                    "--only-binary=:all:",
                    "--disable-pip-version-check",
                    "--root-user-action=ignore",
                ])
                .arg("--target")
                .arg(&target)
                .arg("--requirement")
                .arg(&wanted)
                .output();
            let problem = match fetched {
                Ok(output) if output.status.success() => None,
                Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem {
                let mut errors = std::io::stderr();
                // Directly, because the test runner hides what passing tests print.
                let _ = writeln!(errors, "skipped, pip cannot fetch {}: {problem}", self.name);
                return None;
            }
            fs::rename(target, &folder).expect("renamed");
        }
        Some(folder.join(self.libraries))
    }

    /// Compiles the program.
    fn program(&self, libraries: &Path, linked: Linked, folder: &Path) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charges/runtime.c");
        let program = folder.join("program");
        let mut compiler = Command::new("cc");
        compiler.arg("-o").arg(&program).arg(source);
        match linked {
            Linked::Dynamically => {
                compiler.arg(libraries.join(self.soname));
                compiler.arg(format!("-Wl,-rpath,{}", libraries.display()));
            }
            Linked::Statically => {
                compiler.arg(libraries.join("libcudart_static.a"));
                // A part of its own in CUDA 12.
                compiler.args(Some(libraries.join("libculibos.a")).filter(|file| file.exists()));
                compiler.args(["-lpthread", "-ldl", "-lrt"]);
            }
        }
        let output = compiler.output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }
}

/// A program, which waits at each step.
struct Program {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
}

impl Program {
    /// The value of its next step, of this name.
    fn step(&mut self, name: &str) -> u64 {
        let line = self.lines.next().unwrap_or_else(|| panic!("it ended before {name}"));
        let line = line.expect("a line");
        let value = line.strip_prefix(name).unwrap_or_else(|| panic!("{line} instead of {name}"));
        value.trim().parse().expect("a number")
    }

    /// Lets it go on.
    fn go(&mut self) {
        self.input.write_all(b"\n").expect("it waits");
    }

    /// The values of its next steps.
    fn values(&mut self, names: &[&str]) -> BTreeMap<String, u64> {
        names
            .iter()
            .map(|name| {
                let value = self.step(name);
                self.go();
                ((*name).to_owned(), value)
            })
            .collect()
    }

    /// Bytes that the share counts, and that the GPU has in use.
    fn bytes(&self) -> (u64, u64) {
        let chip = FakeGpu::existing(&self.folder.join("driver"), 0, Clock::Virtual);
        (container::counted(&self.folder), chip.expect("a chip").used())
    }

    /// The guard's thread takes no signal of the program, and those by which C libraries reach all threads. The driver has a
    /// thread, too.
    fn check_signals(&self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let blocked = |task: fs::DirEntry| {
            let status = fs::read_to_string(task.path().join("status")).expect("a status");
            if status.starts_with("Name:\tcuda-restore\n") {
                return 0;
            }
            let set = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
            u64::from_str_radix(set.expect("a set").trim(), 16).expect("a number")
        };
        let tasks = fs::read_dir(tasks).expect("tasks").map(|task| blocked(task.expect("a task")));
        let others: Vec<u64> = tasks.filter(|blocked| *blocked != 0).collect();
        assert_eq!(others.len(), 1, "the program blocks none, and the guard has one thread");
        assert_eq!(others[0] & TERMINATE, TERMINATE);
        assert_eq!(others[0] & OF_THE_C_LIBRARY, 0, "{:x}", others[0]);
    }

    /// What is counted is what is in use, and it is this.
    fn check(&self, step: &str, wanted: u64) {
        assert_eq!(self.bytes(), (wanted, wanted), "{step}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the program in a share of 4 GiB.
fn runs_within_its_share(package: &Package, linked: Linked) {
    let Some(libraries) = package.libraries() else { return };
    let container = container::made(4 * GIB, 80 * GIB);
    let folder = container.path().to_owned();
    let program = package.program(&libraries, linked, &folder);
    let mut child = container::guarded(&program, &folder)
        .env("LD_LIBRARY_PATH", folder.join("driver"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let input = child.stdin.take().expect("an input");
    let lines = BufReader::new(child.stdout.take().expect("an output")).lines();
    let mut program = Program { child, input, lines, folder };

    let values = program.values(&["version", "total", "free"]);
    assert_eq!(values["version"], package.number);
    assert_eq!(values["total"], 4 * GIB);
    assert_eq!(values["free"], 4 * GIB - CONTEXT, "the context is counted");
    let block = 64 * MIB;
    let fit = (4 * GIB - CONTEXT) / block;
    assert_eq!(program.step("blocks"), fit);
    program.check("full", CONTEXT + fit * block);
    program.go();
    assert_eq!(program.values(&["refusal"])["refusal"], 2);
    program.step("freed");
    program.check("freed", CONTEXT);
    program.go();
    program.step("initialised");
    program.check_signals();
    program.go();
    program.step("kinds");
    // Managed memory that nothing has touched is on no GPU, and counted all the same.
    assert_eq!(program.bytes(), (CONTEXT + 3 * block, CONTEXT + 2 * block), "kinds");
    program.go();
    assert_eq!(program.values(&["pooled-refusal"])["pooled-refusal"], 2);
    program.step("launched");
    let (counted, used) = program.bytes();
    assert_eq!(counted, used + block, "launched");
    program.go();
    program.step("reset");
    program.check("reset", 0);
    program.go();
    program.step("again");
    program.check("again", CONTEXT + block);
    program.go();
    let status = program.child.wait().expect("ended");
    assert!(status.success(), "{status}");
}

#[test]
fn a_program_of_cuda_12_stays_within_its_share() {
    runs_within_its_share(&CUDA_12, Linked::Dynamically);
}

#[test]
fn a_program_with_cuda_12_in_it_stays_within_its_share() {
    runs_within_its_share(&CUDA_12, Linked::Statically);
}

#[test]
fn a_program_of_cuda_13_stays_within_its_share() {
    runs_within_its_share(&CUDA_13, Linked::Dynamically);
}

#[test]
fn a_program_with_cuda_13_in_it_stays_within_its_share() {
    runs_within_its_share(&CUDA_13, Linked::Statically);
}
