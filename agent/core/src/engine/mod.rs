//! Who serves: what discovery knows about one engine instance.
//!
//! Owns: the description and the stable names. Refuses: finding engines (the agent's `discover`).

pub(crate) mod llama_cpp;
pub mod sglang;
pub mod vllm;

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Serving software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server, in whatever process it is embedded.
    LlamaCpp,
    /// Hugging Face text-generation-inference.
    Tgi,
    /// NVIDIA TensorRT-LLM / Triton.
    TensorrtLlm,
    /// Ollama.
    Ollama,
    /// No engine: it passes requests on to engines (nginx, Envoy, `LiteLLM`, a router).
    Gateway,
    /// Named by the operator (`--pid`, `--port`, `--comm`, a configured rule) or not recognised.
    Generic,
}

impl EngineKind {
    /// The value of the `kind` label.
    pub const fn as_str(self) -> &'static str {
        match self {
            EngineKind::Vllm => "vllm",
            EngineKind::Sglang => "sglang",
            EngineKind::LlamaCpp => "llama_cpp",
            EngineKind::Tgi => "tgi",
            EngineKind::TensorrtLlm => "tensorrt_llm",
            EngineKind::Ollama => "ollama",
            EngineKind::Gateway => "gateway",
            EngineKind::Generic => "generic",
        }
    }
}

/// One serving instance: all its processes together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInfo {
    /// Short id, stable over restarts of the same server: kind and port, as in `vllm-8000`.
    pub id: Arc<str>,
    /// Serving software.
    pub kind: EngineKind,
    /// Served model name, when the command line or files tell; learned from traffic otherwise.
    pub model: Option<Arc<str>>,
    /// Version of the serving software.
    pub version: Option<String>,
    /// The process that listens (or the root of the group).
    pub pid: u32,
    /// Every process of the instance, `pid` included, ascending.
    pub pids: Vec<u32>,
    /// TCP ports that it listens on, ascending.
    pub ports: Vec<u16>,
    /// Container id, where the cgroup tells.
    pub container: Option<String>,
    /// Kubernetes pod UID, where the cgroup tells.
    pub pod_uid: Option<String>,
}
