//! What watching costs the watched: the same streams with no agent, in tracepoint mode, in uprobe mode, in turn.
//!
//! Owns: interleaving, ratios and their spread. Refuses: comparing numbers of different rounds with each other.

use super::setting::{Setting, streamed};
use anyhow::{Context, Result, ensure};
use infertap_tests::{
    agent::Agent,
    clock,
    load::{Connection, Plan},
    scripted::ServerProcess,
    stats::Distribution,
};
use serde_json::json;
use std::thread;

const MODES: [Option<&str>; 3] = [None, Some("tracepoint"), Some("uprobe")];
/// Streams at once at full speed.
const STREAMS: usize = 4;
const CHUNKS: u32 = 40_000;
/// An engine's pace: each of these streams sends a chunk every 20 ms for four seconds.
const PACED_STREAMS: usize = 64;
const PACED_CHUNKS: u32 = 200;

/// One mode in one round.
struct Sample {
    chunks_per_second: f64,
    /// Of the agent, seconds a million chunks.
    agent_cpu: f64,
    lost: f64,
}

pub(super) fn measure(setting: &Setting, rounds: usize) -> Result<()> {
    let server = setting.start_server()?;
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for round in 0..rounds {
        // Each round begins with another mode, so that none is always the first.
        for step in 0..MODES.len() {
            let at = (round + step) % MODES.len();
            samples[at].push(full_speed(setting, &server, MODES[at])?);
        }
    }
    println!(
        "\n## Full speed: {STREAMS} streams, {CHUNKS} chunks each, one write a chunk, {rounds} interleaved rounds\n"
    );
    println!(
        "| mode | chunks/s, median | ratio to no agent: median (min – max) | agent CPU, us a chunk | events dropped |"
    );
    println!("|---|---|---|---|---|");
    let baseline: Vec<f64> = samples[0].iter().map(|sample| sample.chunks_per_second).collect();
    for (mode, samples) in MODES.iter().zip(&samples) {
        let of = |value: &dyn Fn(&Sample) -> f64| Distribution::new(samples.iter().map(value));
        let ratios = samples
            .iter()
            .zip(&baseline)
            .map(|(sample, base)| sample.chunks_per_second / base);
        let ratios = Distribution::new(ratios);
        println!(
            "| {} | {:.0} | {:.3} ({:.3} – {:.3}) | {:.2} | {:.0} |",
            mode.unwrap_or("no agent"),
            of(&|sample| sample.chunks_per_second).median(),
            ratios.median(),
            ratios.min(),
            ratios.max(),
            of(&|sample| sample.agent_cpu).median(),
            samples.iter().map(|sample| sample.lost).sum::<f64>(),
        );
    }
    paced(setting, &server)
}

fn full_speed(setting: &Setting, server: &ServerProcess, mode: Option<&str>) -> Result<Sample> {
    let agent = setting.start_agent(server, mode)?;
    let before = agent.as_ref().map(cost).transpose()?.unwrap_or_default();
    let start = clock::monotonic_ns();
    streams(server, STREAMS, &json!({"chunks": CHUNKS}))?;
    let seconds = (clock::monotonic_ns() - start) as f64 / 1e9;
    let chunks = STREAMS as f64 * f64::from(CHUNKS);
    // What is still in the ring is part of the cost.
    let after = agent
        .as_ref()
        .map(|agent| settle(agent, STREAMS).and_then(|()| cost(agent)))
        .transpose()?;
    let after = after.unwrap_or_default();
    Ok(Sample {
        chunks_per_second: chunks / seconds,
        agent_cpu: (after.cpu - before.cpu) * 1e6 / chunks,
        lost: after.dropped - before.dropped,
    })
}

/// An engine's pace: what the agent itself uses.
fn paced(setting: &Setting, server: &ServerProcess) -> Result<()> {
    let script = json!({"chunks": PACED_CHUNKS, "gap_us": 20_000});
    let rate = PACED_STREAMS * 50;
    println!("\n## An engine's pace: {PACED_STREAMS} streams, {rate} chunks a second together\n");
    println!("| mode | agent CPU, % of one core | agent CPU, us a chunk | events dropped |");
    println!("|---|---|---|---|");
    for mode in MODES.iter().flatten() {
        let agent = setting
            .start_agent(server, Some(mode))?
            .context("an agent was asked for")?;
        let (before, start) = (cost(&agent)?, clock::monotonic_ns());
        streams(server, PACED_STREAMS, &script)?;
        let seconds = (clock::monotonic_ns() - start) as f64 / 1e9;
        settle(&agent, PACED_STREAMS)?;
        let after = cost(&agent)?;
        let (cpu, chunks) = (
            after.cpu - before.cpu,
            (PACED_STREAMS as f64) * f64::from(PACED_CHUNKS),
        );
        let dropped = after.dropped - before.dropped;
        println!(
            "| {mode} | {:.1} | {:.1} | {dropped:.0} |",
            100.0 * cpu / seconds,
            cpu * 1e6 / chunks
        );
    }
    Ok(())
}

/// Carries out `count` streams at once and reads them to their ends.
pub(super) fn streams(server: &ServerProcess, count: usize, script: &serde_json::Value) -> Result<()> {
    let plan = Plan::json("bench", "/v1/chat/completions", &streamed(script));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = Connection::open(&server.address)?;
                    connection.drain(&plan)
                })
            })
            .collect();
        for worker in workers {
            let bytes = worker
                .join()
                .map_err(|_| anyhow::anyhow!("a client thread panicked"))??;
            ensure!(bytes > 0, "an empty response");
        }
        Ok(())
    })
}

#[derive(Default)]
struct Cost {
    cpu: f64,
    dropped: f64,
}

fn cost(agent: &Agent) -> Result<Cost> {
    let metrics = agent.metrics()?;
    Ok(Cost {
        cpu: metrics.sum("infertap_cpu_seconds_total", &[]),
        dropped: metrics.sum("infertap_events_dropped_total", &[]),
    })
}

/// Waits until the agent has told the end of `count` requests.
fn settle(agent: &Agent, count: usize) -> Result<()> {
    let seen = agent
        .wait_requests(count, std::time::Duration::from_secs(10), |_| true)?
        .len();
    ensure!(
        seen >= count,
        "the agent saw {seen} of {count} requests; its log ends with:\n{}",
        agent.log_tail()
    );
    Ok(())
}
