//! Launches.
//!
//! Owns: putting a kernel's time on its stream. Refuses: grids and parameters, which nobody computes with.

use crate::{
    ffi::Ptr,
    state::{Entry, Error, StreamHandle, state},
};
use std::ffi::c_void;

/// `CUlaunchConfig`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: StreamHandle,
    attributes: usize,
    attribute_count: u32,
}

cuda! {
    fn cuLaunchKernel | cuLaunchKernel_ptsz (
        entry, function: usize, _grid_x: u32, _grid_y: u32, _grid_z: u32, _block_x: u32, _block_y: u32, _block_z: u32,
        _shared: u32, stream: StreamHandle, _parameters: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        launch(entry, function, stream)
    }

    fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz (
        entry, function: usize, _grid_x: u32, _grid_y: u32, _grid_z: u32, _block_x: u32, _block_y: u32, _block_z: u32,
        _shared: u32, stream: StreamHandle, _parameters: *mut *mut c_void,
    ) {
        launch(entry, function, stream)
    }

    fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz (
        entry, config: Ptr<LaunchConfig>, function: usize, _parameters: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        launch(entry, function, config.get()?.stream)
    }
}

fn launch(entry: Entry, function: usize, stream: StreamHandle) -> Result<(), Error> {
    let mut state = state();
    let kernel = function
        .checked_sub(1)
        .and_then(|at| state.kernels.get(at))
        .copied();
    let nanoseconds = kernel.ok_or(Error::InvalidHandle)?;
    let stream = state.stream(entry, stream)?;
    state.put(stream, nanoseconds)
}
