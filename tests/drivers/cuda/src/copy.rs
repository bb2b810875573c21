//! Copies.
//!
//! Owns: how long they take, and that those without a stream are waited for. Refuses: moving bytes.

use crate::{
    device::sleep_until,
    ffi::Ptr,
    state::{Entry, Error, StreamHandle, state},
    stream::end_of,
};
use std::ffi::c_void;

/// `CUDA_MEMCPY2D`, in words: width and height in bytes and rows are the last two.
type Copy2d = [u64; 16];
/// `CUDA_MEMCPY3D`, in words: width, height and depth are the last three.
type Copy3d = [u64; 25];

cuda! {
    fn cuMemcpy | cuMemcpy_ptds (entry, _to: u64, _from: u64, bytes: usize) {
        now(entry, bytes as u64)
    }

    fn cuMemcpyAsync | cuMemcpyAsync_ptsz (entry, _to: u64, _from: u64, bytes: usize, stream: StreamHandle) {
        later(entry, bytes as u64, stream)
    }

    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds (entry, _to: u64, _from: *const c_void, bytes: usize) {
        now(entry, bytes as u64)
    }

    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz (
        entry, _to: u64, _from: *const c_void, bytes: usize, stream: StreamHandle,
    ) {
        later(entry, bytes as u64, stream)
    }

    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds (entry, _to: *mut c_void, _from: u64, bytes: usize) {
        now(entry, bytes as u64)
    }

    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz (
        entry, _to: *mut c_void, _from: u64, bytes: usize, stream: StreamHandle,
    ) {
        later(entry, bytes as u64, stream)
    }

    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds (entry, _to: u64, _from: u64, bytes: usize) {
        now(entry, bytes as u64)
    }

    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz (entry, _to: u64, _from: u64, bytes: usize, stream: StreamHandle) {
        later(entry, bytes as u64, stream)
    }

    fn cuMemcpyPeer | cuMemcpyPeer_ptds (entry, _to: u64, _to_context: usize, _from: u64, _from_context: usize, bytes: usize) {
        now(entry, bytes as u64)
    }

    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz (
        entry, _to: u64, _to_context: usize, _from: u64, _from_context: usize, bytes: usize, stream: StreamHandle,
    ) {
        later(entry, bytes as u64, stream)
    }

    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds (entry, copy: Ptr<Copy2d>) {
        let copy = copy.get()?;
        now(entry, copy[14] * copy[15])
    }

    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz (entry, copy: Ptr<Copy2d>, stream: StreamHandle) {
        let copy = copy.get()?;
        later(entry, copy[14] * copy[15], stream)
    }

    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds (entry, copy: Ptr<Copy3d>) {
        let copy = copy.get()?;
        now(entry, copy[22] * copy[23] * copy[24])
    }

    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz (entry, copy: Ptr<Copy3d>, stream: StreamHandle) {
        let copy = copy.get()?;
        later(entry, copy[22] * copy[23] * copy[24], stream)
    }
}

fn later(entry: Entry, bytes: u64, stream: StreamHandle) -> Result<(), Error> {
    let mut state = state();
    let rate = state.settings.copy_gib_s * (1u64 << 30) as f64;
    let nanoseconds = if rate > 0.0 {
        bytes as f64 / rate * 1e9
    } else {
        0.0
    };
    let stream = state.stream(entry, stream)?;
    state.put(stream, nanoseconds as u64)
}

fn now(entry: Entry, bytes: u64) -> Result<(), Error> {
    later(entry, bytes, 0)?;
    sleep_until(end_of(entry, 0)?);
    Ok(())
}
