//! What follows from the facts for GPUs, CUDA calls and the memory of engines.
//!
//! Owns: the judgement, as a pure function. Refuses: finding facts, and failing: `infertap run` works without all of it.

use super::facts::{CudaFacts, Facts, GpuFacts, Nvml};
use super::judge::{SYS_ADMIN, check, has, works};
use super::{Check, Verdict, plural};

/// The checks, in order. Without GPUs there is nothing to say of their counters.
pub(super) fn judge(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![gpu(facts)];
    if let Nvml::There(gpus) = &facts.gpu
        && !gpus.devices.is_empty()
    {
        checks.push(counters(gpus));
        checks.extend(mig(gpus));
    }
    checks.extend([cuda(facts), cgroups(facts), stalls(facts)]);
    checks
}

fn gpu(facts: &Facts) -> Check {
    let name = "gpu";
    let degraded = |why: String, advice| check(name, Verdict::Degraded, why, Some(advice));
    let gpus = match &facts.gpu {
        Nvml::Off => return works(name, "not read: gpu.nvml is \"off\""),
        Nvml::Absent(why) => {
            return degraded(
                format!("{why}; there will be no GPU metrics"),
                "where there is an NVIDIA GPU, install its driver; in a container, use the NVIDIA container toolkit (NVIDIA_DRIVER_CAPABILITIES=utility), \
                 or mount the driver's libnvidia-ml.so.1 and name it in gpu.nvml_library; where there is none, gpu.nvml = \"off\" says so",
            );
        }
        Nvml::Failed(why) => {
            return degraded(
                format!("{why}; there will be no GPU metrics"),
                "try nvidia-smi: where it fails too, load or reinstall the driver; where it works, allow the agent the devices /dev/nvidia*, \
                 and let gpu.nvml_library name the library of the driver that is loaded",
            );
        }
        Nvml::There(gpus) => gpus,
    };
    let unread: Vec<String> = gpus
        .devices
        .iter()
        .enumerate()
        .filter_map(|(index, device)| Some(format!("GPU {index}: {}", device.name.as_ref().err()?)))
        .collect();
    let versions = format!("driver {}, NVML {}", gpus.driver, gpus.nvml);
    if !unread.is_empty() {
        return degraded(
            format!("{versions}; {}", unread.join("; ")),
            "the kernel's log (dmesg, XID) tells more; reset the GPU (nvidia-smi --gpu-reset) or reboot",
        );
    }
    if gpus.devices.is_empty() {
        return degraded(
            format!("{versions}, and no GPU"),
            "in a container, set NVIDIA_VISIBLE_DEVICES=all; on a host, look whether nvidia-smi shows any",
        );
    }
    let count = gpus.devices.len();
    works(
        name,
        format!(
            "{count} NVIDIA GPU{} ({}), {versions}",
            plural(count),
            names(gpus)
        ),
    )
}

/// Each name once, with how many bear it.
fn names(gpus: &GpuFacts) -> String {
    let mut names: Vec<(&str, usize)> = Vec::new();
    for device in &gpus.devices {
        let name = device.name.as_deref().unwrap_or("unknown");
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    let with_count = |(name, count): &(&str, usize)| {
        if *count == 1 {
            (*name).to_owned()
        } else {
            format!("{count} × {name}")
        }
    };
    names.iter().map(with_count).collect::<Vec<_>>().join(", ")
}

fn which(gpus: &GpuFacts, is: impl Fn(&super::GpuDevice) -> bool) -> Vec<String> {
    let those = gpus.devices.iter().enumerate().filter(|(_, device)| is(device));
    those.map(|(index, _)| index.to_string()).collect()
}

fn counters(gpus: &GpuFacts) -> Check {
    let with = which(gpus, |device| device.counters);
    works(
        "gpu counters",
        match with.len() {
            0 => "none that NVML reads (GPM, from Hopper on): utilisation is told, how much of a GPU is active is not".to_owned(),
            all if all == gpus.devices.len() => "multiprocessors, tensor cores and memory bandwidth are told (GPM)".to_owned(),
            _ => format!("of GPU {} alone (GPM)", with.join(", ")),
        },
    )
}

fn mig(gpus: &GpuFacts) -> Option<Check> {
    let with = which(gpus, |device| device.mig);
    (!with.is_empty()).then(|| {
        works(
            "mig",
            format!(
                "GPU {} is split into instances: memory and processes are told of each, power and utilisation of the whole",
                with.join(", ")
            ),
        )
    })
}

fn cuda(facts: &Facts) -> Check {
    let name = "cuda calls";
    let Some(libraries) = &facts.cuda else {
        return works(name, "not counted: gpu.cuda is false");
    };
    let degraded = |why: String, advice: &str| check(name, Verdict::Degraded, why, Some(advice));
    if facts.arch != "x86_64" {
        return works(name, format!("not counted on {}", facts.arch));
    }
    if !facts.uprobe_pmu {
        return degraded(
            "the kernel has no uprobe perf events".to_owned(),
            "boot a kernel with CONFIG_UPROBE_EVENTS; or set gpu.cuda = false",
        );
    }
    if facts.capabilities.is_some() && !has(facts, SYS_ADMIN) {
        return degraded(
            "CAP_SYS_ADMIN is missing: the kernel lets nobody else probe functions of libraries, those of engines and tokenizers included"
                .to_owned(),
            "run as root, or add CAP_SYS_ADMIN (deploy/README.md); or set gpu.cuda = false",
        );
    }
    let without = |library: &&CudaFacts| library.functions.as_ref().map_or(true, |count| *count == 0);
    if let Some(first) = libraries.iter().find(without) {
        let why = first
            .functions
            .as_ref()
            .err()
            .map_or("it has none of the functions that are probed", String::as_str);
        return degraded(
            format!("{} of {}: {why}", first.library, first.engine),
            "a library without its dynamic symbols can't be probed; where it can't be read, add CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        );
    }
    let each = libraries.iter().map(|library| {
        let functions = library.functions.as_ref().map_or(0, |count| *count);
        format!("{}: {functions} functions of {}", library.engine, library.library)
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() {
        works(
            name,
            "no engine that runs now has CUDA mapped; the libraries are probed as they come",
        )
    } else {
        works(name, each.join(", "))
    }
}

fn cgroups(facts: &Facts) -> Check {
    let name = "control groups";
    match &facts.cgroups {
        Err(why) => check(
            name,
            Verdict::Degraded,
            why.clone(),
            Some(
                "mount the host's /sys/fs/cgroup, read-only is enough; share its process ids (hostPID: true, --pid=host)",
            ),
        ),
        Ok(found) if facts.without_cgroup.is_empty() => works(name, found.clone()),
        Ok(found) => check(
            name,
            Verdict::Degraded,
            format!(
                "{found}; nothing of the memory of {}",
                facts.without_cgroup.join(", ")
            ),
            Some(
                "run the engine in a container, a pod or a systemd unit: the memory of the root group is no engine's. With version 2, the memory \
                 controller must be on (cgroup.subtree_control)",
            ),
        ),
    }
}

fn stalls(facts: &Facts) -> Check {
    if facts.stalls {
        works("memory stalls", "the kernel tells of them (PSI)")
    } else {
        check(
            "memory stalls",
            Verdict::Degraded,
            "the kernel does not tell of them (PSI)",
            Some(
                "boot with psi=1, on a kernel with CONFIG_PSI; the rest of llm_memory_pressure works without",
            ),
        )
    }
}

#[cfg(test)]
#[path = "judge_gpu_tests.rs"]
mod tests;
