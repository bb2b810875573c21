//! `cargo xtask accuracy vllm --prefix`: what the prefix advisor says of a load with shared system prompts, against what
//! vLLM's cache hit by vLLM's own count, and whether it names what the load puts into the prompts' heads.
//!
//! Owns: the load, the comparison and its bounds. Refuses: any count of its own: the truth is each response's
//! `prompt_tokens_details.cached_tokens`, which is vLLM's `num_cached_tokens`.

use super::{
    Options,
    report::{Report, Section, Verdict},
};
use crate::{
    agent::{Agent, Start},
    clock,
    engines::{self, Engine, Kind, MODEL},
    http,
};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _, fs, thread, time::Duration};

/// How far the estimate may be off, as a share of what vLLM hit.
const BOUND: f64 = 0.02;
/// Requests are named after this field of their bodies.
const RULES: &str = "[[scene]]\nfrom = \"body:user\"\n";

/// Sentences of which system prompts are made; each prompt takes them from another place on.
const SENTENCES: [&str; 16] = [
    "Answer in one short sentence unless the user asks for more.",
    "Be exact, and say so when you do not know something.",
    "Use the units of the question, and write numbers with digits.",
    "Quote the page of a manual when the answer is in a manual.",
    "Never give legal or medical advice; name who can give it.",
    "Do not repeat the question, and do not apologize.",
    "When a customer is angry, stay calm and offer one next step.",
    "Prices are in euros and include tax unless the invoice says otherwise.",
    "Orders can be changed until they are packed, and cancelled until they are sent.",
    "A parcel that is late by more than five days is traced by the carrier.",
    "Passwords are never asked for, and never sent by mail.",
    "The warehouse is closed on holidays, but the hotline is not.",
    "Returns are free within thirty days when the label is used.",
    "Spare parts are listed by the number on the bottom of the device.",
    "If two rules contradict each other, follow the later one.",
    "End with a question only when something is missing.",
];
const QUESTIONS: [&str; 8] = [
    "Where is my parcel?",
    "How do I change the address of an order that I made yesterday?",
    "Which battery fits the small lamp?",
    "Can I return a gift without the receipt?",
    "Why was I charged twice?",
    "Do you ship to Iceland, and what does it cost?",
    "The screen stays black after the update. What can I do?",
    "Please explain the guarantee to me like I was five years old.",
];

/// One scene of the load: whose name, and what is expected to break its prefixes.
struct Scene {
    name: &'static str,
    breaks: Option<&'static str>,
    /// Of the system prompt: where it begins among the sentences, and how many it has.
    sentences: (usize, usize),
    requests: usize,
}

const SCENES: [Scene; 5] = [
    Scene {
        name: "support",
        breaks: None,
        sentences: (0, 32),
        requests: 14,
    },
    Scene {
        name: "search",
        breaks: None,
        sentences: (5, 48),
        requests: 12,
    },
    Scene {
        name: "dialogue",
        breaks: None,
        sentences: (9, 20),
        requests: 10,
    },
    Scene {
        name: "stamped",
        breaks: Some("timestamp"),
        sentences: (3, 32),
        requests: 10,
    },
    Scene {
        name: "tagged",
        breaks: Some("random_id"),
        sentences: (11, 32),
        requests: 8,
    },
];

impl Scene {
    fn system(&self) -> String {
        let (from, count) = self.sentences;
        let sentences: Vec<&str> = SENTENCES.iter().copied().cycle().skip(from).take(count).collect();
        sentences.join(" ")
    }

    /// The system prompt of its request with this number.
    fn head(&self, number: usize) -> String {
        let rules = self.system();
        // What one after the other would be alike is not alike at its beginning.
        let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match self.breaks {
            Some("timestamp") => format!(
                "You are a clerk. Current time: 2026-11-30T08:{:02}:{:02}Z. {rules}",
                7 + number,
                (number * 17) % 60
            ),
            Some(_) => format!("You are a clerk. Session {mixed:016x}. {rules}"),
            None => format!("You are a clerk of the {} desk. {rules}", self.name),
        }
    }
}

/// What vLLM said of the requests of a scene.
#[derive(Debug, Default, Clone, Copy)]
struct Told {
    requests: u64,
    prompt: u64,
    cached: u64,
}

/// Carries it out and prints the comparison; the bounds that were broken.
///
/// # Errors
/// The engine or the agent fails.
pub fn prefix(options: &Options) -> Result<Vec<String>> {
    fs::create_dir_all(&options.logs)?;
    let rules = options.logs.join("prefix-scenes.toml");
    fs::write(&rules, RULES)?;
    let mut engine = Engine::start(
        Kind::Vllm,
        &options.engines,
        &engines::Start {
            log: Some(options.logs.join("vllm-prefix.log")),
            arguments: vec!["--enable-prompt-tokens-details".to_owned()],
            ..engines::Start::default()
        },
    )?;
    let port = engine.address.port().to_string();
    let rules = rules.display().to_string();
    let agent = Agent::start(&Start {
        binary: options.agent.clone(),
        arguments: ["--port", &port, "--config", &rules].map(str::to_owned).into(),
        port: 0,
        log: options.logs.join("agent-prefix.log"),
        through: Vec::new(),
        leave: false,
    })?;
    let id = agent.wait_serving(engine.pid(), Duration::from_secs(20))?;
    let began = clock::monotonic_ns();
    let told = load(&engine)?;
    let requests: u64 = told.values().map(|told| told.requests).sum();
    let seconds = (clock::monotonic_ns() - began) as f64 / 1e9;
    Report::heading(&format!("vLLM: {requests} requests in {seconds:.1} s"));
    ensure!(
        engine.is_running(),
        "the engine ended; see {}",
        options.logs.display()
    );
    let records = usize::try_from(requests)?;
    agent.wait_requests(records, Duration::from_secs(20), |record| record.engine == id)?;
    // Rows are told once a second.
    thread::sleep(Duration::from_secs(2));
    let answer = http::get(&agent.address, "/api/v1/prefix")?.json()?;
    agent.stop();
    engine.stop();
    let rows = answer["prefixes"].as_array().context("no rows")?;
    let mut report = Report::default();
    report.add(estimates(&told, rows));
    report.add(breaks(rows));
    Ok(report.finish())
}

/// Sends the load, request by request; what vLLM said of each scene.
fn load(engine: &Engine) -> Result<BTreeMap<&'static str, Told>> {
    let mut told: BTreeMap<&str, Told> = BTreeMap::new();
    // Scenes take turns, as those of a real server do.
    let most = SCENES.iter().map(|scene| scene.requests).max().unwrap_or(0);
    let mut dialogue = vec![json!({"role": "system", "content": SCENES[2].head(0)})];
    for number in 0..most {
        for scene in SCENES.iter().filter(|scene| number < scene.requests) {
            let question = QUESTIONS[(number * 3 + scene.sentences.0) % QUESTIONS.len()];
            let user = json!({"role": "user", "content": format!("{question} ({number})")});
            let is_dialogue = scene.name == "dialogue";
            let messages = if is_dialogue {
                dialogue.push(user);
                dialogue.clone()
            } else {
                vec![json!({"role": "system", "content": scene.head(number)}), user]
            };
            let body = json!({"model": MODEL, "messages": messages, "user": scene.name,
                "max_tokens": if is_dialogue { 24 } else { 2 }, "temperature": 0});
            let response = http::post(&engine.address, "/v1/chat/completions", &body.to_string())?;
            ensure!(response.status == 200, "{}: {}", response.status, response.body);
            let answer = response.json()?;
            let usage = &answer["usage"];
            let of_scene = told.entry(scene.name).or_default();
            of_scene.requests += 1;
            of_scene.prompt += usage["prompt_tokens"].as_u64().context("no prompt_tokens")?;
            // vLLM leaves the details out when there was no hit.
            of_scene.cached += usage["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap_or(0);
            if is_dialogue {
                let content = answer["choices"][0]["message"]["content"].clone();
                dialogue.push(json!({"role": "assistant", "content": content}));
            }
        }
    }
    Ok(told)
}

fn row<'a>(rows: &'a [Value], scene: &str) -> Option<&'a Value> {
    rows.iter().find(|row| row["scene"] == scene)
}

/// The estimate of what could be hit against what was.
fn estimates(told: &BTreeMap<&'static str, Told>, rows: &[Value]) -> Section {
    let mut text = String::from(
        "scene      requests   prompt tokens (vLLM, agent)   hit (vLLM, agent)   estimate   off by   block\n",
    );
    let (mut truth, mut estimate, mut same) = (0, 0, true);
    for (scene, told) in told {
        let row = row(rows, scene);
        let number = |key: &str| row.and_then(|row| row[key].as_u64());
        let shareable = number("shareable_tokens").unwrap_or(0);
        same &= number("prompt_tokens") == Some(told.prompt)
            && number("hit_tokens") == Some(told.cached)
            && number("requests") == Some(told.requests);
        truth += told.cached;
        estimate += shareable;
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "{scene:<10} {:>8} {:>14} {:>14} {:>10} {:>8} {shareable:>10} {:>7.2} % {:>7}",
            told.requests,
            told.prompt,
            number("prompt_tokens").unwrap_or(0),
            told.cached,
            number("hit_tokens").unwrap_or(0),
            100.0 * off(told.cached, shareable),
            number("block_tokens").unwrap_or(0),
        );
    }
    let off = off(truth, estimate);
    let _ = writeln!(
        text,
        "all: vLLM hit {truth} tokens, estimated {estimate}, off by {:.2} %",
        100.0 * off
    );
    let verdicts = vec![
        (
            format!("estimate within {} % of vLLM's num_cached_tokens", 100.0 * BOUND),
            Verdict::of(truth > 0 && off <= BOUND),
        ),
        (
            "requests, prompt tokens and hits as vLLM told them".to_owned(),
            Verdict::of(same),
        ),
    ];
    Section { text, verdicts }
}

fn off(truth: u64, estimate: u64) -> f64 {
    truth.abs_diff(estimate) as f64 / truth.max(1) as f64
}

/// What breaks the prefixes of each scene, against what the load put there.
fn breaks(rows: &[Value]) -> Section {
    let mut text =
        String::from("\nscene      expected    named       requests   token   character   part     lost\n");
    let mut verdicts = Vec::new();
    for scene in &SCENES {
        let found = row(rows, scene.name).map(|row| &row["breaks"][0]);
        let class = found.and_then(|found| found["class"].as_str());
        let number = |key: &str| found.and_then(|found| found[key].as_u64()).unwrap_or(0);
        let _ = writeln!(
            text,
            "{:<10} {:<11} {:<11} {:>8} {:>7} {:>11}   {:<8} {}",
            scene.name,
            scene.breaks.unwrap_or("-"),
            class.unwrap_or("-"),
            number("requests"),
            number("token"),
            number("character"),
            found.and_then(|found| found["part"].as_str()).unwrap_or("-"),
            number("lost_tokens"),
        );
        // Every request but the first follows one that it differs from, in the head.
        let named = class == scene.breaks;
        let all = scene.breaks.is_none()
            || (number("requests") == scene.requests as u64 - 1 && number("character") < 60);
        verdicts.push((
            format!(
                "{}: {} breaks its prefixes",
                scene.name,
                scene.breaks.unwrap_or("nothing")
            ),
            Verdict::of(named && all),
        ));
    }
    Section { text, verdicts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_judged_by_what_was_hit() {
        let told: BTreeMap<&str, Told> = [(
            "support",
            Told {
                requests: 2,
                prompt: 200,
                cached: 100,
            },
        )]
        .into();
        let rows = |shareable: u64| {
            vec![
                json!({"scene": "support", "requests": 2, "prompt_tokens": 200, "hit_tokens": 100,
                "shareable_tokens": shareable, "block_tokens": 16}),
            ]
        };
        let verdicts = |shareable| -> Vec<Verdict> {
            estimates(&told, &rows(shareable))
                .verdicts
                .into_iter()
                .map(|(_, verdict)| verdict)
                .collect()
        };
        assert_eq!(verdicts(102), [Verdict::Pass, Verdict::Pass]);
        assert_eq!(verdicts(103), [Verdict::Fail, Verdict::Pass]);
        assert_eq!(estimates(&told, &[]).verdicts[1].1, Verdict::Fail);
    }

    #[test]
    fn a_break_must_be_named_for_all_requests_and_for_no_other_scene() {
        let named = |scene: &str, class: &str, requests: u64| json!({"scene": scene, "breaks": [{"class": class, "requests": requests, "token": 5, "character": 31}]});
        let rows = [
            named("stamped", "timestamp", 9),
            named("tagged", "number", 7),
            named("search", "text", 1),
        ];
        let passed: Vec<bool> = breaks(&rows)
            .verdicts
            .iter()
            .map(|(_, verdict)| *verdict == Verdict::Pass)
            .collect();
        assert_eq!(passed, [true, false, true, true, false]);
    }

    #[test]
    fn heads_differ_where_they_are_to() {
        for scene in &SCENES {
            let (first, second) = (scene.head(0), scene.head(1));
            assert_eq!(first == second, scene.breaks.is_none(), "{}", scene.name);
        }
    }
}
