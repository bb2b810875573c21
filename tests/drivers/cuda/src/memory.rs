//! Device memory: allocated, pooled, and mapped.
//!
//! Owns: its accounting. Refuses: memory itself; addresses are not to be followed.

use crate::{
    ffi::Ptr,
    state::{Error, StreamHandle, current_device, state},
};
use std::ffi::c_void;

cuda! {
    fn cuMemGetInfo_v2(_entry, free: Ptr<usize>, total: Ptr<usize>) {
        let mut state = state();
        let device = state.device(current_device())?;
        free.set((device.total - device.used) as usize)?;
        total.set(device.total as usize)
    }

    fn cuMemAlloc_v2(_entry, pointer: Ptr<u64>, bytes: usize) {
        allocate(pointer, bytes)
    }

    fn cuMemAllocPitch_v2(_entry, pointer: Ptr<u64>, pitch: Ptr<usize>, width: usize, height: usize, _element: u32) {
        let row = width.next_multiple_of(512);
        pitch.set(row)?;
        allocate(pointer, row * height)
    }

    fn cuMemAllocManaged(_entry, pointer: Ptr<u64>, bytes: usize, _flags: u32) {
        allocate(pointer, bytes)
    }

    fn cuMemAllocAsync | cuMemAllocAsync_ptsz (_entry, pointer: Ptr<u64>, bytes: usize, _stream: StreamHandle) {
        allocate(pointer, bytes)
    }

    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz (
        _entry, pointer: Ptr<u64>, bytes: usize, _pool: usize, _stream: StreamHandle,
    ) {
        allocate(pointer, bytes)
    }

    fn cuDeviceGetDefaultMemPool(_entry, pool: Ptr<usize>, device: i32) {
        state().device(device as usize)?;
        pool.set(0x9001 + device as usize)
    }

    fn cuMemFree_v2(_entry, pointer: u64) {
        free(pointer)
    }

    fn cuMemFreeAsync | cuMemFreeAsync_ptsz (_entry, pointer: u64, _stream: StreamHandle) {
        free(pointer)
    }

    fn cuMemCreate(_entry, handle: Ptr<u64>, bytes: usize, _properties: *const c_void, _flags: u64) {
        allocate(handle, bytes)
    }

    fn cuMemRelease(_entry, handle: u64) {
        free(handle)
    }

    fn cuMemAddressReserve(_entry, pointer: Ptr<u64>, bytes: usize, _alignment: usize, _address: u64, _flags: u64) {
        pointer.set(state().device(current_device())?.reserve(bytes as u64))
    }

    fn cuMemAddressFree(_entry, _pointer: u64, _bytes: usize) {
        Ok(())
    }

    fn cuMemMap(_entry, _pointer: u64, _bytes: usize, _offset: usize, handle: u64, _flags: u64) {
        let there = state().devices.iter().any(|device| device.has(handle));
        if there { Ok(()) } else { Err(Error::InvalidValue) }
    }

    fn cuMemUnmap(_entry, _pointer: u64, _bytes: usize) {
        Ok(())
    }

    fn cuMemSetAccess(_entry, _pointer: u64, _bytes: usize, _description: *const c_void, _count: usize) {
        Ok(())
    }
}

fn allocate(pointer: Ptr<u64>, bytes: usize) -> Result<(), Error> {
    let place = state().device(current_device())?.allocate(bytes as u64)?;
    pointer.set(place)
}

fn free(pointer: u64) -> Result<(), Error> {
    if pointer == 0 {
        return Ok(());
    }
    let mut state = state();
    let of = state.devices.iter_mut().find(|device| device.has(pointer));
    of.ok_or(Error::InvalidValue)?.free(pointer)
}
