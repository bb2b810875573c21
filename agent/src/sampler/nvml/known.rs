//! One GPU, from reading to reading: what was used between them, and what it looks like now.
//!
//! Owns: which of several ways to know a value is taken, its totals, what it tells the core. Refuses: which GPUs there
//! are (`track`).

use super::fault::{Fault, Miss, Told};
use super::integrate::{Count, Sampled, integral, mean};
use super::source::{Identity, ProcessRead, Reading, Slot};
use super::status::{EnergySource, GpuStatus, UtilizationSource};
use super::values::{Gauge, Reason, Total};
use infertap_core::Nanos;
use infertap_core::gpu::{BusySample, GpuProcess, GpuReading};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers of XID errors that a GPU's series have; NVIDIA lists some 150, of which a GPU ever sees a few.
pub(super) const MAX_XIDS: usize = 64;
/// Stands for those past the cap.
pub(super) const OTHER_XID: u64 = u64::MAX;

/// One GPU or MIG instance.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) gpu: Arc<str>,
    pub(super) slot: Slot,
    pub(super) identity: Identity,
    pub(super) away: Option<Fault>,
    pub(super) losses: u64,
    pub(super) xids: BTreeMap<u64, u64>,
    /// When it was read last; none since it was away.
    last: Option<Nanos>,
    read_at: Nanos,
    busy: Sampled,
    power: Sampled,
    gauges: Vec<Option<f64>>,
    totals: Vec<Count>,
    energy_source: Option<EnergySource>,
    utilization_source: Option<UtilizationSource>,
    not_supported: Vec<&'static str>,
    pub(super) failing: Vec<(&'static str, Fault)>,
    processes: Option<Vec<ProcessRead>>,
    process_sm: bool,
    xids_told: bool,
}

impl Known {
    pub(super) fn new(gpu: Arc<str>, slot: Slot, identity: Identity) -> Known {
        Known {
            gpu,
            slot,
            identity,
            away: None,
            losses: 0,
            xids: BTreeMap::new(),
            last: None,
            read_at: 0,
            busy: Sampled::default(),
            power: Sampled::default(),
            gauges: vec![None; Gauge::ALL.len()],
            totals: vec![Count::default(); Total::ALL.len()],
            energy_source: None,
            utilization_source: None,
            not_supported: Vec::new(),
            failing: Vec::new(),
            processes: None,
            process_sm: false,
            xids_told: false,
        }
    }

    /// It can't be read. Its totals stay; nothing else does.
    pub(super) fn go_away(&mut self, fault: Fault) {
        if self.away.is_none() {
            self.losses += 1;
        }
        self.away = Some(fault);
        self.last = None;
        (self.busy, self.power) = (Sampled::default(), Sampled::default());
        self.gauges.fill(None);
        self.processes = None;
        self.failing.clear();
    }

    /// Takes a reading. `longest` is the longest time that a sample may stand for.
    pub(super) fn read(&mut self, slot: Slot, reading: &Reading, longest: Nanos) -> GpuReading {
        let at = reading.stamp.at.max(self.last.unwrap_or(0));
        self.slot = slot;
        self.away = None;
        self.identity = reading.identity.clone();
        self.failing = reading.values.faults().collect();
        let since = self.last.filter(|last| *last < at);
        let passed = since.map(|since| (at - since) as f64 / 1e9);

        for gauge in Gauge::ALL {
            self.set(*gauge, reading.values.get(*gauge).ok());
        }
        let (busy, busy_gap) = self.read_busy(reading, at, since, longest);
        let energy = self.read_energy(reading, passed, longest);
        for reason in Reason::ALL {
            self.read_throttle(reading, reason, passed);
        }
        for total in Total::ALL {
            if !matches!(total, Total::Energy | Total::Busy | Total::Throttle(_)) {
                let told = reading.values.get_total(total);
                let count = self.count(total);
                match told {
                    Ok(raw) => drop(count.counted(raw)),
                    Err(Miss::NotSupported) => count.hide(),
                    Err(_) => {}
                }
            }
        }
        self.note_fault("processes", &reading.processes);
        self.note_fault("utilization_samples", &reading.busy);
        self.note_fault("power_samples", &reading.power);
        self.processes = reading.processes.as_ref().ok().cloned();
        self.process_sm = reading.process_sm.is_ok() && self.processes.is_some();
        self.xids_told = reading.xids;
        self.not_supported = self.missing(reading);

        let since = since.filter(|_| !busy_gap);
        let told = GpuReading {
            uuid: Arc::clone(&self.identity.uuid),
            parent: self.identity.parent.clone(),
            since,
            energy_j: energy.filter(|_| since.is_some()),
            busy: if since.is_some() { busy } else { Vec::new() },
            memory_used: self.get(Gauge::MemoryUsed).map(|bytes| bytes as u64),
            memory_total: self.get(Gauge::MemoryTotal).map(|bytes| bytes as u64),
            processes: self.processes.as_ref().map(|processes| {
                let told = |process: &ProcessRead| GpuProcess {
                    tgid: process.pid,
                    memory: process.memory,
                    sm: process.sm,
                };
                processes.iter().map(told).collect()
            }),
        };
        self.last = Some(at);
        self.read_at = at;
        told
    }

    /// Busy shares since the reading before, and whether some are missing.
    fn read_busy(
        &mut self,
        reading: &Reading,
        at: Nanos,
        since: Option<Nanos>,
        longest: Nanos,
    ) -> (Vec<BusySample>, bool) {
        let mut out = Vec::new();
        match &reading.busy {
            Ok(samples) => {
                let mut taken = self.busy.take(reading.stamp, samples, longest);
                if let Some(mean) = mean(&taken.spans) {
                    self.set(Gauge::Utilization, Some(mean));
                }
                // What the driver kept from before the first reading only tells where the next samples begin.
                if since.is_none() {
                    taken.spans.clear();
                }
                self.utilization_source = Some(UtilizationSource::Samples);
                self.count(Total::Busy).add(integral(&taken.spans));
                out.extend(taken.spans.iter().map(|span| BusySample {
                    end: span.end,
                    ratio: span.value.min(1.0),
                }));
                if taken.gap {
                    self.failing.push(("utilization_samples", Fault::SampleGap));
                }
                return (out, taken.gap);
            }
            Err(Miss::NotNow) => self.utilization_source = Some(UtilizationSource::Samples),
            Err(Miss::NotSupported | Miss::Failed(_)) => {
                if let Some(ratio) = self.get(Gauge::Utilization) {
                    self.utilization_source = Some(UtilizationSource::Readings);
                    let begin = self.busy.anchor.or(since);
                    self.busy.anchor = Some(at);
                    let length = begin.map_or(0, |begin| at.saturating_sub(begin));
                    self.count(Total::Busy).add(ratio * length as f64 / 1e9);
                    out.extend((length > 0).then_some(BusySample { end: at, ratio }));
                } else if reading.values.get(Gauge::Utilization) == Err(Miss::NotSupported) {
                    self.utilization_source = None;
                    self.count(Total::Busy).hide();
                }
            }
        }
        (out, false)
    }

    /// Joules since the reading before.
    fn read_energy(&mut self, reading: &Reading, passed: Option<f64>, longest: Nanos) -> Option<f64> {
        let power = reading.values.get(Gauge::Power);
        let sampled = match &reading.power {
            Ok(samples) => {
                let anchored = self.power.anchor.is_some();
                let mut taken = self.power.take(reading.stamp, samples, longest);
                if let Some(mean) = mean(&taken.spans) {
                    self.set(Gauge::Power, Some(mean));
                }
                if passed.is_none() {
                    taken.spans.clear();
                }
                Some((taken, anchored))
            }
            Err(Miss::NotNow) => Some((super::integrate::Taken::default(), self.power.anchor.is_some())),
            Err(_) => None,
        };
        match (reading.values.get_total(Total::Energy), sampled, power) {
            (Ok(joules), _, _) => {
                self.energy_source = Some(EnergySource::Counter);
                self.count(Total::Energy).counted(joules)
            }
            // It is there, and is not told now: it will be made up for by the next reading.
            (Err(Miss::NotNow | Miss::Failed(_)), _, _) => None,
            (Err(Miss::NotSupported), Some((taken, anchored)), _) => {
                self.energy_source = Some(EnergySource::PowerSamples);
                let joules = integral(&taken.spans);
                self.count(Total::Energy).add(joules);
                if taken.gap {
                    self.failing.push(("power_samples", Fault::SampleGap));
                }
                (anchored && !taken.gap).then_some(joules)
            }
            (Err(Miss::NotSupported), None, Ok(watts)) => {
                self.energy_source = Some(EnergySource::PowerReadings);
                let joules = passed.map(|passed| watts * passed);
                self.count(Total::Energy).add(joules.unwrap_or(0.0));
                joules
            }
            (Err(Miss::NotSupported), None, Err(miss)) => {
                if miss == Miss::NotSupported {
                    self.energy_source = None;
                    self.count(Total::Energy).hide();
                }
                None
            }
        }
    }

    /// Time with lower clocks: as the driver counts it, else for as long as the reason holds at each reading.
    fn read_throttle(&mut self, reading: &Reading, reason: Reason, passed: Option<f64>) {
        let count = &mut self.totals[Total::Throttle(reason).index()];
        match (
            reading.values.get_total(Total::Throttle(reason)),
            &reading.throttled,
        ) {
            (Ok(seconds), _) => drop(count.counted(seconds)),
            (Err(Miss::NotSupported), Ok(now)) => {
                count.add(passed.filter(|_| now.contains(&reason)).unwrap_or(0.0));
            }
            (Err(Miss::NotSupported), Err(Miss::NotSupported)) => count.hide(),
            _ => {}
        }
    }

    fn note_fault<T>(&mut self, name: &'static str, told: &Told<T>) {
        if let Err(Miss::Failed(fault)) = told {
            self.failing.push((name, *fault));
        }
    }

    /// What neither it nor its driver has.
    fn missing(&self, reading: &Reading) -> Vec<&'static str> {
        let values = &reading.values;
        let mut out = Vec::new();
        for gauge in Gauge::ALL {
            // Either the traffic is counted or its rate is told.
            let counted = match gauge {
                Gauge::PcieTx => self.totals[Total::PcieTx.index()].value().is_some(),
                Gauge::PcieRx => self.totals[Total::PcieRx.index()].value().is_some(),
                _ => false,
            };
            if values.get(*gauge) == Err(Miss::NotSupported) && self.get(*gauge).is_none() && !counted {
                out.push(gauge.as_str());
            }
        }
        for (total, count) in Total::ALL.iter().zip(&self.totals) {
            let failed = matches!(values.get_total(*total), Err(Miss::Failed(_) | Miss::NotNow));
            if count.value().is_none() && !failed && !out.contains(&total.family()) {
                out.push(total.family());
            }
        }
        if matches!(reading.processes, Err(Miss::NotSupported)) {
            out.push("processes");
        }
        if reading.process_sm == Err(Miss::NotSupported) {
            out.push("process_sm_ratio");
        }
        if !reading.xids && self.identity.parent.is_none() {
            out.push("xid_errors");
        }
        out
    }

    fn get(&self, gauge: Gauge) -> Option<f64> {
        self.gauges.get(gauge as usize).copied().flatten()
    }

    fn set(&mut self, gauge: Gauge, value: Option<f64>) {
        if let Some(slot) = self.gauges.get_mut(gauge as usize) {
            *slot = value;
        }
    }

    fn count(&mut self, total: Total) -> &mut Count {
        &mut self.totals[total.index()]
    }

    /// An error was reported. Whether its number is new, and whether it is past the cap.
    pub(super) fn xid(&mut self, xid: u64) -> (bool, bool) {
        let over = !self.xids.contains_key(&xid) && self.xids.len() >= MAX_XIDS;
        let count = self.xids.entry(if over { OTHER_XID } else { xid }).or_default();
        *count += 1;
        (*count == 1, over)
    }

    pub(super) fn status(&self) -> GpuStatus {
        let gauges = Gauge::ALL.iter().zip(&self.gauges);
        let totals = Total::ALL.iter().zip(&self.totals);
        GpuStatus {
            gpu: Arc::clone(&self.gpu),
            uuid: Arc::clone(&self.identity.uuid),
            parent: self.identity.parent.clone(),
            name: self.identity.name.clone(),
            pci: self.identity.pci.clone(),
            mig: self.identity.mig,
            away: self.away,
            losses: self.losses,
            read_at: self.read_at,
            gauges: gauges
                .filter_map(|(gauge, value)| Some((*gauge, (*value)?)))
                .collect(),
            totals: totals
                .filter_map(|(total, count)| Some((*total, count.value()?)))
                .collect(),
            xids: self.xids.iter().map(|(xid, count)| (*xid, *count)).collect(),
            xids_told: self.xids_told,
            not_supported: self.not_supported.clone(),
            failing: self.failing.clone(),
            energy_source: self.energy_source,
            utilization_source: self.utilization_source,
            processes: self.processes.clone(),
            process_sm: self.process_sm,
        }
    }
}
