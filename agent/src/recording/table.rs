//! The table that `infertap replay` prints for people.
//!
//! Owns: columns, units, the closing summary. Refuses: trusting names that came over the wire: what could steer a
//! terminal is replaced.

use infertap_core::money::{Amount, Basis, Currency};
use infertap_core::{Anomaly, Nanos, Observation, RequestRecord, Status};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The heading line.
fn head(priced: bool, out: &mut dyn Write) -> io::Result<()> {
    let cost = if priced {
        format!(" {:>17}", "COST")
    } else {
        String::new()
    };
    writeln!(
        out,
        "{:>9}  {:<16} {:<24} {:<18} {:<12} {:>4} {:>7} {:>7} {:>9} {:>9} {:>9}{cost}  FINISH",
        "START s",
        "ENGINE",
        "MODEL",
        "PROTOCOL",
        "STATUS",
        "HTTP",
        "IN",
        "OUT",
        "TTFT ms",
        "TPOT ms",
        "E2E ms"
    )
}

/// One request's line; times are told from `origin`.
fn row(priced: bool, out: &mut dyn Write, record: &RequestRecord, origin: Option<Nanos>) -> io::Result<()> {
    let start = record
        .t0_ns
        .zip(origin)
        .map(|(t0, origin)| (t0 as f64 - origin as f64) / 1e9);
    let ms = |seconds: Option<f64>| number(seconds.map(|s| s * 1e3), 1);
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mut finish = text(record.finish_reason.as_deref().map(printable));
    if !record.incomplete.is_empty() {
        finish = format!("{finish} ({})", record.incomplete.join(", "));
    }
    let cost = record.cost.as_ref();
    let cost = cost.map(|cost| format!("{:.6} {}", cost.total.units(), cost.currency));
    let cost = if priced {
        format!(" {:>17}", text(cost))
    } else {
        String::new()
    };
    writeln!(
        out,
        "{:>9}  {:<16} {:<24} {:<18} {:<12} {:>4} {:>7} {:>7} {:>9} {:>9} {:>9}{cost}  {finish}",
        number(start, 3),
        fit(&record.engine, 16),
        fit(&record.model, 24),
        fit(&record.protocol, 18),
        record.status.as_str(),
        text(record.http_status.map(|s| s.to_string())),
        text(record.input_tokens.map(|n| n.to_string())),
        text(record.output_tokens.map(|n| n.to_string())),
        ms(record.ttft_s),
        ms(record.tpot_s),
        ms(record.e2e_s),
    )
}

/// What the requests add up to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Costs are told too.
    priced: bool,
    first_ns: Option<Nanos>,
    started: u64,
    statuses: BTreeMap<&'static str, u64>,
    input_tokens: u64,
    output_tokens: u64,
    ttft: Vec<f64>,
    tpot: Vec<f64>,
    e2e: Vec<f64>,
    anomalies: BTreeMap<Anomaly, u64>,
    /// What was charged, and saved.
    money: BTreeMap<(Basis, Currency), [Amount; 2]>,
    /// Tokens for whose model there is no price.
    unpriced: u64,
}

impl Tally {
    /// Of nothing yet; `priced`: costs are told too.
    pub(super) fn new(priced: bool) -> Tally {
        Tally {
            priced,
            ..Tally::default()
        }
    }

    /// The heading line of the table.
    pub(super) fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        head(self.priced, out)
    }

    /// A request's line, with times from the start of the first request that finished.
    pub(super) fn row(&self, out: &mut dyn Write, record: &RequestRecord) -> io::Result<()> {
        row(self.priced, out, record, self.first_ns)
    }

    /// Adds an observation.
    pub(super) fn take(&mut self, observation: &Observation) {
        match observation {
            Observation::Started(_) => self.started += 1,
            Observation::Finished(finished) => {
                let record = &finished.record;
                self.first_ns = self.first_ns.or(record.t0_ns);
                *self.statuses.entry(record.status.as_str()).or_default() += 1;
                self.input_tokens += record.input_tokens.unwrap_or(0);
                self.output_tokens += record.output_tokens.unwrap_or(0);
                if record.status != Status::Incomplete {
                    self.ttft.extend(record.ttft_s);
                    self.tpot.extend(record.tpot_s);
                    self.e2e.extend(record.e2e_s);
                }
            }
            Observation::Anomaly { kind, count } => *self.anomalies.entry(*kind).or_default() += count,
            Observation::Charge(charge) => {
                let [amount, saved] = self.money.entry((charge.basis, charge.currency)).or_default();
                *amount += charge.amount;
                *saved += charge.saved;
            }
            Observation::Unpriced { count, .. } => self.unpriced = self.unpriced.saturating_add(*count),
            Observation::Tokens { .. }
            | Observation::Engine(_)
            | Observation::Step(_)
            | Observation::Capacity(_)
            | Observation::Pressure(_)
            | Observation::Prefix(_)
            | Observation::Gpu(_)
            | Observation::EngineMessages { .. }
            | Observation::TokenizerCalls { .. }
            | Observation::Count(_)
            | Observation::TokenCount(_)
            | Observation::Gateway(_)
            | Observation::Joined(_)
            | Observation::Ignore(_) => {}
        }
    }

    /// Prints the summary.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let finished: u64 = self.statuses.values().sum();
        let statuses: Vec<String> = self
            .statuses
            .iter()
            .map(|(status, n)| format!("{n} {status}"))
            .collect();
        writeln!(
            out,
            "\nrequests: {finished}{}{}",
            if statuses.is_empty() {
                String::new()
            } else {
                format!(" ({})", statuses.join(", "))
            },
            match self.started.saturating_sub(finished) {
                0 => String::new(),
                n => format!(", {n} in flight at the end"),
            }
        )?;
        writeln!(
            out,
            "tokens: {} in, {} out",
            self.input_tokens, self.output_tokens
        )?;
        for ((basis, currency), [amount, saved]) in &self.money {
            let what = match basis {
                Basis::Tokens => "tokens",
                Basis::Gpu => "GPU time",
            };
            write!(out, "cost of {what}: {:.6} {currency}", amount.units())?;
            if !saved.is_zero() {
                write!(out, ", {:.6} saved by cached tokens", saved.units())?;
            }
            writeln!(out)?;
        }
        if self.unpriced > 0 {
            writeln!(out, "tokens of models without a price: {}", self.unpriced)?;
        }
        for (name, values) in [("TTFT", &self.ttft), ("TPOT", &self.tpot), ("E2E", &self.e2e)] {
            let mut sorted = values.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            if !sorted.is_empty() {
                writeln!(
                    out,
                    "{name} ms: P50 {:.1}, P95 {:.1}, P99 {:.1}, of {}",
                    quantile(&sorted, 50) * 1e3,
                    quantile(&sorted, 95) * 1e3,
                    quantile(&sorted, 99) * 1e3,
                    sorted.len()
                )?;
            }
        }
        for (kind, count) in &self.anomalies {
            writeln!(out, "anomaly {}: {count}", kind.as_str())?;
        }
        Ok(())
    }
}

/// The smallest value that at least `percent` of all values do not exceed (nearest rank); 0 of none.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// A name cut to a column's width.
fn fit(text: &str, width: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= width {
        return text;
    }
    let mut cut: String = text.chars().take(width - 1).collect();
    cut.push('…');
    cut
}

/// The text without what could steer a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 50).to_bits(), 2.0f64.to_bits());
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 95).to_bits(), 4.0f64.to_bits());
        assert_eq!(quantile(&[7.0], 1).to_bits(), 7.0f64.to_bits());
        assert_eq!(quantile(&[], 50).to_bits(), 0.0f64.to_bits());
    }

    #[test]
    fn names_fit_their_column_and_steer_no_terminal() {
        assert_eq!(fit("short", 8), "short");
        assert_eq!(fit("länger als acht", 8), "länger …");
        assert_eq!(fit("\u{1b}[31mred", 24), "\u{fffd}[31mred");
    }
}
