//! Tests of `judge`: a sound host, and hosts that lack one thing each.

use super::*;
use crate::doctor::{BpfFailure, CudaFacts, Diagnosis, GpuDevice, GpuFacts, Nvml};
use expect_test::expect;
use std::path::PathBuf;

pub(in crate::doctor) fn sound() -> Facts {
    Facts {
        release: "6.1.0-18-cloud-amd64".to_owned(),
        arch: "x86_64".to_owned(),
        capabilities: Some(0x1ff_ffff_ffff),
        pid_namespace: Some(INIT_PID_NAMESPACE),
        bpf: Ok(()),
        btf: true,
        tracefs: Tracefs::Ready(PathBuf::from("/sys/kernel/tracing")),
        uprobe_pmu: true,
        memlock: Some(65_536),
        perf_paranoid: Some(3),
        lockdown: Some("none".to_owned()),
        gpu: Nvml::There(GpuFacts {
            driver: "580.65".to_owned(),
            nvml: "13.580.65".to_owned(),
            devices: vec![
                GpuDevice {
                    name: Ok("NVIDIA H100".to_owned()),
                    mig: false,
                    counters: true,
                };
                2
            ],
        }),
        cuda: Some(vec![CudaFacts {
            engine: "vllm-8000".to_owned(),
            library: "/usr/lib/libcuda.so.1".to_owned(),
            functions: Ok(84),
        }]),
        cgroups: Ok("version 2 at /sys/fs/cgroup".to_owned()),
        without_cgroup: Vec::new(),
        stalls: true,
        listen: Ok("127.0.0.1:9464".to_owned()),
        kubernetes: None,
        destinations: vec![("otlp", Ok("collector port 4318 can be connected to".to_owned()))],
        store: None,
        engines: vec!["vllm-8000".to_owned()],
        discovery_problems: Vec::new(),
    }
}

/// Verdict of each check that does not work, with and without tracepoints.
fn verdicts(change: impl Fn(&mut Facts)) -> String {
    let mut facts = sound();
    change(&mut facts);
    let of = |mode| {
        let diagnosis = Diagnosis::of(&facts, mode);
        let bad: Vec<String> = diagnosis
            .checks
            .iter()
            .filter(|c| c.verdict != Verdict::Works)
            .map(|c| format!("{} {}", c.name, c.verdict.as_str()))
            .collect();
        assert_eq!(diagnosis.able, !bad.iter().any(|line| line.ends_with("fails")));
        for check in &diagnosis.checks {
            assert!(
                check.verdict != Verdict::Fails || check.advice.is_some() || check.name == "architecture",
                "{} tells what to do",
                check.name
            );
        }
        bad.join(", ")
    };
    format!("{} | {}", of(SocketProbe::Tracepoint), of(SocketProbe::Uprobe))
}

#[test]
fn one_thing_is_missing() {
    let without = |bits: &[(u32, &str)]| bits.iter().fold(u64::MAX, |all, (bit, _)| all & !(1 << bit));
    for (expected, change) in [
        (" | ", Box::new(|_: &mut Facts| ()) as Box<dyn Fn(&mut Facts)>),
        (
            "kernel fails | kernel fails",
            Box::new(|f| f.release = "5.4.0-150-generic".to_owned()),
        ),
        (" | ", Box::new(|f| f.release = "5.15.0".to_owned())),
        (
            "kernel degraded | kernel degraded",
            Box::new(|f| f.release = "strange".to_owned()),
        ),
        (
            "architecture fails | architecture fails",
            Box::new(|f| f.arch = "s390x".to_owned()),
        ),
        (
            "privileges fails, cuda calls degraded | privileges fails, cuda calls degraded",
            Box::new(move |f| f.capabilities = Some(without(&[BPF, SYS_ADMIN]))),
        ),
        (
            " | ",
            Box::new(move |f| f.capabilities = Some(without(&[BPF, PERFMON]))),
        ),
        (
            "cuda calls degraded | cuda calls degraded",
            Box::new(move |f| f.capabilities = Some(without(&[SYS_ADMIN]))),
        ),
        (
            "privileges degraded | privileges degraded",
            Box::new(move |f| f.capabilities = Some(without(&[SYS_PTRACE]))),
        ),
        (
            "privileges fails, perf events fails, cuda calls degraded | privileges fails, perf events fails, cuda calls degraded",
            Box::new(|f| f.capabilities = Some(0)),
        ),
        (
            "pid namespace fails | pid namespace fails",
            Box::new(|f| f.pid_namespace = Some(4_026_532_000)),
        ),
        (
            "bpf fails | bpf fails",
            Box::new(|f| {
                f.bpf = Err(BpfFailure {
                    step: "x",
                    errno: libc::EPERM,
                });
            }),
        ),
        (
            "memlock degraded | memlock degraded",
            Box::new(move |f| {
                f.release = "5.10.0".to_owned();
                f.capabilities = Some(without(&[SYS_RESOURCE]));
            }),
        ),
        (" | ", Box::new(|f| f.release = "5.10.0".to_owned())),
        (
            "lockdown degraded | lockdown degraded",
            Box::new(|f| f.lockdown = Some("confidentiality".to_owned())),
        ),
        (" | ", Box::new(|f| f.tracefs = Tracefs::Mountable)),
        ("tracefs fails | ", Box::new(|f| f.tracefs = Tracefs::NoSyscalls)),
        (
            "tracefs fails | ",
            Box::new(|f| f.tracefs = Tracefs::Refused("x".to_owned())),
        ),
        (
            "uprobes degraded, cuda calls degraded | uprobes fails, cuda calls degraded",
            Box::new(|f| f.uprobe_pmu = false),
        ),
        (" | ", Box::new(|f| f.btf = false)),
        (
            "http degraded | http degraded",
            Box::new(|f| f.listen = Err("in use".to_owned())),
        ),
        (
            "gpu degraded | gpu degraded",
            Box::new(|f| f.gpu = Nvml::Absent("no library".to_owned())),
        ),
        (
            "otlp degraded | otlp degraded",
            Box::new(|f| f.destinations = vec![("otlp", Err("nobody listens".to_owned()))]),
        ),
        (" | ", Box::new(|f| f.engines.clear())),
        (
            "engines degraded | engines degraded",
            Box::new(|f| f.discovery_problems.push("x".to_owned())),
        ),
    ] {
        assert_eq!(verdicts(&*change), expected);
    }
}

#[test]
fn the_answer_is_for_people_and_for_programs() {
    let mut facts = sound();
    facts.pid_namespace = Some(1);
    facts.gpu = Nvml::Absent("a libloading error occurred".to_owned());
    let diagnosis = Diagnosis::of(&facts, SocketProbe::Tracepoint);
    let mut text = Vec::new();
    diagnosis.print(&mut text).expect("Vec");
    expect![[r#"
        works     kernel         Linux 6.1.0-18-cloud-amd64 (5.8 or newer is needed)
        works     architecture   x86_64
        works     privileges     CAP_BPF CAP_PERFMON CAP_SYS_ADMIN CAP_SYS_PTRACE CAP_SYS_RESOURCE
        fails     pid namespace  not the host's: the kernel names processes by ids that are not the ones seen here
                                 → run on the host, or share its PID namespace: `hostPID: true` in Kubernetes, `--pid=host` with Docker or Podman
        works     bpf            a ring buffer and a tracing program could be made
        works     memlock        BPF memory is not counted as locked memory since Linux 5.11
        works     lockdown       none
        works     tracefs        system call tracepoints at /sys/kernel/tracing
        works     uprobes        the kernel has them as perf events
        works     perf events    perf_event_paranoid is 3, which does not bind us
        works     btf            the kernel describes its types (not needed by these probes)
        works     http           127.0.0.1:9464 is free
        works     store          off (store.path is empty): no records are kept, and budgets begin anew at each start
        works     engines        vllm-8000
        degraded  gpu            a libloading error occurred; there will be no GPU metrics
                                 → where there is an NVIDIA GPU, install its driver; in a container, use the NVIDIA container toolkit (NVIDIA_DRIVER_CAPABILITIES=utility), or mount the driver's libnvidia-ml.so.1 and name it in gpu.nvml_library; where there is none, gpu.nvml = "off" says so
        works     cuda calls     vllm-8000: 84 functions of /usr/lib/libcuda.so.1
        works     control groups version 2 at /sys/fs/cgroup
        works     memory stalls  the kernel tells of them (PSI)
        works     otlp           collector port 4318 can be connected to

        `infertap run` can't work here: 1 check above fails.
    "#]].assert_eq(&String::from_utf8(text).expect("text"));
    let json = serde_json::to_value(&diagnosis).expect("JSON");
    assert_eq!(json["able"], false);
    assert_eq!(json["checks"][3]["verdict"], "fails");
}

#[test]
fn releases() {
    assert_eq!(version("6.1.0-18-cloud-amd64"), Some((6, 1)));
    assert_eq!(version("5.15.167.4-microsoft-standard-WSL2"), Some((5, 15)));
    assert_eq!(version("7.0"), Some((7, 0)));
    assert_eq!(version("x"), None);
}
