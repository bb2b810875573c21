//! XID errors: a thread that waits for them in the driver.
//!
//! Owns: which GPUs are registered, and ending in time for the library to be closed. Refuses: counting (`track`).

use super::device::miss;
use super::fault::Miss;
use super::raw;
use super::source::{Xid, XidSink};
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long to wait in the driver before looking whether GPUs came or the end did.
const WAIT: Duration = Duration::from_millis(250);
/// What NVML tells where it does not know an XID error's number.
const UNKNOWN_XID: u64 = 999;

/// The thread, as the source holds it.
#[derive(Debug)]
pub(super) struct XidWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    wanted: Mutex<Vec<Arc<str>>>,
    watched: Mutex<BTreeSet<Arc<str>>>,
}

impl XidWatch {
    pub(super) fn start(nvml: &Arc<Nvml>, sink: XidSink) -> std::io::Result<XidWatch> {
        let shared = Arc::new(Shared::default());
        let (ours, nvml) = (Arc::clone(&shared), Arc::clone(nvml));
        let thread = std::thread::Builder::new()
            .name("infertap-xid".to_owned())
            .spawn(move || watch(&nvml, &ours, &sink))?;
        Ok(XidWatch {
            shared,
            thread: Some(thread),
        })
    }

    /// These GPUs are there.
    pub(super) fn want(&self, uuids: Vec<Arc<str>>) {
        *lock(&self.shared.wanted) = uuids;
    }

    /// Whether errors of this GPU are told.
    pub(super) fn watches(&self, uuid: &str) -> bool {
        lock(&self.shared.watched).contains(uuid)
    }
}

impl Drop for XidWatch {
    /// Waits for the thread, which holds the library open.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(nvml: &Nvml, shared: &Shared, sink: &XidSink) {
    let set = match nvml.create_event_set() {
        Ok(set) => set,
        Err(error) => {
            tracing::info!("XID errors can't be seen: {error}");
            return;
        }
    };
    // Handles tell GPUs apart that fell off the bus and tell no UUID any more.
    let mut by_handle: HashMap<usize, Arc<str>> = HashMap::new();
    let mut refused: BTreeSet<Arc<str>> = BTreeSet::new();
    while !shared.stop.load(Ordering::Relaxed) {
        for uuid in lock(&shared.wanted).clone() {
            if by_handle.values().any(|known| *known == uuid) || refused.contains(&uuid) {
                continue;
            }
            let events = EventTypes::CRITICAL_XID_ERROR;
            let registered = nvml.device_by_uuid(&*uuid).and_then(|device| {
                if !device.supported_event_types()?.contains(events) {
                    return Err(NvmlError::NotSupported);
                }
                raw::register(&device, events.bits(), &set)?;
                Ok(raw::key(&device))
            });
            match registered {
                Ok(handle) => {
                    by_handle.insert(handle, Arc::clone(&uuid));
                    lock(&shared.watched).insert(uuid);
                }
                Err(error) if miss(&error) == Miss::NotSupported => {
                    refused.insert(uuid);
                }
                // Tried again with the next round.
                Err(error) => tracing::debug!("XID errors of {uuid} can't be seen: {error}"),
            }
        }
        match set.wait(WAIT.as_millis() as u32) {
            Ok(event) => {
                let xid = match event.event_data {
                    Some(XidError::Value(xid)) => xid,
                    Some(XidError::Unknown) => UNKNOWN_XID,
                    None => continue,
                };
                let known = by_handle.get(&raw::key(&event.device)).cloned();
                let uuid = known.or_else(|| event.device.uuid().ok().map(Arc::from));
                if let Some(uuid) = uuid {
                    sink(Xid { uuid, xid });
                } else {
                    tracing::warn!("an unknown GPU reports XID error {xid}");
                }
            }
            Err(NvmlError::Timeout) => {}
            // Nothing to wait for, or a GPU that is lost: not more often than the wait would be.
            Err(error) => {
                tracing::debug!("waiting for XID errors: {error}");
                std::thread::sleep(WAIT);
            }
        }
    }
}
