//! All GPUs, from sweep to sweep: who is there, who went away, who came back, and what is worth a line in the log.
//!
//! Owns: short names, presence, the count of faults, what was told already. Refuses: values (`known`), clocks and threads
//! (`sampler`): the same sweeps give the same picture.

use super::fault::Fault;
use super::known::{Known, OTHER_XID};
use super::source::{About, Identity, Slot, Sweep, Xid};
use super::status::{GpuView, NvmlState};
use infertap_core::Nanos;
use infertap_core::gpu::GpuReading;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// GPUs and instances that are known at once; a host has up to 16 GPUs of up to 7 instances each.
const MAX_KNOWN: usize = 256;
/// Troubles that are remembered as told.
const MAX_TOLD: usize = 4096;

/// Something for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// It is over, rather than begun.
    pub over: bool,
    /// A sentence.
    pub text: String,
}

/// All GPUs.
#[derive(Debug)]
pub struct Tracker {
    longest: Nanos,
    known: BTreeMap<Arc<str>, Known>,
    state: NvmlState,
    about: About,
    faults: BTreeMap<Fault, u64>,
    xid_overflow: u64,
    told: BTreeSet<(Arc<str>, &'static str, Fault)>,
    troubles: Vec<Trouble>,
}

impl Tracker {
    /// Nothing is known yet. `longest` is the longest time that a sample of the driver may stand for.
    pub fn new(longest: Nanos) -> Tracker {
        Tracker {
            longest,
            known: BTreeMap::new(),
            state: NvmlState::Off,
            about: About::default(),
            faults: BTreeMap::new(),
            xid_overflow: 0,
            told: BTreeSet::new(),
            troubles: Vec::new(),
        }
    }

    /// The library is open.
    pub fn opened(&mut self, about: About) {
        self.about = about;
        self.state = NvmlState::Up;
    }

    /// The host has no library.
    pub fn absent(&mut self, state: NvmlState) {
        self.state = state;
        for known in self.known.values_mut() {
            known.go_away(Fault::NoDriver);
        }
    }

    /// Nothing can be read, for this reason. `fault` is why the GPUs that were there are away now.
    pub fn closed(&mut self, state: NvmlState, fault: Fault) {
        self.state = state;
        self.fault(fault);
        for known in self.known.values_mut() {
            known.go_away(fault);
        }
    }

    /// Takes a sweep; gives what the core is told, each with its time.
    pub fn sweep(&mut self, sweep: &Sweep) -> Vec<(Nanos, Arc<GpuReading>)> {
        self.state = NvmlState::Up;
        let mut out = Vec::new();
        let mut seen: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut unread: Vec<(Slot, Fault)> = Vec::new();
        for device in &sweep.devices {
            match &device.reading {
                Err(fault) => {
                    self.fault(*fault);
                    unread.push((device.slot, *fault));
                }
                Ok(reading) => {
                    let identity = &reading.identity;
                    if !self.admit(identity, device.slot, &seen) {
                        self.fault(Fault::Unknown);
                        continue;
                    }
                    seen.insert(Arc::clone(&identity.uuid));
                    let Some(known) = self.known.get_mut(&identity.uuid) else {
                        continue;
                    };
                    if known.away.is_some() {
                        self.troubles.push(Trouble {
                            over: true,
                            text: format!("GPU {} ({}) is back", known.gpu, identity.uuid),
                        });
                    }
                    let told = known.read(device.slot, reading, self.longest);
                    let failing = known.failing.clone();
                    out.push((reading.stamp.at, Arc::new(told)));
                    self.failing(&identity.uuid, &failing);
                }
            }
        }
        self.settle(&seen, &unread);
        out
    }

    /// Makes room for a device that is there; `false` when there is none.
    fn admit(&mut self, identity: &Identity, slot: Slot, seen: &BTreeSet<Arc<str>>) -> bool {
        if self.known.contains_key(&identity.uuid) {
            return true;
        }
        if self.known.len() >= MAX_KNOWN {
            let gone = self
                .known
                .iter()
                .find(|(uuid, known)| known.away.is_some() && !seen.contains(*uuid));
            let Some(gone) = gone.map(|(uuid, _)| Arc::clone(uuid)) else {
                return false;
            };
            self.known.remove(&gone);
        }
        let gpu = self.short_name(identity, slot);
        self.known.insert(
            Arc::clone(&identity.uuid),
            Known::new(gpu, slot, identity.clone()),
        );
        true
    }

    /// NVML's index, as `nvidia-smi` shows it, unless another GPU that is there has that name from before.
    fn short_name(&self, identity: &Identity, slot: Slot) -> Arc<str> {
        if let Some(mig) = slot.mig {
            let parent = identity.parent.as_ref().and_then(|uuid| self.known.get(uuid));
            let parent = parent.map_or_else(|| slot.gpu.to_string(), |parent| parent.gpu.to_string());
            return format!("{parent}:{mig}").into();
        }
        let taken = |name: &str| {
            self.known
                .values()
                .any(|known| known.away.is_none() && &*known.gpu == name)
        };
        let names = std::iter::once(slot.gpu)
            .chain(0..)
            .map(|number| number.to_string());
        let mut names = names.filter(|name| !taken(name));
        names.next().unwrap_or_default().into()
    }

    /// What was known and was not read: away, or an instance that is no more.
    fn settle(&mut self, seen: &BTreeSet<Arc<str>>, unread: &[(Slot, Fault)]) {
        self.known.retain(|uuid, known| {
            let parent = known.identity.parent.as_ref();
            let whole_is_there = parent.is_some_and(|parent| seen.contains(parent));
            seen.contains(uuid) || !whole_is_there || unread.iter().any(|(slot, _)| *slot == known.slot)
        });
        for (uuid, known) in &mut self.known {
            if seen.contains(uuid) {
                continue;
            }
            let why = unread.iter().find(|(slot, _)| *slot == known.slot);
            let fault = why.map_or(Fault::Lost, |(_, fault)| *fault);
            if known.away.is_none() && known.slot.mig.is_none() {
                self.troubles.push(Trouble {
                    over: false,
                    text: format!(
                        "GPU {} ({uuid}) can't be read any more ({}): {}",
                        known.gpu,
                        fault.as_str(),
                        fault.meaning()
                    ),
                });
            }
            known.go_away(fault);
        }
        for (slot, fault) in unread {
            if !self.known.values().any(|known| known.slot == *slot) {
                let name: Arc<str> = slot.gpu.to_string().into();
                self.tell(&name, "all", *fault, || {
                    format!(
                        "GPU {} can't be read ({}): {}",
                        slot.gpu,
                        fault.as_str(),
                        fault.meaning()
                    )
                });
            }
        }
    }

    /// Values of a GPU that should be there and failed: each is told once.
    fn failing(&mut self, uuid: &Arc<str>, failing: &[(&'static str, Fault)]) {
        for (name, fault) in failing {
            self.fault(*fault);
            let gpu = self
                .known
                .get(uuid)
                .map(|known| Arc::clone(&known.gpu))
                .unwrap_or_default();
            self.tell(uuid, name, *fault, || {
                format!("GPU {gpu}: no {name} ({}): {}", fault.as_str(), fault.meaning())
            });
        }
    }

    fn tell(&mut self, who: &Arc<str>, what: &'static str, fault: Fault, text: impl FnOnce() -> String) {
        let key = (Arc::clone(who), what, fault);
        if self.told.len() < MAX_TOLD && self.told.insert(key) {
            self.troubles.push(Trouble {
                over: false,
                text: text(),
            });
        }
    }

    fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// A GPU reported an error.
    pub fn xid(&mut self, xid: &Xid) {
        let Some(known) = self.known.get_mut(&xid.uuid) else {
            self.fault(Fault::Unknown);
            return;
        };
        let (new, over) = known.xid(xid.xid);
        self.xid_overflow += u64::from(over);
        if new {
            self.troubles.push(Trouble {
                over: false,
                text: format!(
                    "GPU {} ({}) reports XID error {}; the kernel log tells more, further ones are only counted",
                    known.gpu, xid.uuid, xid.xid
                ),
            });
        }
    }

    /// What is worth a line in the log since the last time.
    pub fn take_troubles(&mut self) -> Vec<Trouble> {
        std::mem::take(&mut self.troubles)
    }

    /// The picture.
    pub fn view(&self) -> GpuView {
        let mut known: Vec<&Known> = self.known.values().collect();
        let number = |known: &Known| {
            known
                .gpu
                .split(':')
                .next()
                .and_then(|text| text.parse::<u32>().ok())
        };
        known.sort_by_key(|known| {
            (
                number(known),
                known.slot.mig,
                known.away.is_some(),
                Arc::clone(&known.identity.uuid),
            )
        });
        GpuView {
            state: self.state.clone(),
            about: self.about.clone(),
            gpus: known.into_iter().map(Known::status).collect(),
            faults: self
                .faults
                .iter()
                .map(|(fault, count)| (*fault, *count))
                .collect(),
            xid_overflow: self.xid_overflow,
        }
    }
}

/// The label value of an XID error.
pub(crate) fn xid_label(xid: u64) -> String {
    if xid == OTHER_XID {
        crate::export::metrics::OTHER.to_owned()
    } else {
        xid.to_string()
    }
}

#[cfg(test)]
mod tests;
