//! What to send: single requests, and the mix that the live tests and the demo drive at a server.
//!
//! Owns: bodies, cancellation points, the seeded mix. Refuses: sending (`connection`).

use serde_json::{Value, json};

/// One request to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Number within its run.
    pub index: usize,
    /// What it is for, in the printed results.
    pub name: String,
    /// Request target.
    pub path: String,
    /// Body as sent.
    pub body: Vec<u8>,
    /// Headers beside the framing ones.
    pub headers: Vec<(String, String)>,
    /// Trace id of its `traceparent` header.
    pub trace_id: Option<String>,
    /// Leave after this many content-bearing chunks.
    pub cancel_after: Option<usize>,
    /// Leave this many milliseconds after sending, however far the response is.
    pub leave_after_ms: Option<u64>,
    /// Ask the server to close.
    pub close: bool,
    /// Send the body chunked, in pieces of this size.
    pub chunked: Option<usize>,
}

impl Plan {
    /// A request with a JSON body.
    pub fn json(name: &str, path: &str, body: &Value) -> Plan {
        Plan {
            index: 0,
            name: name.to_owned(),
            path: path.to_owned(),
            body: body.to_string().into_bytes(),
            headers: Vec::new(),
            trace_id: None,
            cancel_after: None,
            leave_after_ms: None,
            close: false,
            chunked: None,
        }
    }

    /// A chat completion request; `extra` members are merged into the body.
    pub fn chat(name: &str, model: &str, prompt: &str, extra: &Value) -> Plan {
        let mut body = json!({"messages": [{"role": "user", "content": prompt}], "model": model});
        merge(&mut body, extra);
        Plan::json(name, "/v1/chat/completions", &body)
    }

    /// A completion request; `extra` members are merged into the body.
    pub fn completion(name: &str, model: &str, prompt: &str, extra: &Value) -> Plan {
        let mut body = json!({"prompt": prompt, "model": model});
        merge(&mut body, extra);
        Plan::json(name, "/v1/completions", &body)
    }

    /// With the `traceparent` header of this trace.
    #[must_use]
    pub fn traced(mut self, trace_id: String) -> Plan {
        self.headers.push((
            "traceparent".to_owned(),
            format!("00-{trace_id}-00f067aa0ba902b7-01"),
        ));
        self.trace_id = Some(trace_id);
        self
    }

    /// The request as it goes over the wire.
    pub(super) fn wire(&self, host: &str) -> Vec<u8> {
        let mut wire = format!(
            "POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n",
            self.path
        );
        for (name, value) in &self.headers {
            wire.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
        }
        if self.close {
            wire.push_str("Connection: close\r\n");
        }
        let mut wire = wire.into_bytes();
        match self.chunked {
            None => {
                wire.extend(format!("Content-Length: {}\r\n\r\n", self.body.len()).bytes());
                wire.extend_from_slice(&self.body);
            }
            Some(size) => {
                wire.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for piece in self.body.chunks(size.max(1)) {
                    wire.extend(format!("{:x}\r\n", piece.len()).bytes());
                    wire.extend_from_slice(piece);
                    wire.extend(b"\r\n");
                }
                wire.extend(b"0\r\n\r\n");
            }
        }
        wire
    }
}

fn merge(body: &mut Value, extra: &Value) {
    if let (Some(body), Some(extra)) = (body.as_object_mut(), extra.as_object()) {
        body.extend(extra.clone());
    }
}

/// What a mix is made of.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Served model name.
    pub model: String,
    /// Seed; the same seed gives the same plans.
    pub seed: u64,
    /// Words of a prompt, from and to.
    pub prompt_words: (usize, usize),
    /// Output tokens asked for, from and to.
    pub max_tokens: (usize, usize),
    /// The server refuses a model that it does not serve.
    pub checks_model: bool,
}

/// An endless mix: of twenty requests, twelve streamed (some without usage, some plain completions), four not
/// streamed, two cancelled while they stream, two refused.
pub fn mixed(mix: Mix) -> impl Iterator<Item = Plan> + Send {
    let mut random = SplitMix(mix.seed);
    (0..).map(move |index| {
        let mut plan = one(&mix, index, &mut random);
        plan.index = index;
        plan.close = random.below(8) == 0;
        // A refused request has no id to find it by; of the others, half bring a trace of their own.
        if plan.name.starts_with("refused") || index % 2 == 0 {
            plan = plan.traced(format!("{:016x}{:016x}", random.next(), random.next() | 1));
        }
        plan
    })
}

fn one(mix: &Mix, index: usize, random: &mut SplitMix) -> Plan {
    let prompt = prompt(index, random.between(mix.prompt_words), random);
    let tokens = random.between(mix.max_tokens);
    let model = mix.model.as_str();
    let asked = json!({"max_tokens": tokens, "temperature": 0});
    let with = |more: Value| {
        let mut extra = asked.clone();
        merge(&mut extra, &more);
        extra
    };
    let usage = json!({"include_usage": true});
    match index % 20 {
        3 | 11 => Plan::chat("chat", model, &prompt, &asked),
        7 => Plan::completion("completion", model, &prompt, &asked),
        15 => Plan {
            chunked: Some(100),
            ..Plan::chat("chat, chunked request", model, &prompt, &asked)
        },
        5 | 13 => {
            let extra = with(json!({"stream": true, "max_tokens": 200, "ignore_eos": true}));
            let cancel_after = Some(1 + random.below(12) as usize);
            Plan {
                cancel_after,
                ..Plan::chat("chat stream, cancelled", model, &prompt, &extra)
            }
        }
        9 => Plan {
            body: b"{\"messages\": [".to_vec(),
            ..Plan::chat("refused: no JSON", model, &prompt, &asked)
        },
        17 if mix.checks_model => Plan::chat("refused: unknown model", "no-such-model", &prompt, &asked),
        17 => Plan::json(
            "refused: no messages",
            "/v1/chat/completions",
            &with(json!({"model": model})),
        ),
        1 | 10 => Plan::chat(
            "chat stream, no usage",
            model,
            &prompt,
            &with(json!({"stream": true})),
        ),
        6 | 16 => {
            let extra = with(json!({"stream": true, "stream_options": usage}));
            Plan::completion("completion stream", model, &prompt, &extra)
        }
        _ => Plan::chat(
            "chat stream",
            model,
            &prompt,
            &with(json!({"stream": true, "stream_options": usage})),
        ),
    }
}

/// What prompts are made of.
pub(crate) const WORDS: &[&str] = &[
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "bright",
    "stars",
    "drift",
    "across",
    "an",
    "empty",
    "autumn",
    "sky",
    "naïve",
    "café",
    "\"quoted\"",
    "new\nline",
];

fn prompt(index: usize, words: usize, random: &mut SplitMix) -> String {
    let mut text = format!("Question {index}:");
    for _ in 0..words {
        text.push(' ');
        text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
    }
    text
}

/// The splitmix64 generator: seeded, so that a run can be repeated.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn between(&mut self, (low, high): (usize, usize)) -> usize {
        low + self.below((high.saturating_sub(low) + 1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix() -> Mix {
        Mix {
            model: "m".into(),
            seed: 1,
            prompt_words: (5, 50),
            max_tokens: (8, 32),
            checks_model: false,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_plans() {
        let first: Vec<Plan> = mixed(mix()).take(60).collect();
        assert_eq!(first, mixed(mix()).take(60).collect::<Vec<_>>());
        assert_ne!(
            first,
            mixed(Mix { seed: 2, ..mix() }).take(60).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_mix_holds_every_kind_and_refused_ones_can_be_found() {
        let plans: Vec<Plan> = mixed(mix()).take(200).collect();
        for name in [
            "chat",
            "chat stream",
            "completion stream",
            "chat stream, cancelled",
            "refused: no JSON",
        ] {
            assert!(plans.iter().any(|plan| plan.name == name), "{name}");
        }
        assert_eq!(
            plans.iter().filter(|plan| plan.cancel_after.is_some()).count(),
            20
        );
        assert!(
            plans
                .iter()
                .all(|plan| !plan.name.starts_with("refused") || plan.trace_id.is_some())
        );
    }
}
