//! A real Prometheus server for one test: started on a loopback port in a directory of its own, stopped when dropped.
//!
//! Owns: the process, its configuration, the few API calls that tests need. Refuses: what to ask it (`deployed` knows
//! the queries that the project ships).

use crate::child::Child;
use crate::http;
use crate::scripted::Address;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How to get what is missing.
pub const INSTALL_HINT: &str =
    "install Debian's package (`apt-get install prometheus`) or put the release's binaries on PATH";

/// How long a start, a scrape or an answer may take before it is called a failure.
const DEADLINE: Duration = Duration::from_secs(30);

/// A running Prometheus that scrapes one target every second as job `infertap`.
#[derive(Debug)]
pub struct Prometheus {
    // Dropped in this order: the process before the directory that it writes to.
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

/// One sample of an instant query's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its labels, `__name__` among them where the expression kept it.
    pub labels: BTreeMap<String, String>,
    /// Its value; NaN and infinities are possible.
    pub value: f64,
}

/// One exemplar.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exemplar {
    /// Name of the series that it is of, as in `llm_ttft_seconds_bucket`.
    pub series: String,
    /// The trace that it points to.
    pub trace_id: String,
}

/// One recording or alerting rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The alert's, or the recorded series'.
    pub name: String,
    /// Its expression.
    pub expr: String,
    /// Why its last evaluation failed.
    pub error: Option<String>,
}

impl Prometheus {
    /// Starts a server that scrapes `http://TARGET/metrics`, and waits for the first scrape to succeed.
    ///
    /// # Errors
    /// No `prometheus` on PATH, one that does not start, or a target that could not be scraped within 30 s; the
    /// message holds the server's log or the scrape's error.
    pub fn start(target: SocketAddr) -> Result<Prometheus> {
        Prometheus::start_with_rules(target, &[])
    }

    /// Like [`Prometheus::start`], and evaluates these rule files every second.
    pub fn start_with_rules(target: SocketAddr, rules: &[PathBuf]) -> Result<Prometheus> {
        let dir = tempfile::tempdir().context("no temporary directory")?;
        let config = dir.path().join("prometheus.yml");
        std::fs::write(&config, configuration(target, rules)?).context("can't write the configuration")?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            // Port 0: the kernel picks a free one and the log tells which.
            .arg("--web.listen-address=127.0.0.1:0")
            .arg("--enable-feature=exemplar-storage")
            .current_dir(dir.path());
        let log = dir.path().join("log");
        let mut child = Child::spawn("prometheus", command, &log).context(INSTALL_HINT)?;
        let mut address = None;
        child.wait_ready(DEADLINE, || {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            address = log.lines().find_map(listening_on);
            address.is_some()
        })?;
        let server = Prometheus {
            child,
            address: address.context("ready means that it listens")?,
            _dir: dir,
        };
        server.wait_for_scrapes(1)?;
        Ok(server)
    }

    /// Where its API answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the target has been scraped successfully `count` times. `rate` and `increase` need two.
    pub fn wait_for_scrapes(&self, count: u32) -> Result<()> {
        let start = Instant::now();
        loop {
            // A server that has just begun to listen answers 503 for a moment.
            if let Ok(samples) = self.query(r#"sum_over_time(up{job="infertap"}[1h])"#)
                && samples.first().is_some_and(|s| s.value >= f64::from(count))
            {
                return Ok(());
            }
            ensure!(
                start.elapsed() < DEADLINE,
                "the target was not scraped {count} times: {}\nprometheus' log:\n{}",
                self.scrape_error(),
                self.child.log_tail()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until there is a series of this name, which a rule records.
    ///
    /// # Errors
    /// There was none in time.
    pub fn wait_for_series(&self, name: &str) -> Result<()> {
        let start = Instant::now();
        while self.query(name)?.is_empty() {
            ensure!(start.elapsed() < DEADLINE, "no rule recorded {name}");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Evaluates one instant query, now.
    ///
    /// # Errors
    /// What Prometheus says when it refuses the expression.
    pub fn query(&self, expr: &str) -> Result<Vec<Sample>> {
        let answer = self.api(&format!("/api/v1/query?query={}", percent_encode(expr)))?;
        samples(&answer["data"])
    }

    /// The exemplars that it has stored of the series of an expression.
    ///
    /// # Errors
    /// What Prometheus says when it refuses the expression.
    pub fn exemplars(&self, expr: &str) -> Result<Vec<Exemplar>> {
        // From 1970 to 2286: all that there are.
        let expr = percent_encode(expr);
        let answer = self.api(&format!(
            "/api/v1/query_exemplars?query={expr}&start=0&end=9999999999"
        ))?;
        let series = answer["data"].as_array().context("no series in the answer")?;
        let mut out = Vec::new();
        for series in series {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let of = text(&series["seriesLabels"]["__name__"]).context("a series without a name")?;
            for exemplar in series["exemplars"].as_array().into_iter().flatten() {
                out.push(Exemplar {
                    series: of.clone(),
                    trace_id: text(&exemplar["labels"]["trace_id"]).context("an exemplar without a trace")?,
                });
            }
        }
        Ok(out)
    }

    /// Every loaded rule, as last evaluated.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        let answer = self.api("/api/v1/rules")?;
        let groups = answer["data"]["groups"]
            .as_array()
            .context("no groups in the answer")?;
        groups
            .iter()
            .flat_map(|group| group["rules"].as_array().into_iter().flatten())
            .map(|rule| {
                let text = |key: &str| {
                    rule[key]
                        .as_str()
                        .with_context(|| format!("a rule without {key}"))
                };
                Ok(Rule {
                    name: text("name")?.to_owned(),
                    expr: text("query")?.to_owned(),
                    error: match text("health")? {
                        "err" => Some(text("lastError")?.to_owned()),
                        _ => None,
                    },
                })
            })
            .collect()
    }

    fn api(&self, path: &str) -> Result<Value> {
        let response = http::get(&Address::Tcp(self.address), path)?;
        let answer = response
            .json()
            .with_context(|| format!("prometheus answered {}", response.status))?;
        if answer["status"] != "success" {
            bail!("prometheus answered {}: {}", response.status, answer["error"]);
        }
        Ok(answer)
    }

    fn scrape_error(&self) -> String {
        match self.api("/api/v1/targets") {
            Ok(answer) => answer["data"]["activeTargets"][0]["lastError"]
                .as_str()
                .unwrap_or("no target")
                .to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

/// Runs `promtool` in `dir`.
///
/// # Errors
/// No `promtool` on PATH (with how to install it), or a run that fails (with all that it printed).
pub fn promtool(dir: &Path, args: &[&str]) -> Result<()> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new("promtool")
        .args(args)
        .current_dir(dir)
        .output()
        .map_err(|e| anyhow!("can't run `promtool`: {e}; {INSTALL_HINT}"))?;
    ensure!(
        status.success(),
        "promtool {}: {status}\n{}{}",
        args.join(" "),
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    Ok(())
}

/// JSON is YAML: no quoting rules to get wrong.
fn configuration(target: SocketAddr, rules: &[PathBuf]) -> Result<String> {
    let rules = rules
        .iter()
        .map(|path| std::fs::canonicalize(path).with_context(|| format!("no rule file {}", path.display())))
        .collect::<Result<Vec<_>>>()?;
    Ok(serde_json::json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": rules,
        "scrape_configs": [{"job_name": "infertap", "static_configs": [{"targets": [target.to_string()]}]}],
    })
    .to_string())
}

fn listening_on(line: &str) -> Option<SocketAddr> {
    let (_, address) = line.split_once(r#"msg="Listening on" address="#)?;
    address.split_whitespace().next()?.parse().ok()
}

fn samples(data: &Value) -> Result<Vec<Sample>> {
    let value = |pair: &Value| -> Result<f64> {
        let text = pair[1].as_str().context("a sample without a value")?;
        // "NaN", "+Inf" and "-Inf" parse as they are.
        text.parse().with_context(|| format!("{text:?} is no number"))
    };
    match data["resultType"].as_str() {
        Some("vector") => data["result"]
            .as_array()
            .context("a vector without samples")?
            .iter()
            .map(|sample| {
                Ok(Sample {
                    labels: serde_json::from_value(sample["metric"].clone()).context("labels are strings")?,
                    value: value(&sample["value"])?,
                })
            })
            .collect(),
        Some("scalar") => Ok(vec![Sample {
            labels: BTreeMap::new(),
            value: value(&data["result"])?,
        }]),
        other => bail!("an instant query answered {other:?}"),
    }
}

fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listen_address_is_read_from_the_log_line_that_tells_it() {
        let line = r#"ts=… caller=tls_config.go:232 level=info component=web msg="Listening on" address=127.0.0.1:37817"#;
        assert_eq!(
            listening_on(line),
            Some(SocketAddr::from(([127, 0, 0, 1], 37817)))
        );
        // The line before it tells the configured address, port 0.
        let line = r#"caller=web.go:503 msg="Start listening for connections" address=127.0.0.1:0"#;
        assert_eq!(listening_on(line), None);
    }

    #[test]
    fn queries_travel_unharmed() {
        assert_eq!(percent_encode(r#"a{b="c"} + 1"#), "a%7Bb%3D%22c%22%7D%20%2B%201");
    }

    #[test]
    fn vectors_and_scalars_are_read_and_other_answers_refused() {
        let vector = serde_json::json!({"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1.5, "+Inf"]}]});
        let read = samples(&vector).expect("a vector");
        assert_eq!(read[0].labels["a"], "b");
        assert!(read[0].value.is_infinite());
        let scalar = serde_json::json!({"resultType": "scalar", "result": [1.5, "2"]});
        assert_eq!(samples(&scalar).expect("a scalar")[0].value.to_string(), "2");
        assert!(samples(&serde_json::json!({"resultType": "matrix", "result": []})).is_err());
    }
}
