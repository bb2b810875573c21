//! The state of a device's memory: error correction, retired pages, remapped rows.
//!
//! Owns: counters as NVML groups them. Refuses: events (`events`).

use crate::{
    ffi::Ptr,
    sensors::number,
    state::{Device, View, supported},
};
use infertap_driver_script::{Code, EccLocation, Gpu, RetiredPages, Value};

nvml! {
    fn nvmlDeviceGetEccMode(view, device: Device, current: Ptr<u32>, pending: Ptr<u32>) {
        let ecc = supported(view.gpu(device)?.ecc.as_ref())?;
        current.set(ecc.current.into())?;
        pending.set(ecc.pending.into())
    }

    fn nvmlDeviceGetTotalEccErrors(view, device: Device, error: u32, counter: u32, count: Ptr<u64>) {
        count.set(ecc_count(view, view.gpu(device)?, error, counter, None)?)
    }

    fn nvmlDeviceGetMemoryErrorCounter(
        view, device: Device, error: u32, counter: u32, location: u32, count: Ptr<u64>,
    ) {
        count.set(ecc_count(view, view.gpu(device)?, error, counter, Some(location))?)
    }

    fn nvmlDeviceGetRetiredPages(view, device: Device, cause: u32, count: Ptr<u32>, addresses: Ptr<u64>) {
        let gpu = view.gpu(device)?;
        list_pages(view, gpu, cause, count, addresses, None)
    }

    fn nvmlDeviceGetRetiredPages_v2(
        view, device: Device, cause: u32, count: Ptr<u32>, addresses: Ptr<u64>, stamps: Ptr<u64>,
    ) {
        let gpu = view.gpu(device)?;
        list_pages(view, gpu, cause, count, addresses, Some(stamps))
    }

    fn nvmlDeviceGetRetiredPagesPendingStatus(view, device: Device, pending: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        let pages = supported(gpu.retired_pages.as_ref())?;
        pending.set(number(view, gpu, Some(&pages.pending))? as u32)
    }

    fn nvmlDeviceGetRemappedRows(
        view, device: Device, correctable: Ptr<u32>, uncorrectable: Ptr<u32>, pending: Ptr<u32>, failure: Ptr<u32>,
    ) {
        let gpu = view.gpu(device)?;
        let rows = supported(gpu.remapped_rows.as_ref())?;
        for (place, value) in [
            (correctable, &rows.correctable),
            (uncorrectable, &rows.uncorrectable),
            (pending, &rows.pending),
            (failure, &rows.failure),
        ] {
            place.set(number(view, gpu, Some(value))? as u32)?;
        }
        Ok(())
    }
}

/// A counter of memory errors, by NVML's numbers; no location: of all memory.
pub(crate) fn ecc_count(
    view: &View,
    gpu: &Gpu,
    error: u32,
    counter: u32,
    location: Option<u32>,
) -> Result<u64, Code> {
    let ecc = supported(gpu.ecc.as_ref())?;
    if error > 1 || counter > 1 || location.is_some_and(|location| location > EccLocation::Sram as u32) {
        return Err(Code::InvalidArgument);
    }
    let count = ecc.counts.iter().find(|count| {
        count.error as u32 == error
            && count.counter as u32 == counter
            && count.location.map(|location| location as u32) == location
    });
    Ok(number(view, gpu, count.map(|count| &count.count))? as u64)
}

/// How many pages were retired for a cause, by NVML's number.
pub(crate) fn pages(pages: &RetiredPages, cause: u32) -> Result<&Value, Code> {
    match cause {
        0 => Ok(&pages.single_bit),
        1 => Ok(&pages.double_bit),
        _ => Err(Code::InvalidArgument),
    }
}

fn list_pages(
    view: &View,
    gpu: &Gpu,
    cause: u32,
    count: Ptr<u32>,
    addresses: Ptr<u64>,
    stamps: Option<Ptr<u64>>,
) -> Result<(), Code> {
    let of = supported(gpu.retired_pages.as_ref())?;
    let there = number(view, gpu, Some(pages(of, cause)?))? as u32;
    let room = count.get()?;
    count.set(there)?;
    if room < there {
        return Err(Code::InsufficientSize);
    }
    for at in 0..there {
        addresses.set_at(
            at as usize,
            0x10_0000 + u64::from(cause) * 0x1000_0000 + u64::from(at) * 0x1000,
        )?;
        if let Some(stamps) = stamps {
            stamps.set_at(at as usize, view.stamp(view.now) / 1_000_000)?;
        }
    }
    Ok(())
}
