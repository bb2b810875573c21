//! Ids, joins, what is believed, and bounds.

use super::*;
use crate::{
    PrefixConfig,
    engine::vllm::{Added, FinishReason, Lifecycle, LifecycleEvent, Output, SchedulerStats, Step},
    observation::{EngineReport, EngineStep, StepKind},
    prefix::Prefix,
};

mod steps;

const ENGINE: &str = "vllm-8000";

fn seen(front: u32, now: Nanos) -> Seen {
    Seen {
        front,
        now,
        max_gaps: 100,
    }
}

fn add(inside: &mut Inside, engine_id: &str, external: Option<&str>, prompt: u64) {
    add_from(inside, 1, engine_id, external, prompt);
}

fn add_from(inside: &mut Inside, front: u32, engine_id: &str, external: Option<&str>, prompt: u64) {
    let added = Added {
        engine_id,
        external_id: external,
        prompt_tokens: Some(prompt),
        ..Added::default()
    };
    inside.added(&ENGINE.into(), &added, None, seen(front, 0));
}

fn output(engine_id: &str, new_tokens: u32, finish: Option<FinishReason>) -> Output<'_> {
    Output {
        engine_id,
        new_tokens,
        finish,
        ..Output::default()
    }
}

fn take(inside: &mut Inside, response: &str, complete: bool) -> Option<Told> {
    inside.take(ENGINE, response, None, complete)
}

fn told(inside: &mut Inside, front: u32, step: &Step<'_>) -> Vec<Observation> {
    let mut out = Vec::new();
    let now = step.at.unwrap_or(0);
    inside.stepped(
        &ENGINE.into(),
        Some(&"m".into()),
        step,
        &mut Prefix::new(PrefixConfig::default()),
        seen(front, now),
        &mut out,
    );
    out
}

fn step(inside: &mut Inside, at: Nanos, outputs: Vec<Output<'_>>) -> Option<EngineReport> {
    let step = Step {
        at: Some(at),
        outputs,
        ..Step::default()
    };
    told(inside, 1, &step)
        .into_iter()
        .find_map(|observation| match observation {
            Observation::Engine(report) => Some(*report),
            _ => None,
        })
}

#[test]
fn one_request_from_its_addition_to_its_end() {
    let mut inside = Inside::default();
    add(&mut inside, "chatcmpl-a-00000001", Some("chatcmpl-a"), 54);
    let mut first = output("chatcmpl-a-00000001", 1, None);
    first.events = vec![
        LifecycleEvent {
            stage: Lifecycle::Queued,
            at: 90,
        },
        LifecycleEvent {
            stage: Lifecycle::Scheduled,
            at: 100,
        },
    ];
    first.cached_tokens = Some(48);
    step(&mut inside, 150_000_000, vec![first, output("stranger", 1, None)]);
    step(
        &mut inside,
        160_000_000,
        vec![output("chatcmpl-a-00000001", 2, None)],
    );
    let mut again = output("chatcmpl-a-00000001", 1, Some(FinishReason::Stop));
    again.events = vec![
        LifecycleEvent {
            stage: Lifecycle::Preempted,
            at: 161,
        },
        LifecycleEvent {
            stage: Lifecycle::Scheduled,
            at: 165,
        },
    ];
    let report = step(&mut inside, 170_000_000, vec![again]).expect("a preemption to tell");
    assert_eq!((report.preemptions, report.load), (1, None));
    assert_eq!(
        take(&mut inside, "chatcmpl-a", true),
        Some(Told {
            shared: None,
            scheduled: Some(100),
            first_token: Some(150_000_000),
            last_token: Some(170_000_000),
            input_tokens: Some(54),
            cached_tokens: Some(48),
            output_tokens: Some(4),
            reasoning_tokens: None,
            requests: 1,
            gaps: vec![(0.01, 2), (0.01, 1)],
        })
    );
    assert_eq!(take(&mut inside, "chatcmpl-a", true), None, "once");
    assert!(inside.engines[ENGINE].members.is_empty());
}

#[test]
fn prompts_are_added_up_and_choices_share_theirs() {
    let mut inside = Inside::default();
    add(&mut inside, "0_cmpl-a-0-00000001", Some("cmpl-a-0"), 10);
    add(&mut inside, "1_cmpl-a-0-00000001", Some("cmpl-a-0"), 10);
    add(&mut inside, "cmpl-a-1-00000002", Some("cmpl-a-1"), 7);
    let finish = Some(FinishReason::Length);
    let mut outputs = vec![
        output("0_cmpl-a-0-00000001", 3, finish),
        output("1_cmpl-a-0-00000001", 4, finish),
        output("cmpl-a-1-00000002", 5, finish),
    ];
    for (output, cached) in outputs.iter_mut().zip([0, 8, 2]) {
        output.cached_tokens = Some(cached);
    }
    step(&mut inside, 9, outputs);
    let told = take(&mut inside, "cmpl-a", true).expect("known");
    assert_eq!(
        (told.input_tokens, told.cached_tokens, told.output_tokens),
        (Some(17), Some(10), Some(12))
    );
}

#[test]
fn what_may_be_too_little_is_not_told() {
    let mut inside = Inside::default();
    add(&mut inside, "a", None, 5);
    step(&mut inside, 1, vec![output("a", 1, None)]);
    inside.lost(ENGINE);
    step(&mut inside, 2, vec![output("a", 1, Some(FinishReason::Stop))]);
    let told = take(&mut inside, "a", true).expect("known");
    assert_eq!(
        (told.input_tokens, told.output_tokens, told.last_token),
        (Some(5), None, None)
    );

    add(&mut inside, "b", None, 5);
    step(&mut inside, 3, vec![output("b", 3, None)]);
    let unfinished = take(&mut inside, "b", true).expect("known");
    assert_eq!(unfinished.output_tokens, None, "the stop string came earlier");
    add(&mut inside, "c", None, 5);
    step(&mut inside, 4, vec![output("c", 3, None)]);
    assert_eq!(
        take(&mut inside, "c", false).expect("known").output_tokens,
        Some(3),
        "cancelled"
    );
}

#[test]
fn cores_are_added_up() {
    let mut inside = Inside::default();
    let stats = |running, waiting, usage| {
        Some(SchedulerStats {
            running,
            waiting,
            kv_usage: Some(usage),
            prefix_queried: 10,
            prefix_hit: 4,
            iteration: None,
        })
    };
    let mut report = None;
    add(&mut inside, "a", None, 5);
    for (index, running, usage) in [(0, 1, 0.5), (1, 2, 0.25), (0, 4, 0.75)] {
        let step = Step {
            engine_index: index,
            stats: stats(running, 1, usage),
            ..Step::default()
        };
        report = told(&mut inside, 1, &step)
            .into_iter()
            .find_map(|observation| match observation {
                Observation::Engine(report) => Some(*report),
                _ => None,
            });
    }
    let report = report.expect("a load to tell");
    let load = report.load.expect("told");
    assert_eq!(
        (load.running, load.waiting, load.kv_cache_usage),
        (6, 2, Some(0.5))
    );
    assert_eq!((report.prefix_queried_tokens, report.prefix_hit_tokens), (10, 4));
}

#[test]
fn the_table_is_bounded() {
    let mut inside = Inside::default();
    for i in 0..3 * MAX_RESPONSES {
        add(&mut inside, &format!("chatcmpl-{i}"), None, 1);
        if i % 2 == 0 {
            take(&mut inside, &format!("chatcmpl-{i}"), true);
        }
    }
    let engine = &inside.engines[ENGINE];
    assert!(engine.responses.len() <= MAX_RESPONSES && engine.members.len() <= MAX_RESPONSES);
    assert!(engine.order.len() <= 2 * MAX_RESPONSES);
    assert!(inside.bytes() > 0);
    inside.down(ENGINE, &mut Vec::new());
    assert_eq!(inside.bytes(), 0);
}

#[test]
fn what_nobody_comes_for_is_forgotten_in_time() {
    let mut inside = Inside::default();
    for id in ["finished", "given up", "under way"] {
        add(&mut inside, id, None, 5);
    }
    step(
        &mut inside,
        5,
        vec![output("finished", 1, Some(FinishReason::Stop))],
    );
    inside.aborted(ENGINE, &["given up", "never seen"], seen(1, 5));
    let left = |inside: &Inside| {
        let mut left: Vec<String> = inside.engines[ENGINE]
            .responses
            .keys()
            .map(ToString::to_string)
            .collect();
        left.sort_unstable();
        left
    };
    let mut out = Vec::new();
    inside.advance(KEEP_ENDED - SWEEP, &mut out);
    assert_eq!(left(&inside).len(), 3);
    inside.advance(KEEP_ENDED + SWEEP, &mut out);
    assert_eq!(left(&inside), ["under way"]);
    inside.advance(KEEP_SILENT + SWEEP, &mut out);
    assert_eq!(left(&inside), [""; 0]);
    assert!(inside.engines[ENGINE].members.is_empty());
}

#[test]
fn of_two_responses_with_one_id_nothing_is_believed() {
    // A client that chooses ids (`X-Request-Id`) may choose one twice.
    let mut inside = Inside::default();
    add(&mut inside, "chatcmpl-x-00000001", Some("chatcmpl-x"), 5);
    add(&mut inside, "chatcmpl-x-00000002", Some("chatcmpl-x"), 7);
    assert_eq!(take(&mut inside, "chatcmpl-x", true), None);
    assert!(inside.engines[ENGINE].members.is_empty());

    let added = Added {
        engine_id: "chatcmpl-y-00000001",
        external_id: Some("chatcmpl-y"),
        ..Added::default()
    };
    inside.added(&ENGINE.into(), &added, None, seen(1, 50));
    assert_eq!(
        inside.take(ENGINE, "chatcmpl-y", Some(51), true),
        None,
        "another's"
    );
    assert!(inside.take(ENGINE, "chatcmpl-y", Some(50), true).is_some());
}

#[test]
fn what_had_finished_before_a_loss_is_whole() {
    let mut inside = Inside::default();
    add(&mut inside, "a", None, 5);
    step(&mut inside, 1, vec![output("a", 3, Some(FinishReason::Length))]);
    inside.lost(ENGINE);
    let told = take(&mut inside, "a", true).expect("known");
    assert_eq!((told.output_tokens, told.last_token), (Some(3), Some(1)));
}

#[test]
fn a_stop_string_ends_a_response_before_the_engine_knows() {
    let mut inside = Inside::default();
    add(&mut inside, "a", None, 5);
    step(&mut inside, 1, vec![output("a", 3, None)]);
    inside.aborted(ENGINE, &["a"], seen(1, 2));
    step(&mut inside, 3, vec![output("a", 1, None)]);
    let told = take(&mut inside, "a", true).expect("known");
    assert_eq!(
        (told.output_tokens, told.last_token, told.gaps.len()),
        (None, None, 0)
    );
    assert_eq!(told.first_token, Some(1));
}

#[test]
fn one_that_goes_on_with_more_input_is_one() {
    let mut inside = Inside::default();
    add(&mut inside, "a", None, 5);
    step(&mut inside, 1, vec![output("a", 3, Some(FinishReason::Stop))]);
    add(&mut inside, "a", None, 9);
    assert_eq!(
        take(&mut inside, "a", true).and_then(|told| told.output_tokens),
        None,
        "it is not over"
    );

    add(&mut inside, "b", None, 5);
    step(&mut inside, 2, vec![output("b", 3, Some(FinishReason::Stop))]);
    add(&mut inside, "b", None, 9);
    step(&mut inside, 3, vec![output("b", 2, Some(FinishReason::Stop))]);
    let told = take(&mut inside, "b", true).expect("known");
    assert_eq!((told.requests, told.output_tokens), (1, Some(5)));
}
