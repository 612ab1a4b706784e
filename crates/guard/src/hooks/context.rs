//! Contexts. Each is charged as the share's limits say before the driver creates it.

use crate::cuda::{Device, Opaque, Status};
use crate::devices::ShareIndices;
use crate::platform::ffi::Out;
use crate::process::{self, Process};
use crate::tracking::account;
use crate::tracking::context::is_active;
use crate::tracking::table::{Entry, EntryKind};

hooks! {
    CUDA, Status;

    /// Retains the primary context of a GPU.
    fn cuDevicePrimaryCtxRetain(context: Out<Opaque>, device: Device) -> Status {
        let process = match process::get() {
            Ok(process) => process,
            Err(status) => return status,
        };
        if let Err(status) = process.reserve_primary(device) {
            return status;
        }
        process.agent_link.start();
        let status = real::cuDevicePrimaryCtxRetain(context, device);
        if status.is_success() {
            process.record_primary(device, context.read().unwrap_or(0));
            return status;
        }
        process.settle_primary(device, || status)
    }

    /// Releases the primary context of a GPU.
    fn cuDevicePrimaryCtxRelease(device: Device) -> Status {
        settle(device, || real::cuDevicePrimaryCtxRelease(device))
    }

    /// Releases the primary context of a GPU.
    fn cuDevicePrimaryCtxRelease_v2(device: Device) -> Status {
        settle(device, || real::cuDevicePrimaryCtxRelease_v2(device))
    }

    /// Resets the primary context of a GPU, whatever uses it.
    fn cuDevicePrimaryCtxReset(device: Device) -> Status {
        settle(device, || real::cuDevicePrimaryCtxReset(device))
    }

    /// Resets the primary context of a GPU, whatever uses it.
    fn cuDevicePrimaryCtxReset_v2(device: Device) -> Status {
        settle(device, || real::cuDevicePrimaryCtxReset_v2(device))
    }

    /// Creates a context, before CUDA 3.2.
    fn cuCtxCreate(context: Out<Opaque>, flags: u32, device: Device) -> Status {
        create(EntryKind::Context, context, device, || real::cuCtxCreate(context, flags, device), real::cuCtxDestroy_v2)
    }

    /// Creates a context.
    fn cuCtxCreate_v2(context: Out<Opaque>, flags: u32, device: Device) -> Status {
        create(EntryKind::Context, context, device, || real::cuCtxCreate_v2(context, flags, device), real::cuCtxDestroy_v2)
    }

    /// Creates a context with execution affinity.
    fn cuCtxCreate_v3(context: Out<Opaque>, parameters: Opaque, count: i32, flags: u32, device: Device) -> Status {
        let make = || real::cuCtxCreate_v3(context, parameters, count, flags, device);
        create(EntryKind::Context, context, device, make, real::cuCtxDestroy_v2)
    }

    /// Creates a context with parameters.
    fn cuCtxCreate_v4(context: Out<Opaque>, parameters: Opaque, flags: u32, device: Device) -> Status {
        let make = || real::cuCtxCreate_v4(context, parameters, flags, device);
        create(EntryKind::Context, context, device, make, real::cuCtxDestroy_v2)
    }

    /// Creates a context for OpenGL, before CUDA 3.2.
    fn cuGLCtxCreate(context: Out<Opaque>, flags: u32, device: Device) -> Status {
        create(EntryKind::Context, context, device, || real::cuGLCtxCreate(context, flags, device), real::cuCtxDestroy_v2)
    }

    /// Creates a context for OpenGL.
    fn cuGLCtxCreate_v2(context: Out<Opaque>, flags: u32, device: Device) -> Status {
        create(EntryKind::Context, context, device, || real::cuGLCtxCreate_v2(context, flags, device), real::cuCtxDestroy_v2)
    }

    /// Creates a context for VDPAU, before CUDA 3.2.
    fn cuVDPAUCtxCreate(context: Out<Opaque>, flags: u32, device: Device, display: u32, lookup: Opaque) -> Status {
        let make = || real::cuVDPAUCtxCreate(context, flags, device, display, lookup);
        create(EntryKind::Context, context, device, make, real::cuCtxDestroy_v2)
    }

    /// Creates a context for VDPAU.
    fn cuVDPAUCtxCreate_v2(context: Out<Opaque>, flags: u32, device: Device, display: u32, lookup: Opaque) -> Status {
        let make = || real::cuVDPAUCtxCreate_v2(context, flags, device, display, lookup);
        create(EntryKind::Context, context, device, make, real::cuCtxDestroy_v2)
    }

    /// Destroys a context, before CUDA 4.0.
    fn cuCtxDestroy(context: Opaque) -> Status {
        end(context, || real::cuCtxDestroy(context))
    }

    /// Destroys a context.
    fn cuCtxDestroy_v2(context: Opaque) -> Status {
        end(context, || real::cuCtxDestroy_v2(context))
    }

    /// Creates a green context: a part of a GPU's multiprocessors.
    fn cuGreenCtxCreate(context: Out<Opaque>, resources: Opaque, device: Device, flags: u32) -> Status {
        let make = || real::cuGreenCtxCreate(context, resources, device, flags);
        create(EntryKind::GreenContext, context, device, make, real::cuGreenCtxDestroy)
    }

    /// Destroys a green context.
    fn cuGreenCtxDestroy(context: Opaque) -> Status {
        match process::get() {
            Ok(process) => process.destroy_green(context, || real::cuGreenCtxDestroy(context)),
            Err(status) => status,
        }
    }
}

fn settle(device: Device, change: impl FnOnce() -> Status) -> Status {
    match process::get() {
        Ok(process) => {
            let status = process.settle_primary(device, change);
            if status.is_success() && is_active(device) == Some(false) {
                forget_marks(process, process.shares_of(device).ok());
            }
            status
        }
        Err(status) => status,
    }
}

/// Where marks are written belongs to a context. The GPU reaches no mark of one that has ended. `None` stands for all shares.
fn forget_marks(process: &Process, of: Option<ShareIndices>) {
    let all = ShareIndices::of(0..process.shares.all().len());
    for share in of.unwrap_or(all).filter_map(|share_index| process.shares.get(share_index)) {
        if let Some(leases) = share.leases.get() {
            leases.forget_all();
        }
    }
}

fn create(
    kind: EntryKind,
    context: Out<Opaque>,
    device: Device,
    make: impl FnOnce() -> Status,
    undo: impl FnOnce(Opaque) -> Status,
) -> Status {
    let counted = || -> Result<Status, Status> {
        let process = process::get()?;
        let charge = account::charge(device, account::context_bytes(device)?)?;
        process.agent_link.start();
        let status = make();
        let Some(handle) = context.read().filter(|_| status.is_success()) else {
            account::release(charge);
            return Ok(status);
        };
        let entry = Entry { charge, context: 0, extra: [0; 2] };
        let Ok(old) = process.table.insert(kind, handle as u64, entry) else {
            undo(handle);
            account::release(charge);
            return Err(Status::OUT_OF_MEMORY);
        };
        account::note_context(charge, true);
        if let Some(old) = old {
            account::note_context(old.charge, false);
            account::release(old.charge);
        }
        Ok(status)
    };
    counted().unwrap_or_else(|status| status)
}

fn end(context: Opaque, destroy: impl FnOnce() -> Status) -> Status {
    match process::get() {
        Ok(process) => {
            let status = process.destroy_context(context, destroy);
            if status.is_success() {
                forget_marks(process, None);
            }
            status
        }
        Err(status) => status,
    }
}
