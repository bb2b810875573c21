//! `cargo xtask accuracy --tokens`: prompt tokens as the agent counts them, against `usage.prompt_tokens` of a real engine.
//!
//! Owns: the prompts, asking the engine and the agent, the comparison. Refuses: counting anything itself.

use super::texts::{Class, Texts};
use crate::{
    engines::{Engine, Kind, MODEL, Start},
    http,
};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

/// What to run with.
#[derive(Debug)]
pub struct TokenOptions {
    /// The engine.
    pub kind: Kind,
    /// The agent's executable.
    pub agent: PathBuf,
    /// Folder of installed engines.
    pub engines: PathBuf,
    /// How many prompts.
    pub prompts: usize,
    /// Seed of the prompts.
    pub seed: u64,
}

/// What the agent says of one body.
#[derive(Debug, Deserialize)]
struct Answer {
    tokens: Option<u64>,
    estimate: Option<u64>,
    error: Option<String>,
}

struct Case {
    class: Class,
    body: Value,
    engine: u64,
    answer: Answer,
}

/// Carries it out and prints the comparison; the prompts whose counts differ.
///
/// # Errors
/// The engine or the agent fails.
pub fn tokens(options: &TokenOptions) -> Result<Vec<String>> {
    let engine = Engine::start(options.kind, &options.engines, &Start::default())?;
    let bodies = bodies(options.prompts, options.seed);
    let mut truths = Vec::new();
    for (_, body) in &bodies {
        let path = if body.get("messages").is_some() {
            "/v1/chat/completions"
        } else {
            "/v1/completions"
        };
        let response = http::post(&engine.address, path, &body.to_string())?;
        ensure!(
            response.status == 200,
            "{} for {body}: {}",
            response.status,
            response.body
        );
        let tokens = response.json()?["usage"]["prompt_tokens"].as_u64();
        truths.push(tokens.with_context(|| format!("no usage in {}", response.body))?);
    }
    let port = engine.address.to_string();
    let port = port.rsplit(':').next().unwrap_or_default();
    let name = match options.kind {
        Kind::Llama => format!("llama-cpp-{port}"),
        Kind::Vllm => format!("vllm-{port}"),
    };
    let answers = ask_agent(options, &name, &bodies)?;
    engine.stop();
    let cases: Vec<Case> = bodies
        .into_iter()
        .zip(truths)
        .zip(answers)
        .map(|(((class, body), engine), answer)| Case {
            class,
            body,
            engine,
            answer,
        })
        .collect();
    print(&cases);
    Ok(differences(&cases))
}

fn ask_agent(options: &TokenOptions, engine: &str, bodies: &[(Class, Value)]) -> Result<Vec<Answer>> {
    let mut child = Command::new(&options.agent)
        .args(["tokens", engine])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't run {}", options.agent.display()))?;
    let mut input = child.stdin.take().context("no standard input")?;
    let lines: Vec<String> = bodies.iter().map(|(_, body)| body.to_string()).collect();
    let writer = std::thread::spawn(move || lines.iter().try_for_each(|line| writeln!(input, "{line}")));
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "`infertap tokens {engine}` failed");
    writer.join().map_err(|_| anyhow::anyhow!("writing panicked"))??;
    let answers: Vec<Answer> = String::from_utf8(output.stdout)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    ensure!(
        answers.len() == bodies.len(),
        "{} answers to {} bodies",
        answers.len(),
        bodies.len()
    );
    Ok(answers)
}

/// Requests of every class, from one token to some three thousand: most are short, as prompts are.
fn bodies(count: usize, seed: u64) -> Vec<(Class, Value)> {
    let mut texts = Texts::new(seed);
    (0..count)
        .map(|index| {
            let class = Class::ALL[index % Class::ALL.len()];
            // Lengths double from step to step; the longest are few.
            let round = index / Class::ALL.len();
            let length = match round % 12 {
                0 => 1,
                10 => 1200,
                11 => class.characters_of_3000_tokens(),
                step => 4 << step.min(7),
            };
            (class, body(class, length, index, &mut texts))
        })
        .collect()
}

fn body(class: Class, length: usize, index: usize, texts: &mut Texts) -> Value {
    let text = texts.text(class, length);
    let mut body = match class {
        Class::Turns => {
            let mut messages = vec![json!({"role": "system", "content": texts.text(Class::English, 60)})];
            for turn in 0..=(index % 5) {
                let said = texts.text(Class::English, length / 4 + turn);
                messages.push(json!({"role": "user", "content": said}));
                messages
                    .push(json!({"role": "assistant", "content": texts.text(Class::Code, length / 4 + 1)}));
            }
            messages.push(json!({"role": "user", "content": [
                {"type": "text", "text": text}, {"type": "text", "text": "Go on."}
            ]}));
            json!({"messages": messages})
        }
        Class::Tools => json!({
            "messages": [
                {"role": "user", "content": text},
                {"role": "assistant", "content": "", "tool_calls": [{"id": format!("call_{index}"), "type": "function",
                    "function": {"name": "get_weather", "arguments": "{\"city\": \"Köln\", \"days\": 3}"}}]},
                {"role": "tool", "tool_call_id": format!("call_{index}"), "content": "{\"sky\": \"clear\", \"celsius\": 21.5}"},
                {"role": "user", "content": texts.text(Class::English, 20)},
            ],
            "tools": [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                    "required": ["city"]}}}],
            "tool_choice": "none",
        }),
        // Some as plain completions, which have no template.
        _ if (index / Class::ALL.len() + index) % 3 == 1 => json!({"prompt": text}),
        _ => json!({"messages": [{"role": "user", "content": text}]}),
    };
    body["model"] = json!(MODEL);
    body["max_tokens"] = json!(1);
    body
}

fn differences(cases: &[Case]) -> Vec<String> {
    cases
        .iter()
        .filter(|case| case.answer.tokens != Some(case.engine))
        .map(|case| {
            let body: String = case.body.to_string().chars().take(300).collect();
            let error = case.answer.error.as_deref().unwrap_or("");
            format!(
                "{:?}: the engine counts {}, the agent {:?} {error}: {body}",
                case.class, case.engine, case.answer.tokens
            )
        })
        .collect()
}

fn print(cases: &[Case]) {
    println!(
        "class        prompts  tokens          equal   estimate's error: mean, worst of prompts above 50 tokens; sum"
    );
    for class in Class::ALL {
        let of: Vec<&Case> = cases.iter().filter(|case| case.class == class).collect();
        let equal = of
            .iter()
            .filter(|case| case.answer.tokens == Some(case.engine))
            .count();
        let least = of.iter().map(|case| case.engine).min().unwrap_or(0);
        let most = of.iter().map(|case| case.engine).max().unwrap_or(0);
        let error = |case: &Case| {
            let estimate = case.answer.estimate? as f64;
            Some((estimate - case.engine as f64) / case.engine.max(1) as f64)
        };
        let long: Vec<f64> = of
            .iter()
            .filter(|case| case.engine > 50)
            .filter_map(|case| error(case))
            .collect();
        let mean = long.iter().map(|e| e.abs()).sum::<f64>() / long.len().max(1) as f64;
        let worst = long
            .iter()
            .copied()
            .max_by(|a, b| a.abs().total_cmp(&b.abs()))
            .unwrap_or(0.0);
        let sum = |part: fn(&Case) -> u64| of.iter().map(|case| part(case)).sum::<u64>() as f64;
        let total = sum(|case| case.answer.estimate.unwrap_or(0)) / sum(|case| case.engine).max(1.0) - 1.0;
        println!(
            "{:<12} {:>7}  {least:>4} to {most:>5}  {equal:>4}/{:<4}  {:>5.0} % {:>+6.0} % {:>+6.0} %",
            format!("{class:?}").to_lowercase(),
            of.len(),
            of.len(),
            mean * 100.0,
            worst * 100.0,
            total * 100.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_prompts_of_every_class_and_length() {
        let bodies = bodies(300, 1);
        for class in Class::ALL {
            let lengths: Vec<usize> = bodies
                .iter()
                .filter(|(of, _)| *of == class)
                .map(|(_, body)| body.to_string().len())
                .collect();
            assert!(lengths.len() >= 20, "{class:?}: {}", lengths.len());
            assert!(lengths.iter().max() > Some(&1500), "{class:?}: {lengths:?}");
        }
        assert!(bodies.iter().any(|(_, body)| body.to_string().len() > 6000));
    }
}
