//! Which calls are tied to which request, and that none is lost on the way.

use super::*;
use proptest::prelude::*;

const SERVER: u32 = 10;
const LOOP: (u32, u32) = (SERVER, 10);

struct Case {
    tokenizing: Tokenizing,
    engine: Arc<str>,
}

impl Case {
    fn new() -> Case {
        Case {
            tokenizing: Tokenizing::default(),
            engine: "engine".into(),
        }
    }

    /// An engine that has sent a request on already.
    fn with_messages() -> Case {
        let mut case = Case::new();
        case.sent(0, "warm-up", Some(1));
        case
    }

    fn open(&mut self, exchange: u64, t0: Nanos, thread: (u32, u32)) {
        self.tokenizing.opened(&self.engine, exchange, t0, thread);
    }

    fn call(&mut self, begin: Nanos, end: Nanos, tokens: Option<u64>) {
        let call = TextCall {
            tgid: SERVER,
            tid: 77,
            begin,
            end,
            tokens,
            in_serving_thread: false,
        };
        self.tokenizing.call(&self.engine, call);
    }

    fn call_in(&mut self, thread: (u32, u32), begin: Nanos, end: Nanos) {
        let call = TextCall {
            tgid: thread.0,
            tid: thread.1,
            begin,
            end,
            tokens: None,
            in_serving_thread: true,
        };
        self.tokenizing.call(&self.engine, call);
    }

    fn sent(&mut self, at: Nanos, response: &str, tokens: Option<u64>) {
        self.tokenizing
            .sent_on(&self.engine, SERVER, at, response, response, tokens);
    }

    fn take(&mut self, exchange: u64, response: &str, told: Option<u64>) -> Option<u64> {
        self.tokenizing
            .take(&self.engine, exchange, Some(response), told)
            .map(|seconds| (seconds * 1e9).round() as u64)
    }

    /// Tied, and nobody's, when everything has ended.
    fn counts(&mut self) -> (u64, u64) {
        self.tokenizing.down("engine");
        let mut out = Vec::new();
        self.tokenizing.advance(Nanos::MAX, &mut out);
        match out.as_slice() {
            [] => (0, 0),
            [Observation::TokenizerCalls { tied, unassigned }] => (*tied, *unassigned),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_serving_thread_tokenizes_for_the_request_that_it_read() {
    let mut case = Case::new();
    case.call_in((SERVER, 11), 5, 6);
    case.open(1, 100, (SERVER, 11));
    case.open(2, 110, (SERVER, 12));
    case.call_in((SERVER, 11), 120, 130);
    case.call_in((SERVER, 12), 121, 151);
    case.call_in((SERVER, 11), 140, 145);
    case.call_in((SERVER, 13), 140, 145);
    case.tokenizing.answered("engine", 1);
    // While the response is written, it is not the prompt.
    case.call_in((SERVER, 11), 200, 300);
    // Kept alive: the thread reads the next one.
    case.open(3, 400, (SERVER, 11));
    case.call_in((SERVER, 11), 410, 411);
    assert_eq!(case.take(1, "a", Some(7)), Some(15));
    assert_eq!(case.take(2, "b", None), Some(30));
    assert_eq!(case.take(3, "c", None), Some(1));
    assert_eq!(case.counts(), (4, 3));
}

#[test]
fn a_message_finds_the_call_that_gave_as_many_tokens() {
    let mut case = Case::with_messages();
    case.open(1, 100, LOOP);
    case.open(2, 100, LOOP);
    case.call(110, 120, Some(38));
    case.call(111, 141, Some(12));
    case.sent(150, "b", Some(12));
    case.sent(151, "a", Some(38));
    assert_eq!(case.take(1, "a", None), Some(10));
    assert_eq!(case.take(2, "b", None), Some(30));
    assert_eq!(case.counts(), (2, 0));
}

#[test]
fn calls_that_fit_two_requests_are_for_none_and_later_ones_are_clear_again() {
    let mut case = Case::with_messages();
    for exchange in 1..=3 {
        case.open(exchange, 100, LOOP);
    }
    case.call(110, 120, Some(38));
    case.call(111, 141, Some(38));
    case.sent(150, "a", Some(38));
    case.sent(151, "b", Some(38));
    // As long as those, and alone.
    case.call(160, 167, Some(38));
    case.sent(170, "c", Some(38));
    assert_eq!(case.take(1, "a", None), None);
    assert_eq!(case.take(2, "b", None), None);
    assert_eq!(case.take(3, "c", None), Some(7));
    assert_eq!(case.counts(), (1, 2));
}

#[test]
fn a_call_that_a_request_without_one_took_is_given_to_nobody() {
    let mut case = Case::with_messages();
    case.open(1, 100, LOOP);
    case.open(2, 100, LOOP);
    case.call(110, 120, Some(38));
    // This one came as tokens, and was quicker.
    case.sent(121, "tokens", Some(38));
    case.sent(122, "text", Some(38));
    assert_eq!(case.take(1, "tokens", None), None);
    assert_eq!(case.take(2, "text", None), None);
    assert_eq!(case.counts(), (0, 1));
}

#[test]
fn a_call_of_another_time_or_process_does_not_fit() {
    for (t0, call, sent, tgid) in [
        // Before the request came: it was for somebody else.
        (130, (110, 120), 150, SERVER),
        // Ended after the request was sent on.
        (100, (110, 160), 150, SERVER),
        // Too long ago.
        (100, (110, 120), 121 + MESSAGE_WITHIN_NS, SERVER),
        // Of another API server.
        (100, (110, 120), 150, SERVER + 1),
    ] {
        let mut case = Case::with_messages();
        case.open(1, t0, LOOP);
        case.call(call.0, call.1, Some(38));
        case.tokenizing
            .sent_on(&case.engine, tgid, sent, "a", "a", Some(38));
        assert_eq!(case.take(1, "a", None), None, "{t0} {call:?} {sent} {tgid}");
        assert_eq!(case.counts(), (0, 1), "{t0} {call:?} {sent} {tgid}");
    }
}

#[test]
fn without_counts_only_a_single_call_fits() {
    let mut case = Case::with_messages();
    case.open(1, 100, LOOP);
    case.call(110, 120, None);
    case.sent(130, "a", Some(38));
    assert_eq!(case.take(1, "a", None), Some(10));
    case.open(2, 200, LOOP);
    case.open(3, 200, LOOP);
    case.call(210, 220, None);
    case.call(211, 221, None);
    case.sent(230, "b", Some(38));
    case.sent(231, "c", Some(12));
    assert_eq!(case.take(2, "b", None), None);
    assert_eq!(case.take(3, "c", None), None);
    assert_eq!(case.counts(), (1, 2));
}

#[test]
fn a_response_has_the_calls_of_all_its_prompts_or_none() {
    let mut case = Case::with_messages();
    case.open(1, 100, LOOP);
    case.call(110, 120, Some(3));
    case.call(120, 150, Some(4));
    let sent = |case: &mut Case, prompt: &str, response: &str, tokens| {
        case.tokenizing
            .sent_on(&case.engine, SERVER, 160, prompt, response, Some(tokens));
    };
    // Two choices of the first prompt.
    sent(&mut case, "a-0", "a", 3);
    sent(&mut case, "a-0", "a", 3);
    sent(&mut case, "a-1", "a", 4);
    assert_eq!(case.take(1, "a", None), Some(40));

    case.open(2, 200, LOOP);
    case.call(210, 220, Some(3));
    sent(&mut case, "b-1", "b", 9);
    assert_eq!(case.take(2, "b", None), None, "one of two");
    assert_eq!(case.counts(), (2, 1));
}

#[test]
fn alone_a_request_has_the_calls_that_came_with_it() {
    let mut case = Case::new();
    case.call(5, 6, None);
    case.open(1, 100, LOOP);
    case.call(110, 120, Some(3));
    case.call(120, 150, Some(38));
    assert_eq!(
        case.take(1, "a", Some(38)),
        Some(40),
        "the largest is the whole prompt"
    );
    case.open(2, 200, LOOP);
    case.call(210, 220, Some(38));
    assert_eq!(case.take(2, "b", Some(40)), None, "another's");
    case.open(3, 300, LOOP);
    case.open(4, 300, LOOP);
    case.call(310, 320, Some(38));
    case.tokenizing.answered("engine", 3);
    case.call(330, 331, Some(12));
    assert_eq!(case.take(3, "c", Some(38)), None);
    assert_eq!(case.take(4, "d", Some(12)), Some(1));
    assert_eq!(case.counts(), (3, 3));
}

#[test]
fn all_of_it_is_bounded() {
    let mut case = Case::with_messages();
    for i in 0..10_000_u64 {
        case.open(i, i, (SERVER, i as u32));
        case.call(i, i + 1, Some(i));
        case.sent(i + 1, &format!("r{i}"), Some(i + 1));
    }
    let engine = &case.tokenizing.engines["engine"];
    assert_eq!(engine.open.len(), MAX_OPEN);
    assert_eq!(engine.threads.len(), MAX_OPEN);
    assert_eq!(engine.waiting.len(), MAX_WAITING);
    assert_eq!(engine.answers.len(), MAX_ANSWERS);
    assert!(engine.order.len() <= 2 * MAX_ANSWERS);
    assert!(case.tokenizing.bytes() < 8 << 20);
    assert_eq!(case.counts(), (0, 10_000));
}

#[derive(Debug, Clone)]
enum Step {
    Open(u64, u32),
    Answer(u64),
    Call(u64, Option<u64>, bool, u32),
    Sent(u64, u64),
    Take(u64, Option<u64>),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let exchange = 0..6_u64;
    prop_oneof![
        (exchange.clone(), 0..3_u32).prop_map(|(e, t)| Step::Open(e, t)),
        exchange.clone().prop_map(Step::Answer),
        (0..50_u64, prop::option::of(0..3_u64), any::<bool>(), 0..3_u32)
            .prop_map(|(d, n, s, t)| Step::Call(d, n, s, t)),
        (exchange.clone(), 0..3_u64).prop_map(|(e, n)| Step::Sent(e, n)),
        (exchange, prop::option::of(0..3_u64)).prop_map(|(e, n)| Step::Take(e, n)),
        (0..2 * MESSAGE_WITHIN_NS).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Every call is counted once: tied or not. And no request has more time than there was since it came.
    #[test]
    fn no_call_is_lost_or_given_twice(steps in prop::collection::vec(step(), 0..80)) {
        let mut case = Case::new();
        let mut now = 1;
        let mut calls = 0;
        for step in steps {
            now += 1;
            match step {
                Step::Open(exchange, thread) if !case.is_open(exchange) => case.open(exchange, now, (SERVER, thread)),
                Step::Open(..) => {}
                Step::Answer(exchange) => case.tokenizing.answered("engine", exchange),
                Step::Call(took, tokens, in_serving_thread, tid) => {
                    calls += 1;
                    let begin = now;
                    now += took;
                    let call = TextCall { tgid: SERVER, tid, begin, end: now, tokens, in_serving_thread };
                    case.tokenizing.call(&case.engine, call);
                }
                Step::Sent(exchange, tokens) => case.sent(now, &exchange.to_string(), Some(tokens)),
                Step::Take(exchange, told) => {
                    case.take(exchange, &exchange.to_string(), told);
                }
                Step::Wait(time) => now += time,
            }
        }
        let (tied, unassigned) = case.counts();
        prop_assert_eq!(tied + unassigned, calls);
    }
}

impl Case {
    fn is_open(&self, exchange: u64) -> bool {
        self.tokenizing
            .engines
            .get("engine")
            .is_some_and(|engine| engine.open.contains_key(&exchange))
    }
}
