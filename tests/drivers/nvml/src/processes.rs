//! Processes that use a device.
//!
//! Owns: their lists in three versions, their shares of its time. Refuses: detailed and accounting lists, which are absent
//! symbols.

use crate::{
    ffi::Ptr,
    state::{Device, View, supported},
};
use infertap_driver_script::{Code, Process, Value};
use nvml_wrapper_sys::bindings::{
    nvmlProcessInfo_v1_st, nvmlProcessInfo_v2_st, nvmlProcessUtilizationSample_st,
};

/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u64 = u64::MAX;
/// No instance.
const NO_INSTANCE: u32 = u32::MAX;

nvml! {
    fn nvmlDeviceGetComputeRunningProcesses(view, device: Device, count: Ptr<u32>, infos: Ptr<nvmlProcessInfo_v1_st>) {
        fill(&processes(view, device, false)?, count, infos, version_1)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(view, device: Device, count: Ptr<u32>, infos: Ptr<nvmlProcessInfo_v2_st>) {
        fill(&processes(view, device, false)?, count, infos, |info| info)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(view, device: Device, count: Ptr<u32>, infos: Ptr<nvmlProcessInfo_v2_st>) {
        fill(&processes(view, device, false)?, count, infos, |info| info)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(view, device: Device, count: Ptr<u32>, infos: Ptr<nvmlProcessInfo_v1_st>) {
        fill(&processes(view, device, true)?, count, infos, version_1)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(view, device: Device, count: Ptr<u32>, infos: Ptr<nvmlProcessInfo_v2_st>) {
        fill(&processes(view, device, true)?, count, infos, |info| info)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(view, device: Device, count: Ptr<u32>, infos: Ptr<nvmlProcessInfo_v2_st>) {
        fill(&processes(view, device, true)?, count, infos, |info| info)
    }

    fn nvmlDeviceGetProcessUtilization(
        view, device: Device, samples: Ptr<nvmlProcessUtilizationSample_st>, count: Ptr<u32>, last_seen: u64,
    ) {
        let gpu = view.gpu(device)?;
        let work = view.work(gpu);
        let newest = (view.now / view.period()).floor();
        let stamp = view.sample_stamp(newest as i64);
        let end = newest * view.period();
        let share = |value: Option<&Value>| {
            value.map_or(0, |value| value.mean(end - view.period(), end, &work).round() as u32)
        };
        let all = supported(gpu.processes.as_ref())?.iter();
        // One sample a process that used the device in the last period, as the real driver has it.
        let told: Vec<_> = all
            .filter(|process| process.is_there(end) && stamp > last_seen)
            .map(|process| nvmlProcessUtilizationSample_st {
                pid: process.pid,
                timeStamp: stamp,
                smUtil: share(process.sm.as_ref()),
                memUtil: share(process.memory_util.as_ref()),
                encUtil: 0,
                decUtil: 0,
            })
            .filter(|sample| sample.smUtil + sample.memUtil > 0)
            .collect();
        if told.is_empty() {
            count.set(0)?;
            return Err(Code::NotFound);
        }
        fill(&told, count, samples, |sample| sample)
    }
}

/// The processes of a device, or of an instance.
fn processes(view: &View, device: Device, graphics: bool) -> Result<Vec<nvmlProcessInfo_v2_st>, Code> {
    let (gpu, _) = view.target(device)?;
    let work = view.work(gpu);
    let ids = |process: &Process| {
        let instances = gpu
            .mig
            .as_ref()
            .filter(|mig| mig.enabled)
            .map(|mig| &mig.instances);
        let instance = instances.and_then(|all| all.get(process.instance?)?.as_ref());
        instance.map_or((NO_INSTANCE, NO_INSTANCE), |instance| {
            (instance.gpu_instance, instance.compute_instance)
        })
    };
    let chosen = |process: &&Process| {
        process.graphics == graphics
            && process.is_there(view.now)
            && (device.instance().is_none() || process.instance == device.instance())
    };
    let all = supported(gpu.processes.as_ref())?.iter().filter(chosen);
    Ok(all
        .map(|process| nvmlProcessInfo_v2_st {
            pid: process.pid,
            usedGpuMemory: process
                .memory
                .as_ref()
                .map_or(NOT_AVAILABLE, |memory| memory.at(view.now, &work) as u64),
            gpuInstanceId: ids(process).0,
            computeInstanceId: ids(process).1,
        })
        .collect())
}

fn version_1(info: nvmlProcessInfo_v2_st) -> nvmlProcessInfo_v1_st {
    nvmlProcessInfo_v1_st {
        pid: info.pid,
        usedGpuMemory: info.usedGpuMemory,
    }
}

/// Fills an array whose length the caller gave in `count`, or says how long it must be.
fn fill<T: Copy, U: Copy>(all: &[T], count: Ptr<u32>, into: Ptr<U>, convert: fn(T) -> U) -> Result<(), Code> {
    let room = count.get()?;
    count.set(all.len() as u32)?;
    if (room as usize) < all.len() {
        return Err(Code::InsufficientSize);
    }
    if all.is_empty() {
        return Ok(());
    }
    if into.is_null() {
        return Err(Code::InsufficientSize);
    }
    for (at, item) in all.iter().enumerate() {
        into.set_at(at, convert(*item))?;
    }
    Ok(())
}
