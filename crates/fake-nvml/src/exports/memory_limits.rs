//! GPU memory limits of cgroups, for drivers since r615. They are stored in `memory_limits.json`
//! beside the machine: GPU, cgroup, limits in bytes.
//!
//! The simulated driver stores limits but does not enforce them.

use std::collections::BTreeMap;
use std::ffi::c_ulonglong;
use std::fs::{self, File};
use std::path::Path;

use nvml_wrapper_sys::bindings as sys;
use serde_json::{Value, json};

use crate::code::{CallResult, Code};
use crate::pointers::{In, TextIn};

/// First driver version with memory limits.
const FIRST: u32 = 615;

/// `nvmlSetMemoryLimits_v1_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct SetMemoryLimits {
    name_space: TextIn,
    soft_limit: c_ulonglong,
    hard_limit: c_ulonglong,
}

machine_calls! {
    fn nvmlDeviceSetMemoryLimits_v1(
        session,
        device: sys::nvmlDevice_t,
        limits: In<SetMemoryLimits>,
    ) {
        let gpu = session.place("nvmlDeviceSetMemoryLimits_v1", device)?;
        let machine = session.machine();
        let major = machine.driver.version.split('.').next().and_then(|major| major.parse().ok());
        if major.is_none_or(|major: u32| major < FIRST) {
            return Err(Code::NOT_SUPPORTED);
        }
        let limits = limits.read()?;
        let cgroup = limits.name_space.read()?;
        if limits.soft_limit > limits.hard_limit {
            return Err(Code::INVALID_ARGUMENT);
        }
        if !Path::new(cgroup).is_dir() {
            return Err(Code::NOT_FOUND);
        }
        let gpu = machine.gpus.get(gpu as usize).ok_or(Code::INVALID_ARGUMENT)?;
        let uuid = gpu.uuid.clone().ok_or(Code::UNKNOWN)?;
        let entry = json!({"softBytes": limits.soft_limit, "hardBytes": limits.hard_limit});
        save_limits(session.folder(), uuid, cgroup, entry)
    }
}

/// Stores a limit. Hooks of several containers do so concurrently.
fn save_limits(folder: &Path, gpu: String, cgroup: &str, limits: Value) -> CallResult {
    let failed = |_| Code::UNKNOWN;
    let lock = File::create(folder.join("memory_limits.lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let path = folder.join("memory_limits.json");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut all: BTreeMap<String, BTreeMap<String, Value>> =
        serde_json::from_str(&text).unwrap_or_default();
    all.entry(gpu).or_default().insert(cgroup.to_owned(), limits);
    let text = serde_json::to_string_pretty(&all).map_err(|_| Code::UNKNOWN)?;
    let temp = folder.join(".memory_limits.json.tmp");
    fs::write(&temp, text).map_err(failed)?;
    fs::rename(&temp, &path).map_err(failed)
}
