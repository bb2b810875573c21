//! The load that makes an engine queue: short and long prompts, shared prefixes, clients that leave early, refusals.
//!
//! Owns: which request comes when, from a seed. Refuses: sending (`load`).

use crate::{
    engines::{Kind, MODEL},
    load::{Plan, SplitMix, WORDS},
};
use serde_json::{Value, json};

/// Name of the requests whose client leaves while they should be waiting for the scheduler.
pub(super) const LEFT_WAITING: &str = "chat stream, left while waiting";

/// Words in a short and in a long prompt, from and to, and the milliseconds after which a client leaves the queue.
struct Sizes {
    short: (usize, usize),
    long: (usize, usize),
    prefix: usize,
    tokens: (usize, usize),
    leave_ms: (usize, usize),
}

const fn sizes(kind: Kind) -> Sizes {
    match kind {
        Kind::Llama => Sizes {
            short: (5, 60),
            long: (200, 900),
            prefix: 220,
            tokens: (4, 32),
            leave_ms: (100, 600),
        },
        // vLLM computes all layers of the model here, several times slower.
        Kind::Vllm => Sizes {
            short: (5, 60),
            long: (200, 500),
            prefix: 150,
            tokens: (4, 20),
            leave_ms: (100, 600),
        },
    }
}

/// The first `count` requests of the mix: of twenty, five have long prompts and four share a prefix with others, three are
/// left by their client (one while it waits), two are refused.
pub(super) fn plans(kind: Kind, seed: u64, count: usize) -> Vec<Plan> {
    let mut random = SplitMix(seed);
    let sizes = sizes(kind);
    let prefixes = [words(sizes.prefix, &mut random), words(sizes.prefix, &mut random)];
    (0..count)
        .map(|index| {
            let mut plan = one(kind, index, &sizes, &prefixes, &mut random);
            plan.index = index;
            plan.close = random.below(8) == 0;
            // vLLM makes a request's id of this header; it alone finds a request that ends before its response begins.
            if plan.leave_after_ms.is_some() || index.is_multiple_of(3) {
                plan.headers.push(("X-Request-Id".to_owned(), request_id(index)));
            }
            plan.traced(format!("{:016x}{:016x}", random.next(), random.next() | 1))
        })
        .collect()
}

/// What the request's `X-Request-Id` is.
pub(super) fn request_id(index: usize) -> String {
    format!("accuracy-{index:04}")
}

fn one(kind: Kind, index: usize, sizes: &Sizes, prefixes: &[String; 2], random: &mut SplitMix) -> Plan {
    let short = format!("Question {index}: {}", words(random.between(sizes.short), random));
    let long = format!("Question {index}: {}", words(random.between(sizes.long), random));
    let after = |prefix: &str, random: &mut SplitMix| {
        format!(
            "{prefix}\nQuestion {index}: {}",
            words(random.between((5, 20)), random)
        )
    };
    let tokens = random.between(sizes.tokens);
    let document = json!({"max_tokens": tokens, "temperature": 0, "ignore_eos": index.is_multiple_of(2)});
    let with = |more: &[(&str, Value)]| {
        let mut body = document.clone();
        for (name, value) in more {
            body[*name] = value.clone();
        }
        body
    };
    let quiet = with(&[("stream", json!(true))]);
    let stream = with(&[
        ("stream", json!(true)),
        ("stream_options", json!({"include_usage": true})),
    ]);
    let endless = with(&[
        ("stream", json!(true)),
        ("max_tokens", json!(200)),
        ("ignore_eos", json!(true)),
    ]);
    match index % 20 {
        0 => Plan::chat(
            "chat stream, prefix",
            MODEL,
            &after(&prefixes[0], random),
            &stream,
        ),
        2 => Plan::chat("chat", MODEL, &short, &document),
        3 => Plan::completion("completion stream", MODEL, &short, &stream),
        4 | 10 => Plan::chat("chat stream, long", MODEL, &long, &stream),
        5 | 16 => Plan {
            cancel_after: Some(2 + random.below(8) as usize),
            ..Plan::chat("chat stream, left", MODEL, &short, &endless)
        },
        6 => Plan::chat("chat, prefix", MODEL, &after(&prefixes[0], random), &document),
        7 => Plan::chat("chat stream, no usage", MODEL, &short, &quiet),
        8 => Plan::completion("completion", MODEL, &short, &document),
        9 => Plan {
            body: b"{\"messages\": [".to_vec(),
            ..Plan::chat("refused: no JSON", MODEL, &short, &document)
        },
        11 | 15 => Plan::chat(
            "chat stream, prefix",
            MODEL,
            &after(&prefixes[1], random),
            &stream,
        ),
        13 => Plan {
            leave_after_ms: Some(random.between(sizes.leave_ms) as u64),
            ..Plan::chat(LEFT_WAITING, MODEL, &long, &endless)
        },
        14 => Plan::chat("chat, long", MODEL, &long, &document),
        17 if kind == Kind::Vllm => Plan::chat("refused: unknown model", "no-such-model", &short, &document),
        17 => Plan::json(
            "refused: no messages",
            "/v1/chat/completions",
            &with(&[("model", json!(MODEL))]),
        ),
        18 => Plan::completion("completion stream, long", MODEL, &long, &stream),
        _ => Plan::chat("chat stream", MODEL, &short, &stream),
    }
}

fn words(count: usize, random: &mut SplitMix) -> String {
    let word = |_| WORDS[random.below(WORDS.len() as u64) as usize];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_its_seed_and_holds_every_kind() {
        let all = plans(Kind::Vllm, 1, 100);
        assert_eq!(all, plans(Kind::Vllm, 1, 100));
        assert_ne!(all, plans(Kind::Vllm, 2, 100));
        let of = |name: &str| all.iter().filter(|plan| plan.name.starts_with(name)).count();
        assert_eq!(
            (of(LEFT_WAITING), of("chat stream, left"), of("refused")),
            (5, 15, 10)
        );
        let mut long = all.iter().filter(|plan| plan.name.contains("long"));
        assert!(long.all(|plan| plan.body.len() > 800), "long prompts are long");
        let named = |plan: &&Plan| plan.headers.iter().any(|(name, _)| name == "X-Request-Id");
        let leaving = all.iter().filter(|plan| plan.leave_after_ms.is_some());
        assert!(leaving.clone().count() == 5 && leaving.clone().all(|plan| named(&plan)));
    }
}
