//! A device's links: PCI Express and NVLink.
//!
//! Owns: their state, throughput and errors. Refuses: counters that are field values (`fields`).

use crate::{
    ffi::Ptr,
    sensors::number,
    state::{Device, View, supported},
};
use infertap_driver_script::{Code, Gpu, Link};

nvml! {
    fn nvmlDeviceGetPcieThroughput(view, device: Device, counter: u32, kib_per_s: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        let value = match counter {
            0 => gpu.pcie.tx_kib_s.as_ref(),
            1 => gpu.pcie.rx_kib_s.as_ref(),
            _ => return Err(Code::InvalidArgument),
        };
        kib_per_s.set(number(view, gpu, value)? as u32)
    }

    fn nvmlDeviceGetPcieReplayCounter(view, device: Device, replays: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        replays.set(number(view, gpu, gpu.pcie.replays.as_ref())? as u32)
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(view, device: Device, generation: Ptr<u32>) {
        generation.set(supported(view.gpu(device)?.pcie.generation)?.0)
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(view, device: Device, generation: Ptr<u32>) {
        generation.set(supported(view.gpu(device)?.pcie.generation)?.1)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(view, device: Device, lanes: Ptr<u32>) {
        lanes.set(supported(view.gpu(device)?.pcie.width)?.0)
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(view, device: Device, lanes: Ptr<u32>) {
        lanes.set(supported(view.gpu(device)?.pcie.width)?.1)
    }

    fn nvmlDeviceGetNvLinkState(view, device: Device, link: u32, active: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        active.set(number(view, gpu, at(gpu, link)?.active.as_ref())? as u32)
    }

    fn nvmlDeviceGetNvLinkErrorCounter(view, device: Device, link: u32, counter: u32, count: Ptr<u64>) {
        let gpu = view.gpu(device)?;
        count.set(error_count(view, gpu, at(gpu, link)?, counter)?)
    }
}

/// A link. Devices without any support none; NVML knows eighteen.
fn at(gpu: &Gpu, link: u32) -> Result<&Link, Code> {
    if gpu.nvlink.is_empty() {
        return Err(Code::NotSupported);
    }
    gpu.nvlink.get(link as usize).ok_or(if link < 18 {
        Code::NotSupported
    } else {
        Code::InvalidArgument
    })
}

/// A counter of errors of a link, by NVML's number (`nvmlNvLinkErrorCounter_t`).
pub(crate) fn error_count(view: &View, gpu: &Gpu, link: &Link, counter: u32) -> Result<u64, Code> {
    let value = match counter {
        0 => link.errors.replay.as_ref(),
        1 => link.errors.recovery.as_ref(),
        2 => link.errors.crc_flit.as_ref(),
        3 => link.errors.crc_data.as_ref(),
        4 => link.errors.ecc_data.as_ref(),
        _ => return Err(Code::InvalidArgument),
    };
    Ok(number(view, gpu, value)? as u64)
}
