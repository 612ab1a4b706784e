//! A container as seen by the guard: a folder with shares, and programs that run in it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use octavo_embedded::guard::CUDA_HOOKS;
use octavo_guard_abi::limits::{GATE_OFFSET, ShareGate, Terms, UNTRACKED_OFFSET};
use octavo_guard_abi::state::{self, SlotCopy};
use octavo_proxy::Plan;

use crate::built::built;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// Generation of all shares of the tests.
pub(crate) const GENERATION: u64 = 7;

/// How the guard is placed between program and driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interposition {
    /// By a proxy in the driver's place.
    Proxy,
    /// By preloading.
    Preload,
    /// By both.
    Both,
    /// By preloading from two files.
    Twice,
    /// By the agent's proxy, before the simulated driver; see [`Container::simulated`].
    Simulated,
    /// Not at all.
    None,
}

/// A folder that is removed on drop.
#[derive(Debug)]
pub(crate) struct Container {
    folder: tempfile::TempDir,
}

impl Container {
    /// A container without a share.
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("octavo/shares")).expect("a folder");
        Self { folder }
    }

    /// A container with a share of GPU 0.
    pub(crate) fn of(memory_bytes: u64) -> Self {
        let container = Self::empty();
        container.share("one", &terms(0, memory_bytes));
        container
    }

    /// A container with a share of GPU 0 of its own simulated machine.
    pub(crate) fn simulated(memory_bytes: u64) -> Self {
        let container = Self::empty();
        let real = container.path().join("octavo/real/libcuda.so.999");
        let proxied = container.path().join("proxied");
        for folder in [&container.path().join("octavo/real"), &proxied] {
            fs::create_dir(folder).expect("a folder");
        }
        fs::copy(simulated_driver(), &real).expect("copied");
        let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/dgx-h100.yaml");
        fs::copy(machine, real.with_file_name("machine.yaml")).expect("copied");
        let hooks = CUDA_HOOKS.iter().copied().collect();
        let proxy = octavo_proxy::write(
            &fs::read(&real).expect("a library"),
            &Plan {
                hooks: &hooks,
                is_suspicious: octavo_guard_abi::names::is_suspicious,
                soname: "libcuda.so.1",
                guard: &built().guard,
                real: &real,
            },
        );
        fs::write(proxied.join("libcuda.so.1"), proxy.expect("a proxy").bytes).expect("written");
        // The share is of the driver's first GPU.
        fs::copy(&real, real.with_file_name("libcuda.so.1")).expect("copied");
        let mut command = Command::new(&built().program);
        command.arg("dlsym").env("LD_LIBRARY_PATH", real.parent().expect("a folder"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program::new(&mut command);
        assert_eq!(program.say("init"), "0");
        let text = program.say("uuid 0").strip_prefix("0 ").expect("a UUID").to_owned();
        let mut gpu = [0; 16];
        for (place, byte) in gpu.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[place * 2..][..2], 16).expect("two digits");
        }
        container.share("one", &Terms { gpu, ..terms(0, memory_bytes) });
        container
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of a share.
    pub(crate) fn folder(&self, share: &str) -> PathBuf {
        self.path().join("octavo/shares").join(share)
    }

    /// Adds a share like the agent.
    pub(crate) fn share(&self, name: &str, terms: &Terms) {
        let folder = self.folder(name);
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("limits"), terms.file()).expect("written");
        let mut state = vec![0; state::SIZE];
        let header = state::header(terms.generation);
        state[..header.len()].copy_from_slice(&header);
        fs::write(folder.join("state"), state).expect("written");
    }

    fn write_limits(&self, share: &str, offset: usize, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(self.folder(share).join("limits"));
        file.expect("limits").write_all_at(bytes, offset as u64).expect("written");
    }

    /// Sets the gate and its epoch.
    pub(crate) fn set_gate(&self, share: &str, gate: ShareGate, epoch: u32) {
        let bytes = [(gate as u32).to_ne_bytes(), epoch.to_ne_bytes()].concat();
        self.write_limits(share, GATE_OFFSET, &bytes);
    }

    /// Sets the bytes that the driver counts outside the ledger.
    pub(crate) fn set_untracked(&self, share: &str, bytes: u64) {
        self.write_limits(share, UNTRACKED_OFFSET, &bytes.to_ne_bytes());
    }

    /// The bytes of the state file.
    pub(crate) fn state(&self, share: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::open(self.folder(share).join("state"))
            .expect("state")
            .read_to_end(&mut bytes)
            .expect("read");
        bytes
    }

    /// The slots that have a process.
    pub(crate) fn slots(&self, share: &str) -> Vec<SlotCopy> {
        state::slots(&self.state(share), GENERATION).expect("a state file").collect()
    }

    /// Bytes charged to all slots together.
    pub(crate) fn used(&self, share: &str) -> u64 {
        self.slots(share).iter().map(|slot| slot.used_bytes).sum()
    }

    /// Starts a program with the guard placed in some way.
    pub(crate) fn start(&self, interposition: Interposition, mode: &str) -> Program {
        let built = built();
        let program = if mode == "linked" { &built.linked } else { &built.program };
        self.start_program(interposition, mode, program, [&built.bare, &built.proxied])
    }

    /// Like [`Self::start`], for a program of musl; `None` without a compiler for it.
    pub(crate) fn start_musl(&self, interposition: Interposition, mode: &str) -> Option<Program> {
        let musl = built().musl.as_ref()?;
        Some(self.start_program(interposition, mode, &musl.program, [&musl.bare, &musl.proxied]))
    }

    /// A program, with the folders of the driver and of its proxy.
    fn start_program(
        &self,
        interposition: Interposition,
        mode: &str,
        program: &Path,
        [bare, proxied]: [&Path; 2],
    ) -> Program {
        let built = built();
        let mut command = Command::new(program);
        command.arg(mode).current_dir(self.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let folder = match interposition {
            Interposition::Proxy | Interposition::Both => proxied.to_owned(),
            Interposition::Simulated => self.path().join("proxied"),
            Interposition::Preload | Interposition::Twice | Interposition::None => bare.to_owned(),
        };
        command.env("LD_LIBRARY_PATH", folder);
        if interposition == Interposition::Proxy {
            // Tells the program which of the two libraries of that name to walk.
            fs::write(self.path().join("octavo/proxied"), "").expect("written");
        }
        match interposition {
            Interposition::Preload | Interposition::Both => {
                command.env("LD_PRELOAD", &built.preload);
            }
            Interposition::Twice => {
                let second = self.path().join("another_guard.so");
                fs::copy(&built.preload, &second).expect("copied");
                command
                    .env("LD_PRELOAD", format!("{}:{}", built.preload.display(), second.display()));
            }
            Interposition::Proxy | Interposition::Simulated | Interposition::None => {}
        }
        Program::new(&mut command)
    }

    /// Starts a program and prepares it: driver initialised, context on GPU 0.
    pub(crate) fn ready(&self, interposition: Interposition) -> Program {
        let mut program = self.start(interposition, "dlsym");
        assert_eq!(program.say("init"), "0");
        assert_eq!(program.say("retain 0"), "0");
        program
    }
}

/// The simulated driver, which cargo builds beside the test or one folder above it.
fn simulated_driver() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let mut places =
        test.ancestors().skip(1).take(2).map(|folder| folder.join("liboctavo_fake_cuda.so"));
    places.find(|path| path.is_file()).expect("the simulated driver is built")
}

/// Terms of a share of a GPU of the tests' driver, with contexts of 256 MiB.
pub(crate) fn terms(gpu: u8, memory_bytes: u64) -> Terms {
    Terms {
        generation: GENERATION,
        gpu: [0x10 + gpu; 16],
        memory_bytes,
        context_bytes: 256 * MIB,
        compute_milli_percent: 0,
        flags: 0,
    }
}

/// A program that runs commands.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn new(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("started");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("an output"));
        Self { child, input, output }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command without waiting for the answer.
    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("an input");
        writeln!(input, "{line}").expect("written");
    }

    /// Reads the next line of its output.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    /// Sends a command and waits for the answer.
    pub(crate) fn say(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// Allocates. Returns the driver's status.
    pub(crate) fn allocate(&mut self, bytes: u64) -> u32 {
        let answer = self.say(&format!("alloc {bytes}"));
        let status = answer.split(' ').next().and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("{answer:?} is an answer"))
    }

    /// Sends SIGKILL and waits for its end.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Lets it end. Returns its status.
    pub(crate) fn end(mut self) -> std::process::ExitStatus {
        drop(self.input.take());
        self.child.wait().expect("ended")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        // No process is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds, and fails if it never does.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
