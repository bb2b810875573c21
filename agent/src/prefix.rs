//! `infertap prefix`: what a running agent tells of prompts that begin alike, as a table or as its JSON.
//!
//! Owns: the columns. Refuses: asking (`api`) and the numbers (the core's).

use crate::api;
use crate::print::{self, ABSENT, Table, name, percent};
use infertap_core::prefix::{BreakReport, PrefixReport};
use serde::Deserialize;
use serde_json::Value;
use std::io::{self, Write};
use std::net::SocketAddr;

/// Asks the agent at `address` and prints its answer.
///
/// # Errors
/// There is none, it answers otherwise, or the output can't be written.
pub fn prefix_command(address: SocketAddr, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = "/api/v1/prefix";
    if json {
        let answer: Value = api::get(address, path)?;
        print::json(&answer, out)?;
    } else {
        api::get::<Prefixes>(address, path)?.print(out)?;
    }
    Ok(())
}

/// What the agent answers.
#[derive(Debug, Deserialize)]
struct Prefixes {
    prefixes: Vec<PrefixReport>,
}

const HEAD: [&str; 10] = [
    "scene",
    "model",
    "engine",
    "requests",
    "prompt tokens",
    "shareable",
    "hit",
    "lost tokens",
    "lost prefill",
    "what breaks it",
];
impl Prefixes {
    /// Prints the table; the rows with the most prompt tokens first.
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.prefixes.is_empty() {
            return writeln!(
                out,
                "no prompt has been compared yet: that takes a request whose prompt tokens are known, and prefix.enabled"
            );
        }
        let mut reports: Vec<&PrefixReport> = self.prefixes.iter().collect();
        reports.sort_by_key(|report| std::cmp::Reverse(report.prompt_tokens));
        let mut table = Table::new(3, &HEAD).text_from(9);
        for report in reports {
            table.row(row(report));
        }
        table.print(out)
    }
}

fn row(report: &PrefixReport) -> Vec<String> {
    let or_absent = |value: Option<String>| value.unwrap_or_else(|| ABSENT.to_owned());
    let breaks: Vec<String> = report.breaks.iter().map(words).collect();
    vec![
        name(&report.scene),
        name(&report.model),
        name(&report.engine),
        report.requests.to_string(),
        report.prompt_tokens.to_string(),
        percent(report.shareable_ratio),
        percent(report.hit_ratio),
        or_absent(report.lost_tokens.map(|tokens| tokens.to_string())),
        or_absent(report.lost_s.map(|seconds| format!("{seconds:.1} s"))),
        if breaks.is_empty() {
            ABSENT.to_owned()
        } else {
            breaks.join("; ")
        },
    ]
}

fn words(one: &BreakReport) -> String {
    format!(
        "{} at token {} (character {}, {}): {} of requests, {} tokens",
        one.class.as_str().replace('_', " "),
        one.token,
        one.character,
        one.part.as_str(),
        percent(Some(one.request_ratio)),
        one.lost_tokens
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table(answer: &serde_json::Value) -> String {
        let prefixes: Prefixes = serde_json::from_value(answer.clone()).expect("an answer");
        let mut out = Vec::new();
        prefixes.print(&mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn rows_are_printed_and_what_is_not_known_is_absent() {
        let unknown = json!({"engine": "llama-cpp-1", "model": "m\n", "scene": "a", "basis": "text", "block_tokens": null,
            "requests": 1, "prompt_tokens": 10, "shareable_tokens": 0, "shareable_ratio": 0.0, "told_requests": 0,
            "hit_tokens": null, "hit_ratio": null, "lost_tokens": null, "prefill_tokens_per_second": null,
            "saved_s": null, "lost_s": null, "breaks": [], "forgotten_blocks": 0});
        let mut known = unknown.clone();
        known["prompt_tokens"] = json!(4120);
        (known["hit_tokens"], known["hit_ratio"]) = (json!(0), json!(0.125));
        (known["lost_tokens"], known["lost_s"]) = (json!(7), json!(1.25));
        known["breaks"] = json!([{"class": "random_id", "part": "system", "token": 18, "character": 44, "requests": 9,
            "request_ratio": 0.9, "lost_tokens": 3510}]);
        let table = table(&json!({"prefixes": [unknown, known]}));
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(lines[1].ends_with("12 %            7         1.2 s  random id at token 18 (character 44, system): 90 % of requests, 3510 tokens"), "{table}");
        assert!(lines[2].starts_with("a      m_     llama-cpp-1"), "{table}");
        assert!(lines[2].ends_with("-            -             -  -"), "{table}");
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert!(table(&json!({"prefixes": []})).contains("prefix.enabled"));
    }
}
