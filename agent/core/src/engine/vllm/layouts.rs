//! Which release of vLLM puts which field where.
//!
//! Owns: the table (`layouts.json`, from vLLM's released struct definitions), the order in which layouts are tried for a
//! release, and the kinds of values that a field may hold. Refuses: reading messages (`requests`, `outputs`).

use crate::wire::msgpack::Kind;
use serde::Deserialize;
use std::sync::LazyLock;

/// The structs that travel as arrays, whose fields are told by position alone. What they hold travels as maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Struct {
    Request,
    Output,
    Outputs,
}

/// One struct's fields, in order, from one release on.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) from: Version,
    pub(super) fields: Vec<Field>,
}

/// A field: what the parsers do with it, and what may stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) use_: Use,
    pub(super) kinds: &'static [Kind],
}

/// Fields that the parsers read; the kind of every other is checked, and its value stepped over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    RequestId,
    PromptTokenIds,
    SamplingParams,
    ArrivalTime,
    ExternalReqId,
    NewTokenIds,
    FinishReason,
    StopReason,
    Events,
    NumCachedTokens,
    PrefillStats,
    EngineIndex,
    Outputs,
    SchedulerStats,
    Timestamp,
    CacheSalt,
    LoraRequest,
    MultiModal,
    Nothing,
}

/// Major, minor, patch. What follows them (`rc1`, `.post2`, `+cpu`) changes no layout.
pub(super) type Version = [u32; 3];

/// The leading numbers of a version, as in `0.11.1rc3.dev5+g1a2b3c`; `None` when it does not begin with two of them.
pub(super) fn version(text: &str) -> Option<Version> {
    let text = text.trim().trim_start_matches('v');
    let mut numbers = [None; 3];
    for (number, part) in numbers.iter_mut().zip(text.split('.')) {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        *number = part.get(..digits)?.parse().ok();
        if digits != part.len() {
            break;
        }
    }
    Some([numbers[0]?, numbers[1]?, numbers[2].unwrap_or(0)])
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "EngineCoreRequest")]
    request: Vec<Row>,
    #[serde(rename = "EngineCoreOutput")]
    output: Vec<Row>,
    #[serde(rename = "EngineCoreOutputs")]
    outputs: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    from: String,
    fields: Vec<String>,
}

#[derive(Debug, Default)]
struct Tables {
    request: Vec<Layout>,
    output: Vec<Layout>,
    outputs: Vec<Layout>,
}

/// A field that this code does not know, or a file that does not parse, leaves the layout out: a test sees that none is.
static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let read = |rows: Vec<Row>| {
        rows.iter()
            .filter_map(|row| {
                Some(Layout {
                    from: version(&row.from)?,
                    fields: row.fields.iter().map(|name| field(name)).collect::<Option<_>>()?,
                })
            })
            .collect()
    };
    match serde_json::from_str::<File>(include_str!("layouts.json")) {
        Ok(file) => Tables {
            request: read(file.request),
            output: read(file.output),
            outputs: read(file.outputs),
        },
        Err(_) => Tables::default(),
    }
});

/// All layouts of a struct, oldest first.
pub(super) fn all(of: Struct) -> &'static [Layout] {
    match of {
        Struct::Request => &TABLES.request,
        Struct::Output => &TABLES.output,
        Struct::Outputs => &TABLES.outputs,
    }
}

/// Layouts to try for a release, best first: its own (that of the nearest release looked at before it), then the next
/// one, which a release between two that were looked at may have already. An unknown release may have any, the newest
/// most likely.
pub(super) fn candidates(of: Struct, release: Option<Version>) -> impl Iterator<Item = &'static Layout> {
    let all = all(of);
    let range = match release {
        Some(release) => {
            let after = all.partition_point(|layout| layout.from <= release);
            after.saturating_sub(1)..(after + 1).min(all.len())
        }
        None => 0..all.len(),
    };
    let own_first = release.is_some();
    let chosen = &all[range];
    let (forward, backward) = if own_first {
        (chosen, &[][..])
    } else {
        (&[][..], chosen)
    };
    forward.iter().chain(backward.iter().rev())
}

/// The newest layout of a struct: later releases are read by it, and may have more fields at the end.
pub(super) fn is_newest(of: Struct, layout: &Layout) -> bool {
    all(of).last().is_some_and(|newest| newest.from == layout.from)
}

fn field(name: &str) -> Option<Field> {
    use Kind::{Array, Bool, Float, Int, Map, Nil, Str};
    let (use_, kinds): (Use, &'static [Kind]) = match name {
        "request_id" => (Use::RequestId, &[Str]),
        "prompt_token_ids" => (Use::PromptTokenIds, &[Array, Nil]),
        "sampling_params" => (Use::SamplingParams, &[Map, Nil]),
        "arrival_time" => (Use::ArrivalTime, &[Float]),
        "external_req_id" => (Use::ExternalReqId, &[Str, Nil]),
        "new_token_ids" => (Use::NewTokenIds, &[Array]),
        "finish_reason" => (Use::FinishReason, &[Int, Nil]),
        "stop_reason" => (Use::StopReason, &[Int, Str, Nil]),
        "events" => (Use::Events, &[Array, Nil]),
        "num_cached_tokens" => (Use::NumCachedTokens, &[Int]),
        "prefill_stats" => (Use::PrefillStats, &[Map, Nil]),
        "engine_index" => (Use::EngineIndex, &[Int]),
        "outputs" => (Use::Outputs, &[Array]),
        "scheduler_stats" => (Use::SchedulerStats, &[Map, Nil]),
        "timestamp" => (Use::Timestamp, &[Float]),
        "client_index"
        | "current_wave"
        | "priority"
        | "num_external_computed_tokens"
        | "num_nans_in_logits" => (Use::Nothing, &[Int]),
        "eos_token_id" | "data_parallel_rank" | "wave_complete" | "start_wave" => (Use::Nothing, &[Int, Nil]),
        "resumable" | "abort_immediately" => (Use::Nothing, &[Bool]),
        "reasoning_ended" => (Use::Nothing, &[Bool, Nil]),
        "cache_salt" => (Use::CacheSalt, &[Str, Nil]),
        "session_id" | "weight_version" => (Use::Nothing, &[Str, Nil]),
        "trace_headers" | "reasoning_parser_kwargs" | "kv_transfer_params" | "ec_transfer_params" => {
            (Use::Nothing, &[Map, Nil])
        }
        // Arrays: lists, sets, named tuples, tensors as (type, shape, data), and structs that are arrays themselves.
        "mm_features" | "prompt_embeds" => (Use::MultiModal, &[Array, Nil]),
        "mm_placeholders"
        | "mm_hashes"
        | "prompt_is_token_ids"
        | "new_logprobs"
        | "new_prompt_logprobs_tensors"
        | "pooling_output"
        | "utility_output"
        | "finished_requests"
        | "routed_experts"
        | "mm_cache_miss_hashes"
        | "prompt_token_id_logprobs" => (Use::Nothing, &[Array, Nil]),
        // Structs that were arrays in some releases and maps in others.
        "mm_inputs" => (Use::MultiModal, &[Array, Map, Nil]),
        "lora_request" => (Use::LoraRequest, &[Array, Map, Nil]),
        "pooling_params" | "kv_hints" | "new_sampling_mask" | "spec_decode_metrics" => {
            (Use::Nothing, &[Array, Map, Nil])
        }
        _ => return None,
    };
    Some(Field { use_, kinds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_of_the_file_is_read() {
        let file: serde_json::Value = serde_json::from_str(include_str!("layouts.json")).expect("valid");
        for (of, name, needed) in [
            (
                Struct::Request,
                "EngineCoreRequest",
                &[Use::RequestId, Use::PromptTokenIds, Use::ArrivalTime][..],
            ),
            (
                Struct::Output,
                "EngineCoreOutput",
                &[Use::RequestId, Use::NewTokenIds, Use::Events, Use::FinishReason],
            ),
            (
                Struct::Outputs,
                "EngineCoreOutputs",
                &[Use::Outputs, Use::Timestamp, Use::SchedulerStats],
            ),
        ] {
            assert_eq!(all(of).len(), file[name].as_array().expect("rows").len());
            assert!(all(of).is_sorted_by_key(|layout| layout.from));
            for layout in all(of) {
                for use_ in needed {
                    assert!(
                        layout.fields.iter().any(|field| field.use_ == *use_),
                        "{name} {:?}",
                        layout.from
                    );
                }
            }
        }
    }

    #[test]
    fn versions_are_their_leading_numbers() {
        for (text, expected) in [
            ("0.32.0+cpu", Some([0, 32, 0])),
            ("0.11.1rc3.dev5+g1a2b3c", Some([0, 11, 1])),
            ("v0.9.2.post1", Some([0, 9, 2])),
            ("0.10", Some([0, 10, 0])),
            ("1.0rc1", Some([1, 0, 0])),
            ("dev", None),
            ("7", None),
            ("", None),
            ("0.99999999999.1", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
    }

    #[test]
    fn the_nearest_release_before_comes_first() {
        let from = |of, release| {
            candidates(of, release)
                .map(|layout| layout.from)
                .collect::<Vec<_>>()
        };
        assert_eq!(from(Struct::Request, Some([0, 12, 0])), [[0, 11, 2], [0, 14, 1]]);
        assert_eq!(from(Struct::Request, Some([0, 14, 1])), [[0, 14, 1], [0, 16, 0]]);
        assert_eq!(from(Struct::Request, Some([0, 32, 0])), [[0, 31, 0]]);
        assert_eq!(from(Struct::Request, Some([1, 0, 0])), [[0, 31, 0]]);
        assert_eq!(from(Struct::Request, Some([0, 6, 0])), [[0, 8, 5]]);
        assert_eq!(from(Struct::Outputs, None), [[0, 32, 0], [0, 8, 5]]);
    }
}
