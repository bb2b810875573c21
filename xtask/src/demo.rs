//! The demonstration: a real llama.cpp server, real traffic, the agent, live numbers.
//!
//! Owns: starting these in order, printing, ending them in reverse order whatever happens. Refuses: files outside the
//! target folder, and numbers of its own: everything printed comes from the agent's `/metrics`.

use crate::{build, interrupt, privilege};
use anyhow::{Context, Result, bail};
use infertap_tests::{
    agent::{Agent, Start},
    engines::{self, Engine, Kind},
    exposition::Exposition,
    load::{Load, Mix, mixed},
};
use std::{
    collections::VecDeque,
    io::{IsTerminal, Write},
    net::TcpListener,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const DEFAULT_PORT: u16 = 9464;
/// Quantiles are of the last this many seconds.
const WINDOW: usize = 30;

/// How often sudo is used, so that it does not ask for the password again. It remembers for some minutes.
const SUDO_EVERY: Duration = Duration::from_mins(1);

/// What the demonstration runs with.
pub(crate) struct Options {
    pub(crate) binary: PathBuf,
    /// Words that get root.
    pub(crate) through: Vec<String>,
    pub(crate) seconds: Option<u64>,
    pub(crate) concurrency: usize,
    /// More arguments of the agent.
    pub(crate) agent: Vec<String>,
}

/// Runs it until Ctrl-C, or for the given time.
pub(crate) fn run(options: &Options) -> Result<()> {
    let target = build::target_folder()?;
    let folder = engines::folder(&target)?;
    engines::install(Kind::Llama, &folder)?;
    interrupt::catch();
    let logs = target.join("demo");
    let start = engines::Start {
        log: Some(logs.join("llama.log")),
        ..engines::Start::default()
    };
    let mut engine = Engine::start(Kind::Llama, &folder, &start)?;
    println!(
        "llama.cpp serves {} on http://{} (pid {})",
        engines::MODEL,
        engine.address,
        engine.pid()
    );
    let mut arguments = vec!["--port".to_owned(), engine.address.port().to_string()];
    arguments.extend(options.agent.iter().cloned());
    let port = if TcpListener::bind(("127.0.0.1", DEFAULT_PORT)).is_ok() {
        DEFAULT_PORT
    } else {
        0
    };
    let mut agent = Agent::start(&Start {
        binary: options.binary.clone(),
        arguments,
        port,
        log: logs.join("agent.log"),
        through: options.through.clone(),
        leave: false,
    })?;
    agent.wait_watching(engine.pid(), Duration::from_secs(20))?;
    println!(
        "infertap watches it: http://{0}/metrics  http://{0}/api/v1/requests  (Ctrl-C stops)\n",
        agent.address
    );

    let mix = Mix {
        model: engines::MODEL.to_owned(),
        seed: 1,
        prompt_words: (5, 120),
        max_tokens: (8, 64),
        checks_model: false,
    };
    let load = Load {
        address: engine.address.clone(),
        concurrency: options.concurrency,
        core: None,
    };
    let failures = AtomicU64::new(0);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            load.run(mixed(mix), interrupt::flag(), &|truth| {
                failures.fetch_add(u64::from(truth.error.is_some()), Ordering::Relaxed);
            });
        });
        let result = show(options, &mut agent, &mut engine, &failures);
        // Also after an error: the traffic must not outlive what it is for.
        interrupt::flag().store(true, Ordering::Relaxed);
        let agent_ended_well = agent.stop();
        engine.stop();
        result.and_then(|()| {
            if agent_ended_well {
                Ok(())
            } else {
                bail!("the agent did not end in order; see {}", logs.display())
            }
        })
    });
    result?;
    println!(
        "\nstopped: the server and the agent are gone, no probe is left; logs are in {}",
        logs.display()
    );
    Ok(())
}

fn show(options: &Options, agent: &mut Agent, engine: &mut Engine, failures: &AtomicU64) -> Result<()> {
    let start = Instant::now();
    let mut kept = start;
    let mut window: VecDeque<Exposition> = VecDeque::from([agent.metrics()?]);
    let in_place = std::io::stdout().is_terminal();
    let mut lines_shown = 0;
    while interrupt::sleep(Duration::from_secs(1)) {
        agent.check_running()?;
        if kept.elapsed() >= SUDO_EVERY {
            kept = Instant::now();
            privilege::keep(&options.through);
        }
        if !engine.is_running() {
            bail!("the llama.cpp server ended");
        }
        let now = agent.metrics()?;
        let block = block(start.elapsed(), &now, &window, failures.load(Ordering::Relaxed));
        let mut out = std::io::stdout().lock();
        if in_place && lines_shown > 0 {
            write!(out, "\x1b[{lines_shown}F\x1b[J")?;
        }
        lines_shown = block.lines().count();
        writeln!(out, "{block}").context("can't print")?;
        window.push_back(now);
        if window.len() > WINDOW {
            window.pop_front();
        }
        if options
            .seconds
            .is_some_and(|seconds| start.elapsed() >= Duration::from_secs(seconds))
        {
            return Ok(());
        }
    }
    Ok(())
}

fn block(elapsed: Duration, now: &Exposition, window: &VecDeque<Exposition>, failures: u64) -> String {
    let earlier = window.front();
    let quantile = |name: &str| {
        let at = |q: f64| {
            now.quantile(name, q, earlier)
                .map_or_else(|| "-".to_owned(), seconds)
        };
        format!("p50 {:>8}  p95 {:>8}", at(0.5), at(0.95))
    };
    let statuses: Vec<String> = [
        "ok",
        "cancelled",
        "client_error",
        "server_error",
        "timeout",
        "incomplete",
    ]
    .into_iter()
    .map(|status| (status, now.sum("llm_requests_total", &[("status", status)])))
    .filter(|(_, count)| *count > 0.0)
    .map(|(status, count)| format!("{status} {count}"))
    .collect();
    let span = window.len().min(WINDOW) as f64;
    let rate =
        |name: &str| (now.sum(name, &[]) - earlier.map_or(0.0, |earlier| earlier.sum(name, &[]))) / span;
    let tokens = |name: &str| format!("{} ({:.0}/s)", now.sum(name, &[]), rate(name));
    let dropped = now.sum("infertap_events_dropped_total", &[]);
    format!(
        "{:>4} s  running {}   requests {}\n        TTFT {}   ITL {}\n        e2e  {}   TPOT {}\n        tokens in {}  out {}\n        \
         agent: {:.1} MB, {:.2} s of CPU, {dropped} events dropped{}\n",
        elapsed.as_secs(),
        now.sum("llm_requests_running", &[]),
        if statuses.is_empty() {
            "none yet".to_owned()
        } else {
            statuses.join(", ")
        },
        quantile("llm_ttft_seconds"),
        quantile("llm_itl_seconds"),
        quantile("llm_e2e_latency_seconds"),
        quantile("llm_tpot_seconds"),
        tokens("llm_input_tokens_total"),
        tokens("llm_output_tokens_total"),
        now.sum("infertap_memory_bytes", &[]) / 1e6,
        now.sum("infertap_cpu_seconds_total", &[]),
        if failures > 0 {
            format!("; {failures} client failures")
        } else {
            String::new()
        },
    )
}

fn seconds(value: f64) -> String {
    if value < 1.0 {
        format!("{:.1} ms", value * 1e3)
    } else {
        format!("{value:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_what_the_metrics_say() {
        let now = Exposition::parse(
            "llm_requests_total{model=\"m\",status=\"ok\"} 3\nllm_requests_running{model=\"m\"} 2\nllm_input_tokens_total 40\n\
             llm_ttft_seconds_bucket{le=\"0.5\"} 2\nllm_ttft_seconds_bucket{le=\"+Inf\"} 2\n",
        )
        .unwrap();
        let text = block(
            Duration::from_secs(5),
            &now,
            &VecDeque::from([Exposition::default()]),
            0,
        );
        for part in ["running 2", "ok 3", "p50 250.0 ms", "tokens in 40 (40/s)"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
