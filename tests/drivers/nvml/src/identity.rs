//! What a device is.
//!
//! Owns: names, numbers, places, modes. Refuses: readings.

use crate::{
    ffi::{Ptr, chars},
    state::{Device, supported},
};
use infertap_driver_script::{Code, Pci};
use nvml_wrapper_sys::bindings::nvmlPciInfo_st;
use std::ffi::c_char;

nvml! {
    fn nvmlDeviceGetName(view, device: Device, name: Ptr<c_char>, length: u32) {
        let (gpu, instance) = view.target(device)?;
        name.set_text(length, instance.map_or(&gpu.name, |instance| &instance.name))
    }

    fn nvmlDeviceGetUUID(view, device: Device, uuid: Ptr<c_char>, length: u32) {
        let (gpu, instance) = view.target(device)?;
        uuid.set_text(length, instance.map_or(&gpu.uuid, |instance| &instance.uuid))
    }

    fn nvmlDeviceGetSerial(view, device: Device, serial: Ptr<c_char>, length: u32) {
        serial.set_text(length, supported(view.gpu(device)?.serial.as_ref())?)
    }

    fn nvmlDeviceGetMinorNumber(view, device: Device, minor: Ptr<u32>) {
        minor.set(supported(view.gpu(device)?.minor)?)
    }

    fn nvmlDeviceGetBrand(view, device: Device, brand: Ptr<u32>) {
        brand.set(supported(view.gpu(device)?.brand)?)
    }

    fn nvmlDeviceGetArchitecture(view, device: Device, architecture: Ptr<u32>) {
        architecture.set(supported(view.gpu(device)?.architecture)?)
    }

    fn nvmlDeviceGetCudaComputeCapability(view, device: Device, major: Ptr<i32>, minor: Ptr<i32>) {
        let capability = supported(view.gpu(device)?.compute_capability)?;
        major.set(capability.0)?;
        minor.set(capability.1)
    }

    fn nvmlDeviceGetComputeMode(view, device: Device, mode: Ptr<u32>) {
        mode.set(supported(view.gpu(device)?.compute_mode)?)
    }

    fn nvmlDeviceGetPersistenceMode(view, device: Device, mode: Ptr<u32>) {
        mode.set(supported(view.gpu(device)?.persistence)?.into())
    }

    fn nvmlDeviceGetPciInfo_v3(view, device: Device, info: Ptr<nvmlPciInfo_st>) {
        info.set(pci_info(supported(view.gpu(device)?.pci.as_ref())?)?)
    }

    fn nvmlDeviceGetPciInfo_v2(view, device: Device, info: Ptr<nvmlPciInfo_st>) {
        info.set(pci_info(supported(view.gpu(device)?.pci.as_ref())?)?)
    }
}

fn pci_info(pci: &Pci) -> Result<nvmlPciInfo_st, Code> {
    let number = |text: Option<&str>| {
        text.and_then(|text| u32::from_str_radix(text, 16).ok())
            .ok_or(Code::Unknown)
    };
    let mut parts = pci.bus_id.split([':', '.']);
    let domain = number(parts.next())?;
    Ok(nvmlPciInfo_st {
        // The old form has four digits of domain.
        busIdLegacy: chars(&pci.bus_id[pci.bus_id.len().saturating_sub(12)..]),
        domain,
        bus: number(parts.next())?,
        device: number(parts.next())?,
        pciDeviceId: pci.device_id,
        pciSubSystemId: pci.subsystem_id,
        busId: chars(&pci.bus_id),
    })
}
