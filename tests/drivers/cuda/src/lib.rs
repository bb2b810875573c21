//! A `libcuda.so.1` for machines without a GPU: the driver API's functions over a simulated device.
//!
//! Owns: the functions that engines call, with the real signatures. Each exists twice, as the exported symbol and as a
//! function of its own that `cuGetProcAddress` gives out, since real runtimes may call either. Refuses: computing and
//! moving data: a launch only takes time, as long as its kernel's name says (`decode_2500us`), and device memory is
//! counted, not there. `infertap-driver-script`'s `Cuda` says how it behaves.
#![allow(non_snake_case, reason = "the names are CUDA's own")]

#[macro_use]
mod ffi;
mod address;
mod context;
mod copy;
mod device;
mod graph;
mod launch;
mod memory;
mod state;
mod stream;
