//! Requests of one engine: who is in flight, and who held whom up.

use super::*;
use crate::{
    EngineKind, PrefixConfig,
    diagnose::{Cause, tests::record},
    engine::vllm::{Added, Lifecycle, LifecycleEvent, Output, Step},
    inside::Seen,
    observation::{Labels, TokenDirection},
    prefix::Prefix,
};

const MS: Nanos = 1_000_000;
const ENGINE: &str = "vllm-8000";

fn engine() -> EngineInfo {
    EngineInfo {
        id: ENGINE.into(),
        kind: EngineKind::Vllm,
        model: None,
        version: None,
        pid: 1,
        pids: vec![1],
        ports: vec![8000],
        container: None,
        pod_uid: None,
    }
}

/// A request of one second that was scheduled at 10 ms, had its first token at `first` ms and one a 10 ms since, but for one
/// gap of 200 ms that ends with its last token.
fn streamed(response_id: &str, first: u64, tokens: u64) -> Finished {
    let decode_s = (tokens - 1) as f64 * 0.01 + 0.19;
    let mut record = record(1.0, [Some(0.01), Some(0.05), Some(decode_s)]);
    record.response_id = Some(response_id.into());
    record.t1_ns = Some(10 * MS);
    record.t2_ns = Some(first * MS);
    let mut gaps = vec![(0.01, 1); tokens as usize - 2];
    gaps.push((0.2, 1));
    Finished {
        id: 0,
        labels: Labels {
            engine: ENGINE.into(),
            model: "m".into(),
            scene: "s".into(),
        },
        record,
        gaps,
        gaps_from: Some(first * MS),
        in_flight_at_arrival: None,
        content: None,
        token_sources: [(TokenDirection::Input, None), (TokenDirection::Output, None)],
    }
}

struct Play {
    peers: Peers,
    inside: Inside,
    config: PipelineConfig,
}

impl Play {
    fn new() -> Play {
        Play {
            peers: Peers::default(),
            inside: Inside::default(),
            config: PipelineConfig::default(),
        }
    }

    fn arrive(&mut self) -> Witness {
        self.peers.arrive(Some(&engine()), &self.inside, &self.config)
    }

    fn finish(&mut self, id: u64, witness: Witness, finished: Finished) -> Finished {
        let mut finished = finished;
        self.peers
            .finish(id, witness, 1000 * MS, &mut finished, &self.inside, &self.config);
        finished
    }
}

/// Our id and the response's of one that interfered.
type Peer<'a> = (Option<&'a str>, Option<&'a str>);

fn blamed(finished: &Finished) -> (Option<Cause>, Option<u64>, Vec<Peer<'_>>) {
    let diagnosis = finished.record.diagnosis.as_ref().expect("diagnosed");
    let by = diagnosis.interference_by.iter();
    (
        diagnosis.cause,
        diagnosis
            .interference_s
            .map(|seconds| (seconds * 1e3).round() as u64),
        by.map(|blamed| (blamed.id.as_deref(), blamed.response_id.as_deref()))
            .collect(),
    )
}

#[test]
fn those_that_have_ended_and_those_under_way_are_blamed() {
    let mut play = Play::new();
    let (victim, ended, under_way) = (play.arrive(), play.arrive(), play.arrive());
    // The victim's long gap lasts from 350 to 550 ms. One other's prefill is over and told by its record.
    let mut other = streamed("ended", 450, 4);
    other.record.t1_ns = Some(360 * MS);
    let other = play.finish(2, ended, other);
    assert_eq!(blamed(&other).1, Some(0), "the victim's own prefill was before");
    // The next one goes on, and only the engine has told of its prefill.
    play.peers.answering(&under_way, 3, None, "chatcmpl-b");
    let id: Arc<str> = ENGINE.into();
    let seen = Seen {
        front: 1,
        now: 480 * MS,
        max_gaps: 100,
    };
    play.inside.added(
        &id,
        &Added {
            engine_id: "chatcmpl-b",
            ..Added::default()
        },
        None,
        seen,
    );
    let scheduled = LifecycleEvent {
        stage: Lifecycle::Scheduled,
        at: 450 * MS,
    };
    let step = Step {
        at: Some(480 * MS),
        outputs: vec![Output {
            engine_id: "chatcmpl-b",
            new_tokens: 1,
            events: vec![scheduled],
            ..Output::default()
        }],
        ..Step::default()
    };
    let mut prefix = Prefix::new(PrefixConfig::default());
    play.inside
        .stepped(&id, None, &step, &mut prefix, seen, &mut Vec::new());
    let found = play.finish(1, victim, streamed("victim", 60, 31));
    let (cause, ms, by) = blamed(&found);
    assert_eq!(
        (cause, ms),
        (None, Some(120)),
        "an eighth of the time is no cause"
    );
    assert_eq!(
        by,
        [
            (Some("0000000000000002"), Some("ended")),
            (Some("0000000000000003"), Some("chatcmpl-b"))
        ]
    );
}

#[test]
fn where_prefills_are_not_told_interference_is_not_known() {
    let mut play = Play::new();
    let (victim, other) = (play.arrive(), play.arrive());
    play.finish(2, other, streamed("other", 500, 4));
    let mut finished = streamed("victim", 60, 31);
    finished.record.t1_ns = None;
    let found = play.finish(1, victim, finished);
    assert_eq!(blamed(&found).1, None);
}

#[test]
fn a_history_that_does_not_reach_back_says_nothing() {
    let mut play = Play::new();
    let victim = play.arrive();
    for id in 0..=(MAX_PREFILLS as u64) {
        let witness = play.arrive();
        play.finish(100 + id, witness, streamed("other", 100, 4));
    }
    let late = play.arrive();
    assert_eq!(
        blamed(&play.finish(1, victim, streamed("victim", 60, 31))).1,
        None
    );
    assert_eq!(
        blamed(&play.finish(2, late, streamed("late", 200, 31))).1,
        Some(0)
    );
}

#[test]
fn an_engine_that_comes_back_begins_with_nothing_in_flight() {
    let mut play = Play::new();
    let arrivals = |play: &mut Play| play.arrive().arrival.map(|arrival| arrival.in_flight);
    let before = play.arrive();
    assert_eq!(arrivals(&mut play), Some(1));
    play.peers.down(ENGINE);
    assert_eq!(arrivals(&mut play), Some(0));
    // One that arrived at the earlier engine takes nothing from this one.
    play.finish(1, before, streamed("before", 60, 4));
    assert_eq!(arrivals(&mut play), Some(1));
    assert!(
        play.peers
            .arrive(None, &play.inside, &play.config)
            .arrival
            .is_none()
    );
}

#[test]
fn capacity_is_told_at_most_once_a_second_and_only_when_there_is_any() {
    let mut play = Play::new();
    let told = |play: &mut Play, now: Nanos| {
        let mut out = Vec::new();
        play.peers.advance(now, &mut out);
        out.len()
    };
    let witness = play.arrive();
    assert_eq!(told(&mut play, 5000 * MS), 0);
    play.finish(1, witness, streamed("a", 60, 4));
    assert_eq!(told(&mut play, 5100 * MS), 1);
    let witness = play.arrive();
    play.finish(2, witness, streamed("b", 60, 4));
    assert_eq!(told(&mut play, 5200 * MS), 0);
    assert_eq!(told(&mut play, 6100 * MS), 1);
    assert_eq!(told(&mut play, 7200 * MS), 0, "nothing new");
    assert_eq!(told(&mut play, 66_100 * MS), 1, "it fades");
}
