//! Tests of `judge_gpu`: a sound host, and hosts that lack one thing each.

use super::super::judge::tests::sound;
use super::*;
use crate::doctor::GpuDevice;

fn gpus(change: impl Fn(&mut Vec<GpuDevice>)) -> impl Fn(&mut Facts) {
    move |facts| {
        if let Nvml::There(gpus) = &mut facts.gpu {
            change(&mut gpus.devices);
        }
    }
}

/// The line of a check of a host on which something is changed: verdict and why.
fn line(name: &str, change: impl Fn(&mut Facts)) -> String {
    let mut facts = sound();
    change(&mut facts);
    let checks = judge(&facts);
    for check in &checks {
        assert_ne!(
            check.verdict,
            Verdict::Fails,
            "{name}: `infertap run` works without"
        );
        assert_eq!(
            check.advice.is_some(),
            check.verdict == Verdict::Degraded,
            "{name}: says what to do, where there is something to do"
        );
    }
    checks.iter().find(|check| check.name == name).map_or_else(
        || "nothing".to_owned(),
        |check| format!("{}: {}", check.verdict.as_str(), check.why),
    )
}

#[test]
fn gpus_are_told_by_name_and_by_what_they_have() {
    let none = |facts: &mut Facts| facts.gpu = Nvml::Off;
    assert_eq!(
        line("gpu", |_| ()),
        "works: 2 NVIDIA GPUs (2 × NVIDIA H100), driver 580.65, NVML 13.580.65"
    );
    assert_eq!(
        line("gpu", gpus(|all| all[1].name = Ok("Tesla T4".to_owned()))),
        "works: 2 NVIDIA GPUs (NVIDIA H100, Tesla T4), driver 580.65, NVML 13.580.65"
    );
    assert_eq!(
        line("gpu", gpus(|all| all[1].name = Err("the GPU is lost".to_owned()))),
        "degraded: driver 580.65, NVML 13.580.65; GPU 1: the GPU is lost"
    );
    assert_eq!(
        line("gpu", gpus(Vec::clear)),
        "degraded: driver 580.65, NVML 13.580.65, and no GPU"
    );
    assert_eq!(
        line("gpu", |facts| facts.gpu =
            Nvml::Failed("no permission".to_owned())),
        "degraded: no permission; there will be no GPU metrics"
    );
    assert_eq!(line("gpu", none), "works: not read: gpu.nvml is \"off\"");
    assert_eq!(line("gpu counters", none), "nothing");
    assert_eq!(line("gpu counters", gpus(Vec::clear)), "nothing");
    assert_eq!(
        line("gpu counters", |_| ()),
        "works: multiprocessors, tensor cores and memory bandwidth are told (GPM)"
    );
    assert_eq!(
        line("gpu counters", gpus(|all| all[0].counters = false)),
        "works: of GPU 1 alone (GPM)"
    );
    assert_eq!(line("mig", |_| ()), "nothing");
    assert!(line("mig", gpus(|all| all[1].mig = true)).starts_with("works: GPU 1 is split"));
}

#[test]
fn cuda_calls_need_uprobes_the_right_to_make_them_and_symbols() {
    let library = |functions: Result<usize, String>| {
        move |facts: &mut Facts| {
            if let Some(libraries) = &mut facts.cuda {
                libraries[0].functions = functions.clone();
            }
        }
    };
    assert_eq!(
        line("cuda calls", |_| ()),
        "works: vllm-8000: 84 functions of /usr/lib/libcuda.so.1"
    );
    assert_eq!(
        line("cuda calls", |facts| facts.cuda = None),
        "works: not counted: gpu.cuda is false"
    );
    assert!(line("cuda calls", |facts| facts.cuda = Some(Vec::new())).starts_with("works: no engine"));
    assert!(
        line("cuda calls", |facts| facts.uprobe_pmu = false)
            .starts_with("degraded: the kernel has no uprobe")
    );
    assert!(
        line("cuda calls", |facts| facts.capabilities =
            Some(!(1 << SYS_ADMIN.0)))
        .starts_with("degraded: CAP_SYS_ADMIN is missing")
    );
    assert_eq!(
        line("cuda calls", |facts| facts.arch = "aarch64".to_owned()),
        "works: not counted on aarch64"
    );
    assert_eq!(
        line("cuda calls", library(Ok(0))),
        "degraded: /usr/lib/libcuda.so.1 of vllm-8000: it has none of the functions that are probed"
    );
    assert_eq!(
        line("cuda calls", library(Err("no such file".to_owned()))),
        "degraded: /usr/lib/libcuda.so.1 of vllm-8000: no such file"
    );
}

#[test]
fn memory_of_engines_needs_control_groups_and_stall_information() {
    assert_eq!(
        line("control groups", |_| ()),
        "works: version 2 at /sys/fs/cgroup"
    );
    assert_eq!(
        line("control groups", |facts| facts.without_cgroup =
            vec!["vllm-8000".to_owned()]),
        "degraded: version 2 at /sys/fs/cgroup; nothing of the memory of vllm-8000"
    );
    assert!(
        line("control groups", |facts| facts.cgroups =
            Err("nowhere".to_owned()))
        .starts_with("degraded: nowhere")
    );
    assert_eq!(
        line("memory stalls", |_| ()),
        "works: the kernel tells of them (PSI)"
    );
    assert!(line("memory stalls", |facts| facts.stalls = false).starts_with("degraded"));
}
