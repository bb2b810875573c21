//! What the driver keeps lists of: samples, processes, instances, metrics.

use super::*;

#[test]
fn samples_are_means_of_periods_and_each_is_told_once() {
    let mut gpu = Gpu::datacenter(0);
    gpu.utilization = Some(Utilization {
        // Half of each period of 20 ms up to second 1000, and none of it from there on.
        gpu: Value::steps((0..1000).flat_map(|k| {
            let begin = 980.0 + f64::from(k) * 0.02;
            [(begin, 100.0), (begin + 0.01, 0.0)]
        })),
        memory: 7.0.into(),
    });
    let mut bench = bench(one(gpu));
    bench.at(999.0);
    let device = bench.device(0);
    let first = device.samples(Sampling::GpuUtilization, 0).unwrap();
    assert_eq!(first.len(), 120);
    for pair in first.windows(2) {
        let gap = pair[1].timestamp - pair[0].timestamp;
        assert!((19_999..=20_001).contains(&gap), "{gap} us between samples");
    }
    for sample in &first {
        assert!(matches!(sample.value, SampleValue::U32(50)), "{sample:?}");
    }
    let last = first.last().unwrap().timestamp;
    // Unix time in microseconds, up to now.
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert!(wall.as_micros() as u64 >= last && wall.as_micros() as u64 - last < 60_000_000);
    std::thread::sleep(Duration::from_millis(45));
    let next = device.samples(Sampling::GpuUtilization, last).unwrap();
    assert!(
        next.len() >= 2 && next[0].timestamp.abs_diff(last + 20_000) <= 1,
        "{next:?}"
    );
    let future = next.last().unwrap().timestamp + 60_000_000;
    assert!(matches!(
        device.samples(Sampling::GpuUtilization, future),
        Err(NvmlError::NotFound)
    ));
    let memory = device.samples(Sampling::MemoryUtilization, 0).unwrap();
    assert!(matches!(memory[0].value, SampleValue::U32(7)));
    let power = device.samples(Sampling::Power, 0).unwrap();
    assert!(matches!(power[0].value, SampleValue::U32(70_000)));
}

#[test]
fn processes_come_with_what_the_driver_knows_of_them() {
    let mut gpu = Gpu::datacenter(0);
    gpu.processes = Some(vec![
        Process {
            pid: 11,
            memory: Some((5u64 << 30).into()),
            sm: Some(60.0.into()),
            ..Process::default()
        },
        Process {
            pid: 12,
            memory: None,
            from_s: 100.0,
            to_s: Some(200.0),
            ..Process::default()
        },
        Process {
            pid: 13,
            memory: Some(1.0.into()),
            graphics: true,
            ..Process::default()
        },
    ]);
    let mut bench = bench(one(gpu));
    bench.at(150.0);
    let device = bench.device(0);
    for told in [
        device.running_compute_processes().unwrap(),
        device.running_compute_processes_v2().unwrap(),
    ] {
        let told: Vec<_> = told
            .iter()
            .map(|process| (process.pid, &process.used_gpu_memory))
            .collect();
        assert_eq!(
            told,
            [
                (11, &UsedGpuMemory::Used(5 << 30)),
                (12, &UsedGpuMemory::Unavailable)
            ]
        );
    }
    assert_eq!(device.running_graphics_processes().unwrap()[0].pid, 13);
    let shares = device.process_utilization_stats(0).unwrap();
    assert_eq!(shares.len(), 1);
    assert_eq!((shares[0].pid, shares[0].sm_util), (11, 60));
    let future = shares[0].timestamp + 60_000_000;
    assert!(matches!(
        device.process_utilization_stats(future),
        Err(NvmlError::NotFound)
    ));
    bench.at(250.0);
    assert_eq!(bench.device(0).running_compute_processes_count().unwrap(), 1);
}

#[test]
fn instances_have_handles_memory_and_processes_of_their_own() {
    let mut gpu = Gpu::datacenter(0).with_instances(3);
    let instances = &mut gpu.mig.as_mut().unwrap().instances;
    instances[1] = None;
    instances[2].as_mut().unwrap().memory.as_mut().unwrap().used = 77.0.into();
    instances[2]
        .as_mut()
        .unwrap()
        .gpm
        .as_mut()
        .unwrap()
        .insert("sm_util".to_owned(), 88.0.into());
    gpu.processes = Some(vec![
        Process {
            pid: 21,
            memory: Some(1.0.into()),
            instance: Some(0),
            ..Process::default()
        },
        Process {
            pid: 22,
            memory: Some(2.0.into()),
            instance: Some(2),
            ..Process::default()
        },
    ]);
    let bench = bench(one(gpu));
    let device = bench.device(0);
    assert_eq!(device.mig_mode().unwrap().current, 1);
    assert_eq!(device.mig_device_count().unwrap(), 7);
    assert!(matches!(device.utilization_rates(), Err(NvmlError::NotSupported)));
    assert!(matches!(device.mig_device_by_index(1), Err(NvmlError::NotFound)));
    assert!(matches!(
        device.mig_device_by_index(7),
        Err(NvmlError::InvalidArg)
    ));
    let instance = device.mig_device_by_index(2).unwrap();
    assert!(instance.mig_is_mig_device_handle().unwrap() && !device.mig_is_mig_device_handle().unwrap());
    let uuid = instance.uuid().unwrap();
    assert!(uuid.starts_with("MIG-"), "{uuid}");
    assert_eq!(
        bench
            .nvml
            .device_by_uuid(uuid.as_str())
            .unwrap()
            .memory_info()
            .unwrap()
            .used,
        77
    );
    assert_eq!(
        instance.mig_parent_device().unwrap().uuid().unwrap(),
        device.uuid().unwrap()
    );
    assert_eq!(instance.attributes().unwrap().multiprocessor_count, 16);
    assert!(matches!(instance.power_usage(), Err(NvmlError::NotSupported)));
    let processes = instance.running_compute_processes().unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!((processes[0].pid, processes[0].gpu_instance_id), (22, Some(9)));
    assert_eq!(device.running_compute_processes().unwrap().len(), 2);
    let (one, two) = (
        device.gpm_mig_sample(9).unwrap(),
        device.gpm_mig_sample(9).unwrap(),
    );
    let told = gpm_metrics_get(&bench.nvml, &one, &two, &[GpmMetricId::SmUtil]).unwrap();
    assert!((told[0].as_ref().unwrap().value - 88.0).abs() < 1e-9);
    assert!(device.gpm_mig_sample(1).is_err());
}

#[test]
fn metrics_between_two_samples_are_means() {
    let mut gpu = Gpu::datacenter(0);
    let metrics = gpu.gpm.as_mut().unwrap();
    metrics.insert("sm_util".to_owned(), Value::steps([(0.0, 10.0), (200.0, 30.0)]));
    let mut bench = bench(one(gpu));
    bench.at(100.0);
    let one = bench.nvml.device_by_index(0).unwrap().gpm_sample().unwrap();
    bench.gpus.script.start_ns -= 200_000_000_000;
    bench.gpus.write().unwrap();
    let two = bench.nvml.device_by_index(0).unwrap().gpm_sample().unwrap();
    let ids = [
        GpmMetricId::SmUtil,
        GpmMetricId::DramBwUtil,
        GpmMetricId::Fp64Util,
    ];
    let told = gpm_metrics_get(&bench.nvml, &one, &two, &ids).unwrap();
    let mean = told[0].as_ref().unwrap().value;
    assert!((mean - 20.0).abs() < 0.5, "{mean}");
    assert!((told[1].as_ref().unwrap().value - 1.5).abs() < 1e-9);
    assert!(matches!(told[2], Err(NvmlError::NotSupported)));
}
