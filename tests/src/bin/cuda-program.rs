//! Makes stated numbers of CUDA calls on the stand-in libraries, and tells what it made.
//!
//! Owns: threads, and when to begin. It prints one line when it is ready, makes calls for each line that it reads, prints
//! what it made or how long that took, and ends when its input does. Refuses: how calls are made
//! (`infertap_tests::gpu::calls`).

use anyhow::{Context, Result, ensure};
use clap::Parser;
use infertap_tests::gpu::{
    api::Api,
    calls::{Caller, Counts, Kind},
    program::Report,
};
use std::{
    collections::BTreeMap,
    io::{BufRead, Write, stdin, stdout},
    path::PathBuf,
    process::Command,
    thread,
    time::Instant,
};

/// Make CUDA calls.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of libcuda.so.1 and libcudart.so.12
    #[arg(long)]
    drivers: PathBuf,
    /// By the functions for per-thread default streams
    #[arg(long)]
    per_thread: bool,
    /// Streams of each thread; 0: the default stream
    #[arg(long, default_value_t = 1)]
    streams: usize,
    /// Microseconds that a kernel takes
    #[arg(long, default_value_t = 0)]
    kernel_us: u64,
    /// Begin at once, and end at once
    #[arg(long)]
    alone: bool,
    /// Load the libraries when the first line comes
    #[arg(long)]
    late: bool,
    /// Be the parent of another such program, which makes the calls, and wait for its end and that of the input
    #[arg(long)]
    parent: bool,
    /// Tell how long the calls took, nanoseconds a call by kind, and not what was made
    #[arg(long, conflicts_with_all = ["alone", "threads", "exit"])]
    timed: bool,
    #[command(flatten)]
    orders: Orders,
}

/// What to make: from the command line when the line that comes is empty or `go`, else from the line.
#[derive(Debug, Parser)]
struct Orders {
    /// Calls to make, in this order: KIND=COUNT, by each thread
    #[arg(long = "make", value_parser = order)]
    make: Vec<(Kind, u64)>,
    /// By the driver's API, the runtime's, or by turns
    #[arg(long, value_enum, default_value = "driver")]
    by: By,
    /// Threads; one alone keeps its memory from one line to the next
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Bytes of each allocation and copy
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// End right after the last call, without a word
    #[arg(long)]
    exit: bool,
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
    if args.parent {
        return parent();
    }
    let mut program = None;
    if !args.late {
        program = Some(Program::load(&args)?);
    }
    if args.alone {
        let program = program.context("--alone and --late do not go together")?;
        return say(&serde_json::to_value(program.first(&args)?)?);
    }
    say(&serde_json::json!({"ready": std::process::id()}))?;
    let mut input = stdin().lock();
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let program = match &mut program {
            Some(program) => program,
            none => none.insert(Program::load(&args)?),
        };
        if args.timed {
            say(&serde_json::to_value(program.time(&args.orders)?)?)?;
            line.clear();
            continue;
        }
        let words = std::iter::once("line").chain(line.split_whitespace());
        let report = match line.trim() {
            "" | "go" => program.make(&args, &args.orders)?,
            _ => program.make(&args, &Orders::try_parse_from(words)?)?,
        };
        say(&serde_json::to_value(report)?)?;
        line.clear();
    }
    Ok(())
}

/// The libraries, and the one thread's calls so far.
struct Program {
    api: &'static Api,
    caller: Caller<'static>,
}

impl Program {
    fn load(args: &Args) -> Result<Program> {
        let api: &Api = Box::leak(Box::new(Api::load(&args.drivers, args.per_thread)?));
        let caller = Caller::new(api, args.streams, args.kernel_us, args.orders.bytes)?;
        Ok(Program { api, caller })
    }

    fn first(mut self, args: &Args) -> Result<Report> {
        self.make(args, &args.orders)
    }

    /// Makes what is ordered, and tells it.
    fn make(&mut self, args: &Args, orders: &Orders) -> Result<Report> {
        let counts = if orders.threads == 1 {
            self.caller.set_bytes(orders.bytes);
            make(&mut self.caller, orders);
            vec![std::mem::take(&mut self.caller.counts)]
        } else {
            self.threads(args, orders)?
        };
        if orders.exit {
            std::process::exit(0);
        }
        let mut report = Report {
            entered: self.api.entered(),
            ..Report::default()
        };
        for (kind, made) in counts.into_iter().flatten() {
            let sum = report.made.entry(kind).or_default();
            sum.calls += made.calls;
            sum.bytes += made.bytes;
            sum.failures += made.failures;
        }
        Ok(report)
    }

    /// Makes what is ordered, by this thread; nanoseconds a call by kind.
    fn time(&mut self, orders: &Orders) -> Result<BTreeMap<Kind, f64>> {
        let mut times = BTreeMap::new();
        let mut turn = 0;
        for (kind, count) in &orders.make {
            let begin = Instant::now();
            repeat(&mut self.caller, orders.by, *kind, *count, &mut turn);
            times.insert(*kind, begin.elapsed().as_nanos() as f64 / *count as f64);
        }
        let failed: u64 = self.caller.counts.values().map(|made| made.failures).sum();
        ensure!(failed == 0, "{failed} calls failed");
        Ok(times)
    }

    fn threads(&self, args: &Args, orders: &Orders) -> Result<Vec<Counts>> {
        let one = || {
            let mut caller = Caller::new(self.api, args.streams, args.kernel_us, orders.bytes)?;
            make(&mut caller, orders);
            Ok(caller.counts)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..orders.threads).map(|_| scope.spawn(one)).collect();
            let each = threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread failed"))?);
            each.collect()
        })
    }
}

fn make(caller: &mut Caller<'_>, orders: &Orders) {
    let mut turn = 0;
    for (kind, count) in &orders.make {
        repeat(caller, orders.by, *kind, *count, &mut turn);
    }
}

fn repeat(caller: &mut Caller<'_>, by: By, kind: Kind, count: u64, turn: &mut u64) {
    for _ in 0..count {
        *turn += 1;
        let by_runtime = match by {
            By::Driver => false,
            By::Runtime => true,
            By::Mixed => turn.is_multiple_of(2),
        };
        caller.make(kind, by_runtime);
    }
}

/// Starts another such program in its place, with its input and output, waits for its end and then for the end of the input.
fn parent() -> Result<()> {
    let own = std::env::args_os().skip(1).filter(|word| word != "--parent");
    // By this path its name is another: rules that find the parent by its name do not find the child.
    let status = Command::new("/proc/self/exe")
        .args(own)
        .status()
        .context("can't start the child")?;
    anyhow::ensure!(status.success(), "the child ended with {status}");
    std::io::copy(&mut stdin().lock(), &mut std::io::sink())?;
    Ok(())
}

fn say(what: &serde_json::Value) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{what}")
        .and_then(|()| out.flush())
        .context("can't write to standard output")
}
