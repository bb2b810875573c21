//! GPU performance monitoring: metrics between two samples.
//!
//! Owns: samples and their lifetimes, means over the time between two. Refuses: metrics that the script does not name.

use crate::{
    ffi::Ptr,
    state::{Device, View, supported},
};
use infertap_driver_script::{Code, Value, Work, gpm_metric_id};
use nvml_wrapper_sys::bindings::{nvmlGpmMetricsGet_t, nvmlGpmSupport_t};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::c_char,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// A sample's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(crate) struct SampleHandle(usize);

/// What was sampled, and when; `None` until it is.
#[derive(Debug, Clone, Copy)]
struct Taken {
    device: Device,
    /// GPU instance that it is of.
    instance: Option<u32>,
    second: f64,
}

#[derive(Default)]
struct Samples {
    taken: HashMap<SampleHandle, Option<Taken>>,
    made: usize,
}

fn samples() -> MutexGuard<'static, Samples> {
    static SAMPLES: LazyLock<Mutex<Samples>> = LazyLock::new(Mutex::default);
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

nvml! {
    fn nvmlGpmQueryDeviceSupport(view, device: Device, support: Ptr<nvmlGpmSupport_t>) {
        let gpu = view.gpu(device)?;
        let asked = support.get()?;
        if asked.version != 1 {
            return Err(Code::ArgumentVersionMismatch);
        }
        support.set(nvmlGpmSupport_t { isSupportedDevice: gpu.gpm.is_some().into(), ..asked })
    }

    fn nvmlGpmSampleAlloc(_view, sample: Ptr<SampleHandle>) {
        let mut samples = samples();
        samples.made += 1;
        let handle = SampleHandle(0x6000_0000 + samples.made);
        samples.taken.insert(handle, None);
        sample.set(handle)
    }

    fn nvmlGpmSampleFree(_view, sample: SampleHandle) {
        samples().taken.remove(&sample).map(|_| ()).ok_or(Code::InvalidArgument)
    }

    fn nvmlGpmSampleGet(view, device: Device, sample: SampleHandle) {
        supported(view.gpu(device)?.gpm.as_ref())?;
        take(sample, Taken { device, instance: None, second: view.now })
    }

    fn nvmlGpmMigSampleGet(view, device: Device, instance: u32, sample: SampleHandle) {
        let taken = Taken { device, instance: Some(instance), second: view.now };
        supported(metrics(view, &taken)?)?;
        take(sample, taken)
    }

    fn nvmlGpmMetricsGet(view, request: Ptr<nvmlGpmMetricsGet_t>) {
        let mut asked = request.get()?;
        if asked.version != 1 {
            return Err(Code::ArgumentVersionMismatch);
        }
        let taken = |handle: *mut _| {
            let sample = samples().taken.get(&SampleHandle(handle as usize)).copied();
            sample.flatten().ok_or(Code::InvalidArgument)
        };
        let (first, second) = (taken(asked.sample1)?, taken(asked.sample2)?);
        if first.device != second.device || first.instance != second.instance {
            return Err(Code::InvalidArgument);
        }
        let work = view.work(view.reach(first.device)?);
        let all = supported(metrics(view, &first)?)?;
        for metric in asked.metrics.iter_mut().take(asked.numMetrics as usize) {
            match mean(all, metric.metricId, (first.second, second.second), &work) {
                Some(value) => {
                    metric.nvmlReturn = 0;
                    metric.value = value;
                    metric.metricInfo.shortName = text(c"stand-in");
                    metric.metricInfo.longName = text(c"Metric of the stand-in's script");
                    metric.metricInfo.unit = text(c"");
                }
                None => metric.nvmlReturn = Code::NotSupported as u32,
            }
        }
        request.set(asked)
    }
}

fn take(sample: SampleHandle, taken: Taken) -> Result<(), Code> {
    let mut samples = samples();
    let place = samples.taken.get_mut(&sample).ok_or(Code::InvalidArgument)?;
    *place = Some(taken);
    Ok(())
}

/// The metrics of what was sampled.
fn metrics<'a>(view: &'a View, taken: &Taken) -> Result<Option<&'a BTreeMap<String, Value>>, Code> {
    let gpu = view.gpu(taken.device)?;
    let Some(id) = taken.instance else {
        return Ok(gpu.gpm.as_ref());
    };
    let mut instances = gpu.mig.iter().flat_map(|mig| mig.instances.iter().flatten());
    let instance = instances.find(|instance| instance.gpu_instance == id);
    Ok(instance.ok_or(Code::InvalidArgument)?.gpm.as_ref())
}

fn mean(all: &BTreeMap<String, Value>, id: u32, (from, to): (f64, f64), work: &Work) -> Option<f64> {
    let value = all.iter().find(|(name, _)| gpm_metric_id(name) == Some(id))?.1;
    Some(value.mean(from, to, work))
}

/// NVML's type has it mutable; nobody may write to it.
fn text(of: &'static std::ffi::CStr) -> *mut c_char {
    of.as_ptr().cast_mut()
}
