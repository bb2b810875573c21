//! Launches, of kernels that were registered by their host function, and of graphs.
//!
//! Owns: which host function is which kernel; two forms that compilers give to functions of real ones: one that calls another
//! exported function of its library, and one that jumps to the driver's. Refuses: fat binaries: the name is all there is of a
//! kernel.

use crate::{
    driver::{Driver, driver},
    or_default, per_thread, runtime,
};
use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_void},
    sync::{
        LazyLock, PoisonError, RwLock,
        atomic::{AtomicPtr, Ordering},
    },
};

/// `dim3`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

/// `cudaLaunchConfig_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
    attributes: usize,
    attribute_count: u32,
}

/// `cudaKernelNodeParams`, as far as it matters.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelNode {
    function: usize,
}

/// `cudaErrorInvalidValue`.
const INVALID_VALUE: u32 = 1;
/// `cudaErrorInvalidDeviceFunction`.
const INVALID_FUNCTION: u32 = 98;

/// Kernels by host function: the name, and the driver's handle once it is asked for.
static KERNELS: LazyLock<RwLock<Kernels>> = LazyLock::new(RwLock::default);

type Kernels = HashMap<usize, (CString, Option<usize>)>;

/// What the compiler's start-up code calls for each kernel.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the signature is CUDA's own")]
extern "C" fn __cudaRegisterFunction(
    _binary: *mut *mut c_void,
    host: usize,
    _device: *mut c_char,
    name: *const c_char,
    _limit: i32,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _warp_size: *mut c_void,
) {
    // SAFETY: start-up code passes a name that stays.
    let name = unsafe { CStr::from_ptr(name) }.to_owned();
    let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
    kernels.insert(host, (name, None));
}

/// The driver's handle of a host function's kernel.
fn kernel(driver: &Driver, host: usize) -> Option<usize> {
    let known = KERNELS
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&host)?
        .1;
    if known.is_some() {
        return known;
    }
    let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
    let (name, handle) = kernels.get_mut(&host)?;
    let (mut module, mut function) = (0, 0);
    (driver.cuModuleLoadData)(&raw mut module, std::ptr::null());
    if (driver.cuModuleGetFunction)(&raw mut function, module, name.as_ptr()) != 0 {
        return None;
    }
    *handle = Some(function);
    *handle
}

runtime! {
    fn cudaLaunchKernel | cudaLaunchKernel_ptsz (
        driver, default, host: usize, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared: usize, stream: usize,
    ) {
        let Some(function) = kernel(driver, host) else { return INVALID_FUNCTION };
        (driver.cuLaunchKernel)(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared as u32, or_default(stream, default),
            parameters, std::ptr::null_mut(),
        )
    }

    fn cudaLaunchCooperativeKernel | cudaLaunchCooperativeKernel_ptsz (
        driver, default, host: usize, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared: usize, stream: usize,
    ) {
        let Some(function) = kernel(driver, host) else { return INVALID_FUNCTION };
        (driver.cuLaunchCooperativeKernel)(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared as u32, or_default(stream, default),
            parameters,
        )
    }

    fn cudaLaunchKernelExC | cudaLaunchKernelExC_ptsz (
        driver, default, config: Option<&LaunchConfig>, host: usize, parameters: *mut *mut c_void,
    ) {
        let Some(config) = config else { return INVALID_VALUE };
        if config.attribute_count == 0 && default == 0 {
            // Without attributes it is a plain launch, by the library's own function.
            return super::cudaLaunchKernel(
                host, config.grid, config.block, parameters, config.shared, config.stream,
            );
        }
        let Some(function) = kernel(driver, host) else { return INVALID_FUNCTION };
        // Both configurations have the same members; dynamic shared memory, of another width, does not matter here.
        (driver.cuLaunchKernelEx)(std::ptr::from_ref(config).cast(), function, parameters, std::ptr::null_mut())
    }

    fn cudaGraphCreate(driver, _default, graph: *mut usize, flags: u32) {
        (driver.cuGraphCreate)(graph, flags)
    }

    fn cudaGraphAddKernelNode(
        driver, _default, node: *mut usize, graph: usize, dependencies: *const usize, count: usize,
        parameters: Option<&KernelNode>,
    ) {
        let Some(function) = parameters.and_then(|node| kernel(driver, node.function)) else { return INVALID_FUNCTION };
        (driver.cuGraphAddKernelNode_v2)(node, graph, dependencies, count, &raw const function)
    }

    fn cudaGraphInstantiate(driver, _default, executable: *mut usize, graph: usize, flags: u64) {
        (driver.cuGraphInstantiateWithFlags)(executable, graph, flags)
    }

    fn cudaGraphExecDestroy(driver, _default, executable: usize) {
        (driver.cuGraphExecDestroy)(executable)
    }

    fn cudaGraphDestroy(driver, _default, graph: usize) {
        (driver.cuGraphDestroy)(graph)
    }
}

/// What `cudaGraphLaunch` jumps to: the driver's function, once it is known.
static GRAPH_LAUNCH: AtomicPtr<()> = AtomicPtr::new((first_graph_launch as *const ()).cast_mut());

/// As the last act of a function that passes its arguments on is compiled: the driver's function returns to the caller.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn cudaGraphLaunch(_executable: usize, _stream: usize) -> u32 {
    core::arch::naked_asm!("jmp qword ptr [rip + {}]", sym GRAPH_LAUNCH)
}

#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
extern "C" fn cudaGraphLaunch(executable: usize, stream: usize) -> u32 {
    first_graph_launch(executable, stream)
}

extern "C" fn first_graph_launch(executable: usize, stream: usize) -> u32 {
    let launch = driver().cuGraphLaunch;
    GRAPH_LAUNCH.store((launch as *const ()).cast_mut(), Ordering::Release);
    launch(executable, stream)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphLaunch_ptsz(executable: usize, stream: usize) -> u32 {
    // `CU_STREAM_PER_THREAD`.
    (driver().cuGraphLaunch)(executable, or_default(stream, 2))
}
