//! Launches of kernels and graphs. They pass the share's gate, need a lease of GPU time where shares wait for each other,
//! and are counted. With an open gate and a free lease that costs a few loads.

use core::sync::atomic::Ordering;

use crate::cuda::{Opaque, Status};
use crate::devices;
use crate::gate;
use crate::leases::Inside;
use crate::platform::ffi::In;
use crate::process::{self, Process};
use crate::shares::Share;
use crate::tracking::graph_memory;
use crate::tracking::streams::Stream;

/// Calls the driver once the gate is passed, with a lease where one is needed.
macro_rules! launch {
    ($stream:expr, $call:expr) => {
        match enter(Some($stream)) {
            Ok(None) => $call,
            Ok(Some(inside)) => {
                let status = $call;
                inside.leave($stream, status);
                status
            }
            Err(status) => status,
        }
    };
}

/// `CUlaunchConfig`, up to its stream.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Opaque,
}

impl LaunchConfig {
    fn stream(config: In<Self>) -> Opaque {
        config.read().map_or(0, |config| config.stream)
    }
}

hooks! {
    CUDA, Status;

    /// Launches a kernel with a configuration set before.
    fn cuLaunch(function: Opaque) -> Status {
        launch!(Stream::legacy(0), real::cuLaunch(function))
    }

    /// Launches a kernel in two dimensions.
    fn cuLaunchGrid(function: Opaque, width: i32, height: i32) -> Status {
        launch!(Stream::legacy(0), real::cuLaunchGrid(function, width, height))
    }

    /// Launches a kernel in two dimensions, in a stream.
    fn cuLaunchGridAsync(function: Opaque, width: i32, height: i32, stream: Opaque) -> Status {
        launch!(Stream::legacy(stream), real::cuLaunchGridAsync(function, width, height, stream))
    }

    /// Launches a kernel.
    fn cuLaunchKernel(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Opaque, parameters: Opaque, extra: Opaque,
    ) -> Status {
        launch!(Stream::legacy(stream), real::cuLaunchKernel(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra
        ))
    }

    /// As above, with the per-thread default stream.
    fn cuLaunchKernel_ptsz(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Opaque, parameters: Opaque, extra: Opaque,
    ) -> Status {
        launch!(Stream::per_thread(stream), real::cuLaunchKernel_ptsz(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra
        ))
    }

    /// Launches a kernel with attributes.
    fn cuLaunchKernelEx(config: In<LaunchConfig>, function: Opaque, parameters: Opaque, extra: Opaque) -> Status {
        let stream = Stream::legacy(LaunchConfig::stream(config));
        launch!(stream, real::cuLaunchKernelEx(config, function, parameters, extra))
    }

    /// As above, with the per-thread default stream.
    fn cuLaunchKernelEx_ptsz(config: In<LaunchConfig>, function: Opaque, parameters: Opaque, extra: Opaque) -> Status {
        let stream = Stream::per_thread(LaunchConfig::stream(config));
        launch!(stream, real::cuLaunchKernelEx_ptsz(config, function, parameters, extra))
    }

    /// Launches a kernel whose blocks synchronise.
    fn cuLaunchCooperativeKernel(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Opaque, parameters: Opaque,
    ) -> Status {
        launch!(Stream::legacy(stream), real::cuLaunchCooperativeKernel(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters
        ))
    }

    /// As above, with the per-thread default stream.
    fn cuLaunchCooperativeKernel_ptsz(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Opaque, parameters: Opaque,
    ) -> Status {
        launch!(Stream::per_thread(stream), real::cuLaunchCooperativeKernel_ptsz(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters
        ))
    }

    /// Launches a kernel on several GPUs. It passes the gates of all shares of the process.
    fn cuLaunchCooperativeKernelMultiDevice(list: Opaque, count: u32, flags: u32) -> Status {
        let all_passed = process::get().and_then(|process| process.shares.all().iter().try_for_each(gate::pass));
        match all_passed {
            Ok(()) => launch!(Stream::legacy(0), real::cuLaunchCooperativeKernelMultiDevice(list, count, flags)),
            Err(status) => status,
        }
    }

    /// Launches a graph.
    fn cuGraphLaunch(graph: Opaque, stream: Opaque) -> Status {
        let of = Stream::legacy(stream);
        launch!(of, graph_memory::with_memory(graph, of, || real::cuGraphLaunch(graph, stream)))
    }

    /// As above, with the per-thread default stream.
    fn cuGraphLaunch_ptsz(graph: Opaque, stream: Opaque) -> Status {
        let of = Stream::per_thread(stream);
        launch!(of, graph_memory::with_memory(graph, of, || real::cuGraphLaunch_ptsz(graph, stream)))
    }
}

/// Passes the gate of the current GPU, waits for a lease where one is needed, and counts the launch.
#[inline]
fn enter(stream: Option<Stream>) -> Result<Option<Inside<'static>>, Status> {
    let process = process::get()?;
    match process.shares.all() {
        [share] if gate::is_open(share) && share.leases.is_free() => {
            count(share);
            Ok(None)
        }
        _ => enter_slowly(process, stream),
    }
}

/// Passes the gate of the current GPU and waits for a lease, before a launch by a function that the guard does not know. Under
/// a cap it is not counted.
pub(crate) fn pass_gate() -> Result<(), Status> {
    if let Some(inside) = enter(None)? {
        inside.leave_uncounted();
    }
    Ok(())
}

/// As above, if the GPU matters or the thread may have to wait.
#[inline(never)]
fn enter_slowly(
    process: &'static Process,
    stream: Option<Stream>,
) -> Result<Option<Inside<'static>>, Status> {
    // A launch without a context fails, and the driver reports why.
    let device = match stream {
        Some(stream) => stream.device().map(|(device, _)| device),
        None => devices::current(),
    };
    let Ok(device) = device else { return Ok(None) };
    let share_indices = process.shares_of(device)?;
    let mut shares = share_indices.filter_map(|share_index| process.shares.get(share_index));
    let Some(first) = shares.next() else { return Ok(None) };
    for share in shares {
        gate::pass(share)?;
    }
    loop {
        gate::pass(first)?;
        let inside = first.leases.get().and_then(|leases| leases.enter(stream));
        // The gate may have shut while the thread waited for its lease.
        if gate::is_open(first) {
            count(first);
            return Ok(inside);
        }
        if let Some(inside) = inside {
            inside.leave_uncounted();
        }
    }
}

/// Counts a launch. Two concurrent threads may count one: precision is not worth a locked
/// instruction.
#[inline]
fn count(share: &Share) {
    let launches = &share.slot().launches;
    launches.store(launches.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
