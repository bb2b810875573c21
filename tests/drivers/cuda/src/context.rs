//! The driver, its devices and contexts.
//!
//! Owns: which device a thread uses. Refuses: more than one context a device: each is the primary one.

use crate::{
    device::sleep_until,
    ffi::{Ptr, text},
    state::{Error, current_device, set_current_device, state},
};
use std::ffi::{c_char, c_void};

/// A context is its device's number and one.
type Context = usize;

cuda! {
    fn cuInit(_entry, _flags: u32) {
        drop(state());
        Ok(())
    }

    fn cuDriverGetVersion(_entry, version: Ptr<i32>) {
        version.set(12_080)
    }

    fn cuDeviceGetCount(_entry, count: Ptr<i32>) {
        count.set(state().devices.len() as i32)
    }

    fn cuDeviceGet(_entry, device: Ptr<i32>, ordinal: i32) {
        state().device(ordinal as usize)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(_entry, name: Ptr<[c_char; 16]>, length: i32, device: i32) {
        state().device(device as usize)?;
        if length < 16 {
            return Err(Error::InvalidValue);
        }
        name.set(b"Stand-in device\0".map(|byte| byte as c_char))
    }

    fn cuDeviceTotalMem_v2(_entry, bytes: Ptr<usize>, device: i32) {
        bytes.set(state().device(device as usize)?.total as usize)
    }

    fn cuDeviceGetAttribute(_entry, value: Ptr<i32>, attribute: i32, device: i32) {
        state().device(device as usize)?;
        // Compute capability 9.0; of others, that there is one.
        value.set(match attribute { 75 => 9, 76 => 0, _ => 1 })
    }

    fn cuDevicePrimaryCtxRetain(_entry, context: Ptr<Context>, device: i32) {
        state().device(device as usize)?;
        context.set(device as usize + 1)
    }

    fn cuDevicePrimaryCtxRelease_v2(_entry, device: i32) {
        state().device(device as usize).map(|_| ())
    }

    fn cuCtxCreate_v2(_entry, context: Ptr<Context>, _flags: u32, device: i32) {
        state().device(device as usize)?;
        set_current_device(device as usize);
        context.set(device as usize + 1)
    }

    fn cuCtxDestroy_v2(_entry, context: Context) {
        device_of(context).map(|_| ())
    }

    fn cuCtxSetCurrent(_entry, context: Context) {
        set_current_device(device_of(context)?);
        Ok(())
    }

    fn cuCtxGetCurrent(_entry, context: Ptr<Context>) {
        context.set(current_device() + 1)
    }

    fn cuCtxGetDevice(_entry, device: Ptr<i32>) {
        device.set(current_device() as i32)
    }

    fn cuCtxSynchronize(_entry) {
        let end = state().device(current_device())?.end();
        sleep_until(end);
        Ok(())
    }

    fn cuCtxSynchronize_v2(_entry, context: Context) {
        let device = device_of(context)?;
        let end = state().device(device)?.end();
        sleep_until(end);
        Ok(())
    }

    fn cuModuleLoadData(_entry, module: Ptr<usize>, _image: *const c_void) {
        module.set(state().new_handle())
    }

    fn cuModuleUnload(_entry, _module: usize) {
        Ok(())
    }

    fn cuModuleGetFunction(_entry, function: Ptr<usize>, _module: usize, name: Ptr<c_char>) {
        let name = text(name)?;
        let mut state = state();
        let microseconds = name
            .strip_suffix("us")
            .and_then(|name| name.rsplit_once('_'))
            .and_then(|(_, number)| number.parse().ok())
            .unwrap_or(state.settings.kernel_us);
        state.kernels.push(microseconds * 1000);
        function.set(state.kernels.len())
    }
}

fn device_of(context: Context) -> Result<usize, Error> {
    let device = context.checked_sub(1).ok_or(Error::InvalidContext)?;
    state().device(device).map_err(|_| Error::InvalidContext)?;
    Ok(device)
}
