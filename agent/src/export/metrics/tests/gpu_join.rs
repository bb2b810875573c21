//! Whose GPUs were, as series.

use super::*;
use infertap_core::gpu::{GpuShare, GpuState, TokenPhase, Unattributed, Uncharged};

/// One of every kind.
pub(super) fn shares(engine: &str) -> Vec<Observation> {
    let joules = |joules| Some(joules);
    [
        GpuShare::Engine {
            engine: engine.into(),
            state: GpuState::IdleWhileQueued,
            seconds: 1.5,
            joules: joules(90.0),
        },
        GpuShare::Unattributed {
            uuid: "GPU-1".into(),
            reason: Unattributed::Shared,
            seconds: 0.25,
            joules: joules(5.0),
        },
        GpuShare::Request {
            labels: labels(engine, "m", "s"),
            phase: TokenPhase::Decode,
            seconds: 0.5,
            joules: 12.5,
        },
        GpuShare::Uncharged {
            engine: engine.into(),
            reason: Uncharged::Idle,
            seconds: 1.5,
            joules: 90.0,
        },
    ]
    .map(Observation::Gpu)
    .to_vec()
}

#[test]
fn an_engine_has_all_states_until_it_is_gone() {
    let metrics = metrics();
    metrics.engine_up(&engine("e", 1));
    metrics.apply_all(&shares("e"));
    metrics.apply_all(&shares("e"));
    let seconds = samples(&metrics, "llm_gpu_seconds_total");
    assert_eq!(seconds.len(), GpuState::ALL.len(), "{seconds:?}");
    assert!(
        seconds
            .iter()
            .any(|line| line.contains("idle_while_queued") && line.ends_with(" 3")),
        "{seconds:?}"
    );
    let energy = samples(&metrics, "llm_energy_joules_total");
    assert!(
        energy.len() == 1 && energy[0].contains("decode") && energy[0].ends_with(" 25"),
        "{energy:?}"
    );
    metrics.engine_down("e");
    for family in [
        "llm_gpu_seconds_total",
        "llm_gpu_energy_joules_total",
        "llm_energy_uncharged_joules_total",
    ] {
        assert_eq!(samples(&metrics, family), [""; 0], "{family}");
    }
    // What is settled after the engine has gone is not lost.
    metrics.apply_all(&shares("e"));
    let seconds = samples(&metrics, "llm_gpu_seconds_total");
    assert!(seconds.iter().all(|line| line.contains("other")), "{seconds:?}");
}
