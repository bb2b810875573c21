//! Memory of a device and its window to the host.
//!
//! Owns: what counts as used in which version of the call. Refuses: who uses it (`processes`).

use crate::{
    ffi::Ptr,
    state::{Device, View, supported},
};
use infertap_driver_script::{Code, Gpu, Memory};
use nvml_wrapper_sys::bindings::{nvmlBAR1Memory_st, nvmlMemory_st, nvmlMemory_v2_st};

nvml! {
    fn nvmlDeviceGetMemoryInfo(view, device: Device, memory: Ptr<nvmlMemory_st>) {
        let (gpu, instance) = view.target(device)?;
        let of = supported(instance.map_or(gpu.memory.as_ref(), |instance| instance.memory.as_ref()))?;
        let used = used(view, gpu, of) + of.reserved;
        memory.set(nvmlMemory_st { total: of.total, free: of.total.saturating_sub(used), used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(view, device: Device, memory: Ptr<nvmlMemory_v2_st>) {
        let (gpu, instance) = view.target(device)?;
        let of = supported(instance.map_or(gpu.memory.as_ref(), |instance| instance.memory.as_ref()))?;
        let version = (size_of::<nvmlMemory_v2_st>() | 2 << 24) as u32;
        if memory.get()?.version != version {
            return Err(Code::ArgumentVersionMismatch);
        }
        let used = used(view, gpu, of);
        memory.set(nvmlMemory_v2_st {
            version,
            total: of.total,
            reserved: of.reserved,
            free: of.total.saturating_sub(used + of.reserved),
            used,
        })
    }

    fn nvmlDeviceGetBAR1MemoryInfo(view, device: Device, memory: Ptr<nvmlBAR1Memory_st>) {
        let (gpu, instance) = view.target(device)?;
        let of = supported(instance.map_or(gpu.bar1.as_ref(), |instance| instance.bar1.as_ref()))?;
        let used = used(view, gpu, of);
        memory.set(nvmlBAR1Memory_st {
            bar1Total: of.total,
            bar1Free: of.total.saturating_sub(used),
            bar1Used: used,
        })
    }
}

fn used(view: &View, gpu: &Gpu, memory: &Memory) -> u64 {
    memory.used.at(view.now, &view.work(gpu)) as u64
}
