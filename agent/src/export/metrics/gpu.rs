//! GPUs as Prometheus metrics, rendered from the last picture of them when scraped.
//!
//! Owns: which series a picture has: what is not known is absent, and what was there and is no longer known is gone.
//! Refuses: the picture (`sampler::nvml`), whose processes are on a GPU (`export::gpus`).

use super::{
    Metrics,
    catalog::{self, Definition},
    histogram::lock,
    scraped,
};
use crate::sampler::nvml::{Gauge, GpuStatus, GpuView, NvmlState, Total, xid_label};
use prometheus::{
    core::{Collector, Desc},
    proto::{LabelPair, Metric, MetricFamily},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// What the processes of one engine, or of none, use of a GPU.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EngineOnGpu {
    /// Short name of the GPU.
    pub(crate) gpu: Arc<str>,
    /// Label value.
    pub(crate) engine: Arc<str>,
    /// Bytes.
    pub(crate) memory: Option<u64>,
    /// 0 to 1.
    pub(crate) sm: Option<f64>,
}

#[derive(Debug, Default)]
struct Shown {
    view: Arc<GpuView>,
    engines: Vec<EngineOnGpu>,
}

impl Metrics {
    /// GPUs were read; `engines` have their ids.
    pub(crate) fn gpus(&self, view: Arc<GpuView>, mut engines: Vec<EngineOnGpu>) {
        let state = lock(&self.state);
        for one in &mut engines {
            one.engine = state.engine_label(&one.engine);
        }
        drop(state);
        let overflow = &self.families.overflow_xid;
        overflow.inc_by(view.xid_overflow.saturating_sub(overflow.get()));
        self.gpus.show(view, engines);
    }

    /// An engine's processes are on these GPUs: short names, with commas.
    pub(crate) fn engine_gpus(&self, id: &Arc<str>, gpus: &str) {
        lock(&self.state).engine_gpus(&self.families, id, gpus);
    }
}

/// The collector; its clones share what they show.
#[derive(Debug, Clone)]
pub(super) struct GpuCollector {
    shown: Arc<Mutex<Shown>>,
    descs: Arc<Vec<Desc>>,
}

impl GpuCollector {
    pub(super) fn new() -> prometheus::Result<GpuCollector> {
        Ok(GpuCollector {
            shown: Arc::default(),
            descs: Arc::new(scraped::descs(catalog::GPUS)?),
        })
    }

    /// From now on this is shown.
    pub(super) fn show(&self, view: Arc<GpuView>, mut engines: Vec<EngineOnGpu>) {
        // Engines past the cap on their label share a value.
        let mut sums: BTreeMap<(Arc<str>, Arc<str>), EngineOnGpu> = BTreeMap::new();
        for one in engines.drain(..) {
            match sums.entry((Arc::clone(&one.gpu), Arc::clone(&one.engine))) {
                std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert(one)),
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    let sum = entry.get_mut();
                    sum.memory = sum.memory.zip(one.memory).map(|(a, b)| a.saturating_add(b));
                    sum.sm = sum.sm.zip(one.sm).map(|(a, b)| a + b);
                }
            }
        }
        *lock(&self.shown) = Shown {
            view,
            engines: sums.into_values().collect(),
        };
    }
}

impl Collector for GpuCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let shown = lock(&self.shown);
        let mut families = Families::default();
        for gpu in &shown.view.gpus {
            families.gpu(gpu, shown.view.about.driver.as_deref().unwrap_or_default());
        }
        for one in &shown.engines {
            let labels = [("gpu", &*one.gpu), ("engine", &*one.engine)];
            if let Some(memory) = one.memory {
                families.add(catalog::GPU_PROCESS_MEMORY, &labels, memory as f64);
            }
            if let Some(sm) = one.sm {
                families.add(catalog::GPU_PROCESS_SM, &labels, sm);
            }
        }
        if !matches!(shown.view.state, NvmlState::Off | NvmlState::Absent(_)) {
            for (fault, count) in &shown.view.faults {
                families.add(catalog::GPU_ERRORS, &[("error", fault.as_str())], *count as f64);
            }
        }
        families.finish()
    }
}

/// Samples by family, in the order of the catalog.
#[derive(Default)]
struct Families(BTreeMap<usize, Vec<Metric>>);

impl Families {
    fn gpu(&mut self, gpu: &GpuStatus, driver: &str) {
        let who = [("gpu", &*gpu.gpu), ("uuid", &*gpu.uuid)];
        let with = |more: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            let all = who.iter().chain(more.iter());
            all.map(|(name, value)| (*name, (*value).to_owned())).collect()
        };
        self.add_owned(
            catalog::GPU_INFO,
            with(&[
                ("name", gpu.name.as_deref().unwrap_or_default()),
                ("driver", driver),
                ("pci", gpu.pci.as_deref().unwrap_or_default()),
                ("parent", gpu.parent.as_deref().unwrap_or_default()),
            ]),
            1.0,
        );
        self.add(catalog::GPU_UP, &who, f64::from(u8::from(gpu.away.is_none())));
        self.add(catalog::GPU_LOSSES, &who, gpu.losses as f64);
        for (gauge, value) in &gpu.gauges {
            self.add(of_gauge(*gauge), &who, *value);
        }
        for (total, value) in &gpu.totals {
            let label = total.label();
            self.add_owned(of_total(*total), with(label.as_slice()), *value);
        }
        for (xid, count) in &gpu.xids {
            self.add_owned(
                catalog::GPU_XID,
                with(&[("xid", &xid_label(*xid))]),
                *count as f64,
            );
        }
    }

    fn add(&mut self, definition: &'static Definition, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        self.add_owned(definition, labels, value);
    }

    fn add_owned(
        &mut self,
        definition: &'static Definition,
        labels: Vec<(&'static str, String)>,
        value: f64,
    ) {
        let Some(place) = catalog::GPUS
            .iter()
            .position(|known| known.name == definition.name)
        else {
            return;
        };
        let mut pairs: Vec<LabelPair> = labels
            .into_iter()
            .map(|(name, value)| scraped::pair(name, &super::labels::clean_value(&value)))
            .collect();
        pairs.sort_by(|a, b| a.name().cmp(b.name()));
        let sample = scraped::sample(definition, pairs, value);
        self.0.entry(place).or_default().push(sample);
    }

    fn finish(self) -> Vec<MetricFamily> {
        let families = self.0.into_iter();
        let families =
            families.filter_map(|(place, samples)| Some(scraped::family(catalog::GPUS.get(place)?, samples)));
        families.collect()
    }
}

/// The definition of a gauge. The names agree: a test holds them to it, so the default is never taken.
fn of_gauge(gauge: Gauge) -> &'static Definition {
    named(|name| name.strip_prefix("gpu_") == Some(gauge.as_str()))
}

fn of_total(total: Total) -> &'static Definition {
    named(|name| {
        name.strip_prefix("gpu_")
            .and_then(|name| name.strip_suffix("_total"))
            == Some(total.family())
    })
}

fn named(is_it: impl Fn(&str) -> bool) -> &'static Definition {
    let found = catalog::GPUS.iter().find(|definition| is_it(definition.name));
    found.copied().unwrap_or(catalog::GPU_INFO)
}

#[cfg(test)]
mod tests {
    use super::{super::catalog::Kind, *};

    #[test]
    fn every_value_has_its_definition() {
        for gauge in Gauge::ALL {
            let definition = of_gauge(*gauge);
            assert_eq!(definition.name, format!("gpu_{}", gauge.as_str()));
            assert_eq!(
                (definition.kind, definition.labels),
                (Kind::Gauge, &["gpu", "uuid"][..])
            );
        }
        for total in Total::ALL {
            let definition = of_total(total);
            assert_eq!(definition.name, format!("gpu_{}_total", total.family()));
            assert_eq!(definition.kind, Kind::Counter);
            assert_eq!(
                definition.labels.get(2).copied(),
                total.label().map(|(name, _)| name),
                "{total:?}"
            );
        }
    }
}
