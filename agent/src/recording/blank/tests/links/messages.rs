//! Messages of vLLM's processes in every layout, with content that a salt changes and nothing else does.

use super::*;

/// A value without its bytes.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// Of so many bytes behind its marker: 0, 1, 2, 4, 8.
    Int(u8),
    Negative,
    Float,
    Bool,
    Nil,
    Str(usize),
    Bin(usize),
    Ext(usize),
    Array(Vec<Shape>),
    Map(Vec<(Shape, Shape)>),
}

pub(super) fn shapes() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        prop::sample::select(vec![0, 1, 2, 4, 8]).prop_map(Shape::Int),
        Just(Shape::Negative),
        Just(Shape::Float),
        Just(Shape::Bool),
        Just(Shape::Nil),
        prop_oneof![0usize..40, 250usize..300].prop_map(Shape::Str),
        (0usize..300).prop_map(Shape::Bin),
        (0usize..40).prop_map(Shape::Ext),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Shape::Array),
            proptest::collection::vec((inner.clone(), inner), 0..3).prop_map(Shape::Map),
        ]
    })
}

impl Shape {
    fn write(&self, salt: u8, out: &mut Vec<u8>) {
        match self {
            Shape::Int(0) => out.push(17 + salt),
            Shape::Int(width) => {
                out.push(0xcc + width.ilog2() as u8);
                out.extend((0..*width).map(|i| 33 + salt + i));
            }
            Shape::Negative => out.push(0xe3 + salt),
            Shape::Float => {
                out.push(0xcb);
                out.extend([60 + salt; 8]);
            }
            Shape::Bool => out.push(0xc2 + salt % 2),
            Shape::Nil => out.push(0xc0),
            Shape::Str(len) => {
                header(0xd9, *len, out);
                // Upper case: no name that is listed begins like this.
                out.extend((0..*len).map(|i| b'A' + (salt + (i % 7) as u8) % 26));
            }
            Shape::Bin(len) => {
                header(0xc4, *len, out);
                // What looks like frames would be taken for some after a hole.
                out.extend(vec![0x60 + salt; *len]);
            }
            Shape::Ext(len) => {
                out.extend([0xc7, *len as u8, 3 + salt]);
                out.extend(vec![0x60 + salt; *len]);
            }
            Shape::Array(items) => {
                out.extend([0xdc, 0, items.len() as u8]);
                for item in items {
                    item.write(salt, out);
                }
            }
            Shape::Map(pairs) => {
                out.push(0x80 + pairs.len() as u8);
                for (key, value) in pairs {
                    key.write(salt, out);
                    value.write(salt, out);
                }
            }
        }
    }
}

/// A length with the smallest width that holds it.
pub(super) fn header(marker: u8, len: usize, out: &mut Vec<u8>) {
    match u8::try_from(len) {
        Ok(len) => out.extend([marker, len]),
        Err(_) => out.extend([marker + 1, (len >> 8) as u8, len as u8]),
    }
}

pub(super) fn str(text: &str, out: &mut Vec<u8>) {
    header(0xd9, text.len(), out);
    out.extend(text.bytes());
}

pub(super) fn float(value: f64, out: &mut Vec<u8>) {
    out.push(0xcb);
    out.extend(value.to_be_bytes());
}

/// Fields of a struct in the release that has this row.
pub(super) fn rows(of: &str) -> Vec<(String, Vec<String>)> {
    let file: Value = serde_json::from_str(include_str!("../../../../../core/src/engine/vllm/layouts.json"))
        .expect("valid");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    file[of]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| {
            let fields = row["fields"].as_array().expect("fields");
            (text(&row["from"]), fields.iter().map(text).collect())
        })
        .collect()
}

/// The layout that a release has.
pub(super) fn layout(of: &str, release: &str) -> Vec<String> {
    let key =
        |version: &str| -> Vec<u32> { version.split('.').map(|n| n.parse().expect("a number")).collect() };
    let mut rows = rows(of);
    rows.retain(|(from, _)| key(from) <= key(release));
    rows.pop().expect("as old as that").1
}

/// Releases that begin a layout.
pub(super) fn releases() -> Vec<String> {
    let mut all: Vec<String> = ["EngineCoreRequest", "EngineCoreOutput", "EngineCoreOutputs"]
        .iter()
        .flat_map(|of| rows(of))
        .map(|(from, _)| from)
        .collect();
    all.sort();
    all.dedup();
    all
}

/// What a conversation is made of; the salt chooses the bytes of all that is no fact.
#[derive(Debug, Clone)]
pub(super) struct Talk {
    pub(super) release: String,
    pub(super) tokens: Vec<Shape>,
    pub(super) content: Vec<Shape>,
    pub(super) messages: usize,
    pub(super) salt: u8,
}

impl Talk {
    fn content(&self, at: usize, out: &mut Vec<u8>) {
        self.content[at % self.content.len()].write(self.salt, out);
    }

    /// A struct as an array of this layout.
    fn structure(&self, of: &str, number: usize, out: &mut Vec<u8>) {
        let fields = layout(of, &self.release);
        out.extend([0xdc, 0, fields.len() as u8]);
        for (at, field) in fields.iter().enumerate() {
            self.field(field, number, at + number, out);
        }
    }

    fn field(&self, name: &str, number: usize, at: usize, out: &mut Vec<u8>) {
        let salt = self.salt;
        match name {
            "request_id" => str(&format!("chatcmpl-{number:x}-0a1b2c3d"), out),
            "external_req_id" => str(&format!("chatcmpl-{number:x}"), out),
            "prompt_token_ids" | "new_token_ids" => Shape::Array(self.tokens.clone()).write(salt, out),
            "arrival_time" | "timestamp" => float(1e5 + number as f64, out),
            "sampling_params" => {
                out.push(0x83);
                str("max_tokens", out);
                out.push(32 + number as u8);
                str("stop", out);
                self.content(at, out);
                Shape::Str(9).write(salt, out);
                self.content(at + 1, out);
            }
            "finish_reason" => out.push((number % 4) as u8),
            "stop_reason" => Shape::Str(5).write(salt, out),
            "events" => {
                out.push(0x92);
                for kind in [1, 2] {
                    out.push(0x82);
                    str("type", out);
                    out.push(kind);
                    str("timestamp", out);
                    float(9e4 + number as f64, out);
                }
            }
            "prefill_stats" => {
                out.push(0x82);
                str("num_prompt_tokens", out);
                out.extend([0xcc, 200]);
                str("num_cached_tokens", out);
                out.push(48);
            }
            "scheduler_stats" => {
                out.push(0x85);
                str("num_running_reqs", out);
                out.push(3);
                str("num_waiting_reqs", out);
                out.push(4);
                str("kv_cache_usage", out);
                float(0.25, out);
                str("waiting_lora_adapters", out);
                Shape::Map(vec![(Shape::Str(7), Shape::Int(0))]).write(salt, out);
                str("prefix_cache_stats", out);
                out.push(0x82);
                str("queries", out);
                out.extend([0xcc, 200]);
                str("hits", out);
                out.push(48);
            }
            "outputs" => {
                out.push(0x92);
                self.structure("EngineCoreOutput", number, out);
                self.structure("EngineCoreOutput", number + 1, out);
            }
            "engine_index"
            | "client_index"
            | "current_wave"
            | "priority"
            | "num_cached_tokens"
            | "num_external_computed_tokens"
            | "num_nans_in_logits"
            | "eos_token_id"
            | "data_parallel_rank"
            | "wave_complete"
            | "start_wave" => out.push(2),
            "resumable" | "abort_immediately" | "reasoning_ended" => out.push(0xc3),
            "cache_salt" | "session_id" | "weight_version" => Shape::Str(11).write(salt, out),
            "trace_headers" | "reasoning_parser_kwargs" | "kv_transfer_params" | "ec_transfer_params" => {
                Shape::Map(vec![(Shape::Str(11), Shape::Str(5))]).write(salt, out);
            }
            _ => {
                out.push(0x92);
                self.content(at, out);
                self.content(at + 2, out);
            }
        }
    }

    /// What one direction carries.
    pub(super) fn stream(&self, outputs: bool) -> Vec<u8> {
        let mut out = SIGNATURE.to_vec();
        out.extend([3, 1]);
        out.extend(b"NULL");
        out.resize(64, 0);
        frame(4, b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER", &mut out);
        for number in 0..self.messages {
            let mut body = Vec::new();
            if outputs {
                self.structure("EngineCoreOutputs", number, &mut body);
                frame(1, &body, &mut out);
                frame(0, &vec![0x60 + self.salt; 300], &mut out);
            } else if number % 3 == 2 {
                body.push(0x91);
                str(&format!("chatcmpl-{number:x}-0a1b2c3d"), &mut body);
                frame(1, &[1], &mut out);
                frame(0, &body, &mut out);
            } else {
                self.structure("EngineCoreRequest", number, &mut body);
                frame(1, &[0], &mut out);
                frame(0, &body, &mut out);
            }
        }
        out
    }
}

pub(super) fn frame(flags: u8, body: &[u8], out: &mut Vec<u8>) {
    if let Ok(len) = u8::try_from(body.len()) {
        out.extend([flags, len]);
    } else {
        out.push(flags | 2);
        out.extend((body.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(body);
}

pub(super) fn talks() -> impl Strategy<Value = Talk> {
    (
        prop::sample::select(releases()),
        proptest::collection::vec(
            prop::sample::select(vec![Shape::Int(0), Shape::Int(1), Shape::Int(2), Shape::Int(4)]),
            1..200,
        ),
        proptest::collection::vec(shapes(), 1..6),
        1usize..5,
    )
        .prop_map(|(release, tokens, content, messages)| Talk {
            release,
            tokens,
            content,
            messages,
            salt: 1,
        })
}
