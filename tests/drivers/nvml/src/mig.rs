//! Multi-instance mode.
//!
//! Owns: handles of instances and what they are. Refuses: making and destroying them.

use crate::{
    ffi::Ptr,
    state::{Device, supported},
};
use infertap_driver_script::{Code, Instance};
use nvml_wrapper_sys::bindings::nvmlDeviceAttributes_st;

nvml! {
    fn nvmlDeviceGetMigMode(view, device: Device, current: Ptr<u32>, pending: Ptr<u32>) {
        let enabled = supported(view.gpu(device)?.mig.as_ref())?.enabled.into();
        current.set(enabled)?;
        pending.set(enabled)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(view, device: Device, count: Ptr<u32>) {
        count.set(view.gpu(device)?.mig.as_ref().map_or(0, |mig| mig.max))
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(view, device: Device, index: u32, instance: Ptr<Device>) {
        let mig = supported(view.gpu(device)?.mig.as_ref())?;
        if index >= mig.max {
            return Err(Code::InvalidArgument);
        }
        let there = mig.enabled && mig.instances.get(index as usize).is_some_and(Option::is_some);
        let gpu = device.gpu().filter(|_| there).ok_or(Code::NotFound)?;
        instance.set(Device::new(gpu, Some(index as usize)))
    }

    fn nvmlDeviceIsMigDeviceHandle(view, device: Device, is_instance: Ptr<u32>) {
        is_instance.set(view.target(device)?.1.is_some().into())
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(view, device: Device, parent: Ptr<Device>) {
        instance_of(view, device)?;
        let gpu = device.gpu().ok_or(Code::InvalidArgument)?;
        parent.set(Device::new(gpu, None))
    }

    fn nvmlDeviceGetGpuInstanceId(view, device: Device, id: Ptr<u32>) {
        id.set(instance_of(view, device)?.gpu_instance)
    }

    fn nvmlDeviceGetComputeInstanceId(view, device: Device, id: Ptr<u32>) {
        id.set(instance_of(view, device)?.compute_instance)
    }

    fn nvmlDeviceGetAttributes_v2(view, device: Device, attributes: Ptr<nvmlDeviceAttributes_st>) {
        let slices = instance_of(view, device)?.slices;
        attributes.set(nvmlDeviceAttributes_st {
            multiprocessorCount: slices.multiprocessors,
            sharedCopyEngineCount: slices.copy_engines,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: slices.gpu,
            computeInstanceSliceCount: slices.compute,
            memorySizeMB: slices.memory_mib,
        })
    }
}

fn instance_of(view: &crate::state::View, device: Device) -> Result<&Instance, Code> {
    view.target(device)?.1.ok_or(Code::InvalidArgument)
}
