//! The attaching thread: attaches probes and detaches them, one after the other, while the tap thread reads the ring.
//!
//! At both the kernel may wait for seconds, and a file may be on a disk that is slow or gone. Owns: the probes, and the order of
//! what is done with them. Refuses: which processes (the tap's), and making who asks wait: wishes are merged by process, answers
//! wait in a bounded channel that the tap empties at each turn.

#[cfg(test)]
mod tests;
mod wishes;

pub(super) use wishes::{State, Ticket};

use crate::probe::{Coverage, CudaRow, ProbeError, ProbeState, Probes};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};
use wishes::{Next, Wish, Wishes};

/// How often it is looked whether processes have mapped more.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is looked whether more of them is probed.
const TELL: Duration = Duration::from_secs(1);
/// Answers that the tap has not taken yet. It takes them many times a second; one that finds no room waits.
const ANSWERS: usize = 1024;

/// What attaches: [`Probes`], and a stand-in in tests.
pub(super) trait Attach: Send + 'static {
    /// As [`Probes::attach_process`].
    fn attach_process(&mut self, pid: u32) -> Result<(), ProbeError>;
    /// As [`Probes::detach_process`].
    fn detach_process(&mut self, pid: u32);
    /// As [`Probes::attach_calls`].
    fn attach_calls(&mut self, pid: u32, now: Instant);
    /// As [`Probes::watch_cuda`].
    fn watch_cuda(&mut self, pid: u32, now: Instant);
    /// As [`Probes::forget_cuda`].
    fn forget_cuda(&mut self, pid: u32) -> Option<Vec<CudaRow>>;
    /// As [`Probes::advance`].
    fn advance(&mut self, now: Instant);
    /// As [`Probes::coverage`].
    fn coverage(&self, pid: u32) -> Coverage;
    /// As [`Probes::take_news`].
    fn take_news(&mut self) -> Vec<ProbeState>;
}

impl Attach for Probes {
    fn attach_process(&mut self, pid: u32) -> Result<(), ProbeError> {
        Probes::attach_process(self, pid)
    }

    fn detach_process(&mut self, pid: u32) {
        Probes::detach_process(self, pid);
    }

    fn attach_calls(&mut self, pid: u32, now: Instant) {
        Probes::attach_calls(self, pid, now);
    }

    fn watch_cuda(&mut self, pid: u32, now: Instant) {
        Probes::watch_cuda(self, pid, now);
    }

    fn forget_cuda(&mut self, pid: u32) -> Option<Vec<CudaRow>> {
        Probes::forget_cuda(self, pid)
    }

    fn advance(&mut self, now: Instant) {
        Probes::advance(self, now);
    }

    fn coverage(&self, pid: u32) -> Coverage {
        Probes::coverage(self, pid)
    }

    fn take_news(&mut self) -> Vec<ProbeState> {
        Probes::take_news(self)
    }
}

/// What the attaching thread tells.
#[derive(Debug)]
pub(super) enum Answer {
    /// What was asked for by [`Attacher::sockets`].
    Sockets(u32, Ticket, Result<(), ProbeError>),
    /// What was asked for by [`Attacher::forget_cuda`]: the last sums, if any were kept.
    CudaForgotten(u32, Ticket, Option<Vec<CudaRow>>),
    /// What of this process is probed from now on.
    Coverage(u32, Coverage),
    /// A probe has come up, or could not.
    Probe(ProbeState),
}

/// The thread, as the tap has it. Dropping it tells the thread to stop, and does not wait for it.
pub(super) struct Attacher {
    wishes: Arc<Wishes>,
    answers: Receiver<Answer>,
    tickets: Ticket,
    /// Processes that have, or are to have, something attached to their C library or their functions.
    asked: BTreeSet<u32>,
}

impl Attacher {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(super) fn start(probes: impl Attach) -> std::io::Result<Attacher> {
        let (sender, answers) = sync_channel(ANSWERS);
        let wishes = Arc::new(Wishes::default());
        let of_thread = Arc::clone(&wishes);
        // Nobody joins it: at the end it may be waiting for the kernel. The end of the process detaches what it has attached.
        std::thread::Builder::new()
            .name("infertap-attach".to_owned())
            .spawn(move || Worker::new(probes, sender).run(&of_thread))?;
        Ok(Attacher {
            wishes,
            answers,
            tickets: 0,
            asked: BTreeSet::new(),
        })
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        self.tickets
    }

    /// Attaches to the C library of a process; [`Answer::Sockets`] tells when that is done, unless it is let go before.
    pub(super) fn sockets(&mut self, pid: u32) -> Ticket {
        let ticket = self.ticket();
        self.asked.insert(pid);
        self.wishes.sockets(pid, ticket);
        ticket
    }

    /// Looks for functions in a process, from now on.
    pub(super) fn calls(&mut self, pid: u32) {
        self.asked.insert(pid);
        self.wishes.calls(pid);
    }

    /// Lets go of the C library and the functions of a process.
    pub(super) fn detach(&mut self, pid: u32) {
        if self.asked.remove(&pid) {
            self.wishes.detach(pid);
        }
    }

    /// Counts the CUDA calls of a process.
    pub(super) fn cuda(&self, pid: u32) {
        self.wishes.cuda(pid);
    }

    /// Counts them no more; [`Answer::CudaForgotten`] tells when that is done.
    pub(super) fn forget_cuda(&mut self, pid: u32) -> Ticket {
        let ticket = self.ticket();
        self.wishes.forget_cuda(pid, ticket);
        ticket
    }

    /// The next answer, if there is one; an error when the thread has ended, which it does by a panic alone.
    pub(super) fn answer(&self) -> Result<Option<Answer>, String> {
        match self.answers.try_recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("the attaching thread panicked".to_owned()),
        }
    }

    /// How it goes.
    pub(super) fn state(&self) -> State {
        self.wishes.state()
    }
}

impl Drop for Attacher {
    fn drop(&mut self) {
        self.wishes.stop();
    }
}

/// The thread's own.
struct Worker<A> {
    /// Before the probes, whose closing takes long: a panic is told by its end.
    answers: SyncSender<Answer>,
    probes: A,
    /// What was told of each process that something was wished of.
    told: HashMap<u32, Coverage>,
    /// Processes whose functions or CUDA calls are looked for.
    calls: BTreeSet<u32>,
    cuda: BTreeSet<u32>,
    /// When all of them were told last.
    told_all: Instant,
}

/// The tap has ended.
struct Gone;

impl<A: Attach> Worker<A> {
    fn new(probes: A, answers: SyncSender<Answer>) -> Worker<A> {
        Worker {
            probes,
            answers,
            told: HashMap::new(),
            calls: BTreeSet::new(),
            cuda: BTreeSet::new(),
            told_all: Instant::now(),
        }
    }

    fn run(mut self, wishes: &Wishes) {
        let mut look = Instant::now() + LOOK;
        loop {
            let done = match wishes.next(look) {
                Next::Wish(pid, wish) => self.fulfil(pid, &wish),
                Next::Look => {
                    let done = self.look();
                    look = Instant::now() + LOOK;
                    done
                }
                Next::Stop => Err(Gone),
            };
            if done.is_err() {
                break;
            }
        }
        // The kernel takes seconds to close the probes on a CUDA library. The end of the process closes them as well, and
        // what is to be written until then comes first.
        std::mem::forget(self.probes);
    }

    /// What is there goes before anything new comes.
    fn fulfil(&mut self, pid: u32, wish: &Wish) -> Result<(), Gone> {
        if (wish.detach || wish.forget_cuda.is_some()) && self.told.remove(&pid).is_some() {
            self.send(Answer::Coverage(pid, Coverage::default()))?;
        }
        if wish.detach {
            self.probes.detach_process(pid);
            self.calls.remove(&pid);
        }
        if let Some(ticket) = wish.forget_cuda {
            let rows = self.probes.forget_cuda(pid);
            self.cuda.remove(&pid);
            self.send(Answer::CudaForgotten(pid, ticket, rows))?;
        }
        if let Some(ticket) = wish.sockets {
            let done = self.probes.attach_process(pid);
            self.send(Answer::Sockets(pid, ticket, done))?;
        }
        if wish.calls {
            self.probes.attach_calls(pid, Instant::now());
            self.calls.insert(pid);
        }
        if wish.cuda {
            self.probes.watch_cuda(pid, Instant::now());
            self.cuda.insert(pid);
        }
        self.tell(pid)?;
        self.tell_probes()
    }

    fn look(&mut self) -> Result<(), Gone> {
        self.probes.advance(Instant::now());
        if self.told_all.elapsed() >= TELL {
            self.told_all = Instant::now();
            let all: Vec<u32> = self.calls.union(&self.cuda).copied().collect();
            for pid in all {
                self.tell(pid)?;
            }
        }
        self.tell_probes()
    }

    /// Tells what of a process is probed, when that is news.
    fn tell(&mut self, pid: u32) -> Result<(), Gone> {
        if !self.calls.contains(&pid) && !self.cuda.contains(&pid) {
            return Ok(());
        }
        let coverage = self.probes.coverage(pid);
        if self.told.get(&pid) == Some(&coverage) {
            return Ok(());
        }
        self.told.insert(pid, coverage.clone());
        self.send(Answer::Coverage(pid, coverage))
    }

    fn tell_probes(&mut self) -> Result<(), Gone> {
        for state in self.probes.take_news() {
            self.send(Answer::Probe(state))?;
        }
        Ok(())
    }

    fn send(&self, answer: Answer) -> Result<(), Gone> {
        self.answers.send(answer).map_err(|_| Gone)
    }
}
