//! Known phases of an engine on the stand-in GPU: seconds and joules by state, by phase and by request against the engine's
//! own account of its steps and the script's power.

use super::readings::Readings;
use super::*;
use infertap_tests::{
    agent::Record,
    clock::{monotonic_ns, sleep_until},
    gpu::{Drivers, Process, Value, WORK_VARIABLE, Work, read_work},
    load::{ClientTruth, Load, Outcome, Plan},
    scripted::{
        Address, ServerProcess, ServerTruth,
        engine::{GpuSeconds, Step, StepKind, gpu_seconds},
    },
};
use serde_json::json;
use std::{collections::BTreeMap, path::Path, thread};

/// What is told may be off by so much.
const PART: f64 = 0.02;
/// Watts that the GPU draws while it does nothing, and while it works.
pub(super) const IDLE_W: f64 = 80.0;
pub(super) const BUSY_W: f64 = 420.0;
/// How long after a reading its time is settled.
const SETTLED_NS: u64 = 2_000_000_000;

/// A request of known work. Times in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Job {
    /// It is sent so long after the first of its group.
    pub(super) after_ms: u64,
    pub(super) bursts: u32,
    pub(super) burst_ms: u64,
    pub(super) tokens: u32,
    pub(super) decode_ms: u64,
    pub(super) prompt: u32,
    /// The scheduler takes so long to start it, while the GPU does nothing.
    pub(super) think_ms: u64,
}

pub(super) const JOB: Job = Job {
    after_ms: 0,
    bursts: 2,
    burst_ms: 150,
    tokens: 26,
    decode_ms: 40,
    prompt: 12,
    think_ms: 0,
};

pub(super) struct Scene {
    server: ServerProcess,
    pub(super) bench: Bench,
    pub(super) engine: String,
    readings: Readings,
    sent: usize,
}

/// The metrics when some time had just been settled, and up to when it was.
pub(super) struct Edge {
    metrics: Exposition,
    at: u64,
}

impl Edge {
    /// What was told of the time from here to there, of one engine or of all.
    fn told(&self, to: &Edge, metric: &str, labels: &[(&str, &str)]) -> f64 {
        to.metrics.sum(metric, labels) - self.metrics.sum(metric, labels)
    }
}

/// What is true of a time.
struct Truth {
    seconds: GpuSeconds,
    joules: BTreeMap<&'static str, f64>,
    /// Energy of the steps, by the tokens that it went into: prompts', generated.
    phases: [f64; 2],
}

impl Scene {
    pub(super) fn start(arguments: &[&str]) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let drivers = Drivers::install(&folder.path().join("drivers")).unwrap();
        let environment = [(WORK_VARIABLE, folder.path().to_owned())];
        let binary = Path::new(env!("CARGO_BIN_EXE_scripted-server"));
        let server =
            ServerProcess::start_on_gpu(binary, folder.path(), &drivers, arguments, &environment).unwrap();
        let mut gpu = Gpu::datacenter(0);
        gpu.work = Some(folder.path().join("device-0"));
        gpu.processes = Some(vec![Process {
            pid: server.pid(),
            ..Process::default()
        }]);
        gpu.power_mw = Some(Value::Work {
            idle: IDLE_W * 1e3,
            busy: BUSY_W * 1e3,
        });
        let utilization = gpu.utilization.as_mut().unwrap();
        utilization.gpu = Value::Work {
            idle: 0.0,
            busy: 100.0,
        };
        let script = Script {
            gpus: vec![gpu],
            ..Script::default()
        };
        let gpus = Gpus::start_with(drivers, folder.path(), script).unwrap();
        let pid = server.pid().to_string();
        // A second of a GPU costs one unit.
        let price = ["gpu_price.per_hour=3600", "gpu_price.currency=EUR"];
        let bench = bench_on(
            gpus,
            folder,
            &["--pid", &pid, "--set", price[0], "--set", price[1]],
        );
        let engine = bench.agent.wait_serving(server.pid(), SOON).unwrap();
        bench.wait("coverage of CUDA calls", |now| {
            let labels = [("engine", engine.as_str()), ("aspect", "cuda")];
            now.sum("infertap_engine_coverage", &labels) > 0.5
        });
        let readings = Readings::follow(bench.agent.address.clone());
        Scene {
            server,
            bench,
            engine,
            readings,
            sent: 0,
        }
    }

    /// Sends requests, each on a connection of its own, and waits for their answers.
    pub(super) fn ask(&mut self, jobs: &[Job]) {
        let begin = monotonic_ns();
        let address = &self.server.address;
        thread::scope(|scope| {
            for job in jobs {
                scope.spawn(move || {
                    sleep_until(begin + job.after_ms * 1_000_000);
                    let truth = ask(address.clone(), job);
                    assert_eq!(
                        (truth.outcome, truth.content_ns.len()),
                        (Outcome::Complete, job.tokens as usize)
                    );
                });
            }
        });
        self.sent += jobs.len();
    }

    /// Waits until some time has just been settled, and it is beyond doubt up to which reading.
    fn edge(&self) -> Edge {
        let labels = [("engine", self.engine.as_str())];
        let begun = Instant::now();
        let mut before: Option<(f64, u64)> = None;
        loop {
            let asked = monotonic_ns();
            let metrics = self.bench.agent.metrics().unwrap();
            let looked = monotonic_ns();
            let told = metrics.sum("llm_gpu_seconds_total", &labels);
            if let Some((of_before, asked_before)) = before
                && told > of_before
            {
                // Between the two looks it was settled up to the last reading that was old enough then.
                let [early, late] =
                    [asked_before, looked].map(|at| self.readings.last(at.saturating_sub(SETTLED_NS)));
                if let (Some(early), Some(late)) = (early, late)
                    && early == late
                {
                    return Edge { metrics, at: late };
                }
            }
            before = Some((told, asked));
            assert!(
                begun.elapsed() < SOON,
                "no time is settled, or up to when is in doubt: {}",
                self.bench.log()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// An edge after everything that was asked is settled, the energy of all requests too; and their records.
    pub(super) fn settled(&self) -> (Edge, Vec<Record>) {
        let begun = Instant::now();
        loop {
            let records = self.bench.agent.requests().unwrap();
            let whole = records.iter().filter(|record| record.energy_j.is_some()).count();
            if whole == self.sent && records.len() == self.sent {
                return (self.edge(), records);
            }
            assert!(
                begun.elapsed() < SOON,
                "the energy of requests is not known: {records:?}"
            );
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn truth(&self, from: &Edge, to: &Edge) -> Truth {
        let steps: Vec<Step> = self.server.steps().unwrap();
        let served = self.server.truths(self.sent).unwrap();
        let queued: Vec<(u64, u64)> = served
            .iter()
            .map(|truth| (truth.queued_ns.unwrap(), truth.t1_ns.unwrap()))
            .collect();
        let seconds = gpu_seconds(&steps, &queued, from.at, to.at);
        let script = &self.bench.gpus.script;
        let work = read_work(script.gpus[0].work.as_ref().unwrap(), script.start_ns).unwrap();
        let joules_of = |begin: u64, end: u64, seconds: f64| joules(script, &work, begin, end, seconds);
        let mut joules: BTreeMap<&'static str, f64> = BTreeMap::new();
        let mut phases = [0.0; 2];
        let within = steps
            .iter()
            .filter(|step| step.begin_ns >= from.at && step.end_ns <= to.at);
        for step in within {
            let length = (step.end_ns - step.begin_ns) as f64 / 1e9;
            let of_step = joules_of(step.begin_ns, step.end_ns, length);
            *joules.entry(name(step.kind)).or_default() += of_step;
            let read = prompt_tokens(step, &steps, &served);
            let all = read + f64::from(step.decoding);
            phases[0] += of_step * read / all;
            phases[1] += of_step * f64::from(step.decoding) / all;
        }
        joules.insert("idle", IDLE_W * seconds.idle);
        joules.insert("idle_while_queued", IDLE_W * seconds.idle_while_queued);
        Truth {
            seconds,
            joules,
            phases,
        }
    }

    fn of_state(&self, from: &Edge, to: &Edge, metric: &str, state: &str) -> f64 {
        let labels = [("engine", self.engine.as_str()), ("state", state)];
        from.told(to, metric, &labels)
    }
}

fn ask(address: Address, job: &Job) -> ClientTruth {
    let work = json!({
        "prefill_bursts": job.bursts,
        "prefill_launches": 24,
        "prefill_us": job.burst_ms * 1000,
        "decode_us": job.decode_ms * 1000,
        "think_us": job.think_ms * 1000,
    });
    let extra = json!({
        "stream": true,
        "stream_options": {"include_usage": true},
        "script": {"chunks": job.tokens, "prompt_tokens": job.prompt, "gpu": work},
    });
    let load = Load {
        address,
        concurrency: 1,
        core: None,
    };
    load.run_all(vec![Plan::chat("job", "model-a", "hello", &extra)])
        .remove(0)
}

fn name(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Prefill => "prefill",
        StepKind::Decode => "decode",
        StepKind::Mixed => "mixed",
    }
}

/// By the script's power.
fn joules(script: &Script, work: &Work, begin: u64, end: u64, seconds: f64) -> f64 {
    let worked = work.seconds(script.second(begin), script.second(end));
    IDLE_W * seconds + (BUSY_W - IDLE_W) * worked
}

/// How many tokens of a prompt a step read: each of a prompt's steps as many as the others.
fn prompt_tokens(step: &Step, steps: &[Step], served: &[ServerTruth]) -> f64 {
    if step.prefilling == 0 {
        return 0.0;
    }
    let reads = |truth: &ServerTruth, step: &Step| {
        step.prefilling > 0 && truth.t1_ns <= Some(step.begin_ns) && truth.t2_ns >= Some(step.end_ns)
    };
    let truth = served.iter().find(|truth| reads(truth, step)).unwrap();
    let of_prompt = steps.iter().filter(|step| reads(truth, step)).count();
    f64::from(JOB.prompt) / of_prompt as f64
}

fn close(what: &str, told: f64, truth: f64) {
    assert!(
        (told - truth).abs() <= truth.abs() * PART,
        "{what}: {told:.4} told, {truth:.4} in truth"
    );
}

/// Holds what is told of a time against the truth; what the states came to.
fn hold(scene: &Scene, from: &Edge, to: &Edge) -> Truth {
    let truth = scene.truth(from, to);
    let length = (to.at - from.at) as f64 / 1e9;
    let seconds = truth.seconds;
    let states = [
        ("prefill", seconds.prefill),
        ("decode", seconds.decode),
        ("mixed", seconds.mixed),
        ("idle", seconds.idle),
        ("idle_while_queued", seconds.idle_while_queued),
    ];
    let of_state = |metric, state| scene.of_state(from, to, metric, state);
    let line = |(state, seconds): (&'static str, f64)| {
        let told = of_state("llm_gpu_seconds_total", state);
        let joules = of_state("llm_gpu_energy_joules_total", state);
        let in_truth = truth.joules.get(state).copied().unwrap_or(0.0);
        println!("{state:18} {told:9.4} s ({seconds:9.4})   {joules:10.3} J ({in_truth:10.3})");
        (state, told, seconds, joules, in_truth)
    };
    let lines = states.map(line);
    let unknown = of_state("llm_gpu_seconds_total", "unknown");
    let all: f64 = lines.iter().map(|line| line.1).sum::<f64>() + unknown;
    println!("unknown {unknown:.4} s; all {all:.4} s ({length:.4})");
    for (state, told, seconds, joules, in_truth) in lines {
        // Time between steps, microseconds each, is not a phase of the script.
        if seconds < 0.01 {
            assert!(told < 0.01, "{state}: {told} s told, {seconds} s in truth");
            continue;
        }
        close(&format!("seconds {state}"), told, seconds);
        close(&format!("joules {state}"), joules, in_truth);
    }
    assert!(unknown < 0.005 * length, "{unknown} s unknown");
    close("seconds", all, length);

    let engine = [("engine", scene.engine.as_str())];
    let joules = from.told(to, "llm_gpu_energy_joules_total", &engine);
    close("joules", joules, truth.joules.values().sum());
    let phase = |phase| from.told(to, "llm_energy_joules_total", &[("phase", phase)]);
    let (prefill, decode) = (phase("prefill"), phase("decode"));
    println!("phases: {prefill:.3} J, {decode:.3} J ({:?})", truth.phases);
    close("joules of prompts", prefill, truth.phases[0]);
    close("joules of generated tokens", decode, truth.phases[1]);
    let uncharged = from.told(to, "llm_energy_uncharged_joules_total", &engine);
    assert!(
        (prefill + decode + uncharged - joules).abs() < 1e-3,
        "{prefill} J and {decode} J of requests and {uncharged} J of none are not {joules} J"
    );
    let money = |direction| {
        let labels = [("basis", "gpu"), ("currency", "EUR"), ("direction", direction)];
        from.told(to, "llm_cost_total", &labels)
    };
    let [input, output, nobodys] = ["input", "output", "unattributed"].map(money);
    println!("money: {input:.4} for prompts, {output:.4} for tokens, {nobodys:.4} for nobody");
    let unattributed = from.told(to, "llm_gpu_unattributed_seconds_total", &[]);
    assert!(
        (input + output + nobodys - all - unattributed).abs() < 1e-3,
        "{input} + {output} + {nobodys} is not the price of {all} s and {unattributed} s"
    );
    close(
        "price of working",
        input + output,
        seconds.prefill + seconds.decode + seconds.mixed,
    );
    truth
}

fn of_requests(records: &[Record]) -> f64 {
    records.iter().filter_map(|record| record.energy_j).sum()
}

#[test]
fn a_run_of_known_phases_is_told_within_two_percent() {
    let mut scene = Scene::start(&["--max-running", "2", "--mixed"]);
    let begin = scene.edge();
    // One after the other: nobody waits.
    scene.ask(&[JOB]);
    thread::sleep(Duration::from_millis(400));
    scene.ask(&[Job { bursts: 4, ..JOB }]);
    let (calm, records) = scene.settled();
    let truth = hold(&scene, &begin, &calm);
    close(
        "joules of records",
        of_requests(&records),
        truth.phases.iter().sum(),
    );
    let queued = scene.of_state(&begin, &calm, "llm_gpu_seconds_total", "idle_while_queued");
    assert!(queued <= 0.0, "{queued} s of waiting where nobody waits");

    // A prompt is read while another request generates.
    let long = Job { tokens: 50, ..JOB };
    let beside = Job {
        after_ms: 800,
        bursts: 6,
        ..JOB
    };
    scene.ask(&[long, beside]);
    thread::sleep(Duration::from_millis(400));
    // The scheduler pauses with one request in its queue,
    scene.ask(&[Job {
        think_ms: 2000,
        ..JOB
    }]);
    thread::sleep(Duration::from_millis(400));
    // and with one that came long before and waited for others to end.
    let third = Job {
        after_ms: 900,
        think_ms: 2000,
        ..JOB
    };
    scene.ask(&[JOB, Job { tokens: 36, ..JOB }, third]);
    let (end, records) = scene.settled();
    let both = hold(&scene, &calm, &end);
    let joules: f64 = truth.phases.iter().chain(&both.phases).sum();
    close("joules of all records", of_requests(&records), joules);
    let queued = scene.of_state(&calm, &end, "llm_gpu_seconds_total", "idle_while_queued");
    assert!(queued > 3.9, "{queued} s of waiting");
}
