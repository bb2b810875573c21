//! Whose the time and the energy of GPUs were: what the join tells.
//!
//! Owns: the words and the observations. Refuses: how they are found (`join` and what it is made of).

use crate::observation::{Labels, StepKind};
use serde::Serialize;
use std::sync::Arc;

/// What an engine was doing. `state` label of `llm_gpu_seconds_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuState {
    /// A step that reads prompts runs.
    Prefill,
    /// A step that generates runs.
    Decode,
    /// A step that does both runs, or steps of both kinds do.
    Mixed,
    /// No step runs, and nobody waits for one.
    Idle,
    /// No step runs, and requests wait: the processor, or the scheduler, is what they wait for.
    IdleWhileQueued,
    /// Nothing tells what it did, or what kind of step ran.
    Unknown,
}

impl GpuState {
    /// Every state, in declaration order.
    pub const ALL: [GpuState; 6] = [
        GpuState::Prefill,
        GpuState::Decode,
        GpuState::Mixed,
        GpuState::Idle,
        GpuState::IdleWhileQueued,
        GpuState::Unknown,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            GpuState::Prefill => "prefill",
            GpuState::Decode => "decode",
            GpuState::Mixed => "mixed",
            GpuState::Idle => "idle",
            GpuState::IdleWhileQueued => "idle_while_queued",
            GpuState::Unknown => "unknown",
        }
    }

    /// Nothing ran for the engine.
    pub const fn is_idle(self) -> bool {
        matches!(self, GpuState::Idle | GpuState::IdleWhileQueued)
    }

    /// While a step of this kind runs; `None`: of a kind that is not known.
    pub const fn of(kind: Option<StepKind>) -> GpuState {
        match kind {
            Some(StepKind::Prefill) => GpuState::Prefill,
            Some(StepKind::Decode) => GpuState::Decode,
            Some(StepKind::Mixed) => GpuState::Mixed,
            None => GpuState::Unknown,
        }
    }
}

/// What the tokens of a request in a step were. `phase` label of `llm_energy_joules_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenPhase {
    /// Tokens of its prompt.
    Prefill,
    /// Tokens that it generated.
    Decode,
}

impl TokenPhase {
    /// Both, in declaration order.
    pub const ALL: [TokenPhase; 2] = [TokenPhase::Prefill, TokenPhase::Decode];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            TokenPhase::Prefill => "prefill",
            TokenPhase::Decode => "decode",
        }
    }
}

/// Why time or energy of a GPU is no engine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unattributed {
    /// No engine uses the GPU.
    NoEngine,
    /// Several engines ran on it at once, and the driver does not tell how much each did.
    Shared,
    /// The driver does not tell which processes use it.
    ProcessesNotTold,
}

impl Unattributed {
    /// Every reason, in declaration order.
    pub const ALL: [Unattributed; 3] = [
        Unattributed::NoEngine,
        Unattributed::Shared,
        Unattributed::ProcessesNotTold,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unattributed::NoEngine => "no_engine",
            Unattributed::Shared => "shared",
            Unattributed::ProcessesNotTold => "processes_not_told",
        }
    }
}

/// Why time and energy of an engine's GPUs are no request's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Uncharged {
    /// No step ran.
    Idle,
    /// Work of which it is not known whose it was: requests that were not seen, warm-up.
    UnknownRequests,
    /// Several requests shared a step, and it is not known how many tokens each had in it.
    UnknownTokens,
}

impl Uncharged {
    /// Every reason, in declaration order.
    pub const ALL: [Uncharged; 3] = [
        Uncharged::Idle,
        Uncharged::UnknownRequests,
        Uncharged::UnknownTokens,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Uncharged::Idle => "idle",
            Uncharged::UnknownRequests => "unknown_requests",
            Uncharged::UnknownTokens => "unknown_tokens",
        }
    }
}

/// What more is known since it was last told. Seconds and joules only add.
#[derive(Debug, Clone, PartialEq)]
pub enum GpuShare {
    /// GPUs were an engine's while it was in this state.
    Engine {
        /// Engine instance id.
        engine: Arc<str>,
        /// What it was doing.
        state: GpuState,
        /// Seconds, of all its GPUs together; 0 where only the energy of a divided GPU was known.
        seconds: f64,
        /// Energy that they drew in that time; absent where the driver does not tell.
        joules: Option<f64>,
    },
    /// A GPU was no engine's, as far as is known.
    Unattributed {
        /// The GPU's UUID, or that of an instance of it.
        uuid: Arc<str>,
        /// Why.
        reason: Unattributed,
        /// Seconds.
        seconds: f64,
        /// Energy that it drew in that time; absent where the driver does not tell.
        joules: Option<f64>,
    },
    /// Time and energy of an engine's GPUs went into tokens of a request.
    Request {
        /// Whose.
        labels: Labels,
        /// Into which tokens.
        phase: TokenPhase,
        /// Seconds, of all its GPUs together.
        seconds: f64,
        /// Energy; 0 where the driver tells none.
        joules: f64,
    },
    /// Time and energy of an engine's GPUs are no request's.
    Uncharged {
        /// Engine instance id.
        engine: Arc<str>,
        /// Why.
        reason: Uncharged,
        /// Seconds, of all its GPUs together.
        seconds: f64,
        /// Energy; 0 where the driver tells none.
        joules: f64,
    },
    /// All energy of a request that has finished is known now.
    Whole {
        /// Its record's id.
        id: String,
        /// How much.
        joules: f64,
    },
}
