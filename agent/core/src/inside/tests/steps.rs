//! Steps: their kind, batch, time, and how pieces of several API servers become one.

use super::*;
use crate::engine::vllm::Iteration;

const MS: Nanos = 1_000_000;

/// A message at a millisecond: what each request got (id, tokens, scheduled at which millisecond, finished), and how many
/// requests run on.
type Row<'a> = (u64, &'a [(&'a str, u32, Option<u64>, bool)], Option<u64>);

fn message<'a>(row: &Row<'a>) -> Step<'a> {
    let (at, outputs, running) = row;
    let outputs = outputs.iter().map(|(id, tokens, scheduled, finished)| {
        let mut output = output(id, *tokens, finished.then_some(FinishReason::Length));
        if let Some(at) = scheduled {
            output.events = vec![LifecycleEvent {
                stage: Lifecycle::Scheduled,
                at: at * MS,
            }];
            output.cached_tokens = Some(2);
        }
        output
    });
    Step {
        at: Some(at * MS),
        outputs: outputs.collect(),
        stats: running.map(|running| SchedulerStats {
            running,
            ..SchedulerStats::default()
        }),
        ..Step::default()
    }
}

/// A step as `end: start kind requests prefill+decode`.
fn line(step: &EngineStep) -> String {
    let ms = |at: Nanos| (at / MS).to_string();
    let number = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    format!(
        "{}: {} {} {} {}+{}",
        ms(step.end),
        step.start.map_or("?".to_owned(), ms),
        step.kind.map_or("?", StepKind::as_str),
        number(step.requests),
        number(step.prefill_tokens),
        number(step.decode_tokens),
    )
}

fn steps(out: &[Observation]) -> Vec<String> {
    out.iter()
        .filter_map(|observation| match observation {
            Observation::Step(step) => Some(line(step)),
            _ => None,
        })
        .collect()
}

/// Plays messages to one API server, then waits.
fn play(inside: &mut Inside, rows: &[Row<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    for row in rows {
        out.extend(told(inside, 1, &message(row)));
    }
    let end = rows.last().map_or(0, |row| row.0);
    inside.advance((end + 2000) * MS, &mut out);
    steps(&out)
}

fn with(ids: &[&str]) -> Inside {
    let mut inside = Inside::default();
    for id in ids {
        add(&mut inside, id, None, 10);
    }
    inside
}

#[test]
fn steps_have_a_kind_a_batch_and_a_time() {
    let mut inside = with(&["a", "b"]);
    let rows: &[Row] = &[
        (110, &[("a", 1, Some(100), false)], Some(1)),
        (120, &[("a", 1, None, false)], Some(1)),
        (140, &[("a", 2, None, false), ("b", 1, Some(121), false)], Some(2)),
        (150, &[("a", 1, None, true), ("b", 1, None, false)], Some(1)),
        (160, &[("b", 1, None, true)], Some(0)),
    ];
    assert_eq!(
        play(&mut inside, rows),
        [
            "110: 100 prefill 1 ?+0",
            "120: 110 decode 1 0+1",
            "140: 120 mixed 2 8+2",
            "150: 140 decode 2 0+2",
            "160: 150 decode 1 0+1",
        ],
        "nothing tells whether the first one read its prompt in one step"
    );
}

#[test]
fn an_idle_time_belongs_to_no_step() {
    let mut inside = with(&["a", "b"]);
    let rows: &[Row] = &[
        (110, &[("a", 1, Some(100), true)], Some(0)),
        (5010, &[("b", 1, Some(5000), true)], Some(0)),
    ];
    assert_eq!(play(&mut inside, rows)[1], "5010: 5000 prefill 1 8+0");
}

#[test]
fn a_prompt_that_is_read_in_parts_is_in_every_step_of_a_core_that_schedules_after() {
    let mut inside = with(&["a", "b", "c"]);
    let rows: &[Row] = &[
        (110, &[("a", 1, Some(100), false)], Some(1)),
        // That one step was enough for it while the core was busy shows that it schedules after.
        (120, &[("a", 1, None, false), ("b", 1, Some(111), true)], Some(1)),
        // Here c has begun, and gives nothing yet.
        (130, &[("a", 1, None, true)], Some(1)),
        (140, &[], Some(1)),
        (150, &[("c", 1, Some(121), true)], Some(0)),
    ];
    assert_eq!(
        play(&mut inside, rows)[2..],
        [
            "130: 120 mixed 2 ?+1",
            "140: 130 prefill 1 ?+0",
            "150: 140 prefill 1 ?+0",
        ]
    );
}

#[test]
fn who_runs_without_a_token_is_not_guessed() {
    let mut inside = with(&["a", "b"]);
    let rows: &[Row] = &[
        (110, &[("a", 1, Some(100), false)], Some(1)),
        (120, &[("a", 1, None, false)], Some(2)),
        (130, &[("a", 1, None, true), ("b", 1, Some(111), true)], Some(0)),
    ];
    assert_eq!(
        play(&mut inside, rows)[1..],
        ["120: 110 ? ? ?+1", "130: 120 mixed 2 ?+1"]
    );
}

#[test]
fn a_core_that_schedules_ahead_is_recognised() {
    let ids: Vec<String> = (0..12).map(|i| format!("r{i}")).collect();
    let mut inside = with(&[&["a"], &*ids.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    let mut out = told(
        &mut inside,
        1,
        &message(&(100, &[("a", 1, Some(95), false)], Some(1))),
    );
    let mut at = 100;
    for id in &ids {
        // Taken while the step before its own runs, and counted then already.
        out.extend(told(
            &mut inside,
            1,
            &message(&(at + 10, &[("a", 1, None, false)], Some(2))),
        ));
        let outputs = [("a", 1, None, false), (id.as_str(), 1, Some(at + 1), true)];
        out.extend(told(&mut inside, 1, &message(&(at + 20, &outputs, Some(1)))));
        at += 20;
    }
    inside.advance(at * MS + 2_000 * MS, &mut out);
    let steps = steps(&out);
    assert_eq!(steps.len(), 25);
    assert_eq!(steps[1], "110: 100 ? ? ?+1", "not known yet");
    assert_eq!(steps[23], "330: 320 decode 1 0+1");
    assert_eq!(steps[24], "340: 330 mixed 2 8+1");
}

#[test]
fn one_that_was_put_back_reads_again() {
    let mut inside = with(&["a", "b"]);
    let rows: &[Row] = &[
        (
            110,
            &[("a", 1, Some(100), false), ("b", 1, Some(100), false)],
            Some(2),
        ),
        (120, &[("a", 1, None, false)], Some(1)),
        (130, &[("a", 1, None, false), ("b", 1, Some(121), false)], Some(2)),
    ];
    assert_eq!(
        play(&mut inside, rows)[1..],
        ["120: 110 decode 1 0+1", "130: 120 mixed 2 ?+1"]
    );
}

#[test]
fn pieces_of_several_api_servers_are_one_step() {
    let mut inside = with(&["a"]);
    add_from(&mut inside, 2, "b", None, 10);
    let mut out = Vec::new();
    let rows: &[(u32, Row)] = &[
        (1, (110, &[("a", 1, Some(100), false)], None)),
        (2, (110, &[("b", 1, Some(100), false)], Some(2))),
        // The second one's piece comes when the first has had the next step's.
        (1, (120, &[("a", 1, None, false)], Some(2))),
        (1, (130, &[("a", 1, None, true)], Some(1))),
        (2, (120, &[("b", 1, None, false)], None)),
        (2, (130, &[("b", 1, None, false)], None)),
        (2, (140, &[("b", 1, None, true)], Some(0))),
    ];
    for (front, row) in rows {
        out.extend(told(&mut inside, *front, &message(row)));
    }
    inside.advance(3_000 * MS, &mut out);
    assert_eq!(
        steps(&out),
        [
            "110: 100 prefill 2 ?+0",
            "120: 110 decode 2 0+2",
            "130: 120 decode 2 0+2",
            "140: 130 decode 1 0+1",
        ]
    );
}

#[test]
fn cores_have_steps_of_their_own() {
    let mut inside = with(&["a", "b"]);
    let mut out = Vec::new();
    let rows: [(u64, Row); 4] = [
        (0, (110, &[("a", 1, Some(100), false)], Some(1))),
        (1, (115, &[("b", 1, Some(101), false)], Some(1))),
        (0, (120, &[("a", 1, None, true)], Some(0))),
        (1, (127, &[("b", 1, None, true)], Some(0))),
    ];
    for (core, row) in rows {
        let mut step = message(&row);
        step.engine_index = core;
        out.extend(told(&mut inside, 1, &step));
    }
    assert_eq!(
        steps(&out)[2..],
        ["120: 110 decode 1 0+1", "127: 115 decode 1 0+1"]
    );
}

#[test]
fn the_coordinator_of_several_cores_tells_no_step() {
    let mut inside = with(&["a"]);
    let of_coordinator = message(&(110, &[], Some(1)));
    assert!(told(&mut inside, 99, &of_coordinator).is_empty());
}

#[test]
fn without_statistics_only_what_is_certain_is_told() {
    let mut inside = with(&["a", "b"]);
    let rows: &[Row] = &[
        (110, &[("a", 1, None, false)], None),
        (120, &[("a", 1, None, false), ("b", 1, None, false)], None),
    ];
    assert_eq!(play(&mut inside, rows), ["110: ? ? ? ?+0", "120: 110 ? ? ?+1"]);
}

#[test]
fn the_engines_own_count_is_believed() {
    let mut inside = with(&["a"]);
    let mut step = message(&(110, &[("a", 1, Some(100), false)], Some(2)));
    if let Some(stats) = &mut step.stats {
        stats.iteration = Some(Iteration {
            prefilling: 2,
            prefill_tokens: 600,
            decoding: 0,
        });
    }
    assert_eq!(steps(&told(&mut inside, 1, &step)), ["110: 100 prefill 2 600+0"]);
}

#[test]
fn after_a_loss_no_start_is_guessed() {
    let mut inside = with(&["a"]);
    let mut out = told(
        &mut inside,
        1,
        &message(&(110, &[("a", 1, Some(100), false)], Some(1))),
    );
    inside.lost(ENGINE);
    out.extend(told(
        &mut inside,
        1,
        &message(&(150, &[("a", 1, None, false)], Some(1))),
    ));
    assert_eq!(steps(&out)[1], "150: ? decode 1 0+1");
}
