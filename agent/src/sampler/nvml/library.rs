//! The library, opened: every GPU and instance that it knows, round after round.
//!
//! Owns: loading, enumeration, identities. Refuses: threads but that of XID events (`events`), and when to try again
//! (`sampler`).

use super::device::{Memory, fault, read_gpu, read_instance};
use super::events::XidWatch;
use super::fault::Fault;
use super::source::{About, DeviceRead, GpuSource, Identity, OpenError, Opener, Slot, Stamp, Sweep, XidSink};
use crate::clock::monotonic_ns;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// GPUs that are looked at; a host has up to 16.
const MAX_GPUS: u32 = 64;

/// Loads NVML.
#[derive(Debug, Clone, Default)]
pub struct NvmlOpener {
    /// Where; `None` lets the dynamic linker find it.
    pub library: Option<PathBuf>,
}

impl NvmlOpener {
    /// As `[gpu]` says.
    pub fn new(config: &super::GpuConfig) -> NvmlOpener {
        let path = &config.nvml_library;
        NvmlOpener {
            library: (!path.is_empty()).then(|| PathBuf::from(path)),
        }
    }

    /// Loads and initialises the library.
    ///
    /// # Errors
    /// There is none here, or it does not work.
    pub fn load(&self) -> Result<Nvml, OpenError> {
        let mut builder = Nvml::builder();
        if let Some(path) = &self.library {
            builder.lib_path(path.as_os_str());
        }
        builder.init().map_err(|error| {
            let named = self.library.is_some();
            match &error {
                NvmlError::LibloadingError(why) if !named => OpenError::Absent(why.to_string()),
                NvmlError::LibloadingError(why) => OpenError::Failed(format!("gpu.nvml_library: {why}")),
                NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound if !named => {
                    OpenError::Absent(format!("NVML: {error}"))
                }
                _ => OpenError::Failed(format!("NVML: {error}: {}", fault(&error).meaning())),
            }
        })
    }
}

impl Opener for NvmlOpener {
    fn open(&mut self, xids: XidSink) -> Result<Box<dyn GpuSource>, OpenError> {
        let nvml = Arc::new(self.load()?);
        let about = About {
            driver: nvml.sys_driver_version().ok(),
            library: nvml.sys_nvml_version().ok(),
        };
        let watch = XidWatch::start(&nvml, xids)
            .map_err(|error| OpenError::Failed(format!("cannot start a thread for XID events: {error}")))?;
        Ok(Box::new(NvmlSource {
            watch,
            memories: HashMap::new(),
            identities: HashMap::new(),
            about,
            nvml,
        }))
    }
}

/// NVML, open.
#[derive(Debug)]
struct NvmlSource {
    watch: XidWatch,
    memories: HashMap<Arc<str>, Memory>,
    /// Names and addresses, which do not change, by UUID.
    identities: HashMap<Arc<str>, Identity>,
    about: About,
    nvml: Arc<Nvml>,
}

impl GpuSource for NvmlSource {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn sweep(&mut self) -> Result<Sweep, Fault> {
        // The devices borrow the library for this round only.
        let nvml = Arc::clone(&self.nvml);
        let count = nvml.device_count().map_err(|error| fault(&error))?;
        let mut sweep = Sweep::default();
        for gpu in 0..count.min(MAX_GPUS) {
            let slot = Slot { gpu, mig: None };
            let found = nvml
                .device_by_index(gpu)
                .and_then(|device| Ok((device.uuid()?, device)));
            let (uuid, device) = match found {
                Ok((uuid, device)) => (Arc::from(uuid), device),
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
                Err(error) => {
                    sweep.devices.push(unread(slot, fault(&error)));
                    continue;
                }
            };
            self.gpu(slot, &uuid, &device, &mut sweep);
        }
        let whole = sweep.devices.iter().filter(|device| device.slot.mig.is_none());
        let uuids = whole.filter_map(|device| Some(Arc::clone(&device.reading.as_ref().ok()?.identity.uuid)));
        self.watch.want(uuids.collect());
        let seen: HashSet<&Arc<str>> = sweep
            .devices
            .iter()
            .filter_map(|device| Some(&device.reading.as_ref().ok()?.identity.uuid))
            .collect();
        self.memories.retain(|uuid, _| seen.contains(uuid));
        self.identities.retain(|uuid, _| seen.contains(uuid));
        Ok(sweep)
    }
}

impl NvmlSource {
    /// Reads a GPU and its instances.
    fn gpu(&mut self, slot: Slot, uuid: &Arc<str>, device: &Device<'_>, sweep: &mut Sweep) {
        let mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
        let identity = self.identity(uuid, None, device, mig);
        let memory = self.memories.entry(Arc::clone(uuid)).or_default();
        let xids = self.watch.watches(uuid);
        let reading = read_gpu(device, &self.nvml, memory, identity, now(), xids);
        let away = reading.is_err();
        sweep.devices.push(DeviceRead { slot, reading });
        if !mig || away {
            return;
        }
        for index in 0..device.mig_device_count().unwrap_or(0).min(MAX_GPUS) {
            let slot = Slot {
                mig: Some(index),
                ..slot
            };
            let found = device
                .mig_device_by_index(index)
                .and_then(|of| Ok((of.uuid()?, of)));
            let (instance_uuid, instance) = match found {
                Ok((uuid, instance)) => (Arc::from(uuid), instance),
                // Most places are empty.
                Err(NvmlError::NotFound | NvmlError::InvalidArg | NvmlError::NotSupported) => continue,
                Err(error) => {
                    sweep.devices.push(unread(slot, fault(&error)));
                    continue;
                }
            };
            let identity = self.identity(&instance_uuid, Some(uuid), &instance, false);
            let memory = self.memories.entry(instance_uuid).or_default();
            let reading = read_instance(&instance, device, &self.nvml, memory, identity, now());
            sweep.devices.push(DeviceRead { slot, reading });
        }
    }

    fn identity(
        &mut self,
        uuid: &Arc<str>,
        parent: Option<&Arc<str>>,
        device: &Device<'_>,
        mig: bool,
    ) -> Identity {
        let known = self
            .identities
            .entry(Arc::clone(uuid))
            .or_insert_with(|| Identity {
                uuid: Arc::clone(uuid),
                parent: parent.cloned(),
                name: device.name().ok(),
                pci: device.pci_info().ok().map(|pci| pci.bus_id),
                mig,
            });
        known.mig = mig;
        known.clone()
    }
}

fn unread(slot: Slot, fault: Fault) -> DeviceRead {
    DeviceRead {
        slot,
        reading: Err(fault),
    }
}

/// Now, on both clocks.
fn now() -> Stamp {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp {
        at: monotonic_ns(),
        wall_us: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
    }
}
