//! Two slots and the requests that want them, as calls.

use super::*;
use crate::observation::StepKind;
use infertap_abi::Function;

const TGID: u32 = 7;
/// The thread of the server's loop.
const LOOP: u32 = 1;
const MS: Nanos = 1_000_000;
/// Bytes of a token in the build that was looked at.
const TOKEN: u64 = 112;
const SLOT_A: u64 = 0x7f39_3435_0a10;
const SLOT_B: u64 = 0x7f39_3435_20c0;

/// Kind, prompt tokens, generated tokens and requests of a step.
type ToldStep = (Option<StepKind>, Option<u64>, Option<u64>, Option<u64>);

#[derive(Default)]
struct Server {
    slots: Slots,
    out: Vec<Observation>,
}

fn engine() -> Arc<str> {
    "llama-cpp-8080".into()
}

impl Server {
    fn call(
        &mut self,
        function: Function,
        tid: u32,
        times: (u64, u64),
        args: [u64; 4],
        ret: Option<u64>,
        bytes: &[u8],
    ) {
        let call = Call {
            tgid: TGID,
            tid,
            function,
            begin: times.0 * MS,
            end: times.1 * MS,
            args,
            ret,
            bytes,
        };
        self.slots.call(&call, &engine(), None, &mut self.out);
    }

    /// A request of `prompt` tokens is read, tokenized and posted as a task, all at `at`.
    fn request(&mut self, at: u64, tid: u32, conn: u64, prompt: u64, task: u64) {
        self.slots.read(TGID, tid, ConnId(conn), &engine());
        for tokens in [4, prompt] {
            self.call(Function::LlamaTokenize, tid, (at, at), [0; 4], Some(tokens), &[]);
        }
        self.call(Function::LlamaTaskId, tid, (at, at), [0; 4], Some(task), &[]);
    }

    fn launch(&mut self, at: u64, slot: u64, task: u32) {
        let (args, bytes) = ([0, slot, 0, 0], task.to_le_bytes());
        self.call(Function::LlamaSlotLaunch, LOOP, (at, at), args, Some(1), &bytes);
    }

    fn prepare(&mut self, at: u64) {
        self.call(Function::LlamaUpdateSlots, LOOP, (at, at), [0; 4], None, &[]);
    }

    /// A batch of `tokens` is put together at `at`, and run until `end`; then these slots have a token more.
    fn step(&mut self, at: u64, end: u64, tokens: u64, slots: &[u64]) {
        self.prepare(at);
        let begin = 0x7f39_344c_ef10;
        let mut words = [0u64; 16];
        words[0] = 2048;
        words[9..12].copy_from_slice(&[begin, begin + tokens * TOKEN, begin + 2048 * TOKEN]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.call(Function::LlamaProcess, LOOP, (at, end), [0; 4], Some(0), &bytes);
        for slot in slots {
            self.token(end, *slot);
        }
    }

    fn token(&mut self, at: u64, slot: u64) {
        self.call(
            Function::LlamaSlotToken,
            LOOP,
            (at, at),
            [0, 0, slot, 0],
            None,
            &[],
        );
    }

    fn release(&mut self, at: u64, slot: u64) {
        self.call(
            Function::LlamaSlotRelease,
            LOOP,
            (at, at),
            [slot, 0, 0, 0],
            None,
            &[],
        );
    }

    fn take(&mut self, conn: u64, since: u64) -> Option<Told> {
        self.slots
            .take(TGID, ConnId(conn), Some(since * MS), &mut self.out)
    }

    fn loads(&self) -> Vec<(u64, u64)> {
        let load = |observation: &Observation| match observation {
            Observation::Engine(report) => report.load.map(|load| (load.running, load.waiting)),
            _ => None,
        };
        self.out.iter().filter_map(load).collect()
    }

    fn steps(&self) -> Vec<ToldStep> {
        let step = |observation: &Observation| match observation {
            Observation::Step(s) => Some((s.kind, s.prefill_tokens, s.decode_tokens, s.requests)),
            _ => None,
        };
        self.out.iter().filter_map(step).collect()
    }
}

/// Three requests want two slots; the size of a token is learnt on the way.
fn three_on_two() -> Server {
    let mut server = Server::default();
    server.prepare(0);
    server.request(10, 11, 101, 35, 1);
    server.launch(12, SLOT_A, 1);
    server.step(13, 50, 35, &[SLOT_A]);
    for at in [51, 61, 71] {
        server.step(at, at + 9, 1, &[SLOT_A]);
    }
    server.request(75, 12, 102, 430, 2);
    server.request(76, 13, 103, 70, 3);
    server.launch(81, SLOT_B, 2);
    // The prompt takes two batches.
    server.step(82, 200, 301, &[SLOT_A]);
    server.step(201, 300, 106, &[SLOT_A, SLOT_B]);
    server.step(301, 310, 2, &[SLOT_A, SLOT_B]);
    server.release(311, SLOT_A);
    server.launch(312, SLOT_A, 3);
    server.step(313, 360, 47, &[SLOT_B, SLOT_A]);
    server.prepare(361);
    server
}

#[test]
fn each_request_has_the_times_of_its_own_slot() {
    let mut server = three_on_two();
    let times =
        |told: &Told| [told.scheduled, told.first_token, told.last_token].map(|at| at.map(|at| at / MS));
    let first = server.take(101, 10).expect("known");
    assert_eq!(times(&first), [Some(13), Some(50), Some(310)]);
    assert_eq!((first.input_tokens, first.output_tokens), (Some(35), Some(7)));
    let gaps: Vec<f64> = first.gaps.iter().map(|gap| (gap.0 * 1e3).round()).collect();
    assert_eq!(
        gaps,
        [10.0, 10.0, 10.0, 120.0, 100.0, 10.0],
        "waits for another's prompt show"
    );
    let second = server.take(102, 75).expect("known");
    assert_eq!(times(&second), [Some(82), Some(300), Some(360)]);
    assert_eq!((second.input_tokens, second.output_tokens), (Some(430), Some(3)));
    let third = server.take(103, 76).expect("known");
    assert_eq!(times(&third), [Some(313), Some(360), Some(360)]);
    assert_eq!(
        (third.input_tokens, third.output_tokens, third.requests),
        (Some(70), Some(1), 1)
    );
    assert_eq!(
        (second.cached_tokens, third.cached_tokens),
        (Some(25), Some(24)),
        "300 + 105 of 430 and 46 of 70 were computed"
    );
    assert!(server.take(101, 10).is_none(), "taken once");
}

#[test]
fn running_and_waiting_follow_the_slots() {
    let server = three_on_two();
    let expected = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (1, 1), (2, 0)];
    assert_eq!(server.loads(), expected);
}

#[test]
fn steps_tell_what_was_in_them() {
    let steps = three_on_two().steps();
    let decode = |requests| (Some(StepKind::Decode), Some(0), Some(requests), Some(requests));
    // The first goes by before it is sure that no other slot is in use.
    assert_eq!(steps[0].0, None);
    assert_eq!(steps[1..4], [decode(1), decode(1), decode(1)]);
    let unproven = (Some(StepKind::Mixed), None, Some(1), Some(2));
    assert_eq!(steps[4], unproven, "no prompt has shown yet how large a token is");
    assert_eq!(steps[5], (Some(StepKind::Mixed), Some(105), Some(1), Some(2)));
    assert_eq!(steps[6], decode(2));
    assert_eq!(steps[7], (Some(StepKind::Mixed), Some(46), Some(1), Some(2)));
    assert_eq!(steps.len(), 8);
}

#[test]
fn what_was_under_way_before_the_agent_came_is_nobodys() {
    let mut server = Server::default();
    server.request(5, 11, 101, 20, 9);
    server.step(10, 20, 1, &[SLOT_A]);
    server.step(21, 30, 1, &[SLOT_A]);
    assert_eq!(server.loads().last(), Some(&(1, 1)));
    assert_eq!(server.steps()[0].0, None, "a slot turned up that was not known");
    let told = server.take(101, 5).expect("a task was made");
    assert_eq!(
        (told.scheduled, told.first_token, told.output_tokens),
        (None, None, None)
    );
    assert_eq!(told.input_tokens, Some(20));
}

#[test]
fn a_task_that_was_made_before_the_exchange_began_is_another_s() {
    let mut server = Server::default();
    server.request(5, 11, 101, 20, 9);
    assert!(server.take(101, 6).is_none());
    server.request(15, 11, 101, 21, 10);
    assert!(
        server
            .slots
            .take(TGID, ConnId(101), None, &mut server.out)
            .is_none(),
        "joined late"
    );
}

#[test]
fn one_that_never_got_a_slot_has_no_times() {
    let mut server = three_on_two();
    server.request(400, 14, 104, 12, 4);
    assert_eq!(server.loads().last(), Some(&(2, 1)));
    let told = server.take(104, 400).expect("known");
    assert_eq!(
        (told.scheduled, told.output_tokens, told.input_tokens),
        (None, None, Some(12))
    );
    assert_eq!(server.loads().last(), Some(&(2, 0)));
}

#[test]
fn several_choices_are_one_request() {
    let mut server = Server::default();
    server.prepare(0);
    server.request(10, 11, 101, 35, 1);
    server.call(Function::LlamaTaskId, 11, (10, 10), [0; 4], Some(2), &[]);
    server.launch(12, SLOT_A, 2);
    server.launch(12, SLOT_B, 1);
    server.step(13, 50, 35, &[SLOT_B]);
    server.step(51, 60, 2, &[SLOT_B, SLOT_A]);
    let told = server.take(101, 10).expect("known");
    assert_eq!((told.requests, told.output_tokens), (2, Some(3)));
    assert_eq!(
        (told.first_token, told.last_token),
        (Some(50 * MS), Some(60 * MS))
    );
    assert_eq!(
        (told.input_tokens, told.cached_tokens),
        (None, None),
        "which prompt was tokenized is not certain"
    );
}

#[test]
fn drafted_tokens_leave_counts_of_batches_unknown() {
    let mut server = three_on_two();
    server.token(362, SLOT_B);
    server.step(363, 370, 6, &[SLOT_A, SLOT_B, SLOT_B]);
    server.request(371, 15, 105, 50, 5);
    server.release(372, SLOT_A);
    server.launch(373, SLOT_A, 5);
    server.step(374, 380, 53, &[SLOT_B, SLOT_A]);
    server.prepare(381);
    let steps = server.steps();
    assert_eq!(steps[8], (Some(StepKind::Decode), Some(0), Some(3), Some(2)));
    assert_eq!(steps[9], (Some(StepKind::Mixed), None, Some(1), Some(2)));
    assert_eq!(server.take(105, 371).expect("known").cached_tokens, None);
}

#[test]
fn steps_without_slots_have_times_alone() {
    let mut server = Server::default();
    let batch: Vec<u8> = [5, 0x7f00_0000_1000, 0, 0, 0, 0, 0u64]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    for at in [0, 20] {
        server.call(
            Function::LlamaDecode,
            LOOP,
            (at, at + 10),
            [0; 4],
            Some(0),
            &batch,
        );
    }
    server.slots.advance(31 * MS + 1_000 * MS, &mut server.out);
    assert_eq!(server.steps(), [(None, None, None, None); 2]);
    assert!(server.loads().is_empty());
    // One function that calls the other makes one step.
    server.call(Function::LlamaDecode, LOOP, (42, 48), [0; 4], Some(0), &batch);
    server.call(Function::LlamaProcess, LOOP, (41, 49), [0; 4], Some(0), &[]);
    server.slots.advance(2_000 * MS, &mut server.out);
    assert_eq!(server.steps().len(), 3);
}

#[test]
fn tables_are_bounded_and_what_is_given_up_is_counted() {
    let mut server = Server::default();
    let over = 100;
    for request in 0..(MAX_REQUESTS as u64 + over) {
        server.request(request, 11, request, 20, request);
    }
    assert_eq!(server.slots.take_evicted(), over);
    assert!(server.take(0, 0).is_none());
    for tid in 0..=MAX_THREADS as u32 {
        server.slots.read(TGID, tid, ConnId(1), &engine());
    }
    assert_eq!(server.slots.take_evicted(), 1);
    assert!(server.slots.bytes() > 0);
    server.slots.exit(TGID);
    assert_eq!(server.slots.bytes(), 0);
}
