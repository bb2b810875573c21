//! What the agent costs a real engine with all its probes on: the same load without it and with it, in turn.
//!
//! Owns: the load, the order of the rounds, proof that every probe is attached in the one and none in the other. Refuses:
//! a comparison of numbers that are not of one round.

use super::{
    engine_table::{self, Sample},
    setting::wait_gone,
};
use crate::build;
use anyhow::{Result, ensure};
use infertap_tests::{
    agent::{Agent, Start},
    bpf_census, clock,
    engines::{self, Engine, Kind, MODEL, compute, processes::processor_ticks},
    load::{Load, Outcome, Plan},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Output tokens a second of a real engine, with and without the agent.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// llama or vllm
    engine: Kind,
    /// Rounds; each measures once without the agent and once with it [default: 11 for llama, 7 for vllm]
    #[arg(long)]
    rounds: Option<usize>,
    /// An agent that is built already
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

/// What is sent in one measurement, by waves: as many requests at once as there are streams.
struct Shape {
    /// Streams at once: what the engine runs at once.
    streams: usize,
    /// Of each wave, words of the prompts and tokens of the answers. Engines are never asked the same prompt twice.
    waves: &'static [(usize, usize)],
    rounds: usize,
}

const fn shape(kind: Kind) -> Shape {
    match kind {
        Kind::Llama => Shape {
            streams: 4,
            waves: &[(30, 96), (200, 48), (60, 96)],
            rounds: 11,
        },
        // All layers of the model are computed here.
        Kind::Vllm => Shape {
            streams: 8,
            waves: &[(40, 32)],
            rounds: 7,
        },
    }
}

/// What must be attached for the cost to be that of all probes: values of `infertap_probe_up`, and aspects of
/// `infertap_engine_coverage`.
fn required(kind: Kind) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        Kind::Llama => (
            &[
                "process_tracepoint",
                "arrival_tracepoint",
                "socket_tracepoint",
                "call_llama_process",
                "call_llama_tokenize",
                "call_llama_task_id",
                "call_llama_slot_launch",
                "call_llama_slot_token",
                "call_llama_slot_release",
                "call_llama_update_slots",
            ],
            &["socket", "steps", "slots", "tokenizer_calls"],
        ),
        Kind::Vllm => (
            &[
                "process_tracepoint",
                "arrival_tracepoint",
                "socket_tracepoint",
                "call_hf_tokenizers_encode",
            ],
            &["socket", "engine_messages", "tokenizer_calls"],
        ),
    }
}

/// Entry of the measurement.
pub(super) fn measure(args: &Args) -> Result<()> {
    let target = build::target_folder()?;
    let folder = engines::folder(&target)?;
    engines::install(args.engine, &folder)?;
    let bench = Bench {
        kind: args.engine,
        shape: shape(args.engine),
        agent: match &args.agent {
            Some(agent) => agent.clone(),
            None => build::agent()?,
        },
        logs: target.join("bench"),
    };
    let rounds = args.rounds.unwrap_or(bench.shape.rounds);
    ensure!(rounds > 0, "no rounds, no numbers");
    let start = engines::Start {
        log: Some(bench.logs.join(format!("{:?}.log", bench.kind).to_lowercase())),
        ..engines::Start::default()
    };
    let engine = Engine::start(bench.kind, &folder, &start)?;
    let result = bench.rounds(&engine, rounds);
    engine.stop();
    let (without, with) = result?;
    engine_table::print(&without, &with);
    Ok(())
}

struct Bench {
    kind: Kind,
    shape: Shape,
    agent: PathBuf,
    logs: PathBuf,
}

impl Bench {
    fn rounds(&self, engine: &Engine, rounds: usize) -> Result<(Vec<Sample>, Vec<Sample>)> {
        let pinned = compute::keep_on_core(engine.pid(), 0, || self.load(engine, 0).map(drop))?;
        let tokens: usize = self.shape.waves.iter().map(|(_, tokens)| tokens).sum();
        println!(
            "\n## {:?}: {} streams at once, {} output tokens a measurement, {rounds} interleaved rounds\n",
            self.kind,
            self.shape.streams,
            self.shape.streams * tokens
        );
        println!(
            "One start of the engine, one load before the first round; {pinned} computing threads kept on core 0, clients on core {}.",
            clock::cores() - 1
        );
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let mut attached = String::new();
        for round in 0..rounds {
            // Each round begins with the other, so that neither is always the first.
            for agent in [round % 2 == 1, round % 2 == 0] {
                let number = 1 + 2 * round + usize::from(agent);
                if agent {
                    let (sample, probes) = self.watched(engine, number)?;
                    with.push(sample);
                    if attached != probes {
                        println!("{probes}");
                        attached = probes;
                    }
                } else {
                    without.push(self.unwatched(engine, number)?);
                }
            }
        }
        Ok((without, with))
    }

    fn unwatched(&self, engine: &Engine, number: usize) -> Result<Sample> {
        let before = bpf_census::loaded_programs()?;
        let sample = self.load(engine, number)?;
        let came: Vec<u32> = bpf_census::loaded_programs()?
            .difference(&before)
            .copied()
            .collect();
        ensure!(
            came.is_empty(),
            "something else on this host loaded BPF programs {came:?} during a measurement without any"
        );
        Ok(sample)
    }

    /// The sample, and what was attached, in words.
    fn watched(&self, engine: &Engine, number: usize) -> Result<(Sample, String)> {
        let agent = Agent::start(&Start {
            binary: self.agent.clone(),
            arguments: ["--port", &engine.address.port().to_string()]
                .map(str::to_owned)
                .to_vec(),
            port: 0,
            log: self.logs.join("agent.log"),
            through: Vec::new(),
            leave: false,
        })?;
        let id = agent.wait_watching(engine.pid(), Duration::from_secs(20))?;
        self.wait_attached(&agent, &id)?;
        let programs = bpf_census::programs_of(agent.pid())?;
        ensure!(!programs.is_empty(), "the agent holds no BPF program");
        let before = cost(&agent)?;
        let mut sample = self.load(engine, number)?;
        // What is still in the ring is part of the cost.
        let requests = self.shape.streams * self.shape.waves.len();
        let records = agent.wait_requests(requests, Duration::from_secs(20), |record| record.engine == id)?;
        let after = cost(&agent)?;
        sample.agent_cpu = after.0 - before.0;
        sample.dropped = after.1 - before.1;
        ensure!(
            records.len() == requests,
            "the agent told {} of {requests} requests; its log ends with:\n{}",
            records.len(),
            agent.log_tail()
        );
        let told: u64 = records.iter().filter_map(|record| record.output_tokens).sum();
        ensure!(
            told == sample.tokens,
            "the agent counted {told} output tokens of {}",
            sample.tokens
        );
        let attached = self.attached(&agent, &id)?;
        agent.stop();
        wait_gone(&programs)?;
        Ok((sample, attached))
    }

    /// Functions are attached to when the agent first looks at the engine's files, a moment after its sockets.
    fn wait_attached(&self, agent: &Agent, id: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            let metrics = agent.metrics()?;
            // Messages are known to be understood when the first has come.
            let missing = |aspect: &&&str| {
                **aspect != "engine_messages"
                    && metrics.sum("infertap_engine_coverage", &[("engine", id), ("aspect", aspect)]) < 0.5
            };
            let missing: Vec<_> = required(self.kind).1.iter().filter(missing).collect();
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(
                start.elapsed() < Duration::from_secs(20),
                "{missing:?} of {id} are not covered; the agent's log ends with:\n{}",
                agent.log_tail()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// All that must be attached is; in words.
    fn attached(&self, agent: &Agent, id: &str) -> Result<String> {
        let metrics = agent.metrics()?;
        let of = |name: &str, label: &str, labels: &[(&str, &str)]| -> BTreeMap<String, bool> {
            let samples = metrics.select(name, labels);
            samples
                .filter_map(|sample| Some((sample.label(label)?.to_owned(), sample.value > 0.5)))
                .collect()
        };
        let probes = of("infertap_probe_up", "probe", &[]);
        let aspects = of("infertap_engine_coverage", "aspect", &[("engine", id)]);
        let (must_probe, must_cover) = required(self.kind);
        for (must, of) in [(must_probe, &probes), (must_cover, &aspects)] {
            for name in must {
                ensure!(
                    of.get(*name) == Some(&true),
                    "{name} is not on: {of:?}; the agent's log ends with:\n{}",
                    agent.log_tail()
                );
            }
        }
        let list = |of: &BTreeMap<String, bool>, up: bool| {
            let names = of.iter().filter(|(_, value)| **value == up);
            names
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let not = match (list(&probes, false), list(&aspects, false)) {
            (probes, aspects) if probes.is_empty() && aspects.is_empty() => "nothing".to_owned(),
            (probes, aspects) => format!("{probes} {aspects}"),
        };
        Ok(format!(
            "Probes up: {}.\nCovered of the engine: {}. Not up or covered: {not}.",
            list(&probes, true),
            list(&aspects, true),
        ))
    }

    /// Carries the load out, by the client's clock and the tokens that the responses' `usage` tells.
    fn load(&self, engine: &Engine, number: usize) -> Result<Sample> {
        let load = Load {
            address: engine.address.clone(),
            concurrency: self.shape.streams,
            core: Some(clock::cores() - 1),
        };
        let before = processor_ticks(engine.pid());
        let truths = load.run_all(self.plans(number));
        let after = processor_ticks(engine.pid());
        for truth in &truths {
            ensure!(
                truth.outcome == Outcome::Complete && truth.status == Some(200),
                "a request failed: {truth:?}"
            );
        }
        let tokens: Option<u64> = truths.iter().map(|truth| truth.completion_tokens).sum();
        let first = truths.iter().map(|truth| truth.sent_ns).min();
        let last = truths.iter().map(|truth| truth.last_ns).max();
        let (Some(tokens), Some(first), Some(last)) = (tokens, first, last) else {
            anyhow::bail!("a response without usage");
        };
        let used: u64 = after
            .iter()
            .map(|(thread, ticks)| ticks - before.get(thread).copied().unwrap_or(0).min(*ticks))
            .sum();
        Ok(Sample {
            tokens,
            seconds: (last - first) as f64 / 1e9,
            engine_cpu: used as f64 / ticks_per_second()?,
            agent_cpu: 0.0,
            dropped: 0.0,
        })
    }

    /// The same sizes in every measurement; the words before and after the prompt's number are the same, and the number
    /// comes first, so that no prompt has its beginning in a cache.
    fn plans(&self, number: usize) -> Vec<Plan> {
        let waves = self.shape.waves.iter().enumerate();
        let plans = waves.flat_map(|(wave, (words, tokens))| {
            (0..self.shape.streams).map(move |stream| {
                let prompt = format!("{number:03} {wave:03} {stream:03}: {}", "one more word of it ".repeat(words / 5));
                let extra = json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": tokens,
                    "ignore_eos": true, "temperature": 0});
                Plan::chat("bench", MODEL, &prompt, &extra)
            })
        });
        plans
            .enumerate()
            .map(|(index, plan)| Plan { index, ..plan })
            .collect()
    }
}

/// Processor seconds of the agent, and events that it dropped.
fn cost(agent: &Agent) -> Result<(f64, f64)> {
    let metrics = agent.metrics()?;
    Ok((
        metrics.sum("infertap_cpu_seconds_total", &[]),
        metrics.sum("infertap_events_dropped_total", &[]),
    ))
}

fn ticks_per_second() -> Result<f64> {
    // SAFETY: a plain query of a constant.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ensure!(ticks > 0, "the system does not tell its clock ticks");
    Ok(ticks as f64)
}
