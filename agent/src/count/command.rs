//! `infertap tokens`: how many prompt tokens requests have, as the agent counts them for a running engine.
//!
//! Owns: reading bodies and printing counts, a JSON object a line. Refuses: sending anything to the engine.

use super::PromptCounter;
use crate::config::Config;
use crate::discover::{Scanner, ScannerConfig};
use anyhow::{Context, bail};
use infertap_core::estimate::{self, Family};
use serde::Serialize;
use std::io::{BufRead, Read, Write};
use std::time::Instant;

/// Longest body.
const MAX_LINE: u64 = 64 << 20;

/// One answer.
#[derive(Debug, Serialize)]
struct Answer {
    /// Counted with the engine's tokenizer.
    tokens: Option<u64>,
    /// Estimated.
    estimate: Option<u64>,
    /// Why it was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Counts the bodies in `input`, a line each, as the engine with this id (or the only one) would. Tells how fast on standard
/// error.
///
/// # Errors
/// There is no such engine, its tokenizer can't be used, or the output can't be written.
pub fn tokens_command(
    config: &Config,
    id: Option<&str>,
    mut input: impl BufRead,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut scanner = Scanner::new(ScannerConfig::new(config.discover.clone()));
    let scan = scanner.scan();
    let names: Vec<&str> = scan.engines.iter().map(|engine| &*engine.info.id).collect();
    let engine = match id {
        Some(id) => scan.engines.iter().find(|engine| &*engine.info.id == id),
        None => scan.engines.first().filter(|_| scan.engines.len() == 1),
    };
    let Some(engine) = engine else {
        if names.is_empty() {
            bail!("no engine runs here that is known; `infertap engines` tells more");
        }
        bail!("name one of the engines that run here: {}", names.join(", "));
    };
    let info = &engine.info;
    let model = info.model.as_deref().unwrap_or_default();
    let counter = PromptCounter::of_engine(scanner.host(), info)
        .map_err(|why| anyhow::anyhow!("{}: its tokens can't be counted: {why}", info.id))?;
    let (began, mut counted) = (Instant::now(), 0);
    loop {
        let mut line = Vec::new();
        (&mut input).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            break;
        }
        let body = line.trim_ascii();
        let chat = serde_json::from_slice::<serde_json::Value>(body)
            .ok()
            .is_some_and(|body| body.get("messages").is_some());
        let protocol = if chat { "openai_chat" } else { "openai_completions" };
        let tokens = counter.prompt(protocol, body);
        counted += tokens.as_ref().copied().unwrap_or(0);
        let answer = Answer {
            estimate: estimate::prompt(Family::of(model), body),
            error: tokens.as_ref().err().cloned(),
            tokens: tokens.ok(),
        };
        writeln!(out, "{}", serde_json::to_string(&answer)?).context("can't write")?;
    }
    let seconds = began.elapsed().as_secs_f64();
    eprintln!(
        "{counted} tokens in {seconds:.3} s: {:.0} tokens/s on one core",
        counted as f64 / seconds.max(1e-9)
    );
    Ok(())
}
