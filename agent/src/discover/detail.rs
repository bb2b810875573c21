//! What is told about an engine beside its processes and ports: version, model, container, and what stands in the way.
//!
//! Owns: reading these from the server's files, as the server sees them (`/proc/PID/root`). Refuses: executing anything,
//! and believing names that are no version.

use super::container;
use super::host::{Host, Mapped};
use super::model;
use infertap_core::EngineKind;
use std::path::{Path, PathBuf};

/// Entries of a site-packages directory that are looked at.
const MAX_ENTRIES: usize = 20_000;
/// Longest version that is believed.
const VERSION_LIMIT: usize = 64;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) version: Option<String>,
    pub(super) model: Option<String>,
    pub(super) container: Option<String>,
    pub(super) pod_uid: Option<String>,
    pub(super) notes: Vec<String>,
}

impl Detail {
    /// Whether another look could tell more.
    pub(super) fn is_complete(&self, kind: EngineKind) -> bool {
        self.model.is_some() && (self.version.is_some() || distributions(kind).is_empty())
    }
}

/// Looks at the processes of an engine, the root first. `named` is the model that the rule tells.
pub(super) fn detail(host: &Host, kind: EngineKind, pids: &[u32], named: Option<&str>) -> Detail {
    let mut detail = Detail {
        model: named.map(str::to_owned),
        ..Detail::default()
    };
    let Some(&root) = pids.first() else { return detail };
    let cgroup = container::parse(&host.cgroup(root).unwrap_or_default());
    (detail.container, detail.pod_uid) = (cgroup.id, cgroup.pod_uid);
    let mut tls = false;
    for &pid in pids.iter().take(4) {
        let argv = host.cmdline(pid).unwrap_or_default();
        tls |= model::asks_for_tls(&argv);
        if detail.model.is_none() {
            detail.model = model::model_name(kind, &argv, &|name| host.env(pid, name));
        }
        // The list of mappings costs the kernel most of all that is read here.
        let wants_model = detail.model.is_none() && kind == EngineKind::LlamaCpp;
        let wants_version = detail.version.is_none() && !distributions(kind).is_empty();
        if !wants_model && !wants_version {
            continue;
        }
        let mapped = match host.mapped(pid) {
            Ok(mapped) => mapped,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && pid == root => {
                detail.notes.push(
                    "its libraries can't be looked at (permission denied): run as root, or with CAP_SYS_PTRACE"
                        .to_owned(),
                );
                Mapped::default()
            }
            Err(_) => Mapped::default(),
        };
        if wants_version {
            detail.version = version(host, pid, kind, &argv, &mapped);
        }
        if wants_model {
            detail.model = mapped.models.first().cloned();
        }
    }
    if tls {
        detail.notes.push(
            "it was started with TLS options: bytes on encrypted connections are not understood".to_owned(),
        );
    }
    detail
}

/// Distributions that carry an engine's version, best first; names as in `NAME-VERSION.dist-info`.
fn distributions(kind: EngineKind) -> &'static [&'static str] {
    match kind {
        EngineKind::Vllm => &["vllm"],
        EngineKind::Sglang => &["sglang"],
        EngineKind::LlamaCpp => &["xllamacpp", "llama_cpp_python"],
        EngineKind::Tgi => &["text_generation_server"],
        EngineKind::TensorrtLlm => &["tensorrt_llm"],
        EngineKind::Gateway => &["litellm", "sglang_router", "vllm_router"],
        EngineKind::Ollama | EngineKind::Generic => &[],
    }
}

fn version(host: &Host, pid: u32, kind: EngineKind, argv: &[String], mapped: &Mapped) -> Option<String> {
    let names = distributions(kind);
    if names.is_empty() {
        return None;
    }
    let root = host.path(pid, "root");
    package_dirs(&root, argv, mapped).iter().find_map(|dir| {
        let found: Vec<(usize, String)> = std::fs::read_dir(dir)
            .ok()?
            .take(MAX_ENTRIES)
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                let (distribution, version) = name.strip_suffix(".dist-info")?.split_once('-')?;
                let rank = names
                    .iter()
                    .position(|known| distribution.replace('.', "_").eq_ignore_ascii_case(known))?;
                is_version(version).then(|| (rank, version.to_owned()))
            })
            .collect();
        found.into_iter().min().map(|(_, version)| version)
    })
}

fn is_version(text: &str) -> bool {
    text.len() <= VERSION_LIMIT
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-' | b'_' | b'!'))
}

/// The package directories of a Python process: those that its libraries come from, then those of its environment.
fn package_dirs(root: &Path, argv: &[String], mapped: &Mapped) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        // Under `root`, never beside it.
        if !path
            .components()
            .any(|part| part == std::path::Component::ParentDir)
            && !dirs.contains(&path)
            && dirs.len() < 16
        {
            dirs.push(path);
        }
    };
    for path in &mapped.libraries {
        for name in ["/site-packages/", "/dist-packages/"] {
            if let Some(at) = path.find(name) {
                add(join(root, &path[..at + name.len()]));
            }
        }
    }
    for program in argv.iter().take(2) {
        let Some(prefix) = Path::new(program)
            .parent()
            .filter(|bin| bin.ends_with("bin"))
            .and_then(Path::parent)
        else {
            continue;
        };
        let lib = join(root, &prefix.join("lib").to_string_lossy());
        for entry in std::fs::read_dir(lib)
            .into_iter()
            .flatten()
            .take(MAX_ENTRIES)
            .flatten()
        {
            if entry.file_name().to_string_lossy().starts_with("python3") {
                add(entry.path().join("site-packages"));
                add(entry.path().join("dist-packages"));
            }
        }
    }
    dirs
}

fn join(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
