//! MIG modes (`-mig`, `--query-gpu=mig.mode...`) and resets (`--gpu-reset`).

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use octavo_fake_gpu::driver_client;
use octavo_machine::{Gpu, GpuState, Machine, MigActivation, State};

use super::{Failure, GPU_IS_LOST, IN_USE, INVALID_ARGUMENT, UNKNOWN, change};
use crate::has_contexts;

/// A column of `--query-gpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// `mig.mode.current`
    Current,
    /// `mig.mode.pending`
    Pending,
}

/// The columns that a list of names asks for.
pub(super) fn columns(names: &str) -> Result<Vec<Column>, Failure> {
    let column = |name: &str| match name.trim() {
        "mig.mode.current" => Ok(Column::Current),
        "mig.mode.pending" => Ok(Column::Pending),
        other => Err(Failure(
            INVALID_ARGUMENT,
            format!("Field \"{other}\" is not a valid field to query.\n\n"),
        )),
    };
    names.split(',').map(column).collect()
}

/// The columns of GPUs, as `--format=csv,noheader` prints them.
pub(super) fn query(
    machine: &Machine,
    state: &State,
    gpus: &[(u32, &Gpu)],
    columns: &[Column],
) -> String {
    let healthy = GpuState::default();
    let line = |(index, _): &(u32, &Gpu)| {
        let gpu = state.gpus.get(index).unwrap_or(&healthy);
        let value = |column: &Column| match (&machine.model.mig, column) {
            (None, _) => "[N/A]",
            (Some(mig), Column::Current) => enabled(gpu.mig.is_enabled(mig)),
            (Some(mig), Column::Pending) => enabled(gpu.mig.is_pending(mig)),
        };
        let values: Vec<_> = columns.iter().map(value).collect();
        values.join(", ") + "\n"
    };
    gpus.iter().map(line).collect()
}

/// Requests a MIG mode. A mode that is not active at once is a warning, as with the real program.
pub(super) fn set_mode(
    folder: &Path,
    machine: &Machine,
    gpus: &[(u32, &Gpu)],
    is_on: bool,
) -> Result<String, Failure> {
    let Some(mig) = &machine.model.mig else {
        return Err(Failure(3, "Not Supported\n".to_owned()));
    };
    let mut text = String::new();
    for (index, gpu) in gpus {
        let is_used = has_contexts(folder, gpu);
        let mut became = None;
        change(folder, machine, &[(*index, gpu)], &mut |state| {
            became = Some(state.set_mig_mode(mig, is_on, is_used));
        })?;
        match became {
            Some(Ok(MigActivation::Done)) => {
                let _ = writeln!(text, "{} MIG Mode for GPU {index}", enabled(is_on));
            }
            Some(Ok(_)) => {
                let _ = writeln!(text, "Warning: MIG mode is in pending state for GPU {index}");
            }
            Some(Err(refusal)) => return Err(Failure(IN_USE, format!("{refusal}\n"))),
            None => {}
        }
    }
    Ok(text + "All done.\n")
}

/// Resets GPUs. None may be in use, and no process but this program may have the driver open.
pub(super) fn reset(
    folder: &Path,
    machine: &Machine,
    state: &State,
    gpus: &[(u32, &Gpu)],
) -> Result<String, Failure> {
    let is_open = driver_client::is_open(&folder.join("machine.yaml")).unwrap_or(true);
    if let Some((index, _)) = gpus.iter().find(|(_, gpu)| is_open || has_contexts(folder, gpu)) {
        let text = "is currently in use by one or more other processes (see nvidia-smi and lsof /dev/nvidia*).";
        return Err(Failure(
            IN_USE,
            format!("GPU {index} {text}\n1 device is currently being used\n"),
        ));
    }
    change(folder, machine, gpus, &mut |gpu| gpu.reset.begun += 1)?;
    let mig = machine.model.mig.as_ref();
    for (index, before) in
        gpus.iter().filter_map(|(index, _)| Some((index, state.gpus.get(index)?)))
    {
        if before.lost {
            let text = "is lost. Reboot the system to recover this GPU";
            return Err(Failure(GPU_IS_LOST, format!("GPU {index} {text}\n")));
        }
        std::thread::sleep(Duration::from_millis(before.reset.millis));
        if before.reset.fails {
            return Err(Failure(
                UNKNOWN,
                format!("GPU {index} could not be reset: Unknown Error\n"),
            ));
        }
    }
    change(folder, machine, gpus, &mut |gpu| gpu.reset(mig))?;
    let lines = gpus.iter().map(|(index, _)| format!("GPU {index} was successfully reset.\n"));
    Ok(lines.collect::<String>() + "All done.\n")
}

fn enabled(is_on: bool) -> &'static str {
    if is_on { "Enabled" } else { "Disabled" }
}
