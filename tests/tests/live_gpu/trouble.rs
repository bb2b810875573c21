//! GPUs that go, come, fail and report errors; a host without any.

use super::*;
use infertap_tests::gpu::{Away, Code, Event, Failure, FailureTime, How, Value};

#[test]
fn without_nvml_that_is_said_once_and_there_is_no_series() {
    let folder = tempfile::tempdir().unwrap();
    let start = Start::for_test(folder.path(), &["--set", "discover.builtin_rules=false"]).unwrap();
    let agent = Agent::start(&start).unwrap();
    let log = || std::fs::read_to_string(folder.path().join("agent.log")).unwrap();
    let begun = Instant::now();
    while !log().contains("no NVIDIA GPUs here") {
        assert!(begun.elapsed() < SOON, "{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(2));
    let of_gpus: Vec<String> = log()
        .lines()
        .filter(|line| line.contains("GPU"))
        .map(str::to_owned)
        .collect();
    assert_eq!(of_gpus.len(), 1, "{of_gpus:?}");
    let metrics = agent.metrics().unwrap();
    let series = metrics.0.iter().filter(|sample| {
        sample.name.starts_with("gpu_")
            || sample.name.contains("_gpu_")
            || sample.label("probe") == Some("nvml")
    });
    assert_eq!(series.count(), 0);
    let api = http::get(&agent.address, "/api/v1/gpus").unwrap().json().unwrap();
    assert_eq!(api["nvml"]["state"], "absent");
    assert_eq!(api["gpus"], serde_json::json!([]));
    assert!(agent.stop());
}

#[test]
fn a_named_library_that_is_not_there_is_a_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let start = Start::for_test(
        folder.path(),
        &["--set", "gpu.nvml_library=/nowhere/libnvidia-ml.so.1"],
    )
    .unwrap();
    let agent = Agent::start(&start).unwrap();
    let begun = Instant::now();
    loop {
        let metrics = agent.metrics().unwrap();
        if value(&metrics, "infertap_probe_up", &[("probe", "nvml")]) == Some(0.0) {
            break;
        }
        assert!(begun.elapsed() < SOON, "{}", agent.log_tail());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(agent.stop());
}

#[test]
fn gpus_that_are_lost_and_return_never_stop_the_others() {
    for how in [How::Lost, How::Removed] {
        let mut bench = bench(vec![Gpu::datacenter(0), Gpu::datacenter(1)], &[]);
        let there = bench.settle();
        let of = [("gpu", "0")];
        let energy =
            |metrics: &Exposition, gpu| value(metrics, "gpu_energy_joules_total", &[("gpu", gpu)]).unwrap();
        bench.gpus.script.gpus[0].away = vec![Away {
            from_s: 0.0,
            to_s: None,
            how,
            until_init: false,
        }];
        bench.gpus.write().unwrap();
        let away = bench.wait("loss", |now| value(now, "gpu_up", &of) == Some(0.0));
        assert_eq!(value(&away, "gpu_losses_total", &of), Some(1.0), "{how:?}");
        for gauge in [
            "gpu_power_watts",
            "gpu_memory_used_bytes",
            "gpu_utilization_ratio",
        ] {
            assert_eq!(value(&away, gauge, &of), None, "{how:?}: {gauge}");
            assert!(
                value(&away, gauge, &[("gpu", "1")]).is_some(),
                "{how:?}: {gauge} of the other"
            );
        }
        assert!(energy(&away, "0") >= energy(&there, "0"));
        let other = energy(&away, "1");
        bench.wait("energy of the other", |now| energy(now, "1") > other);

        // It comes back as it is after a reset: its counters begin anew.
        bench.gpus.script.gpus[0].away.clear();
        let second = bench.gpus.second();
        bench.gpus.script.gpus[0].energy_mj = Some(infertap_tests::gpu::Energy::Counter(Value::growing(
            Value::steps([(0.0, 0.0), (second, 70_000.0)]),
        )));
        bench.gpus.write().unwrap();
        let back = bench.wait("return", |now| value(now, "gpu_up", &of) == Some(1.0));
        near(value(&back, "gpu_power_watts", &of), 70.0, "power");
        let total = energy(&back, "0");
        assert!(total >= energy(&away, "0"), "{how:?}: counters do not go back");
        bench.wait("further energy", |now| energy(now, "0") > total);
        assert_eq!(
            bench.logged("can't be read any more").len(),
            1,
            "{how:?}: {}",
            bench.log()
        );
        assert_eq!(bench.logged("is back").len(), 1, "{how:?}: {}", bench.log());
        assert!(bench.agent.stop());
    }
}

#[test]
fn a_gpu_that_only_a_fresh_library_sees_is_got_back() {
    let mut bench = bench(vec![Gpu::datacenter(0), Gpu::datacenter(1)], &[]);
    let second = bench.gpus.second();
    bench.gpus.script.gpus[1].away = vec![Away {
        from_s: second,
        to_s: Some(second + 2.0),
        how: How::Lost,
        until_init: true,
    }];
    bench.gpus.write().unwrap();
    let of = [("gpu", "1")];
    // It may be back before anybody looks.
    bench.wait("loss", |now| value(now, "gpu_losses_total", &of) == Some(1.0));
    bench.wait("return", |now| value(now, "gpu_up", &of) == Some(1.0));
    assert!(bench.agent.stop());
}

#[test]
fn each_xid_event_counts_once() {
    let mut bench = bench(vec![Gpu::datacenter(0), Gpu::datacenter(1)], &[]);
    bench.settle();
    let second = bench.gpus.second() + 1.0;
    bench.gpus.script.gpus[0].events = [(0.0, 13), (0.01, 13), (0.02, 79), (0.5, 13)]
        .map(|(after, xid)| Event::xid(second + after, xid))
        .to_vec();
    bench.gpus.script.gpus[1].events = vec![Event::xid(second, 48)];
    bench.gpus.write().unwrap();
    let count = |metrics: &Exposition, gpu, xid| {
        value(metrics, "gpu_xid_errors_total", &[("gpu", gpu), ("xid", xid)])
    };
    bench.wait("XID errors", |now| {
        count(now, "0", "13") == Some(3.0)
            && count(now, "0", "79") == Some(1.0)
            && count(now, "1", "48") == Some(1.0)
    });
    std::thread::sleep(Duration::from_secs(1));
    let metrics = bench.settle();
    near(
        Some(metrics.sum("gpu_xid_errors_total", &[])),
        5.0,
        "the sum of XID errors",
    );
    assert_eq!(
        bench.logged("reports XID error").len(),
        3,
        "once a number and GPU: {}",
        bench.log()
    );
    assert_eq!(
        bench.api()["gpus"][0]["xid_errors"],
        serde_json::json!({"13": 3, "79": 1})
    );
    assert!(bench.agent.stop());
}

#[test]
fn what_fails_is_counted_and_said_once_and_what_is_not_supported_any_more_is_gone() {
    let mut bench = bench(vec![Gpu::datacenter(0)], &[]);
    let of = [("gpu", "0")];
    let there = bench.settle();
    assert!(value(&there, "gpu_temperature_celsius", &of).is_some());
    assert!(value(&there, "gpu_power_limit_watts", &of).is_some());
    let from_s = bench.gpus.second();
    let fails = |code| {
        Failure::At(vec![FailureTime {
            from_s,
            to_s: None,
            code,
        }])
    };
    let errors = &mut bench.gpus.script.gpus[0].errors;
    errors.insert("nvmlDeviceGetTemperature".to_owned(), fails(Code::Unknown));
    errors.insert(
        "nvmlDeviceGetEnforcedPowerLimit".to_owned(),
        fails(Code::NotSupported),
    );
    bench.gpus.write().unwrap();
    bench.wait("fault", |now| {
        value(now, "infertap_gpu_errors_total", &[("error", "unknown")]).is_some_and(|count| count >= 3.0)
    });
    let now = bench.settle();
    assert_eq!(value(&now, "gpu_temperature_celsius", &of), None);
    assert_eq!(value(&now, "gpu_power_limit_watts", &of), None);
    assert!(value(&now, "gpu_power_watts", &of).is_some());
    assert_eq!(bench.logged("temperature_celsius").len(), 1, "{}", bench.log());
    let api = bench.api();
    assert_eq!(
        api["gpus"][0]["failing"],
        serde_json::json!({"temperature_celsius": "unknown"})
    );
    let missing = api["gpus"][0]["not_supported"].as_array().unwrap();
    assert!(missing.contains(&"power_limit_watts".into()), "{missing:?}");
    assert_eq!(value(&now, "infertap_probe_up", &[("probe", "nvml")]), Some(1.0));
    assert!(bench.agent.stop());
}
