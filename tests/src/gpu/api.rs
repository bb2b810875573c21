//! CUDA's driver and runtime APIs, loaded from the stand-in libraries as a program loads the real ones.
//!
//! Owns: finding the functions, the structures that they take. Refuses: what to call (`calls`, the scripted engine).

use super::{CUDA, CUDART};
use anyhow::{Context, Result, ensure};
use std::{
    ffi::{CStr, CString, c_char, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// A loaded library. It stays loaded.
#[derive(Debug, Clone, Copy)]
struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Result<Library> {
        let name = CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")?;
        // SAFETY: a valid name; the stand-in libraries run no code when they are loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        ensure!(!handle.is_null(), "can't load {}: {}", path.display(), error());
        Ok(Library(handle))
    }

    fn symbol(self, name: &str) -> Result<*mut c_void> {
        let name = CString::new(name).context("a name with a zero byte")?;
        // SAFETY: a library that stays loaded and a valid name.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        ensure!(!address.is_null(), "no {}: {}", name.to_string_lossy(), error());
        Ok(address)
    }
}

fn error() -> String {
    // SAFETY: dlerror returns null or a string that stays until the next call of this thread.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "no reason told".to_owned()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

/// `dim3`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Dim3(pub u32, pub u32, pub u32);

/// `CUlaunchConfig` and `cudaLaunchConfig_t`, which have their stream at the same place.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LaunchConfig {
    /// Grid and block.
    pub size: [u32; 6],
    /// Dynamic shared memory.
    pub shared: u32,
    /// Stream.
    pub stream: usize,
    /// Attributes: none.
    pub attributes: usize,
    /// How many.
    pub attribute_count: u32,
}

/// `CUDA_MEMCPY2D` of three rows between two kinds of memory: 1 is the host's, 2 a device's.
pub(super) fn rows(from: u64, to: u64, bytes: usize) -> [u64; 16] {
    let mut copy = [0; 16];
    (copy[2], copy[9]) = (from, to);
    (copy[6], copy[13]) = (bytes as u64, bytes as u64);
    (copy[14], copy[15]) = (bytes as u64, 3);
    copy
}

/// `CUDA_MEMCPY3D` of two planes of three rows from a device's memory to the host's.
pub(super) fn planes(bytes: usize) -> [u64; 25] {
    let mut copy = [0; 25];
    (copy[4], copy[15]) = (2, 1);
    (copy[22], copy[23], copy[24]) = (bytes as u64, 3, 2);
    copy
}

macro_rules! api {
    ($(#[$doc:meta])* $api:ident { $($name:ident($($type:ty),* $(,)?) $(| $per_thread:literal)?;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        #[allow(missing_docs, non_snake_case, clippy::pub_underscore_fields, reason = "the functions are CUDA's own")]
        pub struct $api {
            $(pub $name: extern "C" fn($($type),*) -> u32,)+
        }

        impl $api {
            fn new(library: Library, per_thread: bool) -> Result<$api> {
                Ok($api {
                    $($name: {
                        let ending = [$($per_thread)?].first().copied().filter(|_| per_thread).unwrap_or("");
                        let address = library.symbol(&format!("{}{ending}", stringify!($name)))?;
                        // SAFETY: the stand-in's function of this name has this signature, which is CUDA's.
                        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) -> u32>(address) }
                    },)+
                })
            }
        }
    };
}

api! {
    /// The driver's functions; those with a second name are taken by it with per-thread default streams.
    DriverApi {
        cuInit(u32);
        cuCtxSetCurrent(usize);
        cuCtxSynchronize();
        cuModuleLoadData(*mut usize, *const c_void);
        cuModuleGetFunction(*mut usize, usize, *const c_char);
        cuLaunchKernel(usize, u32, u32, u32, u32, u32, u32, u32, usize, *mut *mut c_void, *mut *mut c_void) | "_ptsz";
        cuLaunchCooperativeKernel(usize, u32, u32, u32, u32, u32, u32, u32, usize, *mut *mut c_void) | "_ptsz";
        cuLaunchKernelEx(*const LaunchConfig, usize, *mut *mut c_void, *mut *mut c_void) | "_ptsz";
        cuGraphCreate(*mut usize, u32);
        cuGraphAddKernelNode_v2(*mut usize, usize, *const usize, usize, *const usize);
        cuGraphInstantiateWithFlags(*mut usize, usize, u64);
        cuGraphLaunch(usize, usize) | "_ptsz";
        cuStreamCreate(*mut usize, u32);
        cuStreamSynchronize(usize) | "_ptsz";
        cuEventCreate(*mut usize, u32);
        cuEventRecord(usize, usize) | "_ptsz";
        cuEventQuery(usize);
        cuEventSynchronize(usize);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut u64, usize);
        cuMemAllocPitch_v2(*mut u64, *mut usize, usize, usize, u32);
        cuMemAllocManaged(*mut u64, usize, u32);
        cuMemAllocAsync(*mut u64, usize, usize) | "_ptsz";
        cuMemAllocFromPoolAsync(*mut u64, usize, usize, usize) | "_ptsz";
        cuMemFree_v2(u64);
        cuMemFreeAsync(u64, usize) | "_ptsz";
        cuMemCreate(*mut u64, usize, *const c_void, u64);
        cuMemRelease(u64);
        cuMemAddressReserve(*mut u64, usize, usize, u64, u64);
        cuMemMap(u64, usize, usize, u64, u64);
        cuMemUnmap(u64, usize);
        cuMemcpy(u64, u64, usize) | "_ptds";
        cuMemcpyAsync(u64, u64, usize, usize) | "_ptsz";
        cuMemcpyHtoD_v2(u64, u64, usize) | "_ptds";
        cuMemcpyHtoDAsync_v2(u64, u64, usize, usize) | "_ptsz";
        cuMemcpyDtoH_v2(u64, u64, usize) | "_ptds";
        cuMemcpyDtoHAsync_v2(u64, u64, usize, usize) | "_ptsz";
        cuMemcpyDtoD_v2(u64, u64, usize) | "_ptds";
        cuMemcpyDtoDAsync_v2(u64, u64, usize, usize) | "_ptsz";
        cuMemcpyPeer(u64, usize, u64, usize, usize) | "_ptds";
        cuMemcpyPeerAsync(u64, usize, u64, usize, usize, usize) | "_ptsz";
        cuMemcpy2D_v2(*const [u64; 16]) | "_ptds";
        cuMemcpy2DAsync_v2(*const [u64; 16], usize) | "_ptsz";
        cuMemcpy3DAsync_v2(*const [u64; 25], usize) | "_ptsz";
    }
}

api! {
    /// The runtime's functions, likewise.
    RuntimeApi {
        __cudaRegisterFunction(
            *mut c_void, usize, *const c_char, *const c_char, i32, usize, usize, usize, usize, usize,
        );
        cudaSetDevice(i32);
        cudaDeviceSynchronize();
        cudaLaunchKernel(usize, Dim3, Dim3, *mut *mut c_void, usize, usize) | "_ptsz";
        cudaLaunchCooperativeKernel(usize, Dim3, Dim3, *mut *mut c_void, usize, usize) | "_ptsz";
        cudaLaunchKernelExC(*const LaunchConfig, usize, *mut *mut c_void) | "_ptsz";
        cudaGraphCreate(*mut usize, u32);
        cudaGraphAddKernelNode(*mut usize, usize, *const usize, usize, *const usize);
        cudaGraphInstantiate(*mut usize, usize, u64);
        cudaGraphLaunch(usize, usize) | "_ptsz";
        cudaStreamCreate(*mut usize);
        cudaStreamSynchronize(usize) | "_ptsz";
        cudaEventCreate(*mut usize);
        cudaEventRecord(usize, usize) | "_ptsz";
        cudaEventQuery(usize);
        cudaEventSynchronize(usize);
        cudaMalloc(*mut u64, usize);
        cudaMallocPitch(*mut u64, *mut usize, usize, usize);
        cudaMallocManaged(*mut u64, usize, u32);
        cudaMallocAsync(*mut u64, usize, usize) | "_ptsz";
        cudaMallocFromPoolAsync(*mut u64, usize, usize, usize) | "_ptsz";
        cudaFree(u64);
        cudaFreeAsync(u64, usize) | "_ptsz";
        cudaMemcpy(u64, u64, usize, u32) | "_ptds";
        cudaMemcpyAsync(u64, u64, usize, u32, usize) | "_ptsz";
        cudaMemcpyToSymbol(u64, u64, usize, usize, u32);
        cudaMemcpyPeer(u64, i32, u64, i32, usize);
        cudaMemcpyPeerAsync(u64, i32, u64, i32, usize, usize);
        cudaMemcpy2D(u64, usize, u64, usize, usize, usize, u32) | "_ptds";
        cudaMemcpy2DAsync(u64, usize, u64, usize, usize, usize, u32, usize) | "_ptsz";
    }
}

/// Both APIs of the libraries in a folder.
#[derive(Debug, Clone, Copy)]
pub struct Api {
    /// The driver's.
    pub driver: DriverApi,
    /// The runtime's.
    pub runtime: RuntimeApi,
    /// Calls by the way they entered the stand-in driver.
    entered: extern "C" fn(u32) -> u64,
}

// SAFETY: function pointers of libraries that stay loaded, whose functions may be called from any thread.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

impl Api {
    /// Loads both libraries from `folder`.
    pub fn load(folder: &Path, per_thread: bool) -> Result<Api> {
        let driver = Library::open(&folder.join(CUDA))?;
        let runtime = Library::open(&folder.join(CUDART))?;
        let entered = driver.symbol("infertapStandInEntered")?;
        let api = Api {
            driver: DriverApi::new(driver, per_thread)?,
            runtime: RuntimeApi::new(runtime, per_thread)?,
            // SAFETY: the stand-in's function of this name has this signature.
            entered: unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(u32) -> u64>(entered) },
        };
        let code = (api.driver.cuInit)(0);
        ensure!(code == 0, "cuInit returned {code}");
        Ok(api)
    }

    /// Calls that entered the driver by its exported symbols, by those for per-thread default streams, and by pointers of
    /// `cuGetProcAddress`.
    pub fn entered(&self) -> [u64; 3] {
        [0, 1, 2].map(|way| (self.entered)(way))
    }

    /// The driver's handle of a kernel that takes this long.
    pub fn kernel(&self, microseconds: u64) -> Result<usize> {
        let name = CString::new(format!("kernel_{microseconds}us"))?;
        let (mut module, mut function) = (0, 0);
        (self.driver.cuModuleLoadData)(&raw mut module, std::ptr::null());
        let code = (self.driver.cuModuleGetFunction)(&raw mut function, module, name.as_ptr());
        ensure!(code == 0, "cuModuleGetFunction returned {code}");
        Ok(function)
    }

    /// Makes `host` the host function of a kernel that takes this long.
    pub fn register(&self, host: usize, microseconds: u64) -> Result<()> {
        // The runtime keeps what start-up code passes.
        let name = CString::new(format!("kernel_{microseconds}us"))?;
        let null = std::ptr::null_mut();
        (self.runtime.__cudaRegisterFunction)(null, host, name.as_ptr(), name.as_ptr(), -1, 0, 0, 0, 0, 0);
        Ok(())
    }

    /// An executable graph of `nodes` kernels that take `microseconds` each.
    pub fn graph(&self, nodes: u32, microseconds: u64) -> Result<usize> {
        let kernel = self.kernel(microseconds)?;
        let (mut graph, mut node, mut executable) = (0, 0, 0);
        let mut code = (self.driver.cuGraphCreate)(&raw mut graph, 0);
        for _ in 0..nodes {
            code |= (self.driver.cuGraphAddKernelNode_v2)(
                &raw mut node,
                graph,
                std::ptr::null(),
                0,
                &raw const kernel,
            );
        }
        code |= (self.driver.cuGraphInstantiateWithFlags)(&raw mut executable, graph, 0);
        ensure!(code == 0, "making a graph returned {code}");
        Ok(executable)
    }

    /// A stream of the calling thread's device.
    pub fn stream(&self) -> Result<usize> {
        let mut stream = 0;
        let code = (self.driver.cuStreamCreate)(&raw mut stream, 0);
        ensure!(code == 0, "cuStreamCreate returned {code}");
        Ok(stream)
    }
}
