//! `infertap budget`: how budgets stand, as the agent that runs tells it, or as the last one left them.
//!
//! Owns: whom to ask, the table. Refuses: counting.

use super::{amount, keeper::unix_now};
use crate::api;
use crate::config::Config;
use crate::export::BudgetsAnswer;
use crate::print::{self, ABSENT, Table, name};
use crate::store::{Reader, tables};
use anyhow::Context as _;
use infertap_core::budget::{BudgetReport, Budgets, Zone};
use std::io::Write;
use std::net::SocketAddr;

/// What the columns are.
const HEAD: [&str; 7] = ["BUDGET", "SCENE", "USED", "LIMIT", "%", "PERIOD ENDS", "USED UP"];

/// Prints how budgets stand. Without an `agent` that is named, the one of the configuration is asked, and where none answers,
/// its store is read.
///
/// # Errors
/// Neither tells, or the output can't be written.
pub fn budget_command(
    config: &Config,
    agent: Option<SocketAddr>,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let address = agent.unwrap_or(config.server.listen);
    let answer = match api::get(address, "/api/v1/budgets") {
        Ok(answer) => answer,
        Err(error) if agent.is_some() => return Err(error),
        Err(error) => {
            let budgets =
                left(config).with_context(|| format!("{error}; and nothing can be read of the last one"))?;
            eprintln!("No agent answers at {address}: this is what the last one left.");
            BudgetsAnswer { budgets }
        }
    };
    if json {
        print::json(&answer, out)?;
        return Ok(());
    }
    if answer.budgets.is_empty() {
        writeln!(
            out,
            "There are no budgets: [[budget]] in the configuration makes one."
        )?;
        return Ok(());
    }
    table(&answer.budgets, out)
}

/// How the budgets of the configuration stand by what was kept of them.
fn left(config: &Config) -> anyhow::Result<Vec<BudgetReport>> {
    let file = config
        .store
        .file()
        .context("store.path is empty: nothing was kept")?;
    let kept = Reader::open(file)?.read(tables::budget::read)?;
    let now = unix_now();
    let mut budgets = Budgets::default();
    budgets.configure(config.budgets(), &kept, now);
    Ok(budgets.report(now))
}

fn table(budgets: &[BudgetReport], out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = Table::new(2, &HEAD).text_from(5);
    for budget in budgets {
        let zone = Zone::named(&budget.time_zone).unwrap_or_default();
        let unit = &budget.unit;
        let of = |value| format!("{} {unit}", amount(value, unit));
        table.row(vec![
            name(&budget.name),
            name(&budget.scene),
            of(budget.used),
            format!("{} a {}", of(budget.limit), name(&budget.period)),
            format!("{:.1}", budget.ratio * 100.0),
            zone.show(budget.period_end),
            budget
                .exhausted_at
                .map_or_else(|| ABSENT.to_owned(), |at| zone.show(at)),
        ]);
    }
    table.print(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::BudgetConfig;
    use crate::config::Config;
    use crate::store::Store;
    use infertap_core::budget::Kept;

    #[test]
    fn budgets_are_a_table() {
        let report = BudgetReport {
            name: "search".to_owned(),
            scene: "search*".to_owned(),
            model: "*".to_owned(),
            unit: "tokens".to_owned(),
            basis: None,
            period: "day".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
            period_start: 1_795_993_200,
            period_end: 1_796_079_600,
            measured_since: None,
            thresholds: vec![0.8],
            limit: 50_000_000.0,
            used: 41_234_567.0,
            ratio: 0.824_691,
            period_rate: Some(1.0),
            recent_rate: None,
            exhausted_at: Some(1_796_060_000),
        };
        let money = BudgetReport {
            name: "all".to_owned(),
            scene: "*".to_owned(),
            unit: "USD".to_owned(),
            limit: 2000.0,
            used: 12.5,
            ratio: 0.00625,
            exhausted_at: None,
            time_zone: "UTC".to_owned(),
            ..report.clone()
        };
        let mut out = Vec::new();
        table(&[report, money], &mut out).expect("prints");
        expect_test::expect![[r#"
            BUDGET  SCENE                 USED                    LIMIT     %  PERIOD ENDS           USED UP
            search  search*  41,234,567 tokens  50,000,000 tokens a day  82.5  2026-12-01 00:00 CET  2026-11-30 18:33 CET
            all     *                12.50 USD       2,000.00 USD a day   0.6  2026-11-30 23:00 UTC  -
        "#]].assert_eq(&String::from_utf8(out).expect("text"));
    }

    #[test]
    fn what_the_last_agent_left_is_read_from_its_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut config = Config::default();
        config.server.listen = free.local_addr().expect("an address");
        drop(free);
        config.store.path = folder.path().join("store.db");
        config.budget.push(BudgetConfig {
            name: "b".to_owned(),
            limit: 100.0,
            ..BudgetConfig::default()
        });
        let mut out = Vec::new();
        let error = budget_command(&config, None, true, &mut out).expect_err("nothing there");
        assert!(format!("{error:#}").contains("there is no store"), "{error:#}");

        let store = Store::open(&config.store.path, Box::new(|_| {})).expect("opens");
        let budget = config.budgets().remove(0);
        let start = budget.zone.bounds(budget.period, unix_now()).start;
        store.submit(tables::budget::Totals(vec![Kept {
            budget: "b".to_owned(),
            measure: budget.measure(),
            start,
            since: start,
            used: 30.0,
            told: 0.0,
            exhausted: None,
            limit: 100.0,
            hours: Vec::new(),
        }]));
        drop(store);
        budget_command(&config, None, true, &mut out).expect("prints");
        let answer: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(answer["budgets"][0]["used"], 30.0);
        assert_eq!(answer["budgets"][0]["name"], "b");
        budget_command(&config, Some(config.server.listen), true, &mut out).expect_err("that one was named");
    }
}
