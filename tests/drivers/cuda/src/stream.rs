//! Streams and events: order, and waiting.
//!
//! Owns: when a stream's work and an event are done. Refuses: putting work there (`launch`, `copy`, `graph`).

use crate::{
    device::{monotonic_ns, sleep_until},
    ffi::Ptr,
    state::{Entry, Error, StreamHandle, current_device, state},
};

cuda! {
    fn cuStreamCreate(_entry, stream: Ptr<StreamHandle>, _flags: u32) {
        create(stream)
    }

    fn cuStreamCreateWithPriority(_entry, stream: Ptr<StreamHandle>, _flags: u32, _priority: i32) {
        create(stream)
    }

    fn cuStreamDestroy_v2(entry, stream: StreamHandle) {
        let mut state = state();
        let stream = state.stream(entry, stream)?;
        state.device(stream.device)?.remove_stream(stream.number);
        Ok(())
    }

    fn cuStreamSynchronize | cuStreamSynchronize_ptsz (entry, stream: StreamHandle) {
        sleep_until(end_of(entry, stream)?);
        Ok(())
    }

    fn cuStreamQuery | cuStreamQuery_ptsz (entry, stream: StreamHandle) {
        done(end_of(entry, stream)?)
    }

    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz (entry, stream: StreamHandle, event: usize, _flags: u32) {
        let mut state = state();
        let until = state.events.get(&event).copied().ok_or(Error::InvalidHandle)?;
        let stream = state.stream(entry, stream)?;
        state.device(stream.device)?.delay(stream.number, until.unwrap_or(0));
        Ok(())
    }

    fn cuEventCreate(_entry, event: Ptr<usize>, _flags: u32) {
        let mut state = state();
        let handle = state.new_handle();
        state.events.insert(handle, None);
        event.set(handle)
    }

    fn cuEventRecord | cuEventRecord_ptsz (entry, event: usize, stream: StreamHandle) {
        let end = end_of(entry, stream)?.max(monotonic_ns());
        *state().events.get_mut(&event).ok_or(Error::InvalidHandle)? = Some(end);
        Ok(())
    }

    fn cuEventQuery(_entry, event: usize) {
        done(reached(event)?)
    }

    fn cuEventSynchronize(_entry, event: usize) {
        sleep_until(reached(event)?);
        Ok(())
    }

    fn cuEventElapsedTime(_entry, milliseconds: Ptr<f32>, from: usize, to: usize) {
        let (from, to) = (reached(from)?, reached(to)?);
        done(to.max(from))?;
        milliseconds.set((to as f64 - from as f64) as f32 / 1e6)
    }

    fn cuEventDestroy_v2(_entry, event: usize) {
        state().events.remove(&event).map(|_| ()).ok_or(Error::InvalidHandle)
    }
}

fn create(stream: Ptr<StreamHandle>) -> Result<(), Error> {
    let mut state = state();
    let handle = state.new_handle();
    state.device(current_device())?.add_stream(handle as u64);
    stream.set(handle)
}

/// When a stream's work ends.
pub(crate) fn end_of(entry: Entry, stream: StreamHandle) -> Result<u64, Error> {
    let mut state = state();
    let stream = state.stream(entry, stream)?;
    Ok(state.device(stream.device)?.end_of(stream.number))
}

fn reached(event: usize) -> Result<u64, Error> {
    let event = state().events.get(&event).copied().ok_or(Error::InvalidHandle)?;
    Ok(event.unwrap_or(0))
}

fn done(end: u64) -> Result<(), Error> {
    if monotonic_ns() < end {
        Err(Error::NotReady)
    } else {
        Ok(())
    }
}
