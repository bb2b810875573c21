//! Copies.
//!
//! Owns: which of the driver's copies a direction is (`cudaMemcpyKind`). Refuses: host to host by any other than the
//! driver's copy between unified addresses.

use crate::{driver::Driver, or_default, per_thread, runtime};

runtime! {
    fn cudaMemcpy | cudaMemcpy_ptds (driver, _default, to: u64, from: u64, bytes: usize, kind: u32) {
        match kind {
            1 => (driver.cuMemcpyHtoD_v2)(to, from, bytes),
            2 => (driver.cuMemcpyDtoH_v2)(to, from, bytes),
            3 => (driver.cuMemcpyDtoD_v2)(to, from, bytes),
            _ => (driver.cuMemcpy)(to, from, bytes),
        }
    }

    fn cudaMemcpyAsync | cudaMemcpyAsync_ptsz (
        driver, default, to: u64, from: u64, bytes: usize, kind: u32, stream: usize,
    ) {
        let stream = or_default(stream, default);
        match kind {
            1 => (driver.cuMemcpyHtoDAsync_v2)(to, from, bytes, stream),
            2 => (driver.cuMemcpyDtoHAsync_v2)(to, from, bytes, stream),
            3 => (driver.cuMemcpyDtoDAsync_v2)(to, from, bytes, stream),
            _ => (driver.cuMemcpyAsync)(to, from, bytes, stream),
        }
    }

    fn cudaMemcpyToSymbol(driver, _default, symbol: u64, from: u64, bytes: usize, offset: usize, _kind: u32) {
        (driver.cuMemcpyHtoD_v2)(symbol + offset as u64, from, bytes)
    }

    fn cudaMemcpyPeer(driver, _default, to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize) {
        (driver.cuMemcpyPeer)(to, to_device as usize + 1, from, from_device as usize + 1, bytes)
    }

    fn cudaMemcpyPeerAsync(
        driver, default, to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize, stream: usize,
    ) {
        let stream = or_default(stream, default);
        (driver.cuMemcpyPeerAsync)(to, to_device as usize + 1, from, from_device as usize + 1, bytes, stream)
    }

    fn cudaMemcpy2D | cudaMemcpy2D_ptds (
        driver, _default, to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32,
    ) {
        let copy = described((to, to_pitch), (from, from_pitch), (width, height), kind);
        (driver.cuMemcpy2D_v2)(&raw const copy)
    }

    fn cudaMemcpy2DAsync | cudaMemcpy2DAsync_ptsz (
        driver, default, to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: u32,
        stream: usize,
    ) {
        let copy = described((to, to_pitch), (from, from_pitch), (width, height), kind);
        asynchronous(driver, &copy, or_default(stream, default))
    }
}

fn asynchronous(driver: &Driver, copy: &[u64; 16], stream: usize) -> u32 {
    (driver.cuMemcpy2DAsync_v2)(copy, stream)
}

/// `CUDA_MEMCPY2D` in words. Its kinds of memory are 1, the host's, and 2, a device's.
fn described(to: (u64, usize), from: (u64, usize), size: (usize, usize), kind: u32) -> [u64; 16] {
    let (from_kind, to_kind) = match kind {
        0 => (1, 1),
        1 => (1, 2),
        2 => (2, 1),
        _ => (2, 2),
    };
    let mut copy = [0; 16];
    copy[2] = from_kind;
    copy[if from_kind == 1 { 3 } else { 4 }] = from.0;
    copy[6] = from.1 as u64;
    copy[9] = to_kind;
    copy[if to_kind == 1 { 10 } else { 11 }] = to.0;
    copy[13] = to.1 as u64;
    copy[14] = size.0 as u64;
    copy[15] = size.1 as u64;
    copy
}
