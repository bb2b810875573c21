//! Sets up and runs a real engine until interrupted: for trying things by hand.

use anyhow::Result;
use clap::Parser;
use infertap_tests::engines::{Engine, Kind, Start, folder, install};
use std::path::PathBuf;

/// Sets up a real serving engine and runs it until interrupted.
#[derive(Debug, Parser)]
struct Cli {
    /// llama or vllm
    kind: Kind,
    /// Port; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Folder whose engines/ is used (INFERTAP_ENGINES overrides it)
    #[arg(long, default_value = "target")]
    target: PathBuf,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let folder = folder(&cli.target)?;
    install(cli.kind, &folder)?;
    let engine = Engine::start(
        cli.kind,
        &folder,
        &Start {
            port: cli.port,
            ..Start::default()
        },
    )?;
    println!(
        "{:?} serves on http://{} (pid {})",
        engine.kind,
        engine.address,
        engine.pid()
    );
    loop {
        // Whatever ends this process ends the engine too.
        std::thread::park();
    }
}
