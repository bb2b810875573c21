//! A control group with a memory limit, made for a test: of version 2, or of version 1 where the host has its memory
//! controller there, with a group of version 2 beside it for the stalls.
//!
//! Owns: the folders, which go when it is dropped (end the processes in them first). Refuses: mounting.

use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The group.
#[derive(Debug)]
pub struct Group {
    /// Of the memory controller.
    memory: PathBuf,
    /// Of version 2, when that is another one.
    unified: Option<PathBuf>,
    version2: bool,
}

impl Group {
    /// Makes a group of this name, which must be new.
    pub fn make(name: &str) -> Result<Group> {
        let mounts = procfs::process::Process::myself()?.mountinfo()?;
        let find = |kind: &str, option: Option<&str>| {
            let fits = |mount: &&procfs::process::MountInfo| {
                mount.fs_type == kind && option.is_none_or(|option| mount.super_options.contains_key(option))
            };
            let mount = mounts.0.iter().find(fits);
            mount.map(|mount| mount.mount_point.clone())
        };
        let (unified, memory) = (find("cgroup2", None), find("cgroup", Some("memory")));
        let group = if let Some(memory) = memory {
            Group {
                memory: memory.join(name),
                unified: unified.map(|unified| unified.join(name)),
                version2: false,
            }
        } else {
            let unified = unified.context("no control group hierarchy with memory is mounted")?;
            // Already on where systemd runs; refused where processes are in the root of a namespace.
            let _ = fs::write(unified.join("cgroup.subtree_control"), "+memory");
            Group {
                memory: unified.join(name),
                unified: None,
                version2: true,
            }
        };
        for folder in group.folders() {
            fs::create_dir(folder).with_context(|| format!("can't make {}", folder.display()))?;
        }
        let usage = if group.version2 {
            "memory.current"
        } else {
            "memory.usage_in_bytes"
        };
        ensure!(
            group.memory.join(usage).exists(),
            "{} has no memory controller: enable it in the cgroup.subtree_control above",
            group.memory.display()
        );
        Ok(group)
    }

    fn folders(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.memory), self.unified.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
    }

    /// The files to which a process writes its id to move into it.
    pub fn procs(&self) -> Vec<PathBuf> {
        self.folders().map(|folder| folder.join("cgroup.procs")).collect()
    }

    /// Its memory controller is that of version 2.
    pub fn is_version2(&self) -> bool {
        self.version2
    }

    /// Moves a process into it.
    pub fn admit(&self, pid: u32) -> Result<()> {
        for procs in self.procs() {
            fs::write(&procs, pid.to_string())
                .with_context(|| format!("can't move {pid} into {}", procs.display()))?;
        }
        Ok(())
    }

    /// Sets its hard limit, bytes.
    pub fn limit(&self, bytes: u64) -> Result<()> {
        self.set(
            if self.version2 {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            },
            bytes,
        )
    }

    /// Sets the limit over which its processes are throttled, bytes; version 2 alone has that.
    pub fn throttle(&self, bytes: u64) -> Result<()> {
        self.set("memory.high", bytes)
    }

    fn set(&self, name: &str, bytes: u64) -> Result<()> {
        let path = self.memory.join(name);
        fs::write(&path, bytes.to_string()).with_context(|| format!("can't write {}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let start = Instant::now();
        for folder in self.folders() {
            // A process that has just ended may still be in it.
            while fs::remove_dir(folder).is_err() && start.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
