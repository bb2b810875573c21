//! The scripted engine on the stand-in GPU: its truth must be consistent before it may judge the agent.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{
    gpu::{Drivers, WORK_VARIABLE, read_work},
    load::{Load, Outcome, Plan},
    scripted::{
        ServerProcess, ServerTruth,
        engine::{Step, StepKind, gpu_seconds},
    },
};
use serde_json::json;
use std::path::Path;

const REQUESTS: usize = 6;
const CHUNKS: u32 = 5;

/// Answers six requests, three of which come at a time, and returns what the server and its engine wrote down.
fn served(arguments: &[&str], folder: &Path) -> (Vec<ServerTruth>, Vec<Step>) {
    let drivers = Drivers::install(&folder.join("drivers")).unwrap();
    let environment = [(WORK_VARIABLE, folder.to_owned())];
    let binary = Path::new(env!("CARGO_BIN_EXE_scripted-server"));
    let server = ServerProcess::start_on_gpu(binary, folder, &drivers, arguments, &environment).unwrap();
    let work = json!({"prefill_bursts": 2, "prefill_launches": 3, "prefill_us": 2_000, "decode_us": 1_000});
    let extra = json!({"stream": true, "script": {"chunks": CHUNKS, "gpu": work}});
    let plans = (0..REQUESTS)
        .map(|index| Plan {
            index,
            ..Plan::chat("engine", "model-a", "hello", &extra)
        })
        .collect();
    let clients = Load {
        address: server.address.clone(),
        concurrency: 3,
        core: None,
    }
    .run_all(plans);
    for client in clients {
        assert_eq!(
            (client.outcome, client.content_ns.len()),
            (Outcome::Complete, CHUNKS as usize)
        );
    }
    (server.truths(REQUESTS).unwrap(), server.steps().unwrap())
}

#[test]
fn steps_and_requests_agree_and_every_second_is_in_one_state() {
    for arguments in [
        &["--max-running", "2"][..],
        &["--max-running", "2", "--mixed", "--by-runtime"],
        &["--max-running", "1", "--think-us", "20000"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (truths, steps) = served(arguments, folder.path());
        for truth in &truths {
            let points = [truth.queued_ns, truth.t1_ns, truth.t2_ns, truth.t3_ns].map(Option::unwrap);
            assert!(
                truth.t0_ns <= points[0] && points.is_sorted() && points[3] <= truth.t4_ns,
                "{truth:?}"
            );
            // Two bursts of two milliseconds.
            assert!(points[2] - points[1] >= 4_000_000, "{truth:?}");
        }
        for pair in steps.windows(2) {
            assert!(pair[0].end_ns <= pair[1].begin_ns, "{pair:?}");
        }
        let prefilled: u32 = steps.iter().map(|step| step.prefilling).sum();
        let decoded: u32 = steps.iter().map(|step| step.decoding).sum();
        assert_eq!(prefilled as usize, REQUESTS * 2, "two bursts each");
        assert_eq!(
            decoded,
            REQUESTS as u32 * (CHUNKS - 1),
            "the first token is the prefill's"
        );
        let most = arguments[1].parse().unwrap();
        assert!(steps.iter().all(|step| step.decoding <= most), "{steps:?}");
        let mixed = steps.iter().filter(|step| step.kind == StepKind::Mixed).count();
        assert_eq!(mixed > 0, arguments.contains(&"--mixed"), "{steps:?}");

        let queued: Vec<(u64, u64)> = truths
            .iter()
            .map(|truth| (truth.queued_ns.unwrap(), truth.t1_ns.unwrap()))
            .collect();
        let (from, to) = (
            queued.iter().map(|wait| wait.0).min().unwrap(),
            steps.last().unwrap().end_ns,
        );
        let seconds = gpu_seconds(&steps, &queued, from, to);
        let sum = seconds.prefill + seconds.decode + seconds.mixed + seconds.idle + seconds.idle_while_queued;
        assert!((sum - (to - from) as f64 / 1e9).abs() < 1e-6, "{seconds:?}");
        // The scheduler thinks for 20 ms with each request in its queue.
        if arguments.contains(&"--think-us") {
            assert!(seconds.idle_while_queued >= 0.119, "{seconds:?}");
        }
        // The device itself worked for as long as the schedule says: 4 ms a prefill, a millisecond a step with decoding.
        let work = read_work(&folder.path().join("device-0"), from).unwrap();
        let steps_decoding = steps.iter().filter(|step| step.decoding > 0).count();
        let expected = REQUESTS as f64 * 0.004 + steps_decoding as f64 * 0.001;
        let worked = work.seconds(0.0, (to - from) as f64 / 1e9);
        assert!(
            (worked - expected).abs() < 1e-6,
            "{worked} s of work, not {expected}"
        );
    }
}
