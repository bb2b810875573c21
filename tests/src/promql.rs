//! Which metrics a PromQL expression reads.
//!
//! Owns: finding their names. Refuses: judging the expression (Prometheus does that).

use std::collections::BTreeSet;

/// Words that stand where a metric name could.
const KEYWORDS: &[&str] = &[
    "and",
    "or",
    "unless",
    "atan2",
    "bool",
    "offset",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "inf",
    "nan",
    "start",
    "end",
];
/// Keywords that a list of label names follows.
const LABEL_LISTS: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];

/// The names of the series that `expr` reads, as it names them (`…_bucket` stays `…_bucket`).
pub fn metric_names(expr: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = expr;
    let mut labels_follow = false;
    while let Some(first) = rest.chars().next() {
        match first {
            '"' | '\'' | '`' => rest = after_string(rest, first),
            '{' => rest = after_selector(rest),
            '[' => rest = rest.split_once(']').map_or("", |(_, after)| after),
            '(' if labels_follow => {
                labels_follow = false;
                rest = rest.split_once(')').map_or("", |(_, after)| after);
            }
            '#' => rest = rest.split_once('\n').map_or("", |(_, after)| after),
            c if c.is_ascii_digit() => {
                // A number or a duration: 0.95, 1e6, 5m.
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '.')
                    .unwrap_or(rest.len());
                rest = &rest[end..];
            }
            c if is_name(c) => {
                let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                rest = after;
                let lower = word.to_ascii_lowercase();
                if KEYWORDS.contains(&lower.as_str()) {
                    labels_follow = LABEL_LISTS.contains(&lower.as_str());
                } else if !is_call(after) {
                    names.insert(word.to_owned());
                }
            }
            c => rest = &rest[c.len_utf8()..],
        }
    }
    names
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// A function or an aggregation: `rate(…)`, `sum by (…) (…)`, `sum(…) by (…)`.
fn is_call(after: &str) -> bool {
    let after = after.trim_start();
    let word = after.split(|c| !is_name(c)).next().unwrap_or_default();
    after.starts_with('(') || word.eq_ignore_ascii_case("by") || word.eq_ignore_ascii_case("without")
}

fn after_string(text: &str, quote: char) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            c if c == quote => return &text[at + c.len_utf8()..],
            _ => {}
        }
    }
    ""
}

/// Past `{…}`, in whose strings a brace may stand.
fn after_selector(text: &str) -> &str {
    let mut rest = &text[1..];
    while let Some(c) = rest.chars().next() {
        rest = match c {
            '}' => return &rest[1..],
            '"' | '\'' | '`' => after_string(rest, c),
            c => &rest[c.len_utf8()..],
        };
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_nothing_else_is_taken_for_one() {
        let cases: &[(&str, &[&str])] = &[
            ("up", &["up"]),
            (r#"up{job=~".*infertap.*"} == 0"#, &["up"]),
            (
                r#"histogram_quantile(0.95, sum by (model, le) (rate(llm_ttft_seconds_bucket{scene="a}b\"{c"}[5m]))) > 3"#,
                &["llm_ttft_seconds_bucket"],
            ),
            (
                "sum(rate(a_total[5m])) by (le) / on(le) group_left(x) b:c:d offset 1h",
                &["a_total", "b:c:d"],
            ),
            ("a > 1e6 and b unless c or vector(1)", &["a", "b", "c"]),
            ("# a comment with words\nmax without (x) (a) * Inf", &["a"]),
            ("sum BY (model) (m)", &["m"]),
            ("broken{label=\"never closed", &["broken"]),
            ("", &[]),
        ];
        for (expr, expected) in cases {
            let expected: BTreeSet<String> = expected.iter().map(|&s| s.to_owned()).collect();
            assert_eq!(metric_names(expr), expected, "{expr}");
        }
    }
}
