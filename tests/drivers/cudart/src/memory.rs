//! Device memory.
//!
//! Owns: the runtime's names for it. Refuses: a cache: each call is one of the driver's.

use crate::{or_default, per_thread, runtime};

runtime! {
    fn cudaMemGetInfo(driver, _default, free: *mut usize, total: *mut usize) {
        (driver.cuMemGetInfo_v2)(free, total)
    }

    fn cudaMalloc(driver, _default, pointer: *mut u64, bytes: usize) {
        (driver.cuMemAlloc_v2)(pointer, bytes)
    }

    fn cudaMallocPitch(driver, _default, pointer: *mut u64, pitch: *mut usize, width: usize, height: usize) {
        (driver.cuMemAllocPitch_v2)(pointer, pitch, width, height, 4)
    }

    fn cudaMallocManaged(driver, _default, pointer: *mut u64, bytes: usize, flags: u32) {
        (driver.cuMemAllocManaged)(pointer, bytes, flags)
    }

    fn cudaMallocAsync | cudaMallocAsync_ptsz (driver, default, pointer: *mut u64, bytes: usize, stream: usize) {
        (driver.cuMemAllocAsync)(pointer, bytes, or_default(stream, default))
    }

    fn cudaMallocFromPoolAsync | cudaMallocFromPoolAsync_ptsz (
        driver, default, pointer: *mut u64, bytes: usize, pool: usize, stream: usize,
    ) {
        (driver.cuMemAllocFromPoolAsync)(pointer, bytes, pool, or_default(stream, default))
    }

    fn cudaFree(driver, _default, pointer: u64) {
        (driver.cuMemFree_v2)(pointer)
    }

    fn cudaFreeAsync | cudaFreeAsync_ptsz (driver, default, pointer: u64, stream: usize) {
        (driver.cuMemFreeAsync)(pointer, or_default(stream, default))
    }
}
