//! Finding devices: how many there are, handles.
//!
//! Owns: indices, hot-unplug as callers meet it. Refuses: instances' handles (`mig`), except by UUID.

use crate::{ffi::Ptr, state::Device};
use infertap_driver_script::{Code, How};
use std::ffi::c_char;

nvml! {
    fn nvmlDeviceGetCount_v2(view, count: Ptr<u32>) {
        count.set(view.counted().len() as u32)
    }

    fn nvmlDeviceGetCount(view, count: Ptr<u32>) {
        count.set(view.counted().len() as u32)
    }

    fn nvmlDeviceGetHandleByIndex_v2(view, index: u32, device: Ptr<Device>) {
        let at = *view.counted().get(index as usize).ok_or(Code::InvalidArgument)?;
        let handle = Device::new(at, None);
        view.gpu(handle)?;
        device.set(handle)
    }

    fn nvmlDeviceGetHandleByUUID(view, uuid: Ptr<c_char>, device: Ptr<Device>) {
        device.set(find(view, |gpu| *gpu == uuid.text().unwrap_or_default())?)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(view, bus_id: Ptr<c_char>, device: Ptr<Device>) {
        let bus_id = bus_id.text()?;
        let is_there = |at: &&usize| {
            let pci = view.script.gpus.get(**at).and_then(|gpu| gpu.pci.as_ref());
            pci.is_some_and(|pci| pci.bus_id.eq_ignore_ascii_case(&bus_id))
        };
        let handle = Device::new(*view.counted().iter().find(is_there).ok_or(Code::NotFound)?, None);
        view.gpu(handle)?;
        device.set(handle)
    }

    fn nvmlDeviceGetIndex(view, device: Device, index: Ptr<u32>) {
        view.target(device)?;
        let is_it = |at: &usize| Some(*at) == device.gpu();
        let at = match device.instance() {
            Some(at) => at,
            None => view.counted().iter().position(is_it).ok_or(Code::NotFound)?,
        };
        index.set(at as u32)
    }
}

/// The handle of the GPU or instance whose UUID `is_it` accepts.
fn find(view: &crate::state::View, is_it: impl Fn(&String) -> bool) -> Result<Device, Code> {
    for (at, gpu) in view.script.gpus.iter().enumerate() {
        let instances = gpu
            .mig
            .iter()
            .filter(|mig| mig.enabled)
            .flat_map(|mig| &mig.instances);
        let instance = instances
            .enumerate()
            .find(|(_, instance)| instance.as_ref().is_some_and(|instance| is_it(&instance.uuid)));
        if instance.is_some() || is_it(&gpu.uuid) {
            if view.away(gpu) == Some(How::Removed) {
                return Err(Code::NotFound);
            }
            let handle = Device::new(at, instance.map(|(at, _)| at));
            view.target(handle)?;
            return Ok(handle);
        }
    }
    Err(Code::NotFound)
}
