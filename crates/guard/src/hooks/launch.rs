//! Launches of kernels and graphs. They pass the share's gate, which costs one load while it is
//! open, and are counted.

use core::sync::atomic::Ordering;

use crate::cuda::{Opaque, Status};
use crate::devices;
use crate::gate;
use crate::process::{self, Process};
use crate::shares::Share;
use crate::tracking::graph_memory;
use crate::tracking::streams::Stream;

/// Calls the driver once the gate is passed.
macro_rules! pass {
    ($call:expr) => {
        match pass_gate() {
            Ok(()) => $call,
            Err(status) => status,
        }
    };
}

hooks! {
    CUDA, Status;

    /// Launches a kernel with a configuration set before.
    fn cuLaunch(function: Opaque) -> Status {
        pass!(real::cuLaunch(function))
    }

    /// Launches a kernel in two dimensions.
    fn cuLaunchGrid(function: Opaque, width: i32, height: i32) -> Status {
        pass!(real::cuLaunchGrid(function, width, height))
    }

    /// Launches a kernel in two dimensions, in a stream.
    fn cuLaunchGridAsync(function: Opaque, width: i32, height: i32, stream: Opaque) -> Status {
        pass!(real::cuLaunchGridAsync(function, width, height, stream))
    }

    /// Launches a kernel.
    fn cuLaunchKernel(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Opaque, parameters: Opaque, extra: Opaque,
    ) -> Status {
        pass!(real::cuLaunchKernel(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra
        ))
    }

    /// As above, with the per-thread default stream.
    fn cuLaunchKernel_ptsz(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Opaque, parameters: Opaque, extra: Opaque,
    ) -> Status {
        pass!(real::cuLaunchKernel_ptsz(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra
        ))
    }

    /// Launches a kernel with attributes.
    fn cuLaunchKernelEx(config: Opaque, function: Opaque, parameters: Opaque, extra: Opaque) -> Status {
        pass!(real::cuLaunchKernelEx(config, function, parameters, extra))
    }

    /// As above, with the per-thread default stream.
    fn cuLaunchKernelEx_ptsz(config: Opaque, function: Opaque, parameters: Opaque, extra: Opaque) -> Status {
        pass!(real::cuLaunchKernelEx_ptsz(config, function, parameters, extra))
    }

    /// Launches a kernel whose blocks synchronise.
    fn cuLaunchCooperativeKernel(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Opaque, parameters: Opaque,
    ) -> Status {
        pass!(real::cuLaunchCooperativeKernel(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters
        ))
    }

    /// As above, with the per-thread default stream.
    fn cuLaunchCooperativeKernel_ptsz(
        function: Opaque, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Opaque, parameters: Opaque,
    ) -> Status {
        pass!(real::cuLaunchCooperativeKernel_ptsz(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters
        ))
    }

    /// Launches a kernel on several GPUs. It passes the gates of all shares of the process.
    fn cuLaunchCooperativeKernelMultiDevice(list: Opaque, count: u32, flags: u32) -> Status {
        let all_passed = process::get().and_then(|process| process.shares.all().iter().try_for_each(gate::pass));
        match all_passed {
            Ok(()) => pass!(real::cuLaunchCooperativeKernelMultiDevice(list, count, flags)),
            Err(status) => status,
        }
    }

    /// Launches a graph.
    fn cuGraphLaunch(graph: Opaque, stream: Opaque) -> Status {
        graph_memory::with_memory(graph, Stream::legacy(stream), || pass!(real::cuGraphLaunch(graph, stream)))
    }

    /// As above, with the per-thread default stream.
    fn cuGraphLaunch_ptsz(graph: Opaque, stream: Opaque) -> Status {
        graph_memory::with_memory(graph, Stream::per_thread(stream), || pass!(real::cuGraphLaunch_ptsz(graph, stream)))
    }
}

/// Passes the gate of the current GPU and counts the launch.
#[inline]
pub(crate) fn pass_gate() -> Result<(), Status> {
    let process = process::get()?;
    match process.shares.all() {
        [share] if gate::is_open(share) => {
            count(share);
            Ok(())
        }
        _ => pass_gate_of_device(process),
    }
}

/// As above, if the GPU matters: there are several shares, or the gate is not open.
#[cold]
fn pass_gate_of_device(process: &'static Process) -> Result<(), Status> {
    // A launch without a context fails, and the driver reports why.
    let Ok(device) = devices::current() else { return Ok(()) };
    let share_indices = process.shares_of(device)?;
    for share in share_indices.clone().filter_map(|share_index| process.shares.get(share_index)) {
        gate::pass(share)?;
    }
    let mut share_indices = share_indices;
    if let Some(share) =
        share_indices.next().and_then(|share_index| process.shares.get(share_index))
    {
        count(share);
    }
    Ok(())
}

/// Counts a launch. Two concurrent threads may count one: precision is not worth a locked
/// instruction.
#[inline]
fn count(share: &Share) {
    let launches = &share.slot().launches;
    launches.store(launches.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
