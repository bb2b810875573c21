//! `infertap cost`: what a running agent tells of usage, as tables or as its JSON.
//!
//! Owns: the questions and their tables. Refuses: reading the store beside the agent: what it tells includes what was kept.

use crate::api;
use crate::print::{self, ABSENT, Table, change, count, known, name, percent, time};
use anyhow::Context as _;
use infertap_core::ledger::{By, Growth, Heavy, MoneyChange, Order, Report, ReportRow};
use infertap_core::money::{Basis, Currency};
use serde::Deserialize;
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Who used how much.
    Cost {
        /// The rows.
        by: By,
        /// The last so many seconds.
        since: u64,
    },
    /// The heaviest requests.
    Heaviest {
        /// What makes them heavy.
        order: Order,
        /// The last so many seconds.
        since: u64,
        /// How many.
        limit: usize,
    },
    /// What growth comes from.
    Growth {
        /// The windows that are compared, hours.
        hours: u64,
    },
}

#[derive(Deserialize)]
struct Heaviest {
    requests: Vec<Heavy>,
}

impl Question {
    fn path(&self) -> String {
        match self {
            Question::Cost { by, since } => format!("/api/v1/cost?by={}&since={since}s", by.as_str()),
            Question::Heaviest { order, since, limit } => {
                format!(
                    "/api/v1/heaviest?order={}&since={since}s&limit={limit}",
                    order.as_str()
                )
            }
            Question::Growth { hours } => format!("/api/v1/growth?hours={hours}"),
        }
    }

    /// Prints an answer for people.
    ///
    /// # Errors
    /// It is not what the agent of this version answers, or the output can't be written.
    pub fn print(&self, answer: Value, out: &mut dyn Write) -> anyhow::Result<()> {
        let other = "the agent answers otherwise than this version of infertap does; is it an older one?";
        match self {
            Question::Cost { since, .. } => {
                cost(&serde_json::from_value(answer).context(other)?, *since, out)
            }
            Question::Heaviest { order, since, .. } => {
                let answer: Heaviest = serde_json::from_value(answer).context(other)?;
                heaviest(&answer.requests, *order, *since, out)
            }
            Question::Growth { hours } => {
                growth(&serde_json::from_value(answer).context(other)?, *hours, out)
            }
        }
    }
}

/// Asks the agent at `address`, and prints what it answers.
///
/// # Errors
/// There is no agent, it refuses, or the output can't be written.
pub fn cost_command(
    address: SocketAddr,
    question: &Question,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let answer: Value = api::get(address, &question.path())?;
    if json {
        print::json(&answer, out)?;
        return Ok(());
    }
    question.print(answer, out)
}

fn cost(report: &Report, since: u64, out: &mut dyn Write) -> anyhow::Result<()> {
    let by = report.by.as_str();
    write!(out, "Usage of the last {} by {by}", time(since))?;
    match report.observed_since {
        None => writeln!(out, ": nothing was observed yet.")?,
        Some(observed) if observed > report.window.from => {
            let observed = report.window.to.saturating_sub(observed);
            writeln!(out, ", of which {} were observed.", time(observed))?;
        }
        Some(_) => writeln!(out, ".")?,
    }
    if report.rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    print_rows(report, out)?;
    Ok(())
}

/// The rows of a report and their sum, as a table.
///
/// # Errors
/// The output can't be written.
pub(crate) fn print_rows(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    // Of each currency and basis, what was spent; what was saved, where anything was.
    let money: Vec<(Currency, Basis)> = report
        .total
        .usage
        .cost
        .iter()
        .map(|spent| (spent.currency, spent.basis))
        .collect();
    let titles: Vec<[String; 2]> = money
        .iter()
        .map(|(currency, basis)| {
            let basis = basis.as_str();
            [format!("{currency} ({basis})"), format!("{currency} saved")]
        })
        .collect();
    let mut head = vec![
        report.by.as_str(),
        "requests",
        "failed",
        "input",
        "cached",
        "output",
        "reasoning",
        "in/out",
        "near limit",
    ];
    head.extend(titles.iter().flatten().map(String::as_str));
    let mut table = Table::new(1, &head);
    for row in report.rows.iter().chain([&report.total]) {
        table.row(cells(row, &money));
    }
    table.print(out)
}

fn cells(row: &ReportRow, money: &[(Currency, Basis)]) -> Vec<String> {
    let usage = &row.usage;
    let number = |number: Option<f64>, decimals: usize| {
        number.map_or_else(|| ABSENT.to_owned(), |number| format!("{number:.decimals$}"))
    };
    let mut cells = vec![
        name(&row.name),
        count(usage.requests),
        if usage.failed == 0 {
            ABSENT.to_owned()
        } else {
            count(usage.failed)
        },
        count(usage.input_tokens),
        known(usage.cached_input_tokens),
        count(usage.output_tokens),
        known(usage.reasoning_tokens),
        number(row.input_output_ratio, 2),
        known(usage.near_context_limit),
    ];
    for (currency, basis) in money {
        let spent = usage.spent(*currency, *basis);
        let saved = spent
            .map(|spent| spent.saved.units())
            .filter(|saved| *saved > 0.0);
        cells.push(number(spent.map(|spent| spent.amount.units()), 4));
        cells.push(number(saved, 4));
    }
    cells
}

fn heaviest(requests: &[Heavy], order: Order, since: u64, out: &mut dyn Write) -> anyhow::Result<()> {
    let since = time(since);
    if requests.is_empty() {
        writeln!(
            out,
            "No request of the last {since} is known by its {}.",
            order.as_str()
        )?;
        return Ok(());
    }
    writeln!(
        out,
        "The heaviest requests of the last {since}, by {}.\n",
        order.as_str()
    )?;
    print_requests(requests.iter(), out)
}

fn print_requests<'a>(requests: impl Iterator<Item = &'a Heavy>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = Table::new(
        4,
        &[
            "id", "scene", "model", "client", "input", "output", "tokens", "cost",
        ],
    );
    for request in requests {
        let cost: Vec<String> = request
            .cost
            .iter()
            .map(|money| format!("{:.4} {}", money.amount.units(), money.currency))
            .collect();
        table.row(vec![
            name(&request.id),
            name(&request.scene),
            name(&request.model),
            request.client.as_deref().map_or_else(|| ABSENT.to_owned(), name),
            known(request.input_tokens),
            known(request.output_tokens),
            count(request.tokens()),
            cost.join(" "),
        ]);
    }
    table.print(out)?;
    Ok(())
}

fn growth(growth: &Growth, hours: u64, out: &mut dyn Write) -> anyhow::Result<()> {
    let tokens = growth.tokens;
    let ratio = tokens
        .ratio
        .map_or_else(String::new, |ratio| format!(" ({:+.0} %)", 100.0 * ratio));
    writeln!(
        out,
        "The last {} against those before them: {} tokens, {}{ratio}.",
        time(hours * 3600),
        count(tokens.now as u64),
        change(tokens.growth),
    )?;
    if !growth.complete {
        writeln!(
            out,
            "The earlier time was not observed from its beginning: growth may be seeming."
        )?;
    }
    for money in &growth.cost {
        writeln!(out, "{}", cost_line(money))?;
    }
    if growth.contributions.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(
        2,
        &[
            "by",
            "name",
            "tokens",
            "growth",
            "of all",
            "requests",
            "because of",
        ],
    );
    for one in growth.contributions.iter().filter(|one| one.tokens.growth != 0.0) {
        table.row(vec![
            one.by.as_str().to_owned(),
            name(&one.name),
            count(one.tokens.now as u64),
            change(one.tokens.growth),
            percent(one.share),
            change(one.requests.growth),
            one.because.map_or(ABSENT, |because| because.as_str()).to_owned(),
        ]);
    }
    table.print(out)?;
    if !growth.heaviest.is_empty() {
        writeln!(out, "\nThe heaviest requests of what grew:\n")?;
        print_requests(growth.heaviest.iter().map(|heavy| &**heavy), out)?;
    }
    Ok(())
}

fn cost_line(money: &MoneyChange) -> String {
    let change = money.change;
    let ratio = change
        .ratio
        .map_or_else(String::new, |ratio| format!(" ({:+.0} %)", 100.0 * ratio));
    format!(
        "{} ({}): {:.4}, {:+.4}{ratio}.",
        money.currency,
        money.basis.as_str(),
        change.now,
        change.growth
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;

    fn printed(question: &Question, answer: Value, expected: &Expect) {
        let mut out = Vec::new();
        question.print(answer, &mut out).expect("prints");
        expected.assert_eq(&String::from_utf8(out).expect("text"));
    }

    fn row(name: &str, requests: u64, input: u64, output: u64, ratio: Option<f64>) -> Value {
        json!({
            "name": name, "requests": requests, "failed": 0, "input_tokens": input, "cached_input_tokens": null,
            "output_tokens": output, "reasoning_tokens": null, "near_context_limit": null,
            "cost": [], "input_output_ratio": ratio,
        })
    }

    #[test]
    fn usage_is_a_table() {
        let question = Question::Cost {
            by: By::Scene,
            since: 86_400,
        };
        assert_eq!(question.path(), "/api/v1/cost?by=scene&since=86400s");
        let mut total = row("total", 13, 120_090, 445, Some(269.87));
        total["cost"] = json!([{"currency": "USD", "basis": "tokens", "amount": 0.0125, "saved": 0.0}]);
        let answer = json!({
            "from": 1_000_800, "to": 1_087_200, "observed_since": 1_080_000, "by": "scene",
            "rows": [row("rag", 3, 120_000, 400, Some(300.0)), row("chat\u{1b}", 10, 90, 45, Some(2.0))],
            "total": total,
        });
        printed(
            &question,
            answer,
            &expect![[r#"
                Usage of the last 1 d by scene, of which 2 h were observed.

                scene  requests    input  output  in/out  USD (tokens)
                rag           3  120,000     400  300.00             -
                chat_        10       90      45    2.00             -
                total        13  120,090     445  269.87        0.0125
            "#]],
        );
    }

    #[test]
    fn growth_is_told_with_its_reasons() {
        let change = |before: f64, now: f64| {
            let ratio = if before > 0.0 {
                Some((now - before) / before)
            } else {
                None
            };
            json!({"before": before, "now": now, "growth": now - before, "ratio": ratio})
        };
        let one = |by: &str, name: &str, before: f64, now: f64, because: &str| {
            json!({
                "by": by, "name": name, "tokens": change(before, now), "share": (now - before) / 3000.0,
                "requests": change(1.0, 2.0), "by_requests": 1.0, "by_size": 1.0, "because": because, "cost": [],
            })
        };
        let heavy = json!({
            "ended": 7200, "id": "00aa", "trace_id": "t", "engine": "e", "model": "m", "scene": "rag", "client": null,
            "input_tokens": 3900, "output_tokens": 100, "cost": [],
        });
        let answer = json!({
            "before": {"from": 0, "to": 3600}, "now": {"from": 3600, "to": 7200}, "complete": false,
            "tokens": change(1000.0, 4000.0), "requests": change(1.0, 2.0), "cost": [],
            "contributions": [
                one("scene", "rag", 0.0, 3100.0, "more_requests"),
                one("scene", "chat", 1000.0, 900.0, "smaller_requests"),
            ],
            "heaviest": [heavy],
        });
        printed(
            &Question::Growth { hours: 1 },
            answer,
            &expect![[r#"
            The last 1 h against those before them: 4,000 tokens, +3,000 (+300 %).
            The earlier time was not observed from its beginning: growth may be seeming.

            by     name  tokens  growth  of all  requests        because of
            scene  rag    3,100  +3,100   103 %        +1     more requests
            scene  chat     900    -100    -3 %        +1  smaller requests

            The heaviest requests of what grew:

            id    scene  model  client  input  output  tokens
            00aa  rag    m      -       3,900     100   4,000
        "#]],
        );
    }

    #[test]
    fn another_answer_is_refused() {
        let question = Question::Growth { hours: 1 };
        let error = question
            .print(json!({"tokens": 1}), &mut Vec::new())
            .expect_err("refused");
        assert!(error.to_string().contains("older"), "{error}");
    }
}
