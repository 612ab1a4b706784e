//! `modprobe` and `rmmod`: one program, which acts by the name of its start, as the real one does.
//!
//! A module that another one holds is not unloaded. Neither is the driver while a process has it open, nor `nvidia_uvm` while one has a
//! context on a GPU.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use octavo_fake_gpu::driver_client;
use octavo_fake_gpu::locate::MachineLocation;
use octavo_fake_gpu::privilege::has_privileges;
use octavo_machine::{KernelModule, Machine, MachineError, State};

use crate::{has_contexts, say};

/// Where the real program looks for modules; a simulated kernel has no version.
const FOLDER: &str = "/lib/modules/simulated";

/// Why nothing was done, for people.
#[derive(Debug, PartialEq, Eq)]
struct Failure(String);

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Self {
        Self(format!("the simulated machine cannot be used: {error}"))
    }
}

/// Runs the program on a machine. `name` is that of its start.
pub fn run(name: &OsStr, args: &[OsString], location: Option<MachineLocation>) -> ExitCode {
    let name = Path::new(name).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let done = location
        .ok_or_else(|| Failure("there is no simulated machine here".to_owned()))
        .and_then(|location| act(name, &args, &location.folder));
    match done {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(Failure(text)) => {
            // A failure to write has no reader.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
            ExitCode::FAILURE
        }
    }
}

fn act(name: &str, args: &[&str], folder: &Path) -> Result<String, Failure> {
    let machine = Machine::read(&folder.join("machine.yaml"))?;
    match (name, args) {
        ("modprobe", ["--show-depends", module]) => {
            let module = known(module)?;
            let needed = std::iter::successors(Some(module), |module| module.needs());
            let mut lines: Vec<_> = needed
                .map(|module| format!("insmod {FOLDER}/updates/{}.ko \n", module.name()))
                .collect();
            lines.reverse();
            Ok(lines.concat())
        }
        ("modprobe", [module]) => {
            let module = known(module)?;
            let may_change = may_change(folder);
            octavo_machine::change(folder, &machine, |state| {
                if !state.is_loaded(module) && !may_change {
                    let name = module.name();
                    return Err(Failure(format!(
                        "modprobe: ERROR: could not insert '{name}': Operation not permitted"
                    )));
                }
                state.load(&machine, module);
                Ok(String::new())
            })
        }
        ("rmmod", [module]) => octavo_machine::change(folder, &machine, |state| {
            unload(folder, &machine, state, module)
                .map_err(|why| Failure(format!("rmmod: ERROR: Module {module} {why}")))
        }),
        _ => Err(Failure(format!("{name}: a simulated node has no such program or arguments"))),
    }
}

fn known(module: &str) -> Result<KernelModule, Failure> {
    let missing =
        || Failure(format!("modprobe: FATAL: Module {module} not found in directory {FOLDER}"));
    KernelModule::named(module).ok_or_else(missing)
}

/// Unloads a module, or says why not.
fn unload(
    folder: &Path,
    machine: &Machine,
    state: &mut State,
    module: &str,
) -> Result<String, String> {
    let module = KernelModule::named(module).filter(|module| state.is_loaded(*module));
    let module = module.ok_or("is not currently loaded")?;
    if !may_change(folder) {
        return Err("could not be removed: Operation not permitted".to_owned());
    }
    let holders: Vec<_> = state.holders(module).into_iter().map(KernelModule::name).collect();
    if !holders.is_empty() {
        return Err(format!("is in use by: {}", holders.join(" ")));
    }
    let has_contexts = || machine.gpus.iter().any(|gpu| has_contexts(folder, gpu));
    let is_open = || driver_client::is_open(&folder.join("machine.yaml")).unwrap_or(true);
    let is_used = match module {
        KernelModule::Nvidia => is_open() || has_contexts(),
        KernelModule::NvidiaUvm => has_contexts(),
        KernelModule::NvidiaModeset | KernelModule::NvidiaDrm => false,
    };
    if is_used {
        return Err("is in use".to_owned());
    }
    state.unload(module);
    Ok(String::new())
}

fn may_change(folder: &Path) -> bool {
    has_privileges(&folder.join("machine.yaml"))
}

#[cfg(test)]
mod tests {
    use octavo_fake_gpu::driver_client::DriverClient;

    use super::*;

    /// A machine of eight GPUs, in a folder of its own.
    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let text = include_str!("../../../machines/dgx-h100.yaml");
        std::fs::write(folder.path().join("machine.yaml"), text).unwrap();
        folder
    }

    fn ask(folder: &tempfile::TempDir, line: &str) -> Result<String, String> {
        let words: Vec<_> = line.split_whitespace().collect();
        act(words[0], &words[1..], folder.path()).map_err(|Failure(text)| text)
    }

    fn loaded(folder: &tempfile::TempDir) -> Vec<&'static str> {
        let state = State::read(&folder.path().join("state.json")).unwrap();
        let loaded = KernelModule::ALL.into_iter().filter(|module| state.is_loaded(*module));
        loaded.map(KernelModule::name).collect()
    }

    #[test]
    fn modules_are_unloaded_after_their_holders_and_loaded_with_what_they_need() {
        let folder = machine();
        let refused = ask(&folder, "rmmod nvidia").unwrap_err();
        assert_eq!(refused, "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm nvidia_modeset");
        for module in ["nvidia_drm", "nvidia-modeset", "nvidia_uvm", "nvidia"] {
            ask(&folder, &format!("rmmod {module}")).unwrap();
        }
        assert!(loaded(&folder).is_empty());
        let refused = ask(&folder, "rmmod nvidia").unwrap_err();
        assert!(refused.ends_with("Module nvidia is not currently loaded"), "{refused}");
        ask(&folder, "modprobe nvidia_drm").unwrap();
        assert_eq!(loaded(&folder), ["nvidia", "nvidia_modeset", "nvidia_drm"]);
        // One that is loaded is no error.
        ask(&folder, "modprobe nvidia").unwrap();
    }

    #[test]
    fn the_driver_stays_while_a_process_has_it_open() {
        let folder = machine();
        for module in ["nvidia_drm", "nvidia_modeset", "nvidia_uvm"] {
            ask(&folder, &format!("rmmod {module}")).unwrap();
        }
        let client = DriverClient::open(&folder.path().join("machine.yaml")).unwrap();
        assert_eq!(
            ask(&folder, "rmmod nvidia").unwrap_err(),
            "rmmod: ERROR: Module nvidia is in use"
        );
        assert_eq!(loaded(&folder), ["nvidia"]);
        drop(client);
        ask(&folder, "rmmod nvidia").unwrap();
    }

    #[test]
    fn what_would_be_loaded_is_shown_and_an_unknown_module_is_not_found() {
        let folder = machine();
        let shown = ask(&folder, "modprobe --show-depends nvidia_drm").unwrap();
        let names: Vec<_> = shown.lines().filter_map(|line| line.rsplit('/').next()).collect();
        assert_eq!(names, ["nvidia.ko ", "nvidia_modeset.ko ", "nvidia_drm.ko "]);
        for line in ["modprobe nouveau", "modprobe --show-depends nouveau"] {
            assert!(ask(&folder, line).unwrap_err().contains("nouveau not found"), "{line}");
        }
        assert!(ask(&folder, "insmod nvidia.ko").is_err());
    }
}
