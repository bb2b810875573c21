//! Memory: what is held, what fails, and which request was under way when it did.

use super::*;
use infertap_tests::{
    gpu::{CUDA_VARIABLE, CudaFailure},
    load::{Load, Outcome, Plan},
    scripted::ServerProcess,
};
use serde_json::json;

const MIB: u64 = 1 << 20;
const OUT_OF_MEMORY: u32 = 2;
const NOT_SUPPORTED: u32 = 801;

/// A function whose calls from number `first` on fail.
fn failing(function: &str, first: u64, count: u64, code: u32) -> (String, Vec<CudaFailure>) {
    (function.to_owned(), vec![CudaFailure { first, count, code }])
}

#[test]
fn memory_is_what_was_allocated_and_not_freed_and_failures_are_told() {
    let before = events("alloc_failure");
    side_by_side(WAYS, |runtime| {
        let settings = Cuda {
            runtime,
            failures: [
                // By the driver the eleventh and the twelfth, by the runtime the last three.
                (
                    "cuMemAlloc_v2".to_owned(),
                    [(11, 2), (113, 3)]
                        .map(|(first, count)| CudaFailure {
                            first,
                            count,
                            code: OUT_OF_MEMORY,
                        })
                        .to_vec(),
                ),
                failing("cuMemAllocManaged", 5, 1, NOT_SUPPORTED),
                failing("cuMemAllocPitch_v2", 2, 1, OUT_OF_MEMORY),
                failing("cuMemAllocAsync", 1, 4, OUT_OF_MEMORY),
                failing("cuMemAllocFromPoolAsync", 3, 2, OUT_OF_MEMORY),
                failing("cuMemCreate", 9, 2, OUT_OF_MEMORY),
            ]
            .into(),
            ..Cuda::default()
        };
        let mut scene = Scene::with(&BENCH.drivers, &settings, &[]);
        // What frees nothing makes the runtime begin, and frees nothing.
        scene.make("--by=runtime --make=free=10");
        scene.make("--by=driver --bytes=1048576 --make=alloc=12 --make=alloc_managed=5");
        // 1000 bytes a row become 1024, of two rows.
        scene.make("--by=driver --bytes=1000 --make=alloc_pitch=2");
        // By either API; all but one of the first, and the two last of the second fail.
        scene.make("--by=driver --bytes=1048576 --make=alloc_async=2 --make=alloc_from_pool=2");
        scene.make("--by=runtime --bytes=1048576 --make=alloc_async=3 --make=alloc_from_pool=2");
        scene.make("--by=runtime --bytes=2097152 --make=alloc=103");
        let told = Told::of(&scene.made, (10 + 4 + 1 + 2) * MIB + 2048 + 200 * MIB);
        assert_eq!((told.allocations, told.failures), (10 + 4 + 1 + 1 + 2 + 100, 13));
        scene.expect(&told);
        let engine = scene.api();
        let failures = &engine["pressure"]["alloc_failures"];
        assert_eq!(*failures, json!({"out_of_memory": 12, "other": 1}), "{engine}");

        // The runtime frees its own, then the driver's functions theirs; some frees are of nothing that was seen.
        scene.make("--by=runtime --make=free=100");
        scene.make("--by=driver --make=free_async=8 --make=free_unknown=7");
        scene.expect_made(10 * MIB);
        let engine = scene.api();
        assert_eq!(engine["cuda"]["unknown_frees"], 7, "{engine}");

        // Physical memory, given back as soon as it is mapped, is held until it is unmapped; two more fail.
        scene.make("--bytes=2097152 --make=map_only=10");
        let told = Told::of(&scene.made, 26 * MIB);
        assert_eq!(told.failures, 15);
        scene.expect(&told);
        scene.make("--bytes=2097152 --make=unmap_only=8");
        scene.expect_made(10 * MIB);
    });
    assert_eq!(events("alloc_failure") - before, 30, "each once");
}

#[test]
fn a_failed_allocation_is_told_of_the_request_that_was_under_way() {
    let agent = &BENCH.agent;
    let folder = tempfile::tempdir().unwrap();
    let settings = Cuda {
        failures: [failing("cuMemAlloc_v2", 3, 2, OUT_OF_MEMORY)].into(),
        ..Cuda::default()
    };
    let environment = [(CUDA_VARIABLE, settings.to_environment().into())];
    let binary = Path::new(env!("CARGO_BIN_EXE_scripted-server"));
    let server =
        ServerProcess::start_on_gpu(binary, folder.path(), &BENCH.drivers, &[], &environment).unwrap();
    let engine = agent.wait_serving(server.pid(), PATIENCE).unwrap();
    let begun = Instant::now();
    let labels = [("engine", engine.as_str()), ("aspect", "cuda")];
    while agent.metrics().unwrap().sum("infertap_engine_coverage", &labels) < 0.5 {
        assert!(begun.elapsed() < PATIENCE, "{}", agent.log_tail());
        thread::sleep(Duration::from_millis(50));
    }
    let load = Load {
        address: server.address.clone(),
        concurrency: 1,
        core: None,
    };
    // Of six allocations the third and the fourth fail: both while the third request is under way. Before the first one
    // nothing has been seen of the engine's calls.
    let allocations = [0, 2, 3, 1];
    let plans = allocations
        .iter()
        .enumerate()
        .map(|(index, allocations)| {
            let work = json!({"allocations": allocations, "decode_us": 20_000});
            let extra = json!({"stream": true, "script": {"chunks": 5, "gpu": work}});
            Plan {
                index,
                ..Plan::chat("allocates", "model-a", "hello", &extra)
            }
        })
        .collect();
    let truths = load.run_all(plans);
    assert!(truths.iter().all(|truth| truth.outcome == Outcome::Complete));
    let records = agent
        .wait_requests(4, Duration::from_secs(10), |record| record.engine == engine)
        .unwrap();
    let failures: Vec<Option<u64>> = truths
        .iter()
        .map(|truth| {
            let of = |record: &infertap_tests::agent::Record| record.response_id == truth.response_id;
            agent.the_record(&records, truth, of).gpu_alloc_failures
        })
        .collect();
    assert_eq!(failures, [None, Some(0), Some(2), Some(0)]);
    let labels = [("engine", engine.as_str())];
    let begun = Instant::now();
    loop {
        let told = agent.metrics().unwrap().sum("cuda_alloc_failures_total", &labels);
        if (told - 2.0).abs() < 0.5 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{told} failures");
        thread::sleep(Duration::from_millis(50));
    }
}
