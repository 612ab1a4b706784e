//! Programs of the driver, run from its root.
//!
//! They run in this process's own root, with the driver's libraries: those of the driver need no more than the C library of any
//! Linux of the last ten years. Programs of the system there, such as `modprobe`, need its other libraries and files, too. They run with
//! that root as their own.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

mod output;

pub use output::OutputFile;

use crate::nvml::find_library;
use crate::root::find_in;

/// Folders below the root, in search order.
const FOLDERS: [&str; 7] = [
    "usr/bin",
    "bin",
    "usr/sbin",
    "sbin",
    "usr/local/bin",
    // Some clouds mount the driver here.
    "usr/local/nvidia/bin",
    "opt/bin",
];

/// Search path of programs with a root of their own.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Interval of looks at a running program.
const LOOK: Duration = Duration::from_millis(2);
/// Longest wait for the end of a program that was killed. One that hangs in the kernel does not end.
const END_TIME: Duration = Duration::from_secs(2);
/// Most bytes that a program may print: more would be memory of this process's control group.
const MOST_OUTPUT: u64 = 1 << 20;

/// Why a program of the driver did nothing.
#[derive(Debug)]
pub enum ProgramError {
    /// The driver's root does not have it.
    Missing {
        /// Its name.
        name: &'static str,
        /// The root.
        root: PathBuf,
    },
    /// It cannot be started or watched.
    Io {
        /// Its path.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// It did not end in time, and was killed.
    Timeout {
        /// Its name.
        name: &'static str,
        /// The time.
        after: Duration,
    },
    /// It printed too much, and was killed.
    Wordy {
        /// Its name.
        name: &'static str,
    },
    /// It failed.
    Failed {
        /// Its name.
        name: &'static str,
        /// Exit status and what it printed.
        output: Output,
    },
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { name, root } => write!(
                f,
                "the driver has no {name} in {} under {}; install the driver's programs",
                FOLDERS.join(", "),
                root.display()
            ),
            Self::Io { path, error } => write!(f, "cannot run {}: {error}", path.display()),
            Self::Timeout { name, after } => {
                write!(f, "{name} did not end within {} s", after.as_secs())
            }
            Self::Wordy { name } => {
                write!(f, "{name} printed more than {MOST_OUTPUT} bytes, and was ended")
            }
            Self::Failed { name, output } => {
                let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
                let text = String::from_utf8_lossy(&text);
                let lines: Vec<&str> =
                    text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
                write!(f, "{name} failed ({}): {}", output.status, lines.join("; "))
            }
        }
    }
}

impl std::error::Error for ProgramError {}

/// A program of the driver that is installed under `driver_root`, with the driver's libraries and programs in its search paths.
///
/// # Errors
///
/// [`ProgramError::Missing`].
pub fn command(driver_root: &Path, name: &'static str) -> Result<Command, ProgramError> {
    let program = find_in(driver_root, &FOLDERS, name)
        .ok_or_else(|| ProgramError::Missing { name, root: driver_root.to_owned() })?;
    let mut command = Command::new(&program);
    if let Some(folder) = program.parent() {
        // One program of the driver starts another by its name.
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&inherited));
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
    }
    if let Ok(library) = find_library(driver_root)
        && let Some(folder) = library.parent()
    {
        command.env("LD_LIBRARY_PATH", folder);
    }
    Ok(command)
}

/// Runs a program of the driver that needs no more than its management library, such as `nvidia-smi`, to its end, without input. Blocks.
///
/// The library is preloaded, so that the program finds it by its name. A search path would have the C library come from the driver's
/// root, too: one that is not of the version of this process's dynamic linker ends the program at its start.
///
/// # Errors
///
/// It is missing, does not end in time, or fails.
pub fn run(
    driver_root: &Path,
    name: &'static str,
    args: &[&str],
    timeout: Duration,
) -> Result<Output, ProgramError> {
    let mut command = command(driver_root, name)?;
    if let Ok(library) = find_library(driver_root) {
        command.env_remove("LD_LIBRARY_PATH").env("LD_PRELOAD", library);
    }
    run_to_end(command, name, args, timeout)
}

/// Runs a program of a root to its end, with that root as its own, and without input. Blocks. Needs the capability `SYS_CHROOT`.
///
/// # Errors
///
/// It is missing, does not end in time, or fails.
pub fn run_in_root(
    root: &Path,
    name: &'static str,
    args: &[&str],
    timeout: Duration,
) -> Result<Output, ProgramError> {
    let folder = FOLDERS.iter().find(|folder| find_in(root, &[**folder], name).is_some());
    let missing = || ProgramError::Missing { name, root: root.to_owned() };
    // Its name stays, although it may be a link: programs such as `kmod` act by the name of their start.
    let path = Path::new("/").join(folder.ok_or_else(missing)?).join(name);
    let new_root = CString::new(root.as_os_str().as_bytes())
        .map_err(|error| ProgramError::Io { path: path.clone(), error: error.into() })?;
    let mut command = Command::new(path);
    command.env_clear().env("PATH", SEARCH_PATH).env("LC_ALL", "C");
    let enter = move || -> io::Result<()> {
        rustix::process::chroot(new_root.as_c_str())?;
        rustix::process::chdir(c"/")?;
        Ok(())
    };
    // JUSTIFICATION: the root of a child alone can be set only after it was forked.
    // SAFETY: the closure makes two system calls. It takes no lock and no memory.
    unsafe { command.pre_exec(enter) };
    run_to_end(command, name, args, timeout)
}

fn run_to_end(
    mut command: Command,
    name: &'static str,
    args: &[&str],
    timeout: Duration,
) -> Result<Output, ProgramError> {
    let path = PathBuf::from(command.get_program());
    let io = |error| ProgramError::Io { path: path.clone(), error };
    let (stdout, stderr) = (OutputFile::new().map_err(io)?, OutputFile::new().map_err(io)?);
    command.args(args).stdin(Stdio::null());
    command.stdout(stdout.stdio().map_err(io)?).stderr(stderr.stdio().map_err(io)?);
    let mut child = command.spawn().map_err(io)?;
    let end = Instant::now() + timeout;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(io)? {
            break status;
        }
        let is_wordy = stdout.bytes().max(stderr.bytes()) > MOST_OUTPUT;
        if is_wordy || Instant::now() >= end {
            let _ = child.kill();
            let last = Instant::now() + END_TIME;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < last {
                std::thread::sleep(LOOK);
            }
            let after = timeout;
            return Err(if is_wordy {
                ProgramError::Wordy { name }
            } else {
                ProgramError::Timeout { name, after }
            });
        }
        std::thread::sleep(LOOK);
    };
    let (stdout, stderr) = (stdout.read(MOST_OUTPUT), stderr.read(MOST_OUTPUT));
    let output = Output { status, stdout, stderr };
    if output.status.success() { Ok(output) } else { Err(ProgramError::Failed { name, output }) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn root(script: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("usr/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("nvidia-smi"), format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(bin.join("nvidia-smi"), mode).unwrap();
        root
    }

    fn ask(root: &Path, timeout: Duration) -> Result<String, String> {
        let output = run(root, "nvidia-smi", &["-L"], timeout);
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_program_is_found_below_the_root_and_its_failure_has_its_words() {
        let long = Duration::from_secs(20);
        let well = root("echo \"$1\"; cat");
        assert_eq!(ask(well.path(), long).as_deref(), Ok("-L\n"));
        let failing = root("echo No devices were found; exit 6");
        let error = ask(failing.path(), long).unwrap_err();
        assert_eq!(error, "nvidia-smi failed (exit status: 6): No devices were found");
        let empty = tempfile::tempdir().unwrap();
        let error = ask(empty.path(), long).unwrap_err();
        assert!(error.contains("no nvidia-smi"), "{error}");
    }

    #[test]
    fn a_program_gets_the_management_library_and_no_other_of_the_root() {
        let root = root("echo \"$LD_PRELOAD,$LD_LIBRARY_PATH\"");
        let folder = root.path().join("usr/lib64");
        std::fs::create_dir_all(&folder).unwrap();
        // The linker leaves out what is no library.
        std::fs::write(folder.join("libnvidia-ml.so.1"), "").unwrap();
        std::fs::write(folder.join("libc.so.6"), "").unwrap();
        let library = folder.canonicalize().unwrap().join("libnvidia-ml.so.1");
        let found = ask(root.path(), Duration::from_secs(20));
        assert_eq!(found, Ok(format!("{},\n", library.display())));
    }

    #[test]
    fn a_program_prints_more_than_a_pipe_takes_and_leaves_a_child_behind() {
        let wordy = root("(sleep 600 & echo $! >&2); head -c 300000 /dev/zero; exit 3");
        let run = run(wordy.path(), "nvidia-smi", &[], Duration::from_secs(20));
        let Err(ProgramError::Failed { output, .. }) = run else { panic!("it failed: {run:?}") };
        assert_eq!((output.stdout.len(), output.status.code()), (300_000, Some(3)));
        let child = String::from_utf8(output.stderr).unwrap();
        let ended = Command::new("kill").arg(child.trim()).status().unwrap();
        assert!(ended.success(), "the child ran on");
    }

    #[test]
    fn a_program_that_prints_without_end_is_killed() {
        let endless = root("exec cat /dev/zero");
        let error = ask(endless.path(), Duration::from_mins(5)).unwrap_err();
        assert!(error.contains("printed more than 1048576 bytes"), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let hanging = root("exec sleep 600");
        let error = ask(hanging.path(), Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("did not end"), "{error}");
    }

    #[test]
    fn a_program_has_the_root_as_its_own() {
        let long = Duration::from_secs(20);
        // The root of this process by another path.
        let root = Path::new("/proc/self/root");
        let ran = run_in_root(root, "readlink", &["/proc/self/cwd"], long);
        if rustix::process::geteuid().is_root() {
            assert_eq!(ran.unwrap().stdout, b"/\n");
        } else {
            assert!(ran.unwrap_err().to_string().contains("cannot run /"));
        }
        // The host has a program of that name, which would run.
        let other = self::root("");
        let file = other.path().join("usr/bin/readlink");
        std::fs::rename(other.path().join("usr/bin/nvidia-smi"), &file).unwrap();
        std::fs::write(&file, "no program").unwrap();
        let error = run_in_root(other.path(), "readlink", &["/"], long).unwrap_err().to_string();
        assert!(error.contains("cannot run /usr/bin/readlink"), "{error}");
        let empty = tempfile::tempdir().unwrap();
        let error = run_in_root(empty.path(), "modprobe", &[], long).unwrap_err().to_string();
        assert!(error.contains("no modprobe"), "{error}");
    }
}
