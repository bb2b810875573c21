//! One run: a real engine that writes its own account, the load, and two agents that watch it at once, one of which may
//! not read what the engine tells within itself.
//!
//! Owns: starting and ending these in order. Refuses: judging what came out.

use super::{Options, gauges, mix, report::Report};
use crate::{
    agent::{Agent, Record, Start},
    clock,
    engines::{self, Engine, Kind, MODEL, python::script},
    exposition::Exposition,
    http,
    load::{ClientTruth, Load, Outcome, Plan},
};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Requests that the engine runs at once: slots, or sequences of a batch. The server script of llama.cpp has as many.
const SLOTS: usize = 4;
/// Connections for each of them.
const CONNECTIONS: usize = 3;
/// Requests before the load, one by one: they find the engine idle.
const CALM: usize = 5;

/// What one agent saw.
pub(super) struct Side {
    pub(super) records: Vec<Record>,
    /// Its metrics before and after the load.
    pub(super) before: Exposition,
    pub(super) after: Exposition,
}

/// What a run left.
pub(super) struct Run {
    pub(super) truths: Vec<ClientTruth>,
    pub(super) hooks: Side,
    pub(super) no_hooks: Side,
    pub(super) samples: Vec<gauges::Sample>,
    /// The engine's metrics before and after the load.
    pub(super) engine: (Exposition, Exposition),
    /// The engine's account: vLLM's file, or llama.cpp's log.
    pub(super) account: String,
}

/// An agent and the id that it gave the engine.
struct Watch {
    agent: Agent,
    id: String,
    before: Exposition,
}

impl Watch {
    fn start(options: &Options, engine: &Engine, name: &str, more: &[&str]) -> Result<Watch> {
        let port = engine.address.port().to_string();
        let arguments = ["--port", &port].into_iter().chain(more.iter().copied());
        let agent = Agent::start(&Start {
            binary: options.agent.clone(),
            arguments: arguments.map(str::to_owned).collect(),
            port: 0,
            log: options.logs.join(format!("agent-{name}.log")),
            through: Vec::new(),
            leave: false,
        })?;
        let id = agent.wait_serving(engine.pid(), Duration::from_secs(20))?;
        let before = agent.metrics()?;
        Ok(Watch { agent, id, before })
    }

    fn finish(self, requests: usize) -> Result<Side> {
        let records = self
            .agent
            .wait_requests(requests, Duration::from_secs(20), |record| {
                record.engine == self.id
            })?;
        let after = self.agent.metrics()?;
        self.agent.stop();
        Ok(Side {
            records,
            before: self.before,
            after,
        })
    }
}

/// Carries it out.
pub(super) fn run(options: &Options) -> Result<Run> {
    fs::create_dir_all(&options.logs)?;
    let account = options.logs.join(match options.kind {
        Kind::Llama => "llama.log",
        Kind::Vllm => "vllm-account.jsonl",
    });
    let mut engine = start_engine(options, &account)?;
    // The last core is the client's: what computes leaves it free.
    let load = |concurrency| Load {
        address: engine.address.clone(),
        concurrency,
        core: Some(clock::cores() - 1),
    };
    let pinned = engines::compute::keep_on_core(engine.pid(), 0, || {
        let extra = json!({"max_tokens": 48, "ignore_eos": true, "temperature": 0});
        let truths = load(1).run_all(vec![Plan::chat("warm-up", MODEL, "Tell me a story.", &extra)]);
        ensure!(truths[0].status == Some(200), "{:?}", truths[0]);
        Ok(())
    })?;
    let hooks = Watch::start(options, &engine, "hooks", &[])?;
    let no_hooks = Watch::start(options, &engine, "no-hooks", &["--set", "engine.hooks=false"])?;
    let before = engine_metrics(&engine)?;
    Report::heading(&format!(
        "{:?}: {} requests on {} connections, {SLOTS} at once in the engine",
        options.kind,
        options.requests,
        CONNECTIONS * SLOTS
    ));
    let stop = AtomicBool::new(false);
    let start = clock::monotonic_ns();
    let (truths, samples) = thread::scope(|scope| {
        let samples = scope.spawn(|| gauges::sample(&hooks.agent, &hooks.id, &stop));
        let mut calm = mix::plans(options.kind, options.seed, options.requests);
        let rest = calm.split_off(CALM.min(calm.len()));
        let mut truths = load(1).run_all(calm);
        truths.extend(load(CONNECTIONS * SLOTS).run_all(rest));
        stop.store(true, Ordering::Relaxed);
        let samples = samples
            .join()
            .map_err(|_| anyhow::anyhow!("the sampler panicked"))?;
        anyhow::Ok((truths, samples))
    })?;
    println!(
        "{} requests in {:.1} s, {} of them to their end; {pinned} computing threads kept on core 0",
        truths.len(),
        (clock::monotonic_ns() - start) as f64 / 1e9,
        truths
            .iter()
            .filter(|truth| truth.outcome == Outcome::Complete)
            .count(),
    );
    ensure!(
        engine.is_running(),
        "the engine ended; see {}",
        options.logs.display()
    );
    // The engine drops what its clients left, and says so in its metrics, a little later.
    thread::sleep(Duration::from_secs(1));
    let after = engine_metrics(&engine)?;
    let (hooks, no_hooks) = (hooks.finish(truths.len())?, no_hooks.finish(truths.len())?);
    engine.stop();
    let account = fs::read(&account).with_context(|| format!("can't read {}", account.display()))?;
    Ok(Run {
        truths,
        hooks,
        no_hooks,
        samples,
        engine: (before, after),
        account: String::from_utf8_lossy(&account).into_owned(),
    })
}

fn start_engine(options: &Options, account: &PathBuf) -> Result<Engine> {
    let log = options
        .logs
        .join(format!("{:?}.log", options.kind).to_lowercase());
    let start = match options.kind {
        Kind::Llama => engines::Start {
            log: Some(log),
            // From this on the log tells when slots take tasks.
            arguments: vec!["verbosity=4".to_owned()],
            ..engines::Start::default()
        },
        Kind::Vllm => {
            // The engine's processes append to it.
            fs::write(account, "")?;
            engines::Start {
                log: Some(log),
                arguments: vec!["--max-num-seqs".to_owned(), SLOTS.to_string()],
                environment: vec![
                    ("PYTHONPATH".to_owned(), script("vllm_truth").into()),
                    ("INFERTAP_VLLM_TRUTH".to_owned(), account.into()),
                ],
                ..engines::Start::default()
            }
        }
    };
    Engine::start(options.kind, &options.engines, &start)
}

fn engine_metrics(engine: &Engine) -> Result<Exposition> {
    Exposition::parse(&http::get(&engine.address, "/metrics")?.body)
}
