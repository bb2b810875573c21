//! `infertap run` and `infertap record`: wiring of discovery, probes, core, recorder and exporters.
//!
//! Owns: the threads, their order of start and end, and signals. Refuses: what flows between them (`tap`), which
//! processes are watched (`watch`), attaching (`attach`), and the meaning of any of it (the core).
//!
//! ```text
//! kernel ──ring──▶ tap thread: decode ▶ core ▶ exporter ◀── HTTP (main thread)
//!                   ▲      │      │  ▲
//!      what to watch│      │      │  │what is probed
//!                   │      │      ▼  │
//!                   │      │     attach thread: probes, which the kernel may be long in attaching
//!                   │      │who executed a program
//!                   │      ▼
//!                  watch thread: procfs          GPU sampler ──readings──▶ tap thread
//! ```

mod attach;
mod log;
mod pods;
mod reload;
mod store;
mod tap;
mod watch;

use crate::config::Config;
use crate::count::Counter;
use crate::export::{self, Exporter};
use crate::probe::{ProbeOptions, Probes};
use crate::recording::{Recorder, RecorderOptions};
use crate::sampler::memory::MemorySampler;
use crate::sampler::nvml::{NvmlMode, NvmlOpener, Sampler, Timing};
use crate::usage::{Keeper, SharedLedger};
use anyhow::Context as _;
use attach::Attacher;
pub use reload::Reload;
use reload::Reloader;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tap::{Command, GpuOutput, Tap};
use tokio::signal::unix::{SignalKind, signal};

/// Programs executed that the watch thread has not looked at yet. It looks at all processes each second anyway, so a
/// hint that finds no room is no loss.
const HINTS: usize = 256;
/// How long the runtime's threads are waited for at the end.
const LEAVING: Duration = Duration::from_secs(1);

/// What `infertap record` was asked for.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// File to write.
    pub file: PathBuf,
    /// Keep the text of prompts and answers.
    pub with_content: bool,
    /// Stop after this time.
    pub duration: Option<Duration>,
}

/// Watches until interrupted, and reads its configuration again when `reload` says so.
///
/// # Errors
/// The probes can't be attached, or the address can't be bound.
pub fn run(config: &Config, reload: Reload) -> anyhow::Result<()> {
    log::start(&config.log)?;
    block_on(async {
        // First what fails fast and harms nobody.
        let listener = export::bind(config.server.listen).await?;
        let usage = SharedLedger::new(&config.usage.ledger(), config.usage.limits(&config.context_limit));
        let exporter = Exporter::with_usage(&config.metrics, &config.server, usage)?;
        let mut stop = Stop::on_signals()?;
        let hangup = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
        let store = tokio::task::block_in_place(|| store::open(&config.store, &exporter));
        let budgets = tokio::task::block_in_place(|| store::budgets(config, &exporter, store.as_ref()))?;
        let days = config.usage.ledger().days;
        let mut keeper = tokio::task::block_in_place(|| Keeper::new(exporter.usage(), store.clone(), days));
        let outlets = store::records(config, &exporter, store.as_ref())?;
        let session = tokio::task::block_in_place(|| Session::start(config, &exporter, None))?;
        let address = listener.local_addr().unwrap_or(config.server.listen);
        tracing::info!("serving http://{address}/metrics");
        let commands = session.handle.commands.clone();
        let to = Arc::clone(&outlets);
        let pods = pods::start(config, &exporter, &commands);
        let reloader = Reloader::new(
            reload,
            hangup,
            config.clone(),
            Arc::clone(&exporter),
            commands,
            to,
            pods,
        );
        let mut ended = session.ended;
        let failed = tokio::select! {
            () = reloader.run() => None,
            () = keeper.run(exporter.usage()) => None,
            () = Arc::clone(&exporter).serve(listener, stop.wait()) => None,
            failure = &mut ended => failure.ok(),
        };
        tracing::info!("detaching probes");
        let finished = tokio::task::block_in_place(|| session.handle.finish());
        store::send_rest(&exporter, &outlets).await;
        tokio::task::block_in_place(|| {
            keeper.keep(exporter.usage());
            drop(keeper);
            // After the last observation, and before the store ends.
            drop(budgets);
            store::close(store);
        });
        finished?;
        failed.map_or(Ok(()), |reason: String| Err(anyhow::anyhow!(reason)))
    })
}

/// Records until interrupted or the time is over.
///
/// # Errors
/// The probes can't be attached, or the file can't be written.
pub fn record(config: &Config, options: &RecordOptions) -> anyhow::Result<()> {
    log::start(&config.log)?;
    block_on(async {
        let exporter = Exporter::new(&config.metrics, &config.server)?;
        let recorder = Recorder::create(
            &options.file,
            RecorderOptions {
                with_content: options.with_content,
                overwrite: false,
            },
        )?;
        let mut stop = Stop::on_signals()?;
        let session = tokio::task::block_in_place(|| Session::start(config, &exporter, Some(recorder)))?;
        tracing::info!("recording into {}; Ctrl-C ends it", options.file.display());
        let mut ended = session.ended;
        let failed = tokio::select! {
            () = stop.wait() => None,
            () = sleep_or_forever(options.duration) => None,
            failure = &mut ended => failure.ok(),
        };
        let recorder = tokio::task::block_in_place(|| session.handle.finish())?;
        if let Some(recorder) = recorder {
            let totals = recorder.finish()?;
            tracing::info!(?totals, "recorded into {}", options.file.display());
        }
        failed.map_or(Ok(()), |reason: String| Err(anyhow::anyhow!(reason)))
    })
}

/// Runs this in a runtime of its own. What then still blocks one of its threads, a file on a server that is gone or a name server
/// that is silent, is left behind: it must not hold up the end.
fn block_on<T>(run: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("infertap-http")
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(run);
    runtime.shutdown_timeout(LEAVING);
    result
}

async fn sleep_or_forever(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// SIGINT or SIGTERM.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    /// Before anything is attached: a signal that comes meanwhile is kept.
    fn on_signals() -> anyhow::Result<Stop> {
        let context = "cannot handle signals";
        Ok(Stop {
            interrupt: signal(SignalKind::interrupt()).context(context)?,
            terminate: signal(SignalKind::terminate()).context(context)?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The threads of one run.
struct Session {
    handle: Handle,
    /// Resolves when the tap thread ended by itself, with the reason.
    ended: tokio::sync::oneshot::Receiver<String>,
}

struct Handle {
    commands: std::sync::mpsc::Sender<Command>,
    tap: JoinHandle<Option<Recorder>>,
    watch: JoinHandle<()>,
    gpus: Option<Sampler>,
    stop_watch: std::sync::mpsc::SyncSender<watch::Hint>,
}

impl Session {
    fn start(
        config: &Config,
        exporter: &Arc<Exporter>,
        recorder: Option<Recorder>,
    ) -> anyhow::Result<Session> {
        let options = ProbeOptions {
            arrivals: config.capture.arrivals,
            socket_probe: config.capture.socket_probe,
            ring_bytes: u32::try_from(config.capture.ring_bytes.get()).unwrap_or(1 << 30),
            max_connections: u32::try_from(config.capture.max_connections).unwrap_or(u32::MAX),
            procfs: PathBuf::from("/proc"),
        };
        let (probes, targets, ring) = Probes::load(&options)?;
        for state in probes.states() {
            exporter.metrics().probe_up(state.probe, state.up);
            let detail = state
                .detail
                .as_ref()
                .map_or_else(String::new, |detail| format!("; {detail}"));
            if state.up {
                tracing::info!("probe {} is up{detail}", state.probe);
            } else {
                tracing::warn!("probe {} is not up{detail}", state.probe);
            }
        }
        exporter.set_ready(
            false,
            vec!["starting: the engines that run already are not watched yet".to_owned()],
        );

        let (commands, inbox): (_, Receiver<Command>) = channel();
        let (hints, hint_inbox) = sync_channel(HINTS);
        let (end, ended) = tokio::sync::oneshot::channel();
        let cuda_sums = probes.cuda_sums();
        let attacher = Attacher::start(probes).context("cannot start thread infertap-attach")?;
        let tap = Tap::new(
            attacher,
            cuda_sums,
            targets,
            ring,
            config,
            Arc::clone(exporter),
            recorder,
            hints.clone(),
            counter(config),
        );
        let tap = thread("infertap-tap", move || tap.run(&inbox, end))?;
        let memory = memory_sampler(config, exporter);
        let watcher = watch::Watcher::new(config.discover.clone(), commands.clone(), memory);
        let watch = thread("infertap-watch", move || watcher.run(&hint_inbox))?;
        let gpus = sample_gpus(config, exporter, &commands)?;
        Ok(Session {
            handle: Handle {
                commands,
                tap,
                watch,
                gpus,
                stop_watch: hints,
            },
            ended,
        })
    }
}

impl Handle {
    /// Ends the threads and detaches; gives the recorder back.
    fn finish(self) -> anyhow::Result<Option<Recorder>> {
        // Each may have ended already; then there is nobody to tell.
        if let Some(gpus) = self.gpus {
            gpus.stop();
        }
        let _ = self.stop_watch.send(watch::Hint::Stop);
        let _ = self.commands.send(Command::Stop);
        self.watch
            .join()
            .map_err(|_| anyhow::anyhow!("the discovery thread panicked"))?;
        self.tap
            .join()
            .map_err(|_| anyhow::anyhow!("the event thread panicked"))
    }
}

/// Starts reading GPUs, unless the configuration says no.
fn sample_gpus(
    config: &Config,
    exporter: &Arc<Exporter>,
    commands: &std::sync::mpsc::Sender<Command>,
) -> anyhow::Result<Option<Sampler>> {
    let gpu = &config.gpu;
    if gpu.nvml == NvmlMode::Off {
        return Ok(None);
    }
    let output = GpuOutput {
        commands: commands.clone(),
        exporter: Arc::clone(exporter),
    };
    let timing = Timing::new(gpu.period.duration());
    let opener = Box::new(NvmlOpener::new(gpu));
    Sampler::start(opener, timing, gpu.nvml == NvmlMode::On, Box::new(output))
        .map(Some)
        .context("cannot start reading GPUs")
}

/// What reads the memory of engines, and how often; `None` where that is switched off or impossible.
fn memory_sampler(config: &Config, exporter: &Exporter) -> Option<(MemorySampler, Duration)> {
    let interval = config.pressure.reading()?;
    let sampler = MemorySampler::new("/proc", std::process::id());
    let found = sampler.found();
    exporter.metrics().probe_up("cgroups", found.is_ok());
    match found {
        Ok(found) => tracing::info!("sampler cgroups is up; {found}"),
        Err(missing) => {
            tracing::warn!("sampler cgroups is not up; {missing}");
            return None;
        }
    }
    Some((sampler, interval))
}

/// The thread that counts tokens, when it is asked for and can be had; without it, they are told by others or not at all.
fn counter(config: &Config) -> Option<Counter> {
    if !config.tokens.tokenizer {
        return None;
    }
    Counter::start(&config.tokens, crate::discover::Host::default())
        .inspect_err(|error| tracing::warn!("tokens are not counted: {error}"))
        .ok()
}

fn thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .with_context(|| format!("cannot start thread {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_blocks_does_not_hold_up_the_end() {
        let (release, blocked) = channel::<()>();
        let done = block_on(async move {
            let (begins, begun) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                let _ = begins.send(());
                blocked.recv()
            });
            begun.await.context("it blocks")
        });
        assert!(done.is_ok(), "{done:?}");
        // Had the end waited for it, this would never be reached.
        drop(release);
    }
}
