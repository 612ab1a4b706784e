//! Taints that keep claims from devices.

use octavo_api::health_taint::key_and_value;
use octavo_api::names::{
    DRIVER_RELEASED, MISSING_MODULE_PREFIX, TAINT_DRIVER_UNAVAILABLE, TAINT_FABRIC,
    TAINT_FOREIGN_MIG, TAINT_IMEX, TAINT_OWNER, TAINT_WITHDRAWN,
};
use octavo_dra::{DeviceTaint, TaintEffect};
use octavo_gpu::Gpu;
use octavo_health::decide::Fence;
use octavo_health::state::Effect;

use crate::health::GpuState;

/// The taints of a GPU, and of all its parts, for a health state.
pub(super) fn of_health(state: &GpuState) -> Vec<DeviceTaint> {
    let mut taints = Vec::new();
    if state.is_driver_released {
        taints.push(taint(TAINT_DRIVER_UNAVAILABLE, DRIVER_RELEASED.to_owned()));
    } else if state.is_driver_gone {
        taints.push(taint(TAINT_DRIVER_UNAVAILABLE, String::new()));
    }
    taints.extend(state.fence.map(of_fence));
    taints
}

/// The taint of a GPU that is not in the state Healthy. Its key says what happened; those of XIDs and losses are NVIDIA's.
fn of_fence(fence: Fence) -> DeviceTaint {
    let (key, value) = key_and_value(fence.reason, fence.state.name());
    let effect = match fence.effect {
        Effect::None => TaintEffect::None,
        Effect::NoSchedule => TaintEffect::NoSchedule,
        Effect::NoExecute => TaintEffect::NoExecute,
    };
    DeviceTaint { effect, ..taint(key, value) }
}

/// The taint of a GPU, and of all its parts, that its NVLink fabric does not serve.
pub(super) fn of_fabric(gpu: &Gpu) -> Option<DeviceTaint> {
    let problem = gpu.fabric.as_ref()?.problem()?;
    Some(taint(TAINT_FABRIC, problem.to_owned()))
}

/// A foreign instance overlaps the device.
pub(super) fn foreign() -> DeviceTaint {
    taint(TAINT_FOREIGN_MIG, String::new())
}

/// The device goes when its claim does.
pub(super) fn withdrawn() -> DeviceTaint {
    taint(TAINT_WITHDRAWN, String::new())
}

/// A kernel module is not loaded, so no container gets a device.
pub(super) fn without_module(module: &str) -> DeviceTaint {
    taint(TAINT_DRIVER_UNAVAILABLE, format!("{MISSING_MODULE_PREFIX}{module}"))
}

/// The node cannot serve claims of domains.
pub(crate) fn imex_taint(obstacle: &'static str) -> DeviceTaint {
    taint(TAINT_IMEX, obstacle.to_owned())
}

/// A scheduler owns the device's node. Only that scheduler tolerates the taint, whatever the device's health.
pub(super) fn owned_by(scheduler: &str) -> DeviceTaint {
    taint(TAINT_OWNER, scheduler.to_owned())
}

fn taint(key: &str, value: String) -> DeviceTaint {
    DeviceTaint { key: key.to_owned(), value, effect: TaintEffect::NoSchedule }
}
