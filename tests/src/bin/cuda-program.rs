//! Makes stated numbers of CUDA calls on the stand-in libraries, and tells what it made.
//!
//! Owns: threads, and when to begin. It prints one line when it has loaded the libraries, begins when it reads a line,
//! prints what it made, and ends when its input does. Refuses: how calls are made (`infertap_tests::gpu::calls`).

use anyhow::{Context, Result};
use clap::Parser;
use infertap_tests::gpu::{
    api::Api,
    calls::{Caller, Counts, Kind},
    program::Report,
};
use std::{
    io::{BufRead, Write, stdin, stdout},
    path::PathBuf,
    thread,
};

/// Make CUDA calls.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of libcuda.so.1 and libcudart.so.12
    #[arg(long)]
    drivers: PathBuf,
    /// Calls to make, in this order: KIND=COUNT, by each thread
    #[arg(long = "make", value_parser = order)]
    make: Vec<(Kind, u64)>,
    /// By the driver's API, the runtime's, or by turns
    #[arg(long, value_enum, default_value = "driver")]
    by: By,
    /// By the functions for per-thread default streams
    #[arg(long)]
    per_thread: bool,
    /// Threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Streams of each; 0: the default stream
    #[arg(long, default_value_t = 1)]
    streams: usize,
    /// Microseconds that a kernel takes
    #[arg(long, default_value_t = 0)]
    kernel_us: u64,
    /// Bytes of each allocation and copy
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// Begin at once, and end at once
    #[arg(long)]
    alone: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum By {
    Driver,
    Runtime,
    Mixed,
}

fn order(text: &str) -> Result<(Kind, u64), String> {
    let (kind, count) = text.split_once('=').ok_or("not KIND=COUNT")?;
    let kind = clap::ValueEnum::from_str(kind, false)?;
    Ok((kind, count.parse().map_err(|error| format!("{count}: {error}"))?))
}

fn main() -> Result<()> {
    let args = Args::parse();
    let api = Api::load(&args.drivers, args.per_thread)?;
    let mut input = stdin().lock();
    let mut line = String::new();
    if !args.alone {
        say(&serde_json::json!({"ready": std::process::id()}))?;
        input.read_line(&mut line)?;
    }
    let counts = thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|_| scope.spawn(|| make(&api, &args)))
            .collect();
        let each = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread failed"))?);
        each.collect::<Result<Vec<Counts>>>()
    })?;
    let mut report = Report {
        entered: api.entered(),
        ..Report::default()
    };
    for (kind, made) in counts.into_iter().flatten() {
        let sum = report.made.entry(kind).or_default();
        sum.calls += made.calls;
        sum.bytes += made.bytes;
        sum.failures += made.failures;
    }
    say(&serde_json::to_value(&report)?)?;
    while !args.alone && input.read_line(&mut line)? > 0 {}
    Ok(())
}

fn make(api: &Api, args: &Args) -> Result<Counts> {
    let mut caller = Caller::new(api, args.streams, args.kernel_us, args.bytes)?;
    let mut turn = 0u64;
    for (kind, count) in &args.make {
        for _ in 0..*count {
            turn += 1;
            let by_runtime = match args.by {
                By::Driver => false,
                By::Runtime => true,
                By::Mixed => turn.is_multiple_of(2),
            };
            caller.make(*kind, by_runtime);
        }
    }
    Ok(caller.counts)
}

fn say(what: &serde_json::Value) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{what}")
        .and_then(|()| out.flush())
        .context("can't write to standard output")
}
