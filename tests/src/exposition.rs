//! Reads the Prometheus text format: as much as the demo and the tests need to ask the agent for its numbers.
//!
//! Owns: samples by name and labels, sums, quantiles of histograms. Refuses: judging names (the agent's own tests do).

use anyhow::{Context, Result};

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name, suffix included.
    pub name: String,
    /// Labels in the order of the text.
    pub labels: Vec<(String, String)>,
    /// Value.
    pub value: f64,
}

impl Sample {
    /// A label's value.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(label, _)| label == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A parsed exposition.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition(pub Vec<Sample>);

impl Exposition {
    /// Parses the text format; comments and exemplars are ignored.
    pub fn parse(text: &str) -> Result<Exposition> {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| sample(line).with_context(|| format!("no sample: {line}")))
            .collect::<Result<_>>()
            .map(Exposition)
    }

    /// Samples of this name whose labels include these.
    pub fn select<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        let fits = move |sample: &&Sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(label, value)| sample.label(label) == Some(value))
        };
        self.0.iter().filter(fits)
    }

    /// Their sum; 0 when there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.select(name, labels).map(|sample| sample.value).sum()
    }

    /// The quantile `q` of a histogram over all its label values, interpolated as `histogram_quantile` does; only what
    /// was observed since `earlier`, when that is given. `None` without observations.
    pub fn quantile(&self, name: &str, q: f64, earlier: Option<&Exposition>) -> Option<f64> {
        let mut buckets = self.buckets(name);
        if let Some(earlier) = earlier {
            for (bound, count) in earlier.buckets(name) {
                if let Some(bucket) = buckets
                    .iter_mut()
                    .find(|bucket| bucket.0.to_bits() == bound.to_bits())
                {
                    bucket.1 -= count;
                }
            }
        }
        let total = buckets
            .last()
            .map(|bucket| bucket.1)
            .filter(|total| *total > 0.0)?;
        let rank = q * total;
        let at = buckets.iter().position(|bucket| bucket.1 >= rank)?;
        let (low, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
        let (high, count) = buckets[at];
        if high.is_infinite() {
            return Some(low);
        }
        Some(low + (high - low) * (rank - below) / (count - below).max(f64::MIN_POSITIVE))
    }

    /// Cumulative buckets, summed over all other labels, by their upper bounds.
    fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let name = format!("{name}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.select(&name, &[]) {
            let Some(bound) = sample.label("le").and_then(|le| le.parse::<f64>().ok()) else {
                continue;
            };
            match buckets
                .iter_mut()
                .find(|bucket| bucket.0.to_bits() == bound.to_bits())
            {
                Some(bucket) => bucket.1 += sample.value,
                None => buckets.push((bound, sample.value)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches(',');
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label.to_owned(), value));
            rest = after;
        }
    }
    let value = match rest.split_whitespace().next()? {
        "+Inf" => f64::INFINITY,
        text => text.parse().ok()?,
    };
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// A label value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match (escaped, c) {
            (false, '"') => return Some((value, &text[at + 1..])),
            (false, '\\') => escaped = true,
            (true, 'n') => (value.push('\n'), escaped = false).1,
            (_, c) => (value.push(c), escaped = false).1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP a_total What.
# TYPE a_total counter
a_total{model="m \"x\", {y}",status="ok"} 3
a_total{model="n",status="ok"} 4 1700000000
a_total{model="n",status="no"} 1
plain 2.5
h_bucket{model="m",le="1"} 2
h_bucket{model="n",le="1"} 2
h_bucket{model="m",le="2"} 4
h_bucket{model="n",le="2"} 4
h_bucket{model="m",le="+Inf"} 5
h_bucket{model="n",le="+Inf"} 5
"#;

    #[test]
    fn samples_and_sums() {
        let all = Exposition::parse(TEXT).unwrap();
        assert_eq!(all.0[0].label("model"), Some("m \"x\", {y}"));
        assert!((all.sum("a_total", &[("status", "ok")]) - 7.0).abs() < 1e-9);
        assert!((all.sum("plain", &[]) - 2.5).abs() < 1e-9);
        assert!(Exposition::parse("broken{a=\"b\n").is_err());
    }

    #[test]
    fn quantiles() {
        let all = Exposition::parse(TEXT).unwrap();
        let close = |a: Option<f64>, b: f64| assert!(a.is_some_and(|a| (a - b).abs() < 1e-9), "{a:?} {b}");
        close(all.quantile("h", 0.2, None), 0.5);
        close(all.quantile("h", 0.6, None), 1.5);
        close(all.quantile("h", 0.99, None), 2.0);
        assert_eq!(all.quantile("h", 0.5, Some(&all)), None);
        assert_eq!(all.quantile("absent", 0.5, None), None);
    }
}
