//! What GPUs were doing for whom, as Prometheus counters.
//!
//! Owns: their registration, which series an engine has, and their end with it. Refuses: label caps (`series`), and whose
//! a second or a joule was (the core's).

use super::{catalog, labels::OTHER, options, series::State};
use infertap_core::gpu::{GpuShare, GpuState, Uncharged};
use prometheus::{CounterVec, Registry};

/// The families.
#[derive(Clone)]
pub(super) struct GpuShares {
    seconds: CounterVec,
    joules: CounterVec,
    requests: CounterVec,
    uncharged: CounterVec,
    unattributed_seconds: CounterVec,
    unattributed_joules: CounterVec,
}

impl GpuShares {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<GpuShares> {
        let counter = |definition: &catalog::Definition| {
            let counter = CounterVec::new(options(definition), definition.labels)?;
            registry.register(Box::new(counter.clone()))?;
            prometheus::Result::Ok(counter)
        };
        Ok(GpuShares {
            seconds: counter(catalog::GPU_SECONDS)?,
            joules: counter(catalog::GPU_STATE_JOULES)?,
            requests: counter(catalog::ENERGY)?,
            uncharged: counter(catalog::ENERGY_UNCHARGED)?,
            unattributed_seconds: counter(catalog::GPU_UNATTRIBUTED_SECONDS)?,
            unattributed_joules: counter(catalog::GPU_UNATTRIBUTED_JOULES)?,
        })
    }

    /// Adds what more is known.
    pub(super) fn apply(&self, share: &GpuShare, state: &mut State) {
        match share {
            GpuShare::Engine {
                engine,
                state: doing,
                seconds,
                joules,
            } => {
                let engine = state.engine_label(engine);
                // A state that an engine never was in is known to be none.
                for any in GpuState::ALL {
                    self.seconds.with_label_values(&[&*engine, any.as_str()]);
                }
                add(&self.seconds, &[&engine, doing.as_str()], *seconds);
                if let Some(joules) = joules {
                    add(&self.joules, &[&engine, doing.as_str()], *joules);
                }
            }
            GpuShare::Unattributed {
                uuid,
                reason,
                seconds,
                joules,
            } => {
                add(&self.unattributed_seconds, &[uuid, reason.as_str()], *seconds);
                if let Some(joules) = joules {
                    add(&self.unattributed_joules, &[uuid, reason.as_str()], *joules);
                }
            }
            GpuShare::Request {
                labels,
                phase,
                joules,
                ..
            } => {
                let model = state.models.admit(&labels.model).value;
                let scene = state.scenes.admit(&labels.scene).value;
                add(&self.requests, &[&model, &scene, phase.as_str()], *joules);
            }
            GpuShare::Uncharged {
                engine,
                reason,
                joules,
                ..
            } => {
                let engine = state.engine_label(engine);
                add(&self.uncharged, &[&engine, reason.as_str()], *joules);
            }
            // For its record.
            GpuShare::Whole { .. } => {}
        }
    }

    /// The engine with this label value is gone.
    pub(super) fn down(&self, engine: &str) {
        if engine == OTHER {
            return;
        }
        for state in GpuState::ALL {
            // Not every engine has a GPU, so a failure to find a series is no news.
            let _ = self.seconds.remove_label_values(&[engine, state.as_str()]);
            let _ = self.joules.remove_label_values(&[engine, state.as_str()]);
        }
        for reason in Uncharged::ALL {
            let _ = self.uncharged.remove_label_values(&[engine, reason.as_str()]);
        }
    }
}

fn add(counter: &CounterVec, labels: &[&str], more: f64) {
    if more.is_finite() && more > 0.0 {
        counter.with_label_values(labels).inc_by(more);
    }
}
