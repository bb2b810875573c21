//! The driver's sample buffers.
//!
//! Owns: which samples are still there, their stamps and types. Refuses: readings of the moment (`sensors`).

use crate::{
    ffi::Ptr,
    state::{Device, View, supported},
};
use infertap_driver_script::{Code, Gpu, Value};
use nvml_wrapper_sys::bindings::{nvmlSample_st, nvmlValue_st};

/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: u32 = 1;

nvml! {
    fn nvmlDeviceGetSamples(
        view, device: Device, kind: u32, last_seen: u64, value_type: Ptr<u32>, count: Ptr<u32>,
        samples: Ptr<nvmlSample_st>,
    ) {
        let gpu = view.gpu(device)?;
        let value = supported(value(gpu, kind)?)?;
        value_type.set_if_any(UNSIGNED_INT);
        if samples.is_null() {
            return count.set(view.script.samples.kept);
        }
        let all = newer(view, last_seen);
        if all.is_empty() {
            return Err(Code::NotFound);
        }
        let work = view.work(gpu);
        let told = all.len().min(count.get()? as usize);
        count.set(told as u32)?;
        for (at, k) in all.into_iter().take(told).enumerate() {
            let end = k as f64 * view.period();
            let mean = value.mean(end - view.period(), end, &work).round();
            samples.set_at(at, nvmlSample_st {
                timeStamp: view.sample_stamp(k),
                sampleValue: nvmlValue_st { uiVal: mean as u32 },
            })?;
        }
        Ok(())
    }
}

/// What is sampled, by NVML's number.
fn value(gpu: &Gpu, kind: u32) -> Result<Option<&Value>, Code> {
    match kind {
        0 => Ok(gpu.power_mw.as_ref()),
        1 => Ok(gpu.utilization.as_ref().map(|of| &of.gpu)),
        2 => Ok(gpu.utilization.as_ref().map(|of| &of.memory)),
        5 => Ok(gpu.clocks_mhz.sm.as_ref()),
        6 => Ok(gpu.clocks_mhz.memory.as_ref()),
        3 | 4 | 7..=9 => Ok(None),
        _ => Err(Code::InvalidArgument),
    }
}

/// Numbers of the samples that are kept and newer than `last_seen`, oldest first. Number k ends at k periods; there is none
/// from before the script's beginning.
fn newer(view: &View, last_seen: u64) -> Vec<i64> {
    let newest = (view.now / view.period()).floor() as i64;
    let oldest = (newest - i64::from(view.script.samples.kept) + 1).max(1);
    (oldest..=newest)
        .filter(|k| view.sample_stamp(*k) > last_seen)
        .collect()
}
