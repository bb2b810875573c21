//! Ids, joins, what is believed, and bounds.

use super::*;
use crate::engine::vllm::{FinishReason, LifecycleEvent, SchedulerStats};

const ENGINE: &str = "vllm-8000";

fn add(inside: &mut Inside, engine_id: &str, external: Option<&str>, prompt: u64) {
    let added = Added {
        engine_id,
        external_id: external,
        prompt_tokens: Some(prompt),
        ..Added::default()
    };
    inside.added(&ENGINE.into(), &added);
}

fn output(engine_id: &str, new_tokens: u32, finish: Option<FinishReason>) -> Output<'_> {
    Output {
        engine_id,
        new_tokens,
        finish,
        ..Output::default()
    }
}

fn step(inside: &mut Inside, at: Nanos, outputs: Vec<Output<'_>>) -> Option<EngineReport> {
    let step = Step {
        at: Some(at),
        outputs,
        ..Step::default()
    };
    inside.stepped(&ENGINE.into(), None, &step)
}

#[test]
fn ids_lead_to_their_response() {
    for (external, engine_id, response) in [
        (
            Some("chatcmpl-ab-12"),
            "chatcmpl-ab-12-0011aabb",
            "chatcmpl-ab-12",
        ),
        (None, "chatcmpl-ab", "chatcmpl-ab"),
        (None, "chatcmpl-ab-0011aabb", "chatcmpl-ab"),
        (None, "3_chatcmpl-ab", "chatcmpl-ab"),
        (Some("cmpl-ab-0"), "cmpl-ab-0-0011aabb", "cmpl-ab"),
        (None, "cmpl-a-b-11", "cmpl-a-b"),
        (None, "cmpl-x", "cmpl-x"),
        (None, "my_own_id", "my_own_id"),
    ] {
        assert_eq!(
            response_id(prompt_id(external, engine_id)),
            response,
            "{engine_id}"
        );
    }
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
    step(&mut inside, 150, vec![first, output("stranger", 1, None)]);
    step(&mut inside, 160, vec![output("chatcmpl-a-00000001", 2, None)]);
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
    let report = step(&mut inside, 170, vec![again]).expect("a preemption to tell");
    assert_eq!((report.preemptions, report.load), (1, None));
    assert_eq!(
        inside.take(ENGINE, "chatcmpl-a", true),
        Some(Told {
            scheduled: Some(100),
            first_token: Some(150),
            last_token: Some(170),
            input_tokens: Some(54),
            cached_tokens: Some(48),
            output_tokens: Some(4),
            requests: 1,
        })
    );
    assert_eq!(inside.take(ENGINE, "chatcmpl-a", true), None, "once");
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
    let told = inside.take(ENGINE, "cmpl-a", true).expect("known");
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
    let told = inside.take(ENGINE, "a", true).expect("known");
    assert_eq!(
        (told.input_tokens, told.output_tokens, told.last_token),
        (Some(5), None, None)
    );

    add(&mut inside, "b", None, 5);
    step(&mut inside, 3, vec![output("b", 3, None)]);
    let unfinished = inside.take(ENGINE, "b", true).expect("known");
    assert_eq!(unfinished.output_tokens, None, "the stop string came earlier");
    add(&mut inside, "c", None, 5);
    step(&mut inside, 4, vec![output("c", 3, None)]);
    assert_eq!(
        inside.take(ENGINE, "c", false).expect("known").output_tokens,
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
        })
    };
    let mut report = None;
    for (index, running, usage) in [(0, 1, 0.5), (1, 2, 0.25), (0, 4, 0.75)] {
        let step = Step {
            engine_index: index,
            stats: stats(running, 1, usage),
            ..Step::default()
        };
        report = inside.stepped(&ENGINE.into(), Some(&"m".into()), &step);
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
            inside.take(ENGINE, &format!("chatcmpl-{i}"), true);
        }
    }
    let engine = &inside.engines[ENGINE];
    assert!(engine.responses.len() <= MAX_RESPONSES && engine.members.len() <= MAX_RESPONSES);
    assert!(engine.order.len() <= 2 * MAX_RESPONSES);
    assert!(inside.bytes() > 0);
    inside.down(ENGINE);
    assert_eq!(inside.bytes(), 0);
}
