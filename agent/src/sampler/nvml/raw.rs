//! What nvml-wrapper's safe calls lack: field values with a scope, the instance of a MIG handle, samples that outlive a
//! borrow, and registering for events without giving up the set on a refusal.
//!
//! Owns: all of the sampler's `unsafe`. Refuses: meaning.

use super::device::miss;
use super::fault::{Miss, Told};
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, EventSet, FieldIdScheme, GpmSample, Nvml};
use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlGpmSample_t};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A scope that means all of a kind together, as of all NVLinks.
pub(super) const ALL: u32 = u32::MAX;

/// The values of fields, each with its scope, in the order asked for. One call into the driver for all of them.
pub(super) fn fields(device: &Device<'_>, wanted: &[(u32, u32)]) -> Vec<Told<f64>> {
    let scheme = device.nvml().field_id_scheme();
    let mut values: Vec<nvmlFieldValue_t> = wanted
        .iter()
        .map(|(field, scope)| {
            // SAFETY: a C struct of integers and a union of numbers, for which all zeros is a value.
            let mut value: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
            value.fieldId = number(scheme, *field);
            value.scopeId = *scope;
            value
        })
        .collect();
    let called = nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref()).and_then(|function| {
        let count = i32::try_from(values.len()).map_err(|_| NvmlError::InvalidArg)?;
        // SAFETY: the handle is of this library, which is open for as long as the device lives; `values` holds `count`
        // structs, which the driver fills.
        nvml_try(unsafe { function(device.handle(), count, values.as_mut_ptr()) })
    });
    match called {
        Ok(()) => values.iter().map(value).collect(),
        Err(error) => {
            let miss = miss(&error);
            wanted.iter().map(|_| Err(miss)).collect()
        }
    }
}

/// NVIDIA numbered some fields anew with driver 580.82.
fn number(scheme: FieldIdScheme, field: u32) -> u32 {
    match (scheme, field) {
        (FieldIdScheme::V13Update1, 251..=255) => field + 18,
        _ => field,
    }
}

fn value(value: &nvmlFieldValue_t) -> Told<f64> {
    nvml_try(value.nvmlReturn).map_err(|error| miss(&error))?;
    let number = value.value;
    // SAFETY: every member is a plain number for which all bits are values; the driver tells which one it wrote, and the
    // union was zeroed before.
    let told = unsafe {
        match value.valueType {
            0 => number.dVal,
            1 => f64::from(number.uiVal),
            2 => number.ulVal as f64,
            3 => number.ullVal as f64,
            4 => number.sllVal as f64,
            5 => f64::from(number.siVal),
            _ => return Err(Miss::NotSupported),
        }
    };
    Ok(told)
}

/// The GPU instance that a MIG device is of.
pub(super) fn gpu_instance(device: &Device<'_>) -> Result<u32, NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: the handle is of this library, which is open for as long as the device lives; `id` is a live integer.
    nvml_try(unsafe { function(device.handle(), &raw mut id) })?;
    Ok(id)
}

/// Registers for events. The wrapper's own call frees the set when one GPU refuses, and with it all others' events.
pub(super) fn register(device: &Device<'_>, events: u64, set: &EventSet<'_>) -> Result<(), NvmlError> {
    let function = nvml_sym(device.nvml().lib().nvmlDeviceRegisterEvents.as_ref())?;
    // SAFETY: device and set are of the same open library; the driver copies what it needs of them.
    nvml_try(unsafe { function(device.handle(), events, set.handle()) })
}

/// The handle of a device as a number, to tell devices apart that no longer answer.
pub(super) fn key(device: &Device<'_>) -> usize {
    // SAFETY: the handle is only compared.
    unsafe { device.handle() as usize }
}

/// A sample of the GPU's performance counters that is kept from one reading to the next, with the library that it is of.
#[derive(Debug)]
pub(super) struct HeldSample {
    handle: nvmlGpmSample_t,
    nvml: Arc<Nvml>,
}

impl HeldSample {
    /// Keeps a sample; `nvml` is the library that it was taken from.
    pub(super) fn hold(sample: GpmSample<'_>, nvml: &Arc<Nvml>) -> HeldSample {
        debug_assert!(std::ptr::eq(sample.nvml(), &raw const **nvml));
        HeldSample {
            handle: sample.into_handle(),
            nvml: Arc::clone(nvml),
        }
    }

    /// Lends the sample.
    pub(super) fn with<T>(&self, use_it: impl FnOnce(&GpmSample<'_>) -> T) -> T {
        // SAFETY: the handle came from `into_handle`, so it is ours and not freed; its library is open while `self.nvml` is.
        // It is not freed here: `ManuallyDrop` keeps the wrapper from doing so.
        let sample = ManuallyDrop::new(unsafe { GpmSample::from_handle(&self.nvml, self.handle) });
        use_it(&sample)
    }
}

impl Drop for HeldSample {
    fn drop(&mut self) {
        // SAFETY: as in `with`; the wrapper frees the handle once, here.
        drop(unsafe { GpmSample::from_handle(&self.nvml, self.handle) });
    }
}
