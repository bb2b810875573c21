//! Event sets.
//!
//! Owns: which events a set still has to tell, waiting for them. Refuses: making events happen (the script).

use crate::{
    ffi::Ptr,
    state::{Device, View, monotonic_ns},
};
use infertap_driver_script::{Code, Event, How};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_st};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A set's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(crate) struct SetHandle(usize);

/// A device in a set.
struct Member {
    device: Device,
    types: u64,
    /// CLOCK_MONOTONIC nanoseconds up to which its events have been told.
    told_ns: u64,
    /// Events at that very time that have been told.
    told_there: usize,
}

struct Sets {
    members: HashMap<SetHandle, Vec<Member>>,
    next: usize,
}

fn sets() -> MutexGuard<'static, Option<Sets>> {
    static SETS: Mutex<Option<Sets>> = Mutex::new(None);
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    sets.get_or_insert_with(|| Sets {
        members: HashMap::new(),
        next: 0x5e70_0001,
    });
    sets
}

/// The part of the script's second that is this event's, in CLOCK_MONOTONIC nanoseconds.
fn at_ns(view: &View, event: &Event) -> u64 {
    view.script.start_ns + (event.at_s.max(0.0) * 1e9) as u64
}

nvml! {
    fn nvmlEventSetCreate(_view, set: Ptr<SetHandle>) {
        let mut guard = sets();
        let sets = guard.as_mut().ok_or(Code::Unknown)?;
        let handle = SetHandle(sets.next);
        sets.next += 1;
        sets.members.insert(handle, Vec::new());
        set.set(handle)
    }

    fn nvmlEventSetFree(_view, set: SetHandle) {
        let removed = sets().as_mut().and_then(|sets| sets.members.remove(&set));
        removed.map(|_| ()).ok_or(Code::InvalidArgument)
    }

    fn nvmlDeviceGetSupportedEventTypes(view, device: Device, types: Ptr<u64>) {
        view.gpu(device)?;
        types.set(0x1f)
    }

    fn nvmlDeviceRegisterEvents(view, device: Device, types: u64, set: SetHandle) {
        view.gpu(device)?;
        let mut guard = sets();
        let members = guard.as_mut().and_then(|sets| sets.members.get_mut(&set));
        let members = members.ok_or(Code::InvalidArgument)?;
        match members.iter_mut().find(|member| member.device == device) {
            Some(member) => member.types |= types,
            // Only what happens from now on is told.
            None => members.push(Member { device, types, told_ns: monotonic_ns(), told_there: 0 }),
        }
        Ok(())
    }

    fn nvmlEventSetWait_v2(view, set: SetHandle, data: Ptr<nvmlEventData_st>, timeout_ms: u32) {
        wait(view, set, data, timeout_ms)
    }

    fn nvmlEventSetWait(view, set: SetHandle, data: Ptr<nvmlEventData_st>, timeout_ms: u32) {
        wait(view, set, data, timeout_ms)
    }
}

fn wait(view: &View, set: SetHandle, data: Ptr<nvmlEventData_st>, timeout_ms: u32) -> Result<(), Code> {
    let deadline = monotonic_ns() + u64::from(timeout_ms) * 1_000_000;
    loop {
        let view = view.again()?;
        if let Some(event) = next(&view, set)? {
            return data.set(event);
        }
        let left = deadline.saturating_sub(monotonic_ns());
        if left == 0 {
            return Err(Code::Timeout);
        }
        std::thread::sleep(Duration::from_nanos(left.min(2_000_000)));
    }
}

/// The oldest event that has happened and that the set has not told.
fn next(view: &View, set: SetHandle) -> Result<Option<nvmlEventData_st>, Code> {
    let mut guard = sets();
    let members = guard.as_mut().and_then(|sets| sets.members.get_mut(&set));
    let members = members.ok_or(Code::InvalidArgument)?;
    let now = monotonic_ns();
    let mut found: Option<(u64, usize, usize)> = None;
    for (at, member) in members.iter().enumerate() {
        let gpu = member.device.gpu().and_then(|gpu| view.script.gpus.get(gpu));
        let Some(gpu) = gpu else { continue };
        let mut there = 0;
        for (number, event) in gpu.events.iter().enumerate() {
            let time = at_ns(view, event);
            if member.types & event.kind as u64 == 0 || time > now || time < member.told_ns {
                continue;
            }
            if time == member.told_ns {
                there += 1;
                if there <= member.told_there {
                    continue;
                }
            }
            if found.is_none_or(|(best, _, _)| time < best) {
                found = Some((time, at, number));
            }
        }
    }
    let Some((time, at, number)) = found else {
        let lost = |member: &Member| {
            let gpu = member.device.gpu().and_then(|gpu| view.script.gpus.get(gpu));
            gpu.is_some_and(|gpu| view.away(gpu) == Some(How::Lost))
        };
        return if members.iter().any(lost) {
            Err(Code::GpuIsLost)
        } else {
            Ok(None)
        };
    };
    let member = members.get_mut(at).ok_or(Code::Unknown)?;
    member.told_there = if member.told_ns == time {
        member.told_there + 1
    } else {
        1
    };
    member.told_ns = time;
    let gpu = member.device.gpu().and_then(|gpu| view.script.gpus.get(gpu));
    let gpu = gpu.ok_or(Code::Unknown)?;
    let event = gpu.events.get(number).ok_or(Code::Unknown)?;
    let instance = event
        .instance
        .and_then(|at| gpu.mig.as_ref()?.instances.get(at)?.as_ref());
    Ok(Some(nvmlEventData_st {
        // The handle is a number that is never followed.
        device: std::ptr::without_provenance_mut::<std::ffi::c_void>(member.device.number()) as nvmlDevice_t,
        eventType: event.kind as u64,
        eventData: event.data,
        gpuInstanceId: instance.map_or(u32::MAX, |instance| instance.gpu_instance),
        computeInstanceId: instance.map_or(u32::MAX, |instance| instance.compute_instance),
    }))
}
