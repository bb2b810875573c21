//! Devices, streams, events.
//!
//! Owns: the runtime's names for them. Refuses: errors of its own: it passes on the driver's.

use crate::{or_default, per_thread, runtime};

runtime! {
    fn cudaDriverGetVersion(driver, _default, version: *mut i32) {
        (driver.cuDriverGetVersion)(version)
    }

    fn cudaRuntimeGetVersion(driver, _default, version: *mut i32) {
        (driver.cuDriverGetVersion)(version)
    }

    fn cudaGetDeviceCount(driver, _default, count: *mut i32) {
        (driver.cuDeviceGetCount)(count)
    }

    fn cudaSetDevice(driver, _default, device: i32) {
        // A primary context is its device's number and one.
        (driver.cuCtxSetCurrent)(device as usize + 1)
    }

    fn cudaGetDevice(driver, _default, device: *mut i32) {
        (driver.cuCtxGetDevice)(device)
    }

    fn cudaDeviceSynchronize(driver, _default) {
        (driver.cuCtxSynchronize)()
    }

    fn cudaStreamCreate(driver, _default, stream: *mut usize) {
        (driver.cuStreamCreate)(stream, 0)
    }

    fn cudaStreamCreateWithFlags(driver, _default, stream: *mut usize, flags: u32) {
        (driver.cuStreamCreate)(stream, flags)
    }

    fn cudaStreamCreateWithPriority(driver, _default, stream: *mut usize, flags: u32, priority: i32) {
        (driver.cuStreamCreateWithPriority)(stream, flags, priority)
    }

    fn cudaStreamDestroy(driver, _default, stream: usize) {
        (driver.cuStreamDestroy_v2)(stream)
    }

    fn cudaStreamSynchronize | cudaStreamSynchronize_ptsz (driver, default, stream: usize) {
        (driver.cuStreamSynchronize)(or_default(stream, default))
    }

    fn cudaStreamQuery | cudaStreamQuery_ptsz (driver, default, stream: usize) {
        (driver.cuStreamQuery)(or_default(stream, default))
    }

    fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz (driver, default, stream: usize, event: usize, flags: u32) {
        (driver.cuStreamWaitEvent)(or_default(stream, default), event, flags)
    }

    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz (driver, default, stream: usize, mode: u32) {
        (driver.cuStreamBeginCapture_v2)(or_default(stream, default), mode)
    }

    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz (driver, default, stream: usize, graph: *mut usize) {
        (driver.cuStreamEndCapture)(or_default(stream, default), graph)
    }

    fn cudaEventCreate(driver, _default, event: *mut usize) {
        (driver.cuEventCreate)(event, 0)
    }

    fn cudaEventCreateWithFlags(driver, _default, event: *mut usize, flags: u32) {
        (driver.cuEventCreate)(event, flags)
    }

    fn cudaEventRecord | cudaEventRecord_ptsz (driver, default, event: usize, stream: usize) {
        (driver.cuEventRecord)(event, or_default(stream, default))
    }

    fn cudaEventQuery(driver, _default, event: usize) {
        (driver.cuEventQuery)(event)
    }

    fn cudaEventSynchronize(driver, _default, event: usize) {
        (driver.cuEventSynchronize)(event)
    }

    fn cudaEventElapsedTime(driver, _default, milliseconds: *mut f32, from: usize, to: usize) {
        (driver.cuEventElapsedTime)(milliseconds, from, to)
    }

    fn cudaEventDestroy(driver, _default, event: usize) {
        (driver.cuEventDestroy_v2)(event)
    }
}
