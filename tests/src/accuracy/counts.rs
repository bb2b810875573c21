//! Token counts of two sides, request by request: equal or not.
//!
//! Owns: what counts as equal, and which requests are left out and why. Refuses: tolerances.

use super::{
    known::{Case, Known},
    report::{Section, Verdict},
};
use crate::agent::Record;
use std::fmt::Write;

/// Picks the least and the most that the engine says, and what the agent says.
type Pick = (
    &'static str,
    fn(&Known) -> Option<(u64, u64)>,
    fn(&Record) -> Option<u64>,
);

const COUNTS: [Pick; 3] = [
    (
        "input tokens",
        |known| known.input_tokens.map(|n| (n, n)),
        |record| record.input_tokens,
    ),
    (
        "output tokens",
        |known| known.output_tokens,
        |record| record.output_tokens,
    ),
    (
        "cached input tokens",
        |known| known.cached_tokens.map(|n| (n, n)),
        |record| record.cached_input_tokens,
    ),
];

/// One table for each count. Requests that ended before their response began are told apart: no id joins them.
pub(super) fn sections(cases: &[Case]) -> Vec<Section> {
    COUNTS.iter().map(|pick| section(cases, *pick)).collect()
}

fn section(cases: &[Case], (what, of_known, of_record): Pick) -> Section {
    let (mut equal, mut different, mut untold, mut unanswered) = (0, Vec::new(), Vec::new(), 0);
    for case in cases {
        let Some((least, most)) = case.known.as_ref().and_then(of_known) else {
            continue;
        };
        match case.record.as_ref().and_then(of_record) {
            Some(agent) if (least..=most).contains(&agent) => equal += 1,
            Some(agent) => different.push(format!("{} is {least}, the agent says {agent}", case.name())),
            None if case.unanswered() => unanswered += 1,
            None => untold.push(case.name()),
        }
    }
    let verdict = Verdict::of(equal > 0 && different.is_empty() && untold.is_empty());
    let words = format!(
        "{equal} equal, {} different, {} not told, {unanswered} left before their response had an id",
        different.len(),
        untold.len()
    );
    let mut text = format!("{verdict} {what}: {words}\n");
    // Writing to a String can't fail.
    for one in &different {
        let _ = writeln!(text, "       {one}");
    }
    if !untold.is_empty() {
        let _ = writeln!(text, "       not told: {}", untold.join("; "));
    }
    Section {
        text,
        verdicts: vec![(format!("{what}: {words}"), verdict)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn case(truth: Option<(u64, u64)>, agent: Option<u64>, answered: bool) -> Case {
        let client = json!({"index": 1, "name": "chat", "trace_id": null, "response_id": answered.then_some("r"),
            "status": 200, "outcome": if answered { "complete" } else { "cancelled" }, "streamed": true, "sent_ns": 0,
            "content_ns": [], "last_ns": 0, "prompt_tokens": null, "completion_tokens": null, "stream_error": false,
            "request_bytes": 0, "response_bytes": 0, "reusable": true, "error": null});
        let record = json!({"id": "i", "trace_id": "t", "engine": "e", "model": "m", "protocol": "p", "streamed": true,
            "status": "ok", "output_tokens": agent, "chunks": 0, "request_bytes": 0, "response_bytes": 0, "sources": {},
            "incomplete": []});
        Case {
            client: serde_json::from_value(client).expect("a truth"),
            known: Some(Known {
                output_tokens: truth,
                ..Known::default()
            }),
            record: Some(serde_json::from_value(record).expect("a record")),
        }
    }

    #[test]
    fn what_differs_or_is_not_told_breaks_the_bound() {
        let good = || case(Some((4, 4)), Some(4), true);
        let cases: [(Vec<Case>, Verdict, &str); 7] = [
            (vec![good()], Verdict::Pass, "1 equal"),
            (
                vec![good(), case(Some((4, 5)), Some(5), true)],
                Verdict::Pass,
                "2 equal",
            ),
            (
                vec![good(), case(Some((4, 5)), Some(6), true)],
                Verdict::Fail,
                "is 4, the agent says 6",
            ),
            (
                vec![good(), case(Some((4, 4)), None, true)],
                Verdict::Fail,
                "1 not told",
            ),
            (
                vec![good(), case(Some((0, 0)), None, false)],
                Verdict::Pass,
                "1 left before",
            ),
            (vec![good(), case(None, Some(9), true)], Verdict::Pass, "1 equal"),
            (vec![], Verdict::Fail, "0 equal"),
        ];
        for (cases, verdict, words) in cases {
            let section = &sections(&cases)[1];
            assert_eq!(section.verdicts[0].1, verdict, "{}", section.text);
            assert!(section.text.contains(words), "{}", section.text);
        }
    }
}
