//! Reading the configuration again while the agent runs: on SIGHUP, and when its file changes.
//!
//! Owns: when to read, and which part of it takes effect without a restart. Refuses: a configuration with a mistake: the
//! one that is in effect stays, and the log, `infertap_config_reloads_total`, `infertap_config_ok` and `/readyz` say so.

use super::tap::Command;
use crate::config::{Config, Problems};
use crate::export::{Exporter, Note};
use crate::pods::PodWatch;
use crate::ship::Outlets;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};
use tokio::signal::unix::Signal;

/// How often the file is looked at. One that changes is read at the next look at which it is as it was at the last: who
/// writes it may not be done.
const LOOK: Duration = Duration::from_secs(2);

/// Where the configuration comes from.
pub struct Reload {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Reads all layers again.
    pub load: Box<dyn Fn() -> Result<Config, Problems> + Send>,
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reload")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// What tells one state of a file from another; the inode too, since a file may be replaced by one as old.
type Stamp = Option<(SystemTime, u64, u64)>;

fn stamp(file: Option<&PathBuf>) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let facts = std::fs::metadata(file?).ok()?;
    Some((facts.modified().ok()?, facts.len(), facts.ino()))
}

/// Follows the configuration.
pub(super) struct Reloader {
    reload: Reload,
    hangup: Signal,
    /// What is in effect.
    config: Config,
    /// The file as it was when it was read last.
    read: Stamp,
    /// The file as it was at the last look.
    seen: Stamp,
    exporter: Arc<Exporter>,
    commands: Sender<Command>,
    outlets: Arc<Outlets>,
    pods: Option<PodWatch>,
}

impl Reloader {
    pub(super) fn new(
        reload: Reload,
        hangup: Signal,
        config: Config,
        exporter: Arc<Exporter>,
        commands: Sender<Command>,
        outlets: Arc<Outlets>,
        pods: Option<PodWatch>,
    ) -> Reloader {
        let read = stamp(reload.file.as_ref());
        Reloader {
            hangup,
            reload,
            config,
            read,
            seen: read,
            exporter,
            commands,
            outlets,
            pods,
        }
    }

    /// Never ends.
    pub(super) async fn run(mut self) {
        let mut looks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = self.hangup.recv() => self.read_again("SIGHUP"),
                _ = looks.tick() => {
                    let now = stamp(self.reload.file.as_ref());
                    let settled = now == std::mem::replace(&mut self.seen, now);
                    if settled && now.is_some() && now != self.read {
                        self.read_again("the file has changed");
                    }
                }
            }
        }
    }

    fn read_again(&mut self, why: &str) {
        self.read = stamp(self.reload.file.as_ref());
        let loaded =
            tokio::task::block_in_place(|| (self.reload.load)()).map_err(|problems| problems.to_string());
        let metrics = self.exporter.metrics();
        // What is started with it comes first: where it can't be, nothing of it takes effect.
        let loaded = loaded.and_then(|config| {
            if self.outlets.loses(&config) {
                self.exporter.records().settle();
            }
            match self.outlets.configure(&config) {
                Ok(()) => Ok(config),
                Err(error) => Err(format!("{error:#}")),
            }
        });
        metrics.config_reloaded(loaded.is_ok());
        metrics.config_ok(loaded.is_ok());
        match loaded {
            Ok(config) => {
                let waiting = self.config.needs_restart(&config);
                self.config.take_live(&config);
                let budgets = config.budgets();
                let records = self.exporter.records();
                tokio::task::block_in_place(|| {
                    self.exporter.budgets().configure(budgets);
                    // Compiles patterns: not for the tap thread, on which the ring would overflow meanwhile.
                    records.configure_content(&config.content, metrics);
                });
                if let Some(pods) = &self.pods {
                    pods.want_labels(config.scenes().pod_labels());
                }
                if let Some(missing) = super::pods::missing(&self.config, self.pods.is_some()) {
                    tracing::warn!("{missing}; see docs/clients.md");
                }
                records.configure(&config.records);
                if !self.outlets.is_empty() {
                    metrics.records_begin();
                }
                self.exporter.note(Note::Config, None);
                if waiting.is_empty() {
                    tracing::info!("configuration read again ({why}): in effect");
                } else {
                    tracing::warn!(
                        "configuration read again ({why}): changes of [{}] take effect at the next start",
                        waiting.join("], [")
                    );
                }
                // Fails only when the tap thread has ended, which ends the agent.
                let _ = self.commands.send(Command::Configure(Box::new(config)));
            }
            Err(problems) => {
                tracing::error!(
                    "configuration read again ({why}) and refused, the one before stays in effect: {problems}"
                );
                let told = format!(
                    "the configuration was changed and refused, the one before is in effect: {problems}"
                );
                self.exporter.note(Note::Config, Some(told.replace('\n', " ")));
            }
        }
    }
}
