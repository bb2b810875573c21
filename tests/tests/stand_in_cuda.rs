//! The stand-in CUDA libraries under a program that calls them: what it made is what they saw, by either way of calling, and
//! work takes the time that it should.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{
    clock::monotonic_ns,
    gpu::{
        Cuda, CudaFailure, Drivers, RuntimeCalls, WORK_VARIABLE,
        api::Api,
        calls::{Kind, Made},
        program::CudaProgram,
        read_work,
    },
};
use std::{path::Path, process::Command};

const KINDS: [(Kind, &str); 29] = [
    (Kind::Launch, "launch"),
    (Kind::LaunchCooperative, "launch_cooperative"),
    (Kind::LaunchEx, "launch_ex"),
    (Kind::Graph, "graph"),
    (Kind::Alloc, "alloc"),
    (Kind::AllocAsync, "alloc_async"),
    (Kind::AllocFromPool, "alloc_from_pool"),
    (Kind::AllocManaged, "alloc_managed"),
    (Kind::AllocPitch, "alloc_pitch"),
    (Kind::Free, "free"),
    (Kind::FreeAsync, "free_async"),
    (Kind::Map, "map"),
    (Kind::Unmap, "unmap"),
    (Kind::HostToDevice, "host_to_device"),
    (Kind::HostToDeviceAsync, "host_to_device_async"),
    (Kind::DeviceToHost, "device_to_host"),
    (Kind::DeviceToHostAsync, "device_to_host_async"),
    (Kind::DeviceToDevice, "device_to_device"),
    (Kind::DeviceToDeviceAsync, "device_to_device_async"),
    (Kind::Copy, "copy"),
    (Kind::CopyAsync, "copy_async"),
    (Kind::Peer, "peer"),
    (Kind::PeerAsync, "peer_async"),
    (Kind::Copy2d, "copy2d"),
    (Kind::Copy2dAsync, "copy2d_async"),
    (Kind::StreamSynchronize, "stream_synchronize"),
    (Kind::EventSynchronize, "event_synchronize"),
    (Kind::ContextSynchronize, "context_synchronize"),
    (Kind::EventQuery, "event_query"),
];

fn program(folder: &Path, settings: &Cuda, arguments: &[&str]) -> CudaProgram {
    let drivers = Drivers::install(&folder.join("drivers")).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_cuda-program"));
    CudaProgram::start(binary, folder, &drivers, settings, arguments).unwrap()
}

#[test]
fn every_kind_of_call_is_made_by_either_api_and_either_way() {
    let make: Vec<String> = KINDS.iter().map(|(_, name)| format!("--make={name}=3")).collect();
    let make: Vec<&str> = make.iter().map(String::as_str).collect();
    for (by, per_thread) in [
        ("driver", false),
        ("driver", true),
        ("runtime", false),
        ("runtime", true),
        ("mixed", false),
    ] {
        for runtime in [RuntimeCalls::Exported, RuntimeCalls::ProcAddress] {
            let folder = tempfile::tempdir().unwrap();
            let settings = Cuda {
                runtime,
                ..Cuda::default()
            };
            let mut arguments = vec!["--by", by, "--threads", "2", "--streams", "2", "--bytes", "1000"];
            arguments.extend(per_thread.then_some("--per-thread"));
            let mut program = program(folder.path(), &settings, &[&arguments[..], &make].concat());
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.pid())).unwrap();
            assert!(
                maps.contains("/libcuda.so.1\n") && maps.contains("/libcudart.so.12\n"),
                "{maps}"
            );
            let report = program.run().unwrap();
            let what = format!("{by} {per_thread} {runtime:?}: {report:?}");
            for (kind, _) in KINDS {
                let bytes = match kind {
                    // Rows are as wide as 512 allows.
                    Kind::AllocPitch => 6 * 2048,
                    Kind::Copy2d | Kind::Copy2dAsync => 18_000,
                    Kind::Alloc
                    | Kind::AllocAsync
                    | Kind::AllocFromPool
                    | Kind::AllocManaged
                    | Kind::Map
                    | Kind::HostToDevice
                    | Kind::HostToDeviceAsync
                    | Kind::DeviceToHost
                    | Kind::DeviceToHostAsync
                    | Kind::DeviceToDevice
                    | Kind::DeviceToDeviceAsync
                    | Kind::Copy
                    | Kind::CopyAsync
                    | Kind::Peer
                    | Kind::PeerAsync => 6_000,
                    _ => 0,
                };
                assert_eq!(
                    report.made[&kind],
                    Made {
                        calls: 6,
                        bytes,
                        failures: 0
                    },
                    "{kind:?}: {what}"
                );
            }
            // The runtime's own way in: by symbols, or by pointers, which tests of probes rely on.
            let [exported, by_thread, internal] = report.entered;
            assert!(exported > 0, "{what}");
            assert_eq!(
                internal > 0,
                by != "driver" && runtime == RuntimeCalls::ProcAddress,
                "{what}"
            );
            assert_eq!(by_thread > 0, by == "driver" && per_thread, "{what}");
        }
    }
}

#[test]
fn memory_runs_out_and_calls_fail_as_they_are_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Cuda {
        memory: 10_000,
        failures: [(
            "cuMemcpyHtoD_v2".to_owned(),
            vec![CudaFailure {
                first: 2,
                count: 3,
                code: 700,
            }],
        )]
        .into(),
        ..Cuda::default()
    };
    let arguments = [
        "--bytes=3000",
        "--make=alloc=5",
        "--make=free=1",
        "--make=alloc=1",
        "--make=host_to_device=10",
    ];
    let report = program(folder.path(), &settings, &arguments).run().unwrap();
    assert_eq!(
        report.made[&Kind::Alloc],
        Made {
            calls: 6,
            bytes: 12_000,
            failures: 2
        }
    );
    assert_eq!(report.made[&Kind::Free].failures, 0);
    assert_eq!(
        report.made[&Kind::HostToDevice],
        Made {
            calls: 10,
            bytes: 21_000,
            failures: 3
        }
    );
}

#[test]
fn work_takes_its_time_and_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let drivers = Drivers::install(&folder.path().join("drivers")).unwrap();
    let before = monotonic_ns();
    // Twenty kernels, then three graphs of ten kernels, one millisecond each, and a wait: 50 ms of work on one stream.
    let output = Command::new(env!("CARGO_BIN_EXE_cuda-program"))
        .args([
            "--alone",
            "--kernel-us=1000",
            "--make=launch=20",
            "--make=graph=3",
            "--make=stream_synchronize=1",
        ])
        .arg("--drivers")
        .arg(drivers.folder())
        .env(WORK_VARIABLE, folder.path())
        .output()
        .unwrap();
    let took = monotonic_ns() - before;
    assert!(output.status.success(), "{output:?}");
    assert!(took >= 50_000_000, "{took} ns");
    let work = read_work(&folder.path().join("device-0"), before).unwrap();
    let seconds = work.seconds(0.0, took as f64 / 1e9);
    assert!((seconds - 0.05).abs() < 1e-6, "{seconds} s of work");
}

#[test]
fn two_streams_work_side_by_side_and_events_tell_when() {
    let folder = tempfile::tempdir().unwrap();
    let drivers = Drivers::install(folder.path()).unwrap();
    let api = Api::load(drivers.folder(), false).unwrap();
    let kernel = api.kernel(20_000).unwrap();
    let streams = [api.stream().unwrap(), api.stream().unwrap()];
    let null = std::ptr::null_mut();
    let begin = monotonic_ns();
    for stream in streams {
        let code = (api.driver.cuLaunchKernel)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, null, null);
        assert_eq!(code, 0);
    }
    let mut event = 0;
    (api.driver.cuEventCreate)(&raw mut event, 0);
    (api.driver.cuEventRecord)(event, streams[1]);
    let early = (api.driver.cuEventQuery)(event);
    // The machine may have been busy for all of the 20 ms.
    assert!(early == 600 || monotonic_ns() - begin >= 20_000_000);
    assert_eq!((api.driver.cuStreamSynchronize)(streams[0]), 0);
    assert!(monotonic_ns() - begin >= 20_000_000);
    assert_eq!((api.driver.cuEventSynchronize)(event), 0);
    assert_eq!((api.driver.cuEventQuery)(event), 0);
    assert_eq!((api.driver.cuStreamSynchronize)(12_345), 400, "no such stream");
    assert_eq!(
        (api.driver.cuLaunchKernel)(0, 1, 1, 1, 1, 1, 1, 0, 0, null, null),
        400,
        "no such kernel"
    );
    assert_eq!((api.driver.cuMemFree_v2)(1), 1, "no such allocation");
}
