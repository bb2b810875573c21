//! The threads, with a library that is made up.

use super::*;
use crate::sampler::nvml::{DeviceRead, Slot};
use std::collections::VecDeque;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

/// What one call to the made-up library does.
enum Step {
    Sweep,
    Break(Fault),
    /// Comes back when the other end is dropped.
    Hang(Receiver<()>),
}

struct Library {
    opens: VecDeque<Result<VecDeque<Step>, OpenError>>,
    xids: Arc<Mutex<Option<super::super::source::XidSink>>>,
}

impl Opener for Library {
    fn open(&mut self, xids: super::super::source::XidSink) -> Result<Box<dyn GpuSource>, OpenError> {
        *self.xids.lock().unwrap() = Some(xids);
        let steps = self.opens.pop_front().unwrap_or_else(|| Ok(VecDeque::new()))?;
        Ok(Box::new(Source { steps }))
    }
}

struct Source {
    steps: VecDeque<Step>,
}

impl GpuSource for Source {
    fn about(&self) -> About {
        About::default()
    }

    fn sweep(&mut self) -> Result<Sweep, Fault> {
        match self.steps.pop_front().unwrap_or(Step::Sweep) {
            Step::Sweep => Ok(Sweep {
                devices: vec![DeviceRead {
                    slot: Slot { gpu: 0, mig: None },
                    reading: Err(Fault::Unknown),
                }],
            }),
            Step::Break(fault) => Err(fault),
            Step::Hang(until) => {
                let _ = until.recv();
                Ok(Sweep::default())
            }
        }
    }
}

struct Sink(mpsc::Sender<Told>);

#[derive(Debug)]
enum Told {
    Update(Arc<GpuView>),
    Probe(bool),
}

impl Output for Sink {
    fn update(&self, update: GpuUpdate) -> bool {
        self.0.send(Told::Update(update.view)).is_ok()
    }

    fn probe_up(&self, up: bool) {
        let _ = self.0.send(Told::Probe(up));
    }
}

const SOON: Duration = Duration::from_millis(1);

fn start(
    opens: impl IntoIterator<Item = Result<VecDeque<Step>, OpenError>>,
    required: bool,
    sweep_bound: Duration,
) -> (
    Sampler,
    Receiver<Told>,
    Arc<Mutex<Option<super::super::source::XidSink>>>,
) {
    let (told, out) = channel();
    let xids = Arc::default();
    let library = Library {
        opens: opens.into_iter().collect(),
        xids: Arc::clone(&xids),
    };
    let timing = Timing {
        period: SOON,
        sweep_bound,
        open_bound: Duration::from_mins(10),
        retry: SOON,
        look_again: SOON,
    };
    let sampler = Sampler::start(Box::new(library), timing, required, Box::new(Sink(told))).expect("threads");
    (sampler, out, xids)
}

/// The next state that is another than the one before, and the probe's states on the way to it.
fn next(out: &Receiver<Told>, before: &NvmlState) -> (NvmlState, Vec<bool>) {
    let mut probes = Vec::new();
    loop {
        match out.recv().expect("the sampler runs") {
            Told::Probe(up) => probes.push(up),
            Told::Update(view) if view.state != *before => return (view.state.clone(), probes),
            Told::Update(_) => {}
        }
    }
}

const FOREVER: Duration = Duration::from_mins(10);

#[test]
fn no_library_is_said_and_looked_for_again() {
    let absent = || Err(OpenError::Absent("no such file".to_owned()));
    let (sampler, out, _) = start([absent(), absent()], false, FOREVER);
    let (state, probes) = next(&out, &NvmlState::Off);
    assert_eq!(
        (&state, probes),
        (&NvmlState::Absent("no such file".to_owned()), vec![])
    );
    // It was installed meanwhile.
    assert_eq!(next(&out, &state), (NvmlState::Up, vec![true]));
    sampler.stop();
}

#[test]
fn a_required_library_that_is_not_there_is_a_trouble() {
    let (sampler, out, _) = start([Err(OpenError::Absent("no such file".to_owned()))], true, FOREVER);
    let (state, probes) = next(&out, &NvmlState::Off);
    assert_eq!(
        (state, probes),
        (NvmlState::Down("no such file".to_owned()), vec![false])
    );
    sampler.stop();
}

#[test]
fn a_library_that_breaks_is_opened_again() {
    let steps = VecDeque::from([Step::Sweep, Step::Break(Fault::NoDriver)]);
    let (sampler, out, _) = start([Ok(steps)], false, FOREVER);
    let (state, probes) = next(&out, &NvmlState::Off);
    assert_eq!((&state, probes), (&NvmlState::Up, vec![true]));
    let (state, probes) = next(&out, &state);
    assert_eq!(
        (&state, probes),
        (
            &NvmlState::Down(Fault::NoDriver.meaning().to_owned()),
            vec![false]
        )
    );
    assert_eq!(next(&out, &state), (NvmlState::Up, vec![true]));
    sampler.stop();
}

#[test]
fn a_call_that_hangs_is_given_up_and_taken_up_again_when_it_returns() {
    let (release, until) = channel();
    let steps = VecDeque::from([Step::Sweep, Step::Hang(until)]);
    let (sampler, out, xids) = start([Ok(steps)], false, Duration::from_millis(20));
    let (state, _) = next(&out, &NvmlState::Off);
    let (state, probes) = next(&out, &state);
    assert!(matches!(state, NvmlState::Down(_)), "{state:?}");
    assert_eq!(probes, [false]);
    // XID errors come on another thread and are told meanwhile: of a GPU that was never read, as a fault.
    if let Some(xids) = &*xids.lock().unwrap() {
        xids(Xid {
            uuid: "GPU-x".into(),
            xid: 79,
        });
    }
    loop {
        if let Told::Update(view) = out.recv().expect("the sampler runs")
            && view.faults.contains(&(Fault::Unknown, 2))
        {
            break;
        }
    }
    drop(release);
    assert_eq!(next(&out, &state), (NvmlState::Up, vec![true]));
    sampler.stop();
}

#[test]
fn the_end_does_not_wait_for_a_call_that_hangs() {
    let (release, until) = channel::<()>();
    let (sampler, out, _) = start([Ok(VecDeque::from([Step::Hang(until)]))], false, SOON);
    let (state, _) = next(&out, &NvmlState::Off);
    assert!(matches!(state, NvmlState::Down(_)), "{state:?}");
    // Were it waited for, this would never return.
    sampler.stop();
    drop(release);
}
