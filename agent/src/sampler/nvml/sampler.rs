//! The sampler's threads: one that calls the driver and may hang in it, one that keeps time and never does.
//!
//! Owns: the period, the bounds after which a call is given up, when to open the library again. Refuses: what is read
//! (`library`) and what follows from it (`track`).

use super::fault::Fault;
use super::source::{About, GpuSource, OpenError, Opener, Sweep, Xid};
use super::status::{GpuView, NvmlState};
use super::track::Tracker;
use infertap_core::Nanos;
use infertap_core::gpu::GpuReading;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end waits for the library to be closed: a call that hangs must not keep the agent from ending.
const CLOSE: Duration = Duration::from_secs(2);
/// How often XID errors are told while nothing else is.
const DIRTY: Duration = Duration::from_secs(1);
/// A sample stands for this long at most; what lies further apart has a hole between.
const LONGEST_SPAN: Duration = Duration::from_secs(10);
/// Growing pauses between attempts to get back a GPU that is away by opening the library anew: an open library does not
/// see a GPU that was reset or plugged in again.
const REOPEN: [Duration; 2] = [Duration::from_secs(10), Duration::from_mins(10)];

/// What follows from a reading.
#[derive(Debug)]
pub struct GpuUpdate {
    /// The picture of all GPUs.
    pub view: Arc<GpuView>,
    /// What the core is told, each with its time.
    pub readings: Vec<(Nanos, Arc<GpuReading>)>,
}

/// Where updates go.
pub trait Output: Send {
    /// Takes an update. `false` when nobody takes any more.
    fn update(&self, update: GpuUpdate) -> bool;

    /// Whether GPUs are read as they should be. Not told where there are none to read.
    fn probe_up(&self, up: bool);
}

/// Periods and bounds.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// From one sweep to the next.
    pub period: Duration,
    /// A sweep that takes longer hangs.
    pub sweep_bound: Duration,
    /// Opening that takes longer hangs: without persistence mode the driver then wakes all GPUs, one after the other.
    pub open_bound: Duration,
    /// Until the library is opened again that should work and did not.
    pub retry: Duration,
    /// Until it is looked for again where there was none.
    pub look_again: Duration,
}

impl Timing {
    /// For this period.
    pub fn new(period: Duration) -> Timing {
        Timing {
            period,
            sweep_bound: Duration::from_secs(5) + 5 * period,
            open_bound: Duration::from_mins(1),
            retry: Duration::from_secs(10),
            look_again: Duration::from_mins(1),
        }
    }
}

/// The running sampler.
#[derive(Debug)]
pub struct Sampler {
    notes: Sender<Note>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Note {
    Opening,
    Opened(About),
    NotOpened(OpenError),
    Swept(Sweep),
    Broken(Fault),
    Xid(Xid),
    Closed,
    Stop,
}

impl Sampler {
    /// Starts the threads. With `required`, that there is no library is a trouble.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(
        opener: Box<dyn Opener>,
        timing: Timing,
        required: bool,
        output: Box<dyn Output>,
    ) -> std::io::Result<Sampler> {
        let (notes, inbox) = channel();
        let (requests, todo) = channel();
        let to_worker = notes.clone();
        std::thread::Builder::new()
            .name("infertap-nvml".to_owned())
            .spawn(move || Worker::new(opener, to_worker).run(&todo))?;
        let longest = LONGEST_SPAN.max(3 * timing.period).as_nanos();
        let keeper = Keeper {
            tracker: Tracker::new(u64::try_from(longest).unwrap_or(u64::MAX)),
            timing,
            required,
            output,
            requests,
            asked: None,
            opening: true,
            hung: false,
            told: None,
            up: None,
        };
        let thread = std::thread::Builder::new()
            .name("infertap-gpu".to_owned())
            .spawn(move || keeper.run(&inbox))?;
        Ok(Sampler { notes, thread })
    }

    /// Ends the threads and closes the library; a thread that hangs in the driver is left behind.
    pub fn stop(self) {
        // It may have ended by itself; then there is nobody to tell.
        let _ = self.notes.send(Note::Stop);
        if self.thread.join().is_err() {
            tracing::warn!("the GPU sampler panicked");
        }
    }
}

/// Calls the driver.
struct Worker {
    opener: Box<dyn Opener>,
    source: Option<Box<dyn GpuSource>>,
    notes: Sender<Note>,
    opened: Instant,
    reopen: Duration,
    /// GPUs and instances of the last round.
    devices: usize,
}

impl Worker {
    fn new(opener: Box<dyn Opener>, notes: Sender<Note>) -> Worker {
        Worker {
            opener,
            source: None,
            notes,
            opened: Instant::now(),
            reopen: REOPEN[0],
            devices: 0,
        }
    }

    /// One round for each request; each ends with exactly one of `NotOpened`, `Swept` and `Broken`.
    fn run(mut self, todo: &Receiver<()>) {
        while todo.recv().is_ok() {
            let note = self.round();
            if self.notes.send(note).is_err() {
                break;
            }
        }
        self.source = None;
        let _ = self.notes.send(Note::Closed);
    }

    fn round(&mut self) -> Note {
        if self.source.is_none()
            && let Err(error) = self.open()
        {
            return Note::NotOpened(error);
        }
        let Some(source) = &mut self.source else {
            return Note::Broken(Fault::Unknown);
        };
        match source.sweep() {
            Ok(sweep) => {
                let lost = sweep.devices.iter().any(|device| device.reading.is_err());
                let fewer = sweep.devices.len() < self.devices;
                if !lost && !fewer {
                    self.devices = sweep.devices.len();
                    self.reopen = REOPEN[0];
                } else if self.opened.elapsed() >= self.reopen {
                    self.reopen = (self.reopen * 2).min(REOPEN[1]);
                    if fewer && !lost && self.reopen == REOPEN[1] {
                        // It was taken out for good.
                        self.devices = sweep.devices.len();
                    }
                    self.source = None;
                }
                Note::Swept(sweep)
            }
            Err(fault) => {
                self.source = None;
                Note::Broken(fault)
            }
        }
    }

    fn open(&mut self) -> Result<(), OpenError> {
        // Whether the keeper still listens shows with the note that ends the round.
        let _ = self.notes.send(Note::Opening);
        let notes = self.notes.clone();
        let source = self
            .opener
            .open(Box::new(move |xid| drop(notes.send(Note::Xid(xid)))))?;
        let _ = self.notes.send(Note::Opened(source.about()));
        self.source = Some(source);
        self.opened = Instant::now();
        Ok(())
    }
}

/// Keeps time, and the picture.
struct Keeper {
    tracker: Tracker,
    timing: Timing,
    required: bool,
    output: Box<dyn Output>,
    requests: Sender<()>,
    /// When the round began that has not ended.
    asked: Option<Instant>,
    opening: bool,
    hung: bool,
    told: Option<NvmlState>,
    up: Option<bool>,
}

impl Keeper {
    fn run(mut self, inbox: &Receiver<Note>) {
        let mut due = Instant::now();
        let mut dirty: Option<Instant> = None;
        loop {
            if self.asked.is_none() && Instant::now() >= due {
                if self.requests.send(()).is_err() {
                    self.fail("the thread that reads GPUs has ended", Fault::Unknown);
                    return;
                }
                self.asked = Some(Instant::now());
            }
            let next = self.asked.map_or(due, |asked| asked + self.bound());
            let mut wait = next.saturating_duration_since(Instant::now());
            if let Some(since) = dirty {
                wait = wait.min(DIRTY.saturating_sub(since.elapsed()));
            }
            if self.hung {
                wait = wait.max(DIRTY);
            }
            let goes_on = match inbox.recv_timeout(wait) {
                Ok(Note::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    self.close(inbox);
                    return;
                }
                Ok(Note::Xid(xid)) => {
                    self.tracker.xid(&xid);
                    dirty.get_or_insert_with(Instant::now);
                    true
                }
                Ok(Note::Opening) => {
                    self.opening = true;
                    self.asked = self.asked.map(|_| Instant::now());
                    true
                }
                Ok(Note::Opened(about)) => {
                    self.opening = false;
                    self.asked = self.asked.map(|_| Instant::now());
                    self.tracker.opened(about);
                    true
                }
                Ok(Note::Closed) => true,
                Ok(Note::Swept(sweep)) => {
                    let asked = self.end_round();
                    due = (asked + self.timing.period).max(Instant::now());
                    dirty = None;
                    let readings = self.tracker.sweep(&sweep);
                    self.probe(true);
                    self.publish(readings)
                }
                Ok(Note::NotOpened(error)) => {
                    self.end_round();
                    let (state, fault, pause) = match error {
                        OpenError::Absent(why) if !self.required => {
                            (NvmlState::Absent(why), Fault::NoDriver, self.timing.look_again)
                        }
                        OpenError::Absent(why) | OpenError::Failed(why) => {
                            (NvmlState::Down(why), Fault::NoDriver, self.timing.retry)
                        }
                    };
                    due = Instant::now() + pause;
                    self.closed(state, fault)
                }
                Ok(Note::Broken(fault)) => {
                    self.end_round();
                    due = Instant::now() + self.timing.retry;
                    self.fail(fault.meaning(), fault)
                }
                Err(RecvTimeoutError::Timeout) => {
                    let late = self.asked.is_some_and(|asked| asked.elapsed() >= self.bound());
                    if late && !self.hung {
                        self.hung = true;
                        let text = format!(
                            "a call into the driver has not come back for {} s; nothing is read until it does",
                            self.bound().as_secs()
                        );
                        self.fail(&text, Fault::Hung)
                    } else if dirty.is_some_and(|since| since.elapsed() >= DIRTY) {
                        dirty = None;
                        self.publish(Vec::new())
                    } else {
                        true
                    }
                }
            };
            if !goes_on {
                self.close(inbox);
                return;
            }
        }
    }

    fn bound(&self) -> Duration {
        if self.opening {
            self.timing.open_bound
        } else {
            self.timing.sweep_bound
        }
    }

    /// The round is over; when it began.
    fn end_round(&mut self) -> Instant {
        self.hung = false;
        self.asked.take().unwrap_or_else(Instant::now)
    }

    fn fail(&mut self, why: &str, fault: Fault) -> bool {
        self.closed(NvmlState::Down(why.to_owned()), fault)
    }

    fn closed(&mut self, state: NvmlState, fault: Fault) -> bool {
        let absent = matches!(state, NvmlState::Absent(_));
        // A host that never had GPUs has no trouble with them.
        if absent {
            self.tracker.absent(state);
        } else {
            self.probe(false);
            self.tracker.closed(state, fault);
        }
        self.publish(Vec::new())
    }

    fn probe(&mut self, up: bool) {
        if self.up != Some(up) {
            self.up = Some(up);
            self.output.probe_up(up);
        }
    }

    fn publish(&mut self, readings: Vec<(Nanos, Arc<GpuReading>)>) -> bool {
        let view = self.tracker.view();
        if self.told.as_ref() != Some(&view.state) {
            tell(&view);
            self.told = Some(view.state.clone());
        }
        for trouble in self.tracker.take_troubles() {
            if trouble.over {
                tracing::info!("{}", trouble.text);
            } else {
                tracing::warn!("{}", trouble.text);
            }
        }
        self.output.update(GpuUpdate {
            view: Arc::new(view),
            readings,
        })
    }

    /// Waits for the library to be closed, but not for ever.
    fn close(self, inbox: &Receiver<Note>) {
        drop(self.requests);
        let end = Instant::now() + CLOSE;
        loop {
            match inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Note::Closed) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("a call into the GPU driver does not come back; leaving it behind");
                    return;
                }
            }
        }
    }
}

/// The state, when it is news.
fn tell(view: &GpuView) {
    match &view.state {
        NvmlState::Off => {}
        NvmlState::Absent(why) => tracing::info!("no NVIDIA GPUs here, so no GPU metrics: {why}"),
        NvmlState::Up => {
            let whole = view.gpus.iter().filter(|gpu| gpu.parent.is_none()).count();
            tracing::info!(
                "probe nvml is up: {whole} GPUs, driver {}",
                view.about.driver.as_deref().unwrap_or("of unknown version")
            );
        }
        NvmlState::Down(why) => tracing::warn!("probe nvml is not up: {why}"),
    }
}

#[cfg(test)]
mod tests;
