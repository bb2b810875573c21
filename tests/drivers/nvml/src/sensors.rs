//! Readings of the chip: how busy, how hot, how fast, and what holds it back.
//!
//! Owns: utilisation, power, energy, temperature, clocks, throttling, fans. Refuses: buffered samples (`samples`).

use crate::{
    ffi::Ptr,
    state::{Device, View, supported},
};
use infertap_driver_script::{Clocks, Code, Gpu, Policy, Value};
use nvml_wrapper_sys::bindings::{nvmlTemperature_v1_t, nvmlUtilization_st, nvmlViolationTime_st};

nvml! {
    fn nvmlDeviceGetUtilizationRates(view, device: Device, utilization: Ptr<nvmlUtilization_st>) {
        let gpu = view.gpu(device)?;
        let of = supported(gpu.utilization.as_ref())?;
        let work = view.work(gpu);
        // The driver's reading is of its last sample period.
        let percent = |value: &Value| value.mean(view.now - view.period(), view.now, &work).round() as u32;
        utilization.set(nvmlUtilization_st { gpu: percent(&of.gpu), memory: percent(&of.memory) })
    }

    fn nvmlDeviceGetPowerUsage(view, device: Device, milliwatts: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        milliwatts.set(number(view, gpu, gpu.power_mw.as_ref())? as u32)
    }

    fn nvmlDeviceGetTotalEnergyConsumption(view, device: Device, millijoules: Ptr<u64>) {
        let gpu = view.gpu(device)?;
        millijoules.set(supported(gpu.energy_mj_at(view.now, &view.work(gpu)))? as u64)
    }

    fn nvmlDeviceGetPowerManagementLimit(view, device: Device, milliwatts: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        let limits = supported(gpu.power_limits.as_ref())?;
        milliwatts.set(number(view, gpu, Some(&limits.management))? as u32)
    }

    fn nvmlDeviceGetEnforcedPowerLimit(view, device: Device, milliwatts: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        let limits = supported(gpu.power_limits.as_ref())?;
        milliwatts.set(number(view, gpu, Some(&limits.enforced))? as u32)
    }

    fn nvmlDeviceGetPowerManagementDefaultLimit(view, device: Device, milliwatts: Ptr<u32>) {
        milliwatts.set(supported(view.gpu(device)?.power_limits.as_ref())?.default)
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(view, device: Device, min: Ptr<u32>, max: Ptr<u32>) {
        let limits = supported(view.gpu(device)?.power_limits.as_ref())?;
        min.set(limits.min)?;
        max.set(limits.max)
    }

    fn nvmlDeviceGetTemperature(view, device: Device, sensor: u32, celsius: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        if sensor != 0 {
            return Err(Code::InvalidArgument);
        }
        celsius.set(number(view, gpu, gpu.temperature_c.as_ref())? as u32)
    }

    fn nvmlDeviceGetTemperatureV(view, device: Device, temperature: Ptr<nvmlTemperature_v1_t>) {
        let gpu = view.gpu(device)?;
        let asked = temperature.get()?;
        if asked.version != (size_of::<nvmlTemperature_v1_t>() | 1 << 24) as u32 {
            return Err(Code::ArgumentVersionMismatch);
        }
        if asked.sensorType != 0 {
            return Err(Code::InvalidArgument);
        }
        let celsius = number(view, gpu, gpu.temperature_c.as_ref())? as i32;
        temperature.set(nvmlTemperature_v1_t { temperature: celsius, ..asked })
    }

    fn nvmlDeviceGetClockInfo(view, device: Device, domain: u32, megahertz: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        megahertz.set(number(view, gpu, clock(&gpu.clocks_mhz, domain)?)? as u32)
    }

    fn nvmlDeviceGetClock(view, device: Device, domain: u32, id: u32, megahertz: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        let clocks = match id {
            0 => &gpu.clocks_mhz,
            3 => &gpu.max_clocks_mhz,
            _ => return Err(Code::NotSupported),
        };
        megahertz.set(number(view, gpu, clock(clocks, domain)?)? as u32)
    }

    fn nvmlDeviceGetMaxClockInfo(view, device: Device, domain: u32, megahertz: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        megahertz.set(number(view, gpu, clock(&gpu.max_clocks_mhz, domain)?)? as u32)
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(view, device: Device, reasons: Ptr<u64>) {
        let gpu = view.gpu(device)?;
        reasons.set(number(view, gpu, gpu.throttle_reasons.as_ref())? as u64)
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons(view, device: Device, reasons: Ptr<u64>) {
        let gpu = view.gpu(device)?;
        reasons.set(number(view, gpu, gpu.throttle_reasons.as_ref())? as u64)
    }

    fn nvmlDeviceGetSupportedClocksEventReasons(view, device: Device, reasons: Ptr<u64>) {
        supported(view.gpu(device)?.throttle_reasons.as_ref())?;
        reasons.set(0x1ff)
    }

    fn nvmlDeviceGetSupportedClocksThrottleReasons(view, device: Device, reasons: Ptr<u64>) {
        supported(view.gpu(device)?.throttle_reasons.as_ref())?;
        reasons.set(0x1ff)
    }

    fn nvmlDeviceGetViolationStatus(view, device: Device, policy: u32, time: Ptr<nvmlViolationTime_st>) {
        let gpu = view.gpu(device)?;
        let nanoseconds = number(view, gpu, violation(gpu, policy))? as u64;
        time.set(nvmlViolationTime_st { referenceTime: view.stamp(view.now), violationTime: nanoseconds })
    }

    fn nvmlDeviceGetPerformanceState(view, device: Device, state: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        state.set(number(view, gpu, gpu.performance_state.as_ref())? as u32)
    }

    fn nvmlDeviceGetFanSpeed(view, device: Device, percent: Ptr<u32>) {
        let gpu = view.gpu(device)?;
        percent.set(number(view, gpu, gpu.fan_percent.as_ref())? as u32)
    }
}

/// A value of a GPU now, if it tells it.
pub(crate) fn number(view: &View, gpu: &Gpu, value: Option<&Value>) -> Result<f64, Code> {
    Ok(supported(value)?.at(view.now, &view.work(gpu)))
}

/// The counter of a policy, by NVML's number.
pub(crate) fn violation(gpu: &Gpu, policy: u32) -> Option<&Value> {
    let is_it = |(of, _): &(&Policy, &Value)| **of as u32 == policy;
    gpu.violations_ns.iter().find(is_it).map(|(_, value)| value)
}

fn clock(clocks: &Clocks, domain: u32) -> Result<Option<&Value>, Code> {
    match domain {
        0 => Ok(clocks.graphics.as_ref()),
        1 => Ok(clocks.sm.as_ref()),
        2 => Ok(clocks.memory.as_ref()),
        3 => Ok(clocks.video.as_ref()),
        _ => Err(Code::InvalidArgument),
    }
}
