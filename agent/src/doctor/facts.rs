//! What is the case on this host, without judgement.
//!
//! Owns: reading procfs and sysfs (under injectable roots). Refuses: judging (`judge`), and the trying out of system
//! calls (`live`).

use super::{StoreFacts, live};
use crate::config::Config;
use crate::discover::host::{inode_of, read_bounded, text};
use crate::discover::{Scanner, ScannerConfig};
use crate::sampler::memory::MemorySampler;
use crate::sampler::psi;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Kernel release, as `uname -r` prints it.
    pub release: String,
    /// Processor architecture.
    pub arch: String,
    /// Effective capabilities, one bit each.
    pub capabilities: Option<u64>,
    /// Inode of our PID namespace.
    pub pid_namespace: Option<u64>,
    /// Whether a map and a program could be made.
    pub bpf: Result<(), BpfFailure>,
    /// The kernel describes its types.
    pub btf: bool,
    /// Where trace events are.
    pub tracefs: Tracefs,
    /// The kernel has uprobes as perf events.
    pub uprobe_pmu: bool,
    /// Memory that may be locked, bytes; `u64::MAX` is no limit.
    pub memlock: Option<u64>,
    /// `kernel.perf_event_paranoid`.
    pub perf_paranoid: Option<i64>,
    /// Lockdown mode.
    pub lockdown: Option<String>,
    /// The GPU's management library.
    pub gpu: Nvml,
    /// CUDA's libraries in the engines that run now; `None` with `gpu.cuda = false`.
    pub cuda: Option<Vec<CudaFacts>>,
    /// Where control groups were found, or why not.
    pub cgroups: Result<String, String>,
    /// Engines that run now and whose control group tells nothing of memory.
    pub without_cgroup: Vec<String>,
    /// The kernel tells of stalls for want of memory.
    pub stalls: bool,
    /// Whether the HTTP server could listen.
    pub listen: Result<String, String>,
    /// Destinations of records: where they are reached, or why not.
    pub destinations: Vec<(&'static str, Result<String, String>)>,
    /// The Kubernetes API server; `None` where nobody wants to know pods.
    pub kubernetes: Option<super::KubernetesFacts>,
    /// The store; `None` where nothing is to be kept.
    pub store: Option<StoreFacts>,
    /// Engines that run now.
    pub engines: Vec<String>,
    /// What discovery could not do.
    pub discovery_problems: Vec<String>,
}

/// What could not be done with BPF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfFailure {
    /// What was tried.
    pub step: &'static str,
    /// Positive `errno`.
    pub errno: i32,
}

/// Where trace events are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tracefs {
    /// System call tracepoints are there.
    Ready(PathBuf),
    /// Not mounted, but it could be mounted, with the tracepoints.
    Mountable,
    /// There, without system call tracepoints (`CONFIG_FTRACE_SYSCALLS` is off).
    NoSyscalls,
    /// It can neither be read nor mounted.
    Refused(String),
}

/// What NVML says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nvml {
    /// `gpu.nvml = "off"`.
    Off,
    /// The host has none.
    Absent(String),
    /// It does not work.
    Failed(String),
    /// It works.
    There(GpuFacts),
}

/// A host's GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFacts {
    /// Driver version.
    pub driver: String,
    /// Version of NVML.
    pub nvml: String,
    /// The GPUs, by index.
    pub devices: Vec<GpuDevice>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuDevice {
    /// Its name, or why it can't be read.
    pub name: Result<String, String>,
    /// It is split into MIG instances.
    pub mig: bool,
    /// It has performance counters that NVML reads (GPM).
    pub counters: bool,
}

/// A CUDA library that processes of an engine have mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaFacts {
    /// The engine.
    pub engine: String,
    /// The file, as the process has it.
    pub library: String,
    /// Functions that are probed, or why they can't be looked up.
    pub functions: Result<usize, String>,
}

impl Facts {
    /// Looks at this host.
    pub fn gather(config: &Config) -> Facts {
        let mut facts = Facts::read(Path::new("/proc"), Path::new("/sys"));
        facts.bpf = live::try_bpf();
        if !matches!(facts.tracefs, Tracefs::Ready(_)) {
            facts.tracefs = live::try_tracefs(&facts.tracefs);
        }
        facts.gpu = live::gpu(&config.gpu);
        facts.store = StoreFacts::gather(config);
        facts.kubernetes = super::KubernetesFacts::gather(config);
        facts.listen = live::try_listen(config.server.listen);
        facts.destinations = crate::ship::links(config)
            .into_iter()
            .map(|(name, link)| (name, crate::ship::reach(&link)))
            .chain(crate::ship::writable(&config.json_lines).map(|found| ("json_lines", found)))
            .collect();
        let scanner = ScannerConfig::new(config.discover.clone());
        let proc = scanner.root.clone();
        let scan = Scanner::new(scanner).scan();
        facts.engines = scan
            .engines
            .iter()
            .map(|engine| engine.info.id.to_string())
            .collect();
        facts.discovery_problems = scan.problems.iter().map(ToString::to_string).collect();
        let pids = || {
            scan.engines
                .iter()
                .map(|engine| (&engine.info.id, &engine.info.pids))
        };
        facts.cuda = config.gpu.cuda.then(|| {
            pids()
                .flat_map(|(id, pids)| live::cuda(&proc, id, pids))
                .collect()
        });
        let mut memory = MemorySampler::new(proc.clone(), std::process::id());
        facts.cgroups = memory.found();
        facts.without_cgroup = pids()
            .filter(|(id, pids)| memory.read(id, pids).cgroups.is_empty())
            .map(|(id, _)| id.to_string())
            .collect();
        facts
    }

    /// What files tell. What has to be tried out is left as if it worked.
    pub fn read(proc: &Path, sys: &Path) -> Facts {
        let small = |path: PathBuf| {
            read_bounded(&path, 64 * 1024)
                .ok()
                .map(|bytes| text(&bytes).trim().to_owned())
        };
        Facts {
            release: small(proc.join("sys/kernel/osrelease")).unwrap_or_default(),
            arch: std::env::consts::ARCH.to_owned(),
            capabilities: small(proc.join("self/status")).and_then(|status| effective_capabilities(&status)),
            pid_namespace: std::fs::read_link(proc.join("self/ns/pid"))
                .ok()
                .and_then(|link| inode_of(link.as_os_str().as_bytes(), b"pid")),
            bpf: Ok(()),
            btf: sys.join("kernel/btf/vmlinux").exists(),
            tracefs: tracefs(sys),
            uprobe_pmu: sys.join("bus/event_source/devices/uprobe/type").exists(),
            memlock: small(proc.join("self/limits")).and_then(|limits| memlock(&limits)),
            perf_paranoid: small(proc.join("sys/kernel/perf_event_paranoid"))
                .and_then(|text| text.parse().ok()),
            lockdown: small(sys.join("kernel/security/lockdown")).and_then(|text| chosen(&text)),
            gpu: Nvml::Off,
            cuda: None,
            cgroups: Ok(String::new()),
            store: None,
            without_cgroup: Vec::new(),
            stalls: psi::read(&proc.join("pressure/memory")).is_some(),
            listen: Ok(String::new()),
            destinations: Vec::new(),
            kubernetes: None,
            engines: Vec::new(),
            discovery_problems: Vec::new(),
        }
    }
}

/// The events of a tracefs that is mounted at one of its two places.
fn tracefs(sys: &Path) -> Tracefs {
    let mut answer = Tracefs::Refused("it is not mounted".to_owned());
    for place in ["kernel/tracing", "kernel/debug/tracing"] {
        let events = sys.join(place).join("events");
        match std::fs::read(events.join("syscalls/sys_enter_read/id")) {
            Ok(_) => return Tracefs::Ready(sys.join(place)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                answer = Tracefs::Refused(format!("{} can't be read: {error}", events.display()));
            }
            Err(_) if events.is_dir() => answer = Tracefs::NoSyscalls,
            Err(_) => {}
        }
    }
    answer
}

/// `CapEff` of `/proc/self/status`.
fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The soft limit of `/proc/self/limits`' locked memory.
fn memlock(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        bytes => bytes.parse().ok(),
    }
}

/// The word in brackets of `none [integrity] confidentiality`.
fn chosen(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            effective_capabilities("Name:\tx\nCapPrm:\tffff\nCapEff:\t000001fffeffffff\n"),
            Some(0x1ff_feff_ffff)
        );
        assert_eq!(effective_capabilities("CapEff:\tzz\n"), None);
        let limits = |value| {
            format!(
                "Limit Soft Hard Units\nMax locked memory         {value}              8388608              bytes\n"
            )
        };
        assert_eq!(memlock(&limits("65536")), Some(65_536));
        assert_eq!(memlock(&limits("unlimited")), Some(u64::MAX));
        assert_eq!(memlock(""), None);
        assert_eq!(
            chosen("none [integrity] confidentiality").as_deref(),
            Some("integrity")
        );
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn a_host_made_of_files() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (proc, sys) = (dir.path().join("proc"), dir.path().join("sys"));
        let write = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
            std::fs::write(path, text).expect("write");
        };
        let bare = Facts::read(&proc, &sys);
        assert_eq!(
            (bare.release.as_str(), bare.capabilities, bare.btf),
            ("", None, false)
        );
        assert_eq!(bare.tracefs, Tracefs::Refused("it is not mounted".to_owned()));

        write(proc.join("sys/kernel/osrelease"), "6.1.0-18-cloud-amd64\n");
        write(proc.join("sys/kernel/perf_event_paranoid"), "-1\n");
        std::fs::create_dir_all(proc.join("self/ns")).expect("mkdir");
        std::os::unix::fs::symlink("pid:[4026531836]", proc.join("self/ns/pid")).expect("link");
        write(sys.join("kernel/btf/vmlinux"), "");
        std::fs::create_dir_all(sys.join("kernel/tracing/events")).expect("mkdir");
        let facts = Facts::read(&proc, &sys);
        assert_eq!(
            (facts.release.as_str(), facts.perf_paranoid),
            ("6.1.0-18-cloud-amd64", Some(-1))
        );
        assert_eq!((facts.pid_namespace, facts.btf), (Some(4_026_531_836), true));
        assert_eq!(facts.tracefs, Tracefs::NoSyscalls);
        write(
            sys.join("kernel/debug/tracing/events/syscalls/sys_enter_read/id"),
            "700\n",
        );
        assert_eq!(
            Facts::read(&proc, &sys).tracefs,
            Tracefs::Ready(sys.join("kernel/debug/tracing"))
        );
    }
}
