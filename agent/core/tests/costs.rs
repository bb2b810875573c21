//! What requests cost, from their bytes on: late counts, broken streams, estimates.

mod support;

use infertap_abi::Role;
use infertap_core::{
    CountOutcome, Counted, Event, EventKind, Money, Observation, Pipeline, PipelineConfig, PriceBook, Source,
    Status,
    money::{Amount, ChargeKind, Cost, PriceText},
};
use support::*;

const MS: u64 = 1_000_000;
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two six"}]}"#;

/// 1 a million prompt tokens, 2 generated; a quarter for cached ones.
fn money() -> Money {
    let text = PriceText {
        model: "*",
        currency: "USD",
        input: Some(1.0),
        cached_input: Some(0.25),
        output: Some(2.0),
        ..PriceText::default()
    };
    let prices = vec![text.price().expect("a price")];
    Money::new(PriceBook::new(prices).expect("a book").into())
}

/// A pipeline that asks for counts, with the stage behind it.
struct Agent {
    pipeline: Pipeline,
    wire: Wire,
    money: Money,
    out: Vec<Observation>,
}

impl Agent {
    fn new() -> Agent {
        let mut pipeline = Pipeline::new(PipelineConfig {
            count: true,
            ..PipelineConfig::default()
        });
        let up = EventKind::EngineUp(engine(None));
        pipeline.handle(Event { at: 0, kind: up }, &mut Vec::new());
        let wire = Wire::new(socket(7, Role::Accepted, false));
        let open = EventKind::Open(wire.socket);
        pipeline.handle(Event { at: 1, kind: open }, &mut Vec::new());
        Agent {
            pipeline,
            wire,
            money: money(),
            out: Vec::new(),
        }
    }

    fn play(&mut self, rows: &[Row]) {
        let mut told = play_on(&mut self.pipeline, &mut self.wire, rows);
        self.take(&mut told);
    }

    fn take(&mut self, told: &mut Vec<Observation>) {
        self.money.apply(0, told);
        self.out.append(told);
    }

    fn answer(&mut self, input: u64, output: u64) {
        let id = self
            .out
            .iter()
            .find_map(|o| match o {
                Observation::Count(job) => Some(job.id),
                _ => None,
            })
            .expect("a count was asked for");
        let kind = EventKind::Counted(Counted {
            id,
            input: Some((input, Source::Tokenizer)),
            output: Some((output, Source::Tokenizer)),
            outcome: CountOutcome::Counted,
        });
        let mut told = Vec::new();
        self.pipeline.handle(Event { at: 1_100 * MS, kind }, &mut told);
        self.take(&mut told);
    }

    /// Micro-units by kind: prompt, cached, generated.
    fn charged(&self) -> [u128; 3] {
        [ChargeKind::Input, ChargeKind::CachedInput, ChargeKind::Output].map(|kind| {
            let amounts = self.out.iter().map(|o| match o {
                Observation::Charge(charge) if charge.kind == kind => charge.amount,
                _ => Amount::ZERO,
            });
            amounts.sum::<Amount>().pico() / 1_000_000
        })
    }

    fn cost(&self) -> Cost {
        let records = records(&self.out);
        assert_eq!(records.len(), 1);
        records[0].cost.expect("a cost")
    }
}

fn asking() -> Vec<Row> {
    vec![
        (0, In(chat(STREAM))),
        (10, Out(stream_head())),
        (20, Out([role(), word()].concat())),
        (30, Out(word())),
        (150, Advance),
    ]
}

#[test]
fn output_costs_while_it_streams_and_a_late_count_pays_for_the_prompt() {
    let mut agent = Agent::new();
    agent.play(&asking());
    assert_eq!(agent.charged(), [0, 0, 4], "two chunks so far");
    agent.play(&[(160, Out([word(), stop(), done(), last_chunk()].concat()))]);
    assert_eq!(agent.charged(), [0, 0, 6], "the record waits for its count");
    agent.answer(31, 7);
    assert_eq!(agent.charged(), [31, 0, 14]);
    assert_eq!(agent.cost().total.pico() / 1_000_000, 31 + 14);
    assert_eq!(agent.cost().cached_input, None, "nobody told");
    assert_eq!(agent.money.open_requests(), 0);
}

#[test]
fn a_count_below_what_was_seen_takes_nothing_back() {
    let mut agent = Agent::new();
    agent.play(&asking());
    agent.play(&[(160, Out([stop(), done(), last_chunk()].concat()))]);
    agent.answer(5, 1);
    assert_eq!(agent.charged(), [5, 0, 4]);
    assert_eq!(
        agent.cost().output.map(|output| output.pico() / 1_000_000),
        Some(4)
    );
}

#[test]
fn a_broken_stream_is_paid_for_by_the_estimate_when_no_count_comes() {
    let mut agent = Agent::new();
    agent.play(&asking());
    agent.play(&[(160, Eof), (161, Close), (1_000, Advance)]);
    assert!(records(&agent.out).is_empty(), "it waits");
    agent.play(&[(2_200, Advance)]);
    let record = records(&agent.out)[0];
    assert_eq!(record.status, Status::Cancelled);
    assert_eq!(record.sources.input_tokens, Some(Source::Estimate));
    let input = u128::from(record.input_tokens.expect("estimated"));
    assert_eq!(agent.charged(), [input, 0, 4]);
    assert_eq!(agent.cost().total.pico() / 1_000_000, input + 4);
    assert_eq!(agent.money.open_requests(), 0);
}

#[test]
fn what_the_response_reports_is_paid_for_with_its_cached_part_cheaper() {
    let document = json(
        "200 OK",
        r#"{"id":"x","object":"chat.completion","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":80}}}"#,
    );
    let mut agent = Agent::new();
    agent.play(&[(0, In(chat(STREAM))), (10, Out(document))]);
    assert_eq!(agent.charged(), [20, 20, 14]);
    let saved = agent.cost().saved.map(|saved| saved.pico() / 1_000_000);
    assert_eq!(saved, Some(60));
}

#[test]
fn a_refused_request_costs_nothing_and_is_forgotten() {
    let refusal = json("400 Bad Request", r#"{"error":{"message":"no","code":400}}"#);
    let mut agent = Agent::new();
    agent.play(&[(0, In(chat(STREAM))), (10, Out(refusal))]);
    assert_eq!(agent.charged(), [0; 3]);
    assert_eq!(records(&agent.out)[0].cost, None);
    assert_eq!(agent.money.open_requests(), 0);
}
