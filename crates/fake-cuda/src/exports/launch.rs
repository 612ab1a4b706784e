//! Launches.

use std::ffi::{c_int, c_uint};

use crate::abi::LaunchConfig;
use crate::code::Code;
use crate::execution::launch::{self, kernel};
use crate::execution::stream::Default;
use crate::pointers::In;
use crate::table::Handle;

calls! { HOT = hot_call;
    fn cuLaunchCooperativeKernelMultiDevice(_list: usize, _count: c_uint, _flags: c_uint) {
        Err(Code::NOT_SUPPORTED)
    }
}

stream_calls! { STREAM = launch_call;
    fn cuLaunchKernel, cuLaunchKernel_ptsz(
        default,
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Handle,
        arguments: usize,
        _extra: usize,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch::launch(kernel(function, grid, block, shared, arguments)?, stream, default)
    }

    fn cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz(
        default,
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Handle,
        arguments: usize,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch::launch(kernel(function, grid, block, shared, arguments)?, stream, default)
    }

    fn cuLaunchKernelEx, cuLaunchKernelEx_ptsz(
        default,
        config: In<LaunchConfig>,
        function: Handle,
        arguments: usize,
        _extra: usize,
    ) {
        let config = config.read()?;
        let kernel = kernel(function, config.grid, config.block, config.shared_bytes, arguments)?;
        launch::launch(kernel, config.stream, default)
    }
}

/// Block of the oldest launches, whose shape was set beforehand.
const OLD_BLOCK: [u32; 3] = [256, 1, 1];

calls! { OLD = hot_call;
    fn cuLaunch(function: Handle) {
        launch::launch(kernel(function, [1; 3], OLD_BLOCK, 0, 0)?, 0, Default::Legacy)
    }

    fn cuLaunchGrid(function: Handle, width: c_int, height: c_int) {
        launch::launch(old(function, width, height)?, 0, Default::Legacy)
    }

    fn cuLaunchGridAsync(function: Handle, width: c_int, height: c_int, stream: Handle) {
        launch::launch(old(function, width, height)?, stream, Default::Legacy)
    }
}

fn old(function: Handle, width: c_int, height: c_int) -> Result<launch::Kernel, Code> {
    let side = |side: c_int| u32::try_from(side).map_err(|_| Code::INVALID_VALUE);
    kernel(function, [side(width)?, side(height)?, 1], OLD_BLOCK, 0, 0)
}
