//! The driver's functions as the runtime calls them.
//!
//! Owns: loading `libcuda.so.1`, and the two ways to its functions. Refuses: going on without a driver: a runtime without
//! one ends the process, with the reason on standard error.

use infertap_driver_script::{Cuda, RuntimeCalls};
use std::{
    ffi::{CStr, CString, c_char, c_void},
    sync::OnceLock,
};

macro_rules! functions {
    ($($name:ident($($type:ty),* $(,)?);)+) => {
        /// The driver's functions.
        pub(crate) struct Driver {
            $(pub(crate) $name: extern "C" fn($($type),*) -> u32,)+
        }

        impl Driver {
            fn new(find: &dyn Fn(&str) -> *mut c_void) -> Driver {
                Driver {
                    // SAFETY: `find` gives the address of the driver's function of this name, which is not null and has
                    // this signature.
                    $($name: unsafe {
                        std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) -> u32>(find(stringify!($name)))
                    },)+
                }
            }
        }
    };
}

functions! {
    cuInit(u32);
    cuDriverGetVersion(*mut i32);
    cuDeviceGetCount(*mut i32);
    cuCtxSetCurrent(usize);
    cuCtxGetDevice(*mut i32);
    cuCtxSynchronize();
    cuModuleLoadData(*mut usize, *const c_void);
    cuModuleGetFunction(*mut usize, usize, *const c_char);
    cuLaunchKernel(usize, u32, u32, u32, u32, u32, u32, u32, usize, *mut *mut c_void, *mut *mut c_void);
    cuLaunchCooperativeKernel(usize, u32, u32, u32, u32, u32, u32, u32, usize, *mut *mut c_void);
    cuLaunchKernelEx(*const c_void, usize, *mut *mut c_void, *mut *mut c_void);
    cuGraphCreate(*mut usize, u32);
    cuGraphAddKernelNode_v2(*mut usize, usize, *const usize, usize, *const usize);
    cuGraphInstantiateWithFlags(*mut usize, usize, u64);
    cuGraphLaunch(usize, usize);
    cuGraphExecDestroy(usize);
    cuGraphDestroy(usize);
    cuStreamBeginCapture_v2(usize, u32);
    cuStreamEndCapture(usize, *mut usize);
    cuStreamCreate(*mut usize, u32);
    cuStreamCreateWithPriority(*mut usize, u32, i32);
    cuStreamDestroy_v2(usize);
    cuStreamSynchronize(usize);
    cuStreamQuery(usize);
    cuStreamWaitEvent(usize, usize, u32);
    cuEventCreate(*mut usize, u32);
    cuEventRecord(usize, usize);
    cuEventQuery(usize);
    cuEventSynchronize(usize);
    cuEventElapsedTime(*mut f32, usize, usize);
    cuEventDestroy_v2(usize);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemAllocPitch_v2(*mut u64, *mut usize, usize, usize, u32);
    cuMemAllocManaged(*mut u64, usize, u32);
    cuMemAllocAsync(*mut u64, usize, usize);
    cuMemAllocFromPoolAsync(*mut u64, usize, usize, usize);
    cuMemFree_v2(u64);
    cuMemFreeAsync(u64, usize);
    cuMemcpy(u64, u64, usize);
    cuMemcpyAsync(u64, u64, usize, usize);
    cuMemcpyHtoD_v2(u64, u64, usize);
    cuMemcpyHtoDAsync_v2(u64, u64, usize, usize);
    cuMemcpyDtoH_v2(u64, u64, usize);
    cuMemcpyDtoHAsync_v2(u64, u64, usize, usize);
    cuMemcpyDtoD_v2(u64, u64, usize);
    cuMemcpyDtoDAsync_v2(u64, u64, usize, usize);
    cuMemcpyPeer(u64, usize, u64, usize, usize);
    cuMemcpyPeerAsync(u64, usize, u64, usize, usize, usize);
    cuMemcpy2D_v2(*const [u64; 16]);
    cuMemcpy2DAsync_v2(*const [u64; 16], usize);
}

/// The driver, loaded at the first call of the runtime.
pub(crate) fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let settings = Cuda::from_environment().unwrap_or_else(|error| give_up(&error));
        // SAFETY: a valid name; loading runs no code beyond Rust's own start-up.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            give_up("libcuda.so.1 can't be loaded");
        }
        let symbol = |name: &CStr| {
            // SAFETY: a library that stays loaded and a valid name.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            if address.is_null() {
                give_up(&format!("the driver has no {}", name.to_string_lossy()));
            }
            address
        };
        let driver = match settings.runtime {
            RuntimeCalls::Exported => Driver::new(&|name| symbol(&CString::new(name).unwrap_or_default())),
            RuntimeCalls::ProcAddress => {
                type GetProcAddress =
                    extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut u32) -> u32;
                // SAFETY: the driver's function of this name has this signature.
                let get: GetProcAddress = unsafe { std::mem::transmute(symbol(c"cuGetProcAddress_v2")) };
                Driver::new(&|name| {
                    let plain = CString::new(name.strip_suffix("_v2").unwrap_or(name)).unwrap_or_default();
                    let (mut address, mut status) = (std::ptr::null_mut(), 0);
                    if get(plain.as_ptr(), &raw mut address, 12_000, 0, &raw mut status) != 0
                        || address.is_null()
                    {
                        give_up(&format!("the driver gives out no {name}"));
                    }
                    address
                })
            }
        };
        (driver.cuInit)(0);
        driver
    })
}

fn give_up(why: &str) -> ! {
    eprintln!("stand-in CUDA runtime: {why}");
    std::process::abort();
}
