//! The metrics of what GPUs were doing for whom.
//!
//! Owns: their words. Refuses: values (the core's join).

use super::{Definition, Kind};

catalog! {
    /// Of GPUs' time and energy, by engine and request.
    pub(crate) const GPU_JOIN;
    GPU_SECONDS: Counter "llm_gpu_seconds_total" ["engine", "state"]
        "Seconds of an engine's GPUs, all together, by what the engine was doing. state is prefill, decode, mixed, idle, idle_while_queued, or unknown. Four GPUs make four a second."
        source "NVML's process lists, and the engine's steps: as it tells them, else as its CUDA calls show them. docs/gpu.md tells how. Told some seconds late."
        absent "Without NVML; for engines without a GPU; when the engine is gone. What comes after that, and what is of engines past the cap, is other's.";
    GPU_STATE_JOULES: Counter "llm_gpu_energy_joules_total" ["engine", "state"]
        "Energy of an engine's GPUs, by what the engine was doing. state as in llm_gpu_seconds_total."
        source "NVML's energy counter or power samples, spread over the time by how busy the GPU was."
        absent "As llm_gpu_seconds_total; where the driver tells neither energy nor power.";
    ENERGY: Counter "llm_energy_joules_total" ["model", "scene", "phase"]
        "Energy of GPUs that went into tokens of requests. phase is prefill (of their prompts) or decode (generated)."
        source "The energy of each step, shared over the requests in it by their tokens. Told some seconds late."
        absent "As llm_gpu_energy_joules_total; while no step with a known request was measured.";
    ENERGY_UNCHARGED: Counter "llm_energy_uncharged_joules_total" ["engine", "reason"]
        "Energy of an engine's GPUs that is in no llm_energy_joules_total. reason is idle, unknown_requests (work of which it is not known whose it was), or unknown_tokens (a step of several requests whose tokens are not known)."
        source "As llm_energy_joules_total; together they are llm_gpu_energy_joules_total."
        absent "As llm_gpu_energy_joules_total.";
    GPU_UNATTRIBUTED_SECONDS: Counter "llm_gpu_unattributed_seconds_total" ["uuid", "reason"]
        "Seconds of a GPU that are no engine's. reason is no_engine (none uses it), shared (several ran at once, and the driver does not tell how much each did), or processes_not_told."
        source "As llm_gpu_seconds_total; together they are the time in which GPUs were read."
        absent "For a reason, until its first second; without NVML.";
    GPU_UNATTRIBUTED_JOULES: Counter "llm_gpu_unattributed_energy_joules_total" ["uuid", "reason"]
        "Energy of a GPU that is no engine's. reason as in llm_gpu_unattributed_seconds_total."
        source "As llm_gpu_energy_joules_total; together they are gpu_energy_joules_total since the agent came."
        absent "As llm_gpu_unattributed_seconds_total; where the driver tells neither energy nor power.";
}
