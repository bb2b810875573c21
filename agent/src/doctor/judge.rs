//! What follows from the facts: one check each, with its verdict, its reason and what to do.
//!
//! Owns: the judgement, as a pure function. Refuses: finding facts.

use super::facts::{Facts, Tracefs};
use super::{Check, Verdict, judge_gpu, store};
use crate::config::SocketProbe;

/// The first kernel with ring buffers (and `CAP_BPF`).
const MIN_KERNEL: (u32, u32) = (5, 8);
/// The first kernel that does not count BPF memory as locked.
const MEMCG_KERNEL: (u32, u32) = (5, 11);
/// Inode of the initial PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INIT_PID_NAMESPACE: u64 = 0xefff_fffc;
/// Locked memory that the maps take, with room.
const MEMLOCK_NEEDED: u64 = 64 << 20;

/// Capabilities (include/uapi/linux/capability.h).
const SYS_PTRACE: (u32, &str) = (19, "CAP_SYS_PTRACE");
pub(super) const SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
const SYS_RESOURCE: (u32, &str) = (24, "CAP_SYS_RESOURCE");
const PERFMON: (u32, &str) = (38, "CAP_PERFMON");
const BPF: (u32, &str) = (39, "CAP_BPF");

/// Every check, in the order in which a host is brought up.
pub fn judge(facts: &Facts, socket_probe: SocketProbe) -> Vec<Check> {
    [
        kernel(facts),
        architecture(facts),
        privileges(facts),
        pid_namespace(facts),
        bpf(facts),
        memlock(facts),
        lockdown(facts),
        tracefs(facts, socket_probe),
        uprobes(facts, socket_probe),
        perf_paranoid(facts),
        btf(facts),
        listen(facts),
        store::judge(facts.store.as_ref()),
        engines(facts),
    ]
    .into_iter()
    .chain(judge_gpu::judge(facts))
    .chain(super::kubernetes::judge(facts.kubernetes.as_ref()))
    .chain(destinations(facts))
    .collect()
}

pub(super) fn check(
    name: &'static str,
    verdict: Verdict,
    why: impl Into<String>,
    advice: Option<&str>,
) -> Check {
    Check {
        name,
        verdict,
        why: why.into(),
        advice: advice.map(str::to_owned),
    }
}

pub(super) fn works(name: &'static str, why: impl Into<String>) -> Check {
    check(name, Verdict::Works, why, None)
}

/// Major and minor version of a release such as `6.1.0-18-cloud-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn has(facts: &Facts, capability: (u32, &str)) -> bool {
    facts
        .capabilities
        .is_some_and(|bits| bits >> capability.0 & 1 == 1)
}

fn kernel(facts: &Facts) -> Check {
    let release = &facts.release;
    match version(release) {
        Some(version) if version >= MIN_KERNEL => {
            works("kernel", format!("Linux {release} (5.8 or newer is needed)"))
        }
        Some(_) => check(
            "kernel",
            Verdict::Fails,
            format!("Linux {release} is older than 5.8, which brought BPF ring buffers"),
            Some("boot a newer kernel: Debian 11, Ubuntu 20.10, RHEL 9 and their successors have one"),
        ),
        None => check(
            "kernel",
            Verdict::Degraded,
            format!("the release {release:?} can't be understood; 5.8 or newer is needed"),
            None,
        ),
    }
}

fn architecture(facts: &Facts) -> Check {
    match facts.arch.as_str() {
        "x86_64" | "aarch64" => works("architecture", facts.arch.clone()),
        other => check(
            "architecture",
            Verdict::Fails,
            format!("{other} is not supported: x86_64 and aarch64 are"),
            None,
        ),
    }
}

fn privileges(facts: &Facts) -> Check {
    if facts.capabilities.is_none() {
        return check(
            "privileges",
            Verdict::Degraded,
            "the capabilities can't be read from /proc/self/status",
            Some("mount procfs at /proc"),
        );
    }
    let admin = has(facts, SYS_ADMIN);
    let missing: Vec<&str> = [BPF, PERFMON]
        .into_iter()
        .filter(|c| !admin && !has(facts, *c))
        .map(|(_, name)| name)
        .collect();
    if !missing.is_empty() {
        return check(
            "privileges",
            Verdict::Fails,
            format!("{} missing: probes can't be loaded", missing.join(" and ")),
            Some(
                "run as root (sudo infertap …), or with these capabilities; in Kubernetes set securityContext.capabilities.add",
            ),
        );
    }
    if !has(facts, SYS_PTRACE) {
        return check(
            "privileges",
            Verdict::Degraded,
            "CAP_SYS_PTRACE is missing: processes of other users can't be looked into, so engines that show only by their libraries \
             or ports are not found, and connections that are open already are joined late",
            Some("run as root, or add CAP_SYS_PTRACE"),
        );
    }
    let held: Vec<&str> = [BPF, PERFMON, SYS_ADMIN, SYS_PTRACE, SYS_RESOURCE]
        .into_iter()
        .filter(|c| has(facts, *c))
        .map(|(_, name)| name)
        .collect();
    works("privileges", held.join(" "))
}

fn pid_namespace(facts: &Facts) -> Check {
    match facts.pid_namespace {
        Some(INIT_PID_NAMESPACE) => works("pid namespace", "the host's"),
        Some(_) => check(
            "pid namespace",
            Verdict::Fails,
            "not the host's: the kernel names processes by ids that are not the ones seen here",
            Some(
                "run on the host, or share its PID namespace: `hostPID: true` in Kubernetes, `--pid=host` with Docker or Podman",
            ),
        ),
        None => check(
            "pid namespace",
            Verdict::Degraded,
            "it can't be told (/proc/self/ns/pid can't be read)",
            Some("mount procfs at /proc"),
        ),
    }
}

fn bpf(facts: &Facts) -> Check {
    let Err(failure) = &facts.bpf else {
        return works("bpf", "a ring buffer and a tracing program could be made");
    };
    let error = std::io::Error::from_raw_os_error(failure.errno);
    let advice = match failure.errno {
        libc::EPERM | libc::EACCES => {
            "run as root with CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN); in a container, the seccomp profile must allow bpf(2)"
        }
        libc::ENOSYS => "boot a kernel with CONFIG_BPF_SYSCALL; in a sandbox such as gVisor there is no BPF",
        libc::EINVAL => "boot a kernel from 5.8 on with CONFIG_BPF_EVENTS",
        libc::ENOMEM => {
            "raise the limit of locked memory (ulimit -l, LimitMEMLOCK=infinity), or the container's memory limit"
        }
        _ => "see the kernel's log (dmesg)",
    };
    check(
        "bpf",
        Verdict::Fails,
        format!("{}: {error}", failure.step),
        Some(advice),
    )
}

fn memlock(facts: &Facts) -> Check {
    let name = "memlock";
    if version(&facts.release).is_some_and(|version| version >= MEMCG_KERNEL) {
        return works(
            name,
            "BPF memory is not counted as locked memory since Linux 5.11",
        );
    }
    match facts.memlock {
        _ if has(facts, SYS_RESOURCE) => works(name, "the limit can be raised (CAP_SYS_RESOURCE)"),
        Some(u64::MAX) => works(name, "unlimited"),
        Some(bytes) if bytes >= MEMLOCK_NEEDED => works(name, format!("{} MiB", bytes >> 20)),
        Some(bytes) => check(
            name,
            Verdict::Degraded,
            format!(
                "{} KiB may be locked, and the maps may take up to {} MiB",
                bytes >> 10,
                MEMLOCK_NEEDED >> 20
            ),
            Some(
                "raise it (ulimit -l unlimited, LimitMEMLOCK=infinity), add CAP_SYS_RESOURCE, or make capture.ring_bytes smaller",
            ),
        ),
        None => check(
            name,
            Verdict::Degraded,
            "the limit of locked memory can't be read",
            None,
        ),
    }
}

fn lockdown(facts: &Facts) -> Check {
    match facts.lockdown.as_deref() {
        Some("confidentiality") => check(
            "lockdown",
            Verdict::Degraded,
            "confidentiality: the kernel refuses tracefs",
            Some("boot with lockdown=integrity or less"),
        ),
        Some(mode) => works("lockdown", mode),
        None => works(
            "lockdown",
            "none (the kernel has no lockdown, or securityfs is not mounted)",
        ),
    }
}

fn tracefs(facts: &Facts, socket_probe: SocketProbe) -> Check {
    let name = "tracefs";
    let (why, advice) = match &facts.tracefs {
        Tracefs::Ready(place) => {
            return works(name, format!("system call tracepoints at {}", place.display()));
        }
        Tracefs::Mountable => {
            return works(
                name,
                "not mounted, but can be: `infertap run` mounts it in a mount namespace of its own",
            );
        }
        Tracefs::NoSyscalls => (
            "the kernel has no system call tracepoints (CONFIG_FTRACE_SYSCALLS is off)".to_owned(),
            "set capture.socket_probe = \"uprobe\", or boot a kernel that has them",
        ),
        Tracefs::Refused(why) => (
            why.clone(),
            "mount it (mount -t tracefs tracefs /sys/kernel/tracing) and, in a container, share it; or set capture.socket_probe = \"uprobe\"",
        ),
    };
    match socket_probe {
        SocketProbe::Tracepoint => check(name, Verdict::Fails, why, Some(advice)),
        SocketProbe::Uprobe => works(
            name,
            format!("{why}; not needed with capture.socket_probe = \"uprobe\""),
        ),
    }
}

fn uprobes(facts: &Facts, socket_probe: SocketProbe) -> Check {
    if facts.uprobe_pmu {
        return works("uprobes", "the kernel has them as perf events");
    }
    let (verdict, why) = match socket_probe {
        SocketProbe::Uprobe => (
            Verdict::Fails,
            "the kernel has no uprobe perf events, which capture.socket_probe = \"uprobe\" needs",
        ),
        SocketProbe::Tracepoint => (
            Verdict::Degraded,
            "the kernel has no uprobe perf events: library calls can't be probed",
        ),
    };
    check(
        "uprobes",
        verdict,
        why,
        Some("boot a kernel with CONFIG_UPROBE_EVENTS, and mount sysfs at /sys"),
    )
}

fn perf_paranoid(facts: &Facts) -> Check {
    let privileged = has(facts, PERFMON) || has(facts, SYS_ADMIN);
    match facts.perf_paranoid {
        Some(level) if privileged => works(
            "perf events",
            format!("perf_event_paranoid is {level}, which does not bind us"),
        ),
        Some(level) => check(
            "perf events",
            if level > 1 {
                Verdict::Fails
            } else {
                Verdict::Degraded
            },
            format!("perf_event_paranoid is {level}, and CAP_PERFMON is missing"),
            Some("run as root, or add CAP_PERFMON"),
        ),
        None => check(
            "perf events",
            Verdict::Fails,
            "the kernel has no perf events",
            Some("boot a kernel with CONFIG_PERF_EVENTS"),
        ),
    }
}

fn btf(facts: &Facts) -> Check {
    works(
        "btf",
        if facts.btf {
            "the kernel describes its types (not needed by these probes)"
        } else {
            "absent, and not needed: no kernel structure is read"
        },
    )
}

fn listen(facts: &Facts) -> Check {
    match &facts.listen {
        Ok(address) => works("http", format!("{address} is free")),
        Err(why) => check(
            "http",
            Verdict::Degraded,
            why.clone(),
            Some(
                "perhaps an infertap runs already; else choose another address with --listen or server.listen",
            ),
        ),
    }
}

fn destinations(facts: &Facts) -> impl Iterator<Item = Check> {
    facts.destinations.iter().map(|(name, reached)| match reached {
        Ok(how) => works(name, how.clone()),
        Err(why) => check(
            name,
            Verdict::Degraded,
            why.clone(),
            Some("records wait in the agent's queue until it can be reached; see docs/export.md"),
        ),
    })
}

fn engines(facts: &Facts) -> Check {
    let problems = facts.discovery_problems.join("; ");
    match (facts.engines.is_empty(), problems.is_empty()) {
        (false, true) => works("engines", facts.engines.join(", ")),
        (false, false) => check(
            "engines",
            Verdict::Degraded,
            format!("{} ({problems})", facts.engines.join(", ")),
            None,
        ),
        (true, true) => works(
            "engines",
            "none runs now; they are found as they come (`infertap engines` shows them)",
        ),
        (true, false) => check(
            "engines",
            Verdict::Degraded,
            format!("none found: {problems}"),
            None,
        ),
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
pub(super) mod tests;
