//! `nvidia-smi`: the list of GPUs (`-L`), compute modes (`-c`), time slices (`compute-policy`), MIG modes (`-mig`) and resets
//! (`--gpu-reset`).

mod reset;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use octavo_fake_gpu::locate::MachineLocation;
use octavo_fake_gpu::privilege::has_privileges;
use octavo_machine::{
    Gpu, GpuState, KernelModule, Machine, MachineError, MigTable, State, mig_uuid,
};

use crate::say;
use reset::Column;

/// Compute modes by number.
const COMPUTE_MODES: [&str; 4] = ["DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"];
/// Time slices by number.
const TIME_SLICES: [&str; 4] = ["Default", "Short", "Medium", "Long"];

/// Exit codes, as in the manual of `nvidia-smi`.
const INVALID_ARGUMENT: u8 = 2;
const NO_PERMISSION: u8 = 4;
const NOT_FOUND: u8 = 6;
const NO_DRIVER: u8 = 9;
const GPU_IS_LOST: u8 = 15;
const IN_USE: u8 = 19;
const UNKNOWN: u8 = 255;

/// A failed run: exit code and text.
#[derive(Debug, PartialEq, Eq)]
struct Failure(u8, String);

/// What to do.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    List,
    ListPolicies,
    SetTimeSlice(String),
    SetComputeMode(String),
    SetMigMode(String),
    Query(Vec<Column>),
    Reset,
}

/// Runs the program on a machine.
pub fn run(args: &[OsString], location: Option<MachineLocation>) -> ExitCode {
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let answer = location.ok_or_else(no_driver).and_then(|location| answer(&args, &location));
    match answer {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(Failure(code, text)) => {
            say(&text);
            ExitCode::from(code)
        }
    }
}

fn answer(args: &[String], location: &MachineLocation) -> Result<String, Failure> {
    let (ids, action) = parse(args)?;
    let folder = location.folder.as_path();
    let mut machine =
        Machine::read(&folder.join("machine.yaml")).map_err(|error| broken(&error))?;
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    machine.instantiate(&real.to_string_lossy());
    let visible: Vec<(u32, &Gpu)> = (0..)
        .zip(&machine.gpus)
        .filter(|(_, gpu)| location.may_open(&format!("nvidia{}", gpu.minor)))
        .collect();
    let state = State::read(&folder.join("state.json")).map_err(|error| broken(&error))?;
    if !state.is_loaded(KernelModule::Nvidia) {
        return Err(no_driver());
    }
    let chosen = choose(&visible, &ids)?;
    match action {
        Action::List => Ok(list(&machine, &state, &chosen)),
        Action::ListPolicies => Ok(policies(&state, &chosen)),
        Action::SetTimeSlice(value) => {
            let slice = value.parse().ok().filter(|slice| *slice < 4_u32);
            let slice = slice.ok_or_else(|| {
                Failure(
                    INVALID_ARGUMENT,
                    "Failed to set timeslice for requested devices : Invalid Argument\n".to_owned(),
                )
            })?;
            change(folder, &machine, &chosen, &mut |gpu| gpu.time_slice = slice)?;
            Ok(String::new())
        }
        Action::SetComputeMode(value) => {
            let named = COMPUTE_MODES.iter().position(|name| *name == value.to_uppercase());
            let mode =
                named.or_else(|| value.parse().ok()).and_then(|mode| u32::try_from(mode).ok());
            let mode = mode.filter(|mode| *mode < 4).ok_or_else(|| {
                Failure(INVALID_ARGUMENT, format!("\"{value}\" is not a compute mode.\n"))
            })?;
            change(folder, &machine, &chosen, &mut |gpu| gpu.compute_mode = mode)?;
            Ok("All done.\n".to_owned())
        }
        Action::Query(columns) => Ok(reset::query(&machine, &state, &chosen, &columns)),
        Action::SetMigMode(value) => {
            let is_on = match value.as_str() {
                "0" | "DISABLED" => false,
                "1" | "ENABLED" => true,
                _ => {
                    return Err(Failure(
                        INVALID_ARGUMENT,
                        format!("\"{value}\" is no MIG mode.\n"),
                    ));
                }
            };
            reset::set_mode(folder, &machine, &chosen, is_on)
        }
        Action::Reset => reset::reset(folder, &machine, &state, &chosen),
    }
}

/// The ids after `-i`, and the action.
fn parse(args: &[String]) -> Result<(Vec<String>, Action), Failure> {
    let invalid = |text: &str| {
        Failure(INVALID_ARGUMENT, format!("Invalid combination of input arguments: {text}\n"))
    };
    let is_policy = args.first().is_some_and(|arg| arg == "compute-policy");
    let mut rest = args.iter().skip(usize::from(is_policy)).peekable();
    let (mut ids, mut action) = (Vec::new(), None);
    while let Some(arg) = rest.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let mut value =
            || inline.clone().or_else(|| rest.next().cloned()).ok_or_else(|| invalid(name));
        match (name, is_policy) {
            ("-i" | "--id", _) => {
                ids.extend(value()?.split(',').map(str::to_owned));
            }
            ("-L" | "--list-gpus", false) => action = Some(Action::List),
            ("-c" | "--compute-mode", false) => action = Some(Action::SetComputeMode(value()?)),
            ("-mig" | "--multi-instance-gpu", false) => {
                action = Some(Action::SetMigMode(value()?));
            }
            ("--query-gpu", false) => action = Some(Action::Query(reset::columns(&value()?)?)),
            ("--format", false) if value()? == "csv,noheader" => {}
            ("-r" | "--gpu-reset", false) => {
                // By the PCIe function, or by the bus: the simulated GPU knows no difference.
                if rest.peek().is_some_and(|next| matches!(next.as_str(), "bus" | "function")) {
                    rest.next();
                }
                action = Some(Action::Reset);
            }
            ("-l" | "--list", true) => action = Some(Action::ListPolicies),
            ("--set-timeslice", true) => action = Some(Action::SetTimeSlice(value()?)),
            _ => return Err(invalid(name)),
        }
    }
    Ok((ids, action.ok_or_else(|| invalid("nothing to do"))?))
}

/// The GPUs with these indexes, UUIDs or PCI addresses; all without any.
fn choose<'a>(visible: &[(u32, &'a Gpu)], ids: &[String]) -> Result<Vec<(u32, &'a Gpu)>, Failure> {
    if ids.is_empty() {
        return Ok(visible.to_vec());
    }
    let found = ids.iter().map(|id| {
        let by_index = id.parse::<usize>().ok().and_then(|index| visible.get(index));
        let by_uuid = || visible.iter().find(|(_, gpu)| gpu.uuid.as_ref() == Some(id));
        by_index.or_else(by_uuid).copied()
    });
    let found: Option<Vec<_>> = found.collect();
    found.ok_or_else(|| Failure(NOT_FOUND, "No devices were found\n".to_owned()))
}

fn list(machine: &Machine, state: &State, gpus: &[(u32, &Gpu)]) -> String {
    let table = machine.model.mig.as_ref().and_then(|mig| MigTable::find(&mig.table));
    let mut text = String::new();
    for (index, gpu) in gpus {
        let uuid = gpu.uuid.as_deref().unwrap_or_default();
        let _ = writeln!(text, "GPU {index}: {} (UUID: {uuid})", machine.model.name);
        let Some((mig, table)) = state.gpus.get(index).map(|it| &it.mig).zip(table.as_ref()) else {
            continue;
        };
        for (place, (outer, inner)) in mig.devices().enumerate() {
            let profile = mig.instances.get(&outer).and_then(|it| table.profile(it.profile));
            let name = profile.map_or("?", |profile| profile.name);
            let uuid = mig_uuid(uuid, outer, inner);
            let _ = writeln!(text, "  MIG {name:<12} Device {place:>2}: (UUID: {uuid})");
        }
    }
    text
}

fn policies(state: &State, gpus: &[(u32, &Gpu)]) -> String {
    let line = "+-------------------------------------+\n";
    let mut text = format!(
        "{line}| GPU compute policies:               |\n| GPU     Name           Value        |\n|=====================================|\n"
    );
    for (index, _) in gpus {
        let slice = state.gpus.get(index).map_or(0, |gpu| gpu.time_slice);
        let name = usize::try_from(slice).ok().and_then(|slice| TIME_SLICES.get(slice));
        let name = name.unwrap_or(&"Unknown");
        let _ = writeln!(text, "| {index:>3}   Timeslice       {name:<14}|");
    }
    text + line
}

/// Changes GPUs for all processes of the machine.
fn change(
    folder: &Path,
    machine: &Machine,
    gpus: &[(u32, &Gpu)],
    set: &mut dyn FnMut(&mut GpuState),
) -> Result<(), Failure> {
    if !has_privileges(&folder.join("machine.yaml")) {
        return Err(Failure(NO_PERMISSION, "Insufficient Permissions\n".to_owned()));
    }
    let done = octavo_machine::change(folder, machine, |state| {
        for (index, _) in gpus {
            set(state.gpus.entry(*index).or_default());
        }
        Ok::<_, MachineError>(())
    });
    done.map_err(|error| broken(&error))
}

fn no_driver() -> Failure {
    let text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n";
    Failure(NO_DRIVER, text.to_owned())
}

fn broken(error: &MachineError) -> Failure {
    Failure(NO_DRIVER, format!("the simulated machine cannot be used: {error}\n"))
}

#[cfg(test)]
mod tests;
