//! Attaching that blocks as long as a test wants: nobody waits for it, and what was asked meanwhile is done in the end, in order.

use super::*;
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

const PATIENCE: Duration = Duration::from_secs(30);
/// Looking for functions in this process blocks until the test says so, and panics in that one.
const BLOCKS: u32 = 1;
const PANICS: u32 = 2;

/// Notes what is done.
struct Stand {
    done: Arc<Mutex<Vec<(&'static str, u32)>>>,
    entered: Sender<()>,
    gate: Receiver<()>,
    functions: BTreeSet<u32>,
}

/// The test's end of it.
struct Bench {
    attacher: Attacher,
    done: Arc<Mutex<Vec<(&'static str, u32)>>>,
    entered: Receiver<()>,
    open: Sender<()>,
}

impl Stand {
    fn note(&self, what: &'static str, pid: u32) {
        self.done.lock().expect("not poisoned").push((what, pid));
    }
}

impl Attach for Stand {
    fn attach_process(&mut self, pid: u32) -> Result<(), ProbeError> {
        self.note("sockets", pid);
        Ok(())
    }

    fn detach_process(&mut self, pid: u32) {
        self.note("detach", pid);
        self.functions.remove(&pid);
    }

    fn attach_calls(&mut self, pid: u32, _now: Instant) {
        self.note("calls", pid);
        assert_ne!(pid, PANICS, "as the test wants");
        if pid == BLOCKS {
            self.entered.send(()).expect("the test waits");
            // The test lets it go on by a word or by its end.
            let _ = self.gate.recv();
        }
        self.functions.insert(pid);
    }

    fn watch_cuda(&mut self, pid: u32, _now: Instant) {
        self.note("cuda", pid);
    }

    fn forget_cuda(&mut self, pid: u32) -> Option<Vec<CudaRow>> {
        self.note("forget_cuda", pid);
        None
    }

    fn advance(&mut self, _now: Instant) {}

    fn coverage(&self, pid: u32) -> Coverage {
        Coverage {
            functions: self.functions.contains(&pid).then(|| BTreeSet::from([pid])),
            cuda: None,
        }
    }

    fn take_news(&mut self) -> Vec<ProbeState> {
        Vec::new()
    }
}

impl Bench {
    fn start() -> Bench {
        let done = Arc::default();
        let (entered_sender, entered) = channel();
        let (open, gate) = channel();
        let stand = Stand {
            done: Arc::clone(&done),
            entered: entered_sender,
            gate,
            functions: BTreeSet::new(),
        };
        Bench {
            attacher: Attacher::start(stand).expect("a thread"),
            done,
            entered,
            open,
        }
    }

    fn block(&mut self) {
        self.attacher.calls(BLOCKS);
        self.entered.recv_timeout(PATIENCE).expect("it is begun");
    }

    /// Answers up to the one that `is` accepts.
    fn answers_until(&self, is: impl Fn(&Answer) -> bool) -> Vec<Answer> {
        let begun = Instant::now();
        let mut answers = Vec::new();
        loop {
            if let Some(answer) = self.attacher.answer().expect("the thread runs") {
                let last = is(&answer);
                answers.push(answer);
                if last {
                    return answers;
                }
                continue;
            }
            assert!(begun.elapsed() < PATIENCE, "only {answers:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn done(&self) -> Vec<(&'static str, u32)> {
        self.done.lock().expect("not poisoned").clone()
    }
}

#[test]
fn asking_never_waits_and_what_came_and_went_meanwhile_is_only_let_go() {
    let mut bench = Bench::start();
    bench.block();
    let mut last = 0;
    for _ in 0..100_000 {
        bench.attacher.cuda(3);
        last = bench.attacher.forget_cuda(3);
        bench.attacher.calls(4);
        bench.attacher.detach(4);
        bench.attacher.detach(5);
    }
    bench.attacher.sockets(6);
    let ticket = bench.attacher.sockets(6);
    let state = bench.attacher.state();
    assert_eq!(
        state.waiting, 3,
        "one entry a process, none for what was never asked"
    );
    assert_eq!(state.busy.and_then(|busy| busy.pid), Some(BLOCKS));
    assert!(bench.attacher.answer().expect("it runs").is_none());
    bench.open.send(()).expect("it waits");
    let answers = bench.answers_until(|answer| matches!(answer, Answer::Sockets(..)));
    let told: Vec<(u32, Ticket)> = answers
        .iter()
        .filter_map(|answer| match answer {
            Answer::Sockets(pid, ticket, _) | Answer::CudaForgotten(pid, ticket, _) => Some((*pid, *ticket)),
            Answer::Coverage(..) | Answer::Probe(_) => None,
        })
        .collect();
    assert_eq!(told, [(3, last), (6, ticket)]);
    let expected = [
        ("calls", BLOCKS),
        ("forget_cuda", 3),
        ("detach", 4),
        ("sockets", 6),
    ];
    assert_eq!(bench.done(), expected);
}

#[test]
fn a_process_is_let_go_before_it_is_attached_to_again() {
    let mut bench = Bench::start();
    bench.attacher.calls(7);
    let covered = |answer: &Answer| matches!(answer, Answer::Coverage(7, of) if of.functions.is_some());
    bench.answers_until(covered);
    bench.block();
    bench.attacher.detach(7);
    bench.attacher.calls(7);
    bench.open.send(()).expect("it waits");
    let answers = bench.answers_until(covered);
    let of_7: Vec<bool> = answers
        .iter()
        .filter_map(|answer| match answer {
            Answer::Coverage(7, of) => Some(of.functions.is_some()),
            _ => None,
        })
        .collect();
    assert_eq!(of_7, [false, true], "told anew though it is the same");
    assert_eq!(
        bench.done(),
        [("calls", 7), ("calls", BLOCKS), ("detach", 7), ("calls", 7)]
    );
}

#[test]
fn the_end_does_not_wait_for_attaching_and_nothing_is_begun_after_it() {
    let mut bench = Bench::start();
    bench.block();
    bench.attacher.calls(8);
    let Bench {
        attacher, done, open, ..
    } = bench;
    let wishes = Arc::clone(&attacher.wishes);
    drop(attacher);
    open.send(()).expect("it still waits");
    let begun = Instant::now();
    // The thread has let go of its half.
    while Arc::strong_count(&wishes) > 1 {
        assert!(begun.elapsed() < PATIENCE, "the thread does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(*done.lock().expect("not poisoned"), [("calls", BLOCKS)]);
}

#[test]
fn a_panic_is_told() {
    let mut bench = Bench::start();
    bench.attacher.calls(PANICS);
    let begun = Instant::now();
    while bench.attacher.answer().is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the panic is not told");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What may be asked of a process.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Sockets,
    Calls,
    Detach,
    Cuda,
    ForgetCuda,
    /// The thread takes one wish.
    Take,
}

fn ask() -> impl Strategy<Value = (u32, Ask)> {
    use Ask::{Calls, Cuda, Detach, ForgetCuda, Sockets, Take};
    let asks = prop::sample::select(vec![Sockets, Calls, Detach, Cuda, ForgetCuda, Take]);
    (0..3_u32, asks)
}

/// Sockets, calls and CUDA, each by the number of the last letting go before it.
type Is = HashMap<u32, [Option<u64>; 3]>;

proptest! {
    /// However the thread's turns fall, what is there in the end is what was asked last, and none of it is older than the last
    /// letting go.
    #[test]
    fn merging_changes_nothing_of_the_end(asks in prop::collection::vec(ask(), 0..60)) {
        let wishes = Wishes::default();
        let far = Instant::now() + Duration::from_secs(3600);
        let (mut wanted, mut is) = (Is::new(), Is::new());
        let mut ticket = 0;
        let take = |is: &mut Is, now: u64| {
            let Next::Wish(pid, wish) = wishes.next(far) else { return };
            let of = is.entry(pid).or_default();
            if wish.detach {
                (of[0], of[1]) = (None, None);
            }
            if wish.forget_cuda.is_some() {
                of[2] = None;
            }
            for (at, wished) in [wish.sockets.is_some(), wish.calls, wish.cuda].into_iter().enumerate() {
                if wished {
                    of[at] = of[at].or(Some(now));
                }
            }
        };
        let mut let_go: HashMap<u32, [u64; 3]> = HashMap::new();
        for (pid, ask) in asks {
            ticket += 1;
            let of = wanted.entry(pid).or_default();
            match ask {
                Ask::Sockets => { wishes.sockets(pid, ticket); of[0] = of[0].or(Some(ticket)); }
                Ask::Calls => { wishes.calls(pid); of[1] = of[1].or(Some(ticket)); }
                Ask::Cuda => { wishes.cuda(pid); of[2] = of[2].or(Some(ticket)); }
                Ask::Detach => {
                    wishes.detach(pid);
                    (of[0], of[1]) = (None, None);
                    let went = let_go.entry(pid).or_default();
                    (went[0], went[1]) = (ticket, ticket);
                }
                Ask::ForgetCuda => {
                    wishes.forget_cuda(pid, ticket);
                    of[2] = None;
                    let_go.entry(pid).or_default()[2] = ticket;
                }
                Ask::Take => if wishes.state().waiting > 0 { take(&mut is, ticket) },
            }
        }
        while wishes.state().waiting > 0 {
            take(&mut is, ticket + 1);
        }
        for (pid, wanted) in wanted {
            let is = is.get(&pid).copied().unwrap_or_default();
            let went = let_go.get(&pid).copied().unwrap_or_default();
            for at in 0..3 {
                prop_assert_eq!(is[at].is_some(), wanted[at].is_some(), "{} of {}", at, pid);
                prop_assert!(is[at].is_none_or(|since| since > went[at]), "{} of {} is older", at, pid);
            }
        }
    }
}
