//! What fails, goes away, comes back, and happens once.

use super::*;

#[test]
fn what_is_absent_or_scripted_to_fail_fails_as_in_nvml() {
    let mut gpu = Gpu::datacenter(0);
    let failing = |code| Failure::Always(code);
    gpu.errors = [
        ("nvmlDeviceGetPowerUsage".to_owned(), failing(Code::NotSupported)),
        (
            "nvmlDeviceGetMemoryInfo_v2".to_owned(),
            failing(Code::NoPermission),
        ),
        (
            "nvmlDeviceGetTemperature".to_owned(),
            Failure::At(vec![FailureTime {
                from_s: 100.0,
                to_s: Some(200.0),
                code: Code::Unknown,
            }]),
        ),
    ]
    .into();
    let bare = Gpu {
        uuid: "GPU-bare".to_owned(),
        name: "Bare".to_owned(),
        ..Gpu::default()
    };
    let mut bench = bench_without(
        Script {
            gpus: vec![gpu, bare],
            absent: vec!["nvmlDeviceGetUtilizationRates".to_owned()],
            errors: [("nvmlDeviceGetClockInfo".to_owned(), failing(Code::Timeout))].into(),
            ..Script::default()
        },
        &["nvmlDeviceGetProcessUtilization"],
    );
    {
        let device = bench.device(0);
        assert!(matches!(device.power_usage(), Err(NvmlError::NotSupported)));
        assert!(matches!(device.memory_info(), Err(NvmlError::NoPermission)));
        assert!(matches!(
            device.utilization_rates(),
            Err(NvmlError::FunctionNotFound)
        ));
        assert!(matches!(device.clock_info(Clock::SM), Err(NvmlError::Timeout)));
        // Not in this library at all.
        assert!(matches!(
            device.process_utilization_stats(0),
            Err(NvmlError::FailedToLoadSymbol(_))
        ));
        let bare = bench.device(1);
        assert_eq!(bare.name().unwrap(), "Bare");
        assert!(matches!(
            bare.total_energy_consumption(),
            Err(NvmlError::NotSupported)
        ));
        assert!(matches!(
            bare.running_compute_processes(),
            Err(NvmlError::NotSupported)
        ));
        assert!(matches!(bare.mig_mode(), Err(NvmlError::NotSupported)));
        assert!(matches!(
            bare.samples(Sampling::GpuUtilization, 0),
            Err(NvmlError::NotSupported)
        ));
        assert!(!bare.gpm_support().unwrap());
    }
    for (second, fails) in [(10.0, false), (150.0, true), (1000.0, false)] {
        bench.at(second);
        let told = bench.device(0).temperature(TemperatureSensor::Gpu);
        assert_eq!(
            matches!(told, Err(NvmlError::Unknown)),
            fails,
            "{second} s: {told:?}"
        );
    }
}

#[test]
fn no_script_is_no_driver() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let drivers = Drivers::install(folder.path()).unwrap();
    // SAFETY: as in `bench_without`.
    unsafe { std::env::remove_var(SCRIPT_VARIABLE) };
    let library = drivers.library(infertap_tests::gpu::NVML);
    let told = Nvml::builder().lib_path(library.as_os_str()).init();
    assert!(matches!(told, Err(NvmlError::DriverNotLoaded)));
    assert!(Drivers::install_without(folder.path(), &["nvmlDeviceGetNothing"]).is_err());
}

#[test]
fn gpus_go_and_come_back() {
    let mut gpus = vec![Gpu::datacenter(0), Gpu::datacenter(1)];
    let away = |how, from_s, until_init| Away {
        from_s,
        to_s: Some(from_s + 100.0),
        how,
        until_init,
    };
    gpus[0].away = vec![away(How::Removed, 100.0, false), away(How::Lost, 300.0, true)];
    let mut bench = bench(Script {
        gpus,
        ..Script::default()
    });
    let (first, second) = (bench.device(0).uuid().unwrap(), bench.device(1).uuid().unwrap());
    // What is initialised stays so while the script's clock is set, so it looks initialised ever later.
    bench.at(150.0);
    assert_eq!(bench.nvml.device_count().unwrap(), 1);
    assert_eq!(bench.device(0).uuid().unwrap(), second);
    assert!(matches!(
        bench.nvml.device_by_uuid(first.as_str()),
        Err(NvmlError::NotFound)
    ));
    assert!(matches!(
        bench.nvml.device_by_index(1),
        Err(NvmlError::InvalidArg)
    ));
    bench.at(250.0);
    assert_eq!(bench.device(0).uuid().unwrap(), first);
    assert_eq!(bench.device(1).index().unwrap(), 1);
    bench.at(350.0);
    assert_eq!(bench.nvml.device_count().unwrap(), 2);
    assert!(matches!(bench.nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    assert!(bench.device(1).power_usage().is_ok());
    // Back at second 400, for those who initialise after that.
    bench.at(399.0);
    let again = |bench: &Bench| {
        let library = bench.gpus.nvml();
        Nvml::builder().lib_path(library.as_os_str()).init().unwrap()
    };
    assert!(matches!(bench.nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    let Bench { gpus, nvml, kept } = bench;
    nvml.shutdown().unwrap();
    let mut bench = Bench {
        nvml: Nvml::builder().lib_path(gpus.nvml().as_os_str()).init().unwrap(),
        gpus,
        kept,
    };
    let initialised = monotonic_ns();
    // Second 450 now, initialised at second 450: there.
    bench.gpus.script.start_ns = initialised - 450_000_000_000;
    bench.gpus.write().unwrap();
    assert!(bench.device(0).power_usage().is_ok());
    // A second initialisation counts references: it is no new beginning. Second 450 now, initialised at 350: lost.
    bench.gpus.script.start_ns = initialised - 350_000_000_000;
    bench.gpus.script.gpus[0].away = vec![away(How::Lost, 250.0, true)];
    bench.gpus.script.gpus[0].away[0].to_s = Some(350.001);
    bench.gpus.write().unwrap();
    std::thread::sleep(Duration::from_millis(2));
    let _second = again(&bench);
    assert!(matches!(bench.nvml.device_by_index(0), Err(NvmlError::GpuLost)));
}

#[test]
fn each_event_is_told_once_to_each_set_that_waited_for_it() {
    let mut gpu = Gpu::datacenter(0);
    gpu.events = vec![Event::xid(1.0, 31)];
    let mut bench = bench(Script {
        gpus: vec![gpu, Gpu::datacenter(1)],
        ..Script::default()
    });
    bench.at(500.0);
    let all = EventTypes::CRITICAL_XID_ERROR;
    let sets = [(); 2].map(|()| {
        let set = bench.nvml.create_event_set().unwrap();
        let set = bench.device(0).register_events(all, set);
        set.map_err(|error| error.error).unwrap()
    });
    assert!(
        matches!(sets[0].wait(5), Err(NvmlError::Timeout)),
        "what was before is not told"
    );
    let now = bench.gpus.second();
    let mut script = bench.gpus.script.clone();
    script.gpus[0].events.extend([
        Event::xid(now, 79),
        Event::xid(now, 48),
        Event::xid(now + 0.001, 94),
    ]);
    script.gpus[1].events.push(Event::xid(now, 13));
    script.write(bench.gpus.path()).unwrap();
    for set in &sets {
        let told: Vec<u64> = (0..3)
            .map(|_| match set.wait(10_000).unwrap().event_data.unwrap() {
                XidError::Value(number) => number,
                XidError::Unknown => panic!("an XID without a number"),
            })
            .collect();
        assert_eq!(told, [79, 48, 94]);
        assert!(matches!(set.wait(5), Err(NvmlError::Timeout)), "once");
    }
    script.gpus[0].away = vec![Away {
        from_s: 0.0,
        to_s: None,
        how: How::Lost,
        until_init: false,
    }];
    script.write(bench.gpus.path()).unwrap();
    assert!(matches!(sets[0].wait(10_000), Err(NvmlError::GpuLost)));
}
