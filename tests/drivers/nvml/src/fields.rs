//! Field values: NVML's numbered readings.
//!
//! Owns: which number is which member of the script. Refuses: fields that the script neither names nor implies.

use crate::{
    ffi::Ptr,
    health::{ecc_count, pages},
    links::error_count,
    sensors::{number, violation},
    state::{Device, View, supported},
};
use infertap_driver_script::{Code, Gpu, Link, Value};
use nvml_wrapper_sys::bindings::{nvmlFieldValue_st, nvmlValue_st};

/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: u32 = 1;
/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const UNSIGNED_LONG_LONG: u32 = 3;
/// A scope that means all links together.
const ALL_LINKS: u32 = u32::MAX;

nvml! {
    fn nvmlDeviceGetFieldValues(view, device: Device, count: i32, values: Ptr<nvmlFieldValue_st>) {
        let gpu = view.gpu(device)?;
        for at in 0..usize::try_from(count).map_err(|_| Code::InvalidArgument)? {
            let mut value = values.get_at(at)?;
            value.timestamp = view.stamp(view.now) as i64;
            value.latencyUsec = 0;
            match field(view, gpu, value.fieldId, value.scopeId) {
                Ok((kind, number)) => {
                    value.nvmlReturn = 0;
                    value.valueType = kind;
                    value.value = nvmlValue_st { ullVal: 0 };
                    if kind == UNSIGNED_INT {
                        value.value.uiVal = number as u32;
                    } else {
                        value.value.ullVal = number;
                    }
                }
                Err(code) => value.nvmlReturn = code as u32,
            }
            values.set_at(at, value)?;
        }
        Ok(())
    }
}

/// A field's type and value.
fn field(view: &View, gpu: &Gpu, id: u32, scope: u32) -> Result<(u32, u64), Code> {
    let of = |value: Option<&Value>| number(view, gpu, value).map(|value| value as u64);
    let limits = || supported(gpu.power_limits.as_ref());
    let rows = || supported(gpu.remapped_rows.as_ref());
    let retired = || supported(gpu.retired_pages.as_ref());
    let wide = |value: Result<u64, Code>| Ok((UNSIGNED_LONG_LONG, value?));
    let narrow = |value: Result<u64, Code>| Ok((UNSIGNED_INT, value?));
    if let Some(value) = gpu.fields.get(&id) {
        return wide(of(Some(value)));
    }
    match id {
        1 => narrow(Ok(supported(gpu.ecc.as_ref())?.current.into())),
        2 => narrow(Ok(supported(gpu.ecc.as_ref())?.pending.into())),
        // Corrected and uncorrected by turns: volatile totals, then aggregate ones.
        3..=6 => wide(ecc_count(view, gpu, (id - 3) % 2, (id - 3) / 2, None)),
        // Device memory.
        11 | 12 => wide(ecc_count(view, gpu, id - 11, 0, Some(2))),
        22 | 23 => wide(ecc_count(view, gpu, id - 22, 1, Some(2))),
        29 | 30 => wide(of(Some(pages(retired()?, id - 29)?))),
        31 => narrow(of(Some(&retired()?.pending))),
        // Link errors, all links together: cyclic redundancy of flits and data, replays, recoveries, ECC.
        38 => wide(link_errors(view, gpu, 2)),
        45 => wide(link_errors(view, gpu, 3)),
        52 => wide(link_errors(view, gpu, 0)),
        59 => wide(link_errors(view, gpu, 1)),
        160 => wide(link_errors(view, gpu, 4)),
        74..=79 => wide(of(violation(gpu, id - 74))),
        80 | 81 => wide(of(violation(gpu, id - 70))),
        82 => narrow(of(gpu.memory_temperature_c.as_ref())),
        83 => wide(supported(gpu.energy_mj_at(view.now, &view.work(gpu))).map(|energy| energy as u64)),
        91 => narrow(Ok(supported(some(gpu.nvlink.len()))?)),
        94 => narrow(of(gpu.pcie.replays.as_ref())),
        // KiB of data; raw counts include headers, of which the script says nothing.
        138 => wide(throughput(view, gpu, scope, |link| link.tx_kib.as_ref())),
        139 => wide(throughput(view, gpu, scope, |link| link.rx_kib.as_ref())),
        142 => narrow(of(Some(&rows()?.correctable))),
        143 => narrow(of(Some(&rows()?.uncorrectable))),
        144 => narrow(of(Some(&rows()?.pending))),
        145 => narrow(of(Some(&rows()?.failure))),
        // The average is over a second.
        185 => narrow(supported(gpu.power_mw.as_ref()).map(|power| {
            power
                .mean((view.now - 1.0).min(view.now), view.now, &view.work(gpu))
                .round() as u64
        })),
        186 => narrow(of(gpu.power_mw.as_ref())),
        187 => narrow(Ok(limits()?.min.into())),
        188 => narrow(Ok(limits()?.max.into())),
        189 => narrow(Ok(limits()?.default.into())),
        190 => narrow(of(Some(&limits()?.enforced))),
        192 => narrow(of(Some(&limits()?.management))),
        197 => wide(of(gpu.pcie.tx_bytes.as_ref())),
        198 => wide(of(gpu.pcie.rx_bytes.as_ref())),
        _ => Err(Code::NotSupported),
    }
}

fn some(count: usize) -> Option<u64> {
    (count > 0).then_some(count as u64)
}

fn link_errors(view: &View, gpu: &Gpu, counter: u32) -> Result<u64, Code> {
    supported(some(gpu.nvlink.len()))?;
    gpu.nvlink
        .iter()
        .map(|link| error_count(view, gpu, link, counter))
        .sum()
}

fn throughput(view: &View, gpu: &Gpu, scope: u32, of: impl Fn(&Link) -> Option<&Value>) -> Result<u64, Code> {
    supported(some(gpu.nvlink.len()))?;
    if scope == ALL_LINKS {
        let each = gpu
            .nvlink
            .iter()
            .map(|link| number(view, gpu, of(link)).map(|kib| kib as u64));
        return each.sum();
    }
    let link = gpu.nvlink.get(scope as usize).ok_or(Code::InvalidArgument)?;
    Ok(number(view, gpu, of(link))? as u64)
}
