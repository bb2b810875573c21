//! Tokenizer calls as events, and what becomes of them in the records of requests.

mod support;

use infertap_abi::{Function, Role};
use infertap_core::{
    EngineInfo, EngineKind, Event, EventKind, Observation, Pipeline, PipelineConfig, event::Call,
};
use std::sync::Arc;
use support::*;

const HEAP: u64 = 0x7f12_3456_7000;

fn pipeline_of(kind: EngineKind) -> Pipeline {
    pipeline_with(PipelineConfig::default(), kind)
}

fn pipeline_with(config: PipelineConfig, kind: EngineKind) -> Pipeline {
    let mut pipeline = Pipeline::new(config);
    let info = EngineInfo {
        kind,
        ..EngineInfo::clone(&engine(Some("m")))
    };
    let event = Event {
        at: 0,
        kind: EventKind::EngineUp(Arc::new(info)),
    };
    pipeline.handle(event, &mut Vec::new());
    pipeline
}

/// What `tokenizers` returns for a text of so many tokens.
fn encoding(tokens: u64) -> Vec<u8> {
    (0..7)
        .flat_map(|_| [tokens, HEAP, tokens])
        .flat_map(u64::to_le_bytes)
        .collect()
}

/// Milliseconds after the start of a table.
fn call(pipeline: &mut Pipeline, function: Function, tid: u32, begin: u64, end: u64, bytes: &[u8]) {
    let at = |ms: u64| 1_000_000_000 + ms * 1_000_000;
    let call = Call {
        tgid: socket(7, Role::Accepted, false).tgid,
        tid,
        function,
        begin: at(begin),
        end: at(end),
        args: [0; 4],
        ret: Some(5),
        bytes,
    };
    let event = Event {
        at: at(end),
        kind: EventKind::Call(call),
    };
    pipeline.handle(event, &mut Vec::new());
}

fn answer(wire: &mut Wire, pipeline: &mut Pipeline, prompt_tokens: u64) -> Vec<Observation> {
    let body = format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"ab"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":{prompt_tokens},"completion_tokens":2,"total_tokens":{}}}}}"#,
        prompt_tokens + 2
    );
    let mut out = play_on(pipeline, wire, &[(100, Out(json("200 OK", &body)))]);
    pipeline.advance(u64::MAX / 2, &mut out);
    out
}

/// Its tokenizing time in milliseconds, and how many calls were tied and how many were not.
fn told(out: &[Observation]) -> (Option<f64>, (u64, u64)) {
    let records = records(out);
    assert_eq!(records.len(), 1, "{}", render(out));
    let calls = out.iter().find_map(|o| match o {
        Observation::TokenizerCalls { tied, unassigned } => Some((*tied, *unassigned)),
        _ => None,
    });
    let ms = records[0].tokenize_s.map(|seconds| (seconds * 1e6).round() / 1e3);
    (ms, calls.unwrap_or_default())
}

#[test]
fn a_request_has_the_time_of_a_call_that_gave_its_tokens() {
    for (given, expected) in [(54, (Some(4.0), (1, 0))), (53, (None, (0, 1)))] {
        let mut pipeline = pipeline_of(EngineKind::Generic);
        let mut wire = Wire::new(socket(7, Role::Accepted, false));
        play_on(&mut pipeline, &mut wire, &[(10, In(ask()))]);
        call(
            &mut pipeline,
            Function::HfTokenizersEncode,
            99,
            12,
            16,
            &encoding(given),
        );
        assert_eq!(told(&answer(&mut wire, &mut pipeline, 54)), expected, "{given}");
    }
}

#[test]
fn llama_cpp_tokenizes_in_the_thread_that_read_the_request() {
    for (tid, expected) in [(1, (Some(3.0), (2, 0))), (2, (None, (0, 2)))] {
        let mut pipeline = pipeline_of(EngineKind::LlamaCpp);
        let mut wire = Wire::new(socket(7, Role::Accepted, false));
        play_on(&mut pipeline, &mut wire, &[(10, In(ask()))]);
        call(&mut pipeline, Function::LlamaTokenize, tid, 12, 13, &[]);
        call(&mut pipeline, Function::LlamaTokenize, tid, 14, 16, &[]);
        assert_eq!(told(&answer(&mut wire, &mut pipeline, 54)), expected, "{tid}");
    }
}

#[test]
fn calls_of_other_functions_and_strangers_are_nobodys_tokenizing() {
    let mut pipeline = Pipeline::new(PipelineConfig::default());
    call(&mut pipeline, Function::LlamaTokenize, 1, 1, 2, &[]);
    let mut pipeline = pipeline_of(EngineKind::LlamaCpp);
    let mut wire = Wire::new(socket(7, Role::Accepted, false));
    play_on(&mut pipeline, &mut wire, &[(10, In(ask()))]);
    call(&mut pipeline, Function::LlamaDecode, 1, 12, 13, &[]);
    assert_eq!(told(&answer(&mut wire, &mut pipeline, 54)), (None, (0, 0)));
}

#[test]
fn with_hooks_off_no_call_is_believed() {
    let config = PipelineConfig {
        engine_hooks: false,
        ..PipelineConfig::default()
    };
    let mut pipeline = pipeline_with(config, EngineKind::LlamaCpp);
    let mut wire = Wire::new(socket(7, Role::Accepted, false));
    play_on(&mut pipeline, &mut wire, &[(10, In(ask()))]);
    call(&mut pipeline, Function::LlamaTokenize, 1, 12, 13, &[]);
    assert_eq!(told(&answer(&mut wire, &mut pipeline, 54)), (None, (0, 0)));
}
