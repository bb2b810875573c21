//! The tables of the measurement on real engines.
//!
//! Owns: ratios of one round, their spread, and printing them. Refuses: measuring.

use infertap_tests::stats::Distribution;

/// One load.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// Output tokens, by the responses' `usage`.
    pub(super) tokens: u64,
    /// From the first request's sending to the last byte of the last response, by the client's clock.
    pub(super) seconds: f64,
    /// Processor seconds of the engine's processes.
    pub(super) engine_cpu: f64,
    /// Processor seconds of the agent; zero without one.
    pub(super) agent_cpu: f64,
    /// Events that the agent lost.
    pub(super) dropped: f64,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    fn engine_us_a_token(&self) -> f64 {
        self.engine_cpu * 1e6 / self.tokens as f64
    }

    fn agent_us_a_token(&self) -> f64 {
        self.agent_cpu * 1e6 / self.tokens as f64
    }

    fn agent_percent(&self) -> f64 {
        100.0 * self.agent_cpu / self.seconds
    }
}

/// Prints every round, and the medians.
pub(super) fn print(without: &[Sample], with: &[Sample]) {
    for line in rounds(without, with).into_iter().chain(medians(without, with)) {
        println!("{line}");
    }
}

fn rounds(without: &[Sample], with: &[Sample]) -> Vec<String> {
    let head = [
        "",
        "| round | tokens/s without | tokens/s with | ratio | engine CPU a token, ratio | agent CPU, % of a core | agent CPU, us a token | events dropped |",
        "|---|---|---|---|---|---|---|---|",
    ];
    let rows = without
        .iter()
        .zip(with)
        .enumerate()
        .map(|(round, (without, with))| {
            format!(
                "| {} | {:.1} | {:.1} | {:.4} | {:.4} | {:.2} | {:.1} | {:.0} |",
                round + 1,
                without.rate(),
                with.rate(),
                with.rate() / without.rate(),
                with.engine_us_a_token() / without.engine_us_a_token(),
                with.agent_percent(),
                with.agent_us_a_token(),
                with.dropped,
            )
        });
    head.map(str::to_owned).into_iter().chain(rows).collect()
}

fn medians(without: &[Sample], with: &[Sample]) -> Vec<String> {
    let of = |samples: &[Sample], value: fn(&Sample) -> f64| Distribution::new(samples.iter().map(value));
    let ratio = |value: fn(&Sample) -> f64| {
        let ratios = without.iter().zip(with);
        let ratios = Distribution::new(ratios.map(|(without, with)| value(with) / value(without)));
        format!(
            "{:.4} | {:.4} – {:.4} | {:.4} – {:.4}",
            ratios.median(),
            ratios.percentile(25.0),
            ratios.percentile(75.0),
            ratios.min(),
            ratios.max()
        )
    };
    let plain = |values: Distribution, digits: usize| {
        format!(
            "{:.digits$} | {:.digits$} – {:.digits$} | {:.digits$} – {:.digits$}",
            values.median(),
            values.percentile(25.0),
            values.percentile(75.0),
            values.min(),
            values.max()
        )
    };
    vec![
        String::new(),
        "| of all rounds | median | quartiles | range |".to_owned(),
        "|---|---|---|---|".to_owned(),
        format!(
            "| tokens/s without the agent | {} |",
            plain(of(without, Sample::rate), 1)
        ),
        format!(
            "| tokens/s with the agent | {} |",
            plain(of(with, Sample::rate), 1)
        ),
        format!(
            "| tokens/s, with to without in a round | {} |",
            ratio(Sample::rate)
        ),
        format!(
            "| engine CPU without the agent, us a token | {} |",
            plain(of(without, Sample::engine_us_a_token), 0)
        ),
        format!(
            "| engine CPU a token, with to without in a round | {} |",
            ratio(Sample::engine_us_a_token)
        ),
        format!(
            "| agent CPU, % of a core | {} |",
            plain(of(with, Sample::agent_percent), 2)
        ),
        format!(
            "| agent CPU, us a token | {} |",
            plain(of(with, Sample::agent_us_a_token), 1)
        ),
        format!(
            "\nEvents dropped in all rounds: {:.0}.",
            with.iter().map(|sample| sample.dropped).sum::<f64>()
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_round_and_their_median_is_shown() {
        let sample = |tokens, seconds, agent_cpu| Sample {
            tokens,
            seconds,
            engine_cpu: seconds,
            agent_cpu,
            dropped: 1.0,
        };
        // The machine is half as fast in the second round: the ratio of a round does not know.
        let without = [
            sample(1000, 1.0, 0.0),
            sample(1000, 2.0, 0.0),
            sample(1000, 1.0, 0.0),
        ];
        let with = [
            sample(1000, 1.25, 0.01),
            sample(1000, 2.5, 0.02),
            sample(1000, 2.0, 0.03),
        ];
        let lines = [rounds(&without, &with), medians(&without, &with)].concat();
        for line in [
            "| 2 | 500.0 | 400.0 | 0.8000 | 1.2500 | 0.80 | 20.0 | 1 |",
            "| tokens/s, with to without in a round | 0.8000 | 0.5000 – 0.8000 | 0.5000 – 0.8000 |",
            "| agent CPU, us a token | 20.0 | 10.0 – 30.0 | 10.0 – 30.0 |",
            "\nEvents dropped in all rounds: 3.",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line} is not in {lines:#?}");
        }
    }
}
