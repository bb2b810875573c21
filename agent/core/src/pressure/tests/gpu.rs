//! Memory of GPUs: full by design, growing, refused.

use super::*;

#[test]
fn a_gpu_that_is_full_by_design_is_no_pressure_and_of_another_server_it_is_some() {
    for (kind, expected) in [
        (EngineKind::Vllm, ("none", vec![])),
        (EngineKind::Generic, ("some", vec![("gpu_usage", "some")])),
    ] {
        let mut bench = Bench::new(kind);
        bench.pass(1200, |bench, second| {
            // Weights and cache are there after a minute, and some buffers come and go.
            let used = (78 * GIB).min(second * 2 * GIB) + (second % 7) * (GIB / 64);
            bench.gpu("GPU-a", used, 80 * GIB, Some(&[11]));
        });
        assert_eq!(bench.state(), expected, "{kind:?}");
        let gpu = bench.last().gpu.as_ref().expect("it uses one");
        assert_eq!((gpu.total_bytes, gpu.time_to_full_s), (80 * GIB, None));
        assert_eq!(gpu.headroom_bytes, 80 * GIB - gpu.used_bytes);
        if kind == EngineKind::Vllm {
            assert!(
                bench
                    .told
                    .iter()
                    .all(|report| report.state == PressureState::None)
            );
        }
    }
}

#[test]
fn a_leak_is_told_before_the_gpu_is_full() {
    let mut bench = Bench::new(EngineKind::Vllm);
    // 10 GiB left at first, a GiB every three minutes.
    bench.pass(1750, |bench, second| {
        bench.gpu("GPU-a", 70 * GIB + second * GIB / 180, 80 * GIB, Some(&[11]));
        bench.gpu("GPU-b", 20 * GIB, 80 * GIB, Some(&[10]));
    });
    let first = |state| {
        let report = bench
            .told
            .iter()
            .find(|report| report.state == state)
            .expect("reached");
        report
            .gpu
            .as_ref()
            .expect("it uses one")
            .time_to_full_s
            .expect("known")
    };
    let (some, severe) = (first(PressureState::Some), first(PressureState::Severe));
    assert!((1500.0..=1800.0).contains(&some), "{some} s");
    assert!((270.0..=300.0).contains(&severe), "{severe} s");
    assert_eq!(bench.state(), ("severe", vec![("gpu_time_to_full", "severe")]));
    let gpu = bench.last().gpu.clone().expect("it uses one");
    assert_eq!(&*gpu.gpu, "GPU-a", "the one with the least room");
    let left = gpu.headroom_bytes as f64 / (GIB as f64 / 180.0);
    assert!((gpu.time_to_full_s.expect("known") / left - 1.0).abs() < 0.05);
    // The leak ends: time to full is not known any more, and the state falls.
    bench.pass(700, |bench, _| {
        bench.gpu("GPU-a", 79 * GIB, 80 * GIB, Some(&[11]));
    });
    assert_eq!(bench.state(), ("none", vec![]));
    // And when the GPU is not read any more, nothing is known of it.
    bench.pass(70, |_, _| {});
    assert_eq!(bench.last().gpu, None);
}

#[test]
fn failed_allocations_count_while_they_are_recent() {
    let mut bench = Bench::new(EngineKind::Vllm);
    bench.fail(2);
    bench.pass(1, |_, _| {});
    assert_eq!(bench.state(), ("some", vec![("gpu_alloc_failures", "some")]));
    bench.fail(2);
    bench.fail(2);
    bench.fail(700);
    bench.pass(1, |_, _| {});
    assert_eq!(bench.state(), ("severe", vec![("gpu_alloc_failures", "severe")]));
    let failures = AllocFailures {
        out_of_memory: 3,
        other: 1,
    };
    assert_eq!(bench.last().alloc_failures, Some(failures));
    bench.pass(110, |_, _| {});
    assert_eq!(
        bench.last().state,
        PressureState::Severe,
        "out of the window, held"
    );
    bench.pass(15, |_, _| {});
    assert_eq!(bench.state(), ("none", vec![]));
    assert_eq!(
        bench.last().alloc_failures,
        Some(failures),
        "a count does not fall"
    );
}

#[test]
fn failed_allocations_are_told_of_the_requests_that_were_in_flight() {
    let mut bench = Bench::new(EngineKind::Vllm);
    let unseen = bench.pressure.mark("e");
    assert_eq!(
        bench.pressure.alloc_failures_since("e", unseen),
        None,
        "CUDA is not seen"
    );
    bench.pressure.cuda(11, &bench.engines, &bench.config);
    assert_eq!(
        bench.pressure.alloc_failures_since("e", unseen),
        None,
        "it was not then"
    );
    let before = bench.pressure.mark("e");
    assert_eq!(bench.pressure.alloc_failures_since("e", before), Some(0));
    bench.fail(2);
    let between = bench.pressure.mark("e");
    bench.fail(1);
    bench.fail(2);
    for (mark, expected) in [(before, 3), (between, 2), (unseen, 3)] {
        assert_eq!(bench.pressure.alloc_failures_since("e", mark), Some(expected));
    }
    bench.pressure.down("e");
    assert_eq!(bench.pressure.alloc_failures_since("e", before), None);
    assert_eq!(
        bench.pressure.alloc_failures_since("e", bench.pressure.mark("e")),
        None
    );
}

#[test]
fn an_instance_is_what_its_engine_has_and_processes_move() {
    let mut bench = Bench::new(EngineKind::Vllm);
    bench.gpu("x", 70 * GIB, 80 * GIB, Some(&[10]));
    bench.gpu("MIG-x", 5 * GIB, 20 * GIB, Some(&[10]));
    bench.pass(1, |_, _| {});
    let of = |bench: &Bench| bench.last().gpu.as_ref().map(|gpu| gpu.gpu.to_string());
    assert_eq!(of(&bench).as_deref(), Some("MIG-x"));
    bench.gpu("MIG-x", GIB, 20 * GIB, Some(&[99]));
    bench.gpu("y", GIB, 20 * GIB, Some(&[10]));
    bench.gpu("x", 70 * GIB, 80 * GIB, Some(&[]));
    bench.pass(6, |_, _| {});
    assert_eq!(of(&bench).as_deref(), Some("y"));
    bench.gpu("y", GIB, 20 * GIB, None);
    bench.pass(6, |_, _| {});
    assert_eq!(
        of(&bench).as_deref(),
        Some("y"),
        "a driver that tells no processes takes none away"
    );
}
