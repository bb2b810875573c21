//! What `nvidia-smi` tells, and the agent's metrics held against it.
//!
//! Owns: the query, its parsing, the bounds of each value. Refuses: when to ask (`gpu_check`).

use crate::{
    accuracy::report::{Section, Verdict},
    exposition::Exposition,
};
use anyhow::{Context, Result, ensure};
use std::{fmt::Write, process::Command};

/// One value: its name in the query, what one of its units is in the metric's, the metric, and how far the two may be apart.
#[derive(Debug, Clone, Copy)]
struct Field {
    query: &'static str,
    unit: f64,
    metric: &'static str,
    slack: Slack,
}

/// How far the agent may be off what `nvidia-smi` said before and after. It reads once a second, and power, clocks and
/// utilisation change faster than either looks.
#[derive(Debug, Clone, Copy)]
struct Slack {
    /// In the query's units.
    absolute: f64,
    /// Of the larger of the two.
    share: f64,
}

const fn field(query: &'static str, unit: f64, metric: &'static str, absolute: f64, share: f64) -> Field {
    Field {
        query,
        unit,
        metric,
        slack: Slack { absolute, share },
    }
}

const MIB: f64 = 1024.0 * 1024.0;

const FIELDS: [Field; 9] = [
    field("memory.total", MIB, "gpu_memory_total_bytes", 1.0, 0.0),
    field("memory.used", MIB, "gpu_memory_used_bytes", 1.0, 0.0),
    field("memory.free", MIB, "gpu_memory_free_bytes", 1.0, 0.0),
    field("power.limit", 1.0, "gpu_power_limit_watts", 0.01, 0.0),
    field("power.draw", 1.0, "gpu_power_watts", 10.0, 0.15),
    field("temperature.gpu", 1.0, "gpu_temperature_celsius", 2.0, 0.0),
    field("clocks.sm", 1e6, "gpu_sm_clock_hertz", 15.0, 0.05),
    field("clocks.mem", 1e6, "gpu_memory_clock_hertz", 15.0, 0.05),
    field("utilization.gpu", 0.01, "gpu_utilization_ratio", 15.0, 0.0),
];

/// One GPU as `nvidia-smi` tells it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gpu {
    uuid: String,
    /// In the order of [`FIELDS`] and in the query's units; `None` where the chip does not tell it.
    values: Vec<Option<f64>>,
}

impl Gpu {
    /// From values by their names in the query: for a driver that has no `nvidia-smi`.
    pub(super) fn known(uuid: &str, value: impl Fn(&str) -> Option<f64>) -> Gpu {
        Gpu {
            uuid: uuid.to_owned(),
            values: FIELDS.iter().map(|field| value(field.query)).collect(),
        }
    }
}

/// Asks `nvidia-smi`.
pub(super) fn ask() -> Result<Vec<Gpu>> {
    let output = Command::new("nvidia-smi")
        .args([
            &format!("--query-gpu={}", query()),
            "--format=csv,noheader,nounits",
        ])
        .output()
        .context(
            "can't run nvidia-smi: the check needs a machine with an NVIDIA GPU and its driver \
             (with --stand-in it runs on a driver that only seems to be one)",
        )?;
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(
        output.status.success(),
        "nvidia-smi failed ({}): {}{}",
        output.status,
        text.trim(),
        errors.trim()
    );
    parse(&text)
}

fn query() -> String {
    let fields = FIELDS.iter().map(|field| field.query);
    std::iter::once("uuid")
        .chain(fields)
        .collect::<Vec<_>>()
        .join(",")
}

fn parse(text: &str) -> Result<Vec<Gpu>> {
    let gpu = |line: &str| -> Result<Gpu> {
        let mut cells = line.split(',').map(str::trim);
        let uuid = cells.next().filter(|uuid| uuid.starts_with("GPU-"));
        let uuid = uuid
            .with_context(|| format!("nvidia-smi answered {line:?}"))?
            .to_owned();
        let values = cells.map(value).collect::<Result<Vec<_>>>()?;
        ensure!(
            values.len() == FIELDS.len(),
            "nvidia-smi answered {} values and not {}: {line:?}",
            values.len(),
            FIELDS.len()
        );
        Ok(Gpu { uuid, values })
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let gpus = lines.map(gpu).collect::<Result<Vec<_>>>()?;
    ensure!(!gpus.is_empty(), "nvidia-smi knows no GPU");
    Ok(gpus)
}

/// `[N/A]`, `[Not Supported]`, `[Unknown Error]` and the like are no values.
fn value(cell: &str) -> Result<Option<f64>> {
    if cell.starts_with('[') || cell == "N/A" {
        return Ok(None);
    }
    let number = cell.parse().ok().filter(|number: &f64| number.is_finite());
    Ok(Some(number.with_context(|| {
        format!("nvidia-smi answered {cell:?} where a number should be")
    })?))
}

/// One look at both sides.
pub(super) struct Look {
    /// What the GPUs did, in words.
    pub(super) when: &'static str,
    pub(super) before: Vec<Gpu>,
    pub(super) agent: Exposition,
    pub(super) after: Vec<Gpu>,
}

/// Every value of every GPU, at every look. A value must be within the bound in as many looks as make up for those in which
/// it was changing; one that `nvidia-smi` has must be there, and one that it has not must not.
pub(super) fn sections(looks: &[Look]) -> Vec<Section> {
    let of_field = |(at, field): (usize, &Field)| {
        let (mut good, mut all, mut text) = (0, 0, String::new());
        for look in looks {
            for before in &look.before {
                let after = look.after.iter().find(|gpu| gpu.uuid == before.uuid);
                let said = [before.values[at], after.and_then(|gpu| gpu.values[at])];
                let labels = [("uuid", before.uuid.as_str())];
                let metric = look.agent.select(field.metric, &labels).next();
                let agent = metric.map(|sample| sample.value / field.unit);
                all += 1;
                good += usize::from(fits(said, agent, field.slack));
                let [before, after] = said.map(shown);
                // Writing to a String can't fail.
                let _ = write!(text, " {}: {before} | {} | {after};", look.when, shown(agent));
            }
        }
        // One look in four may have met a change.
        let needed = if field.slack.share > 0.0 || field.slack.absolute > 1.0 {
            all - all / 4
        } else {
            all
        };
        let verdict = Verdict::of(all > 0 && good >= needed);
        let words = format!("{}: {good} of {all} looks agree, {needed} must", field.query);
        Section {
            text: format!("{verdict} {words}\n       nvidia-smi | agent | nvidia-smi{text}\n"),
            verdicts: vec![(words, verdict)],
        }
    };
    FIELDS.iter().enumerate().map(of_field).collect()
}

fn fits(said: [Option<f64>; 2], agent: Option<f64>, slack: Slack) -> bool {
    let [Some(before), Some(after)] = said else {
        // It told neither, or the GPU went away in between.
        return said == [None, None] && agent.is_none();
    };
    let (low, high) = (before.min(after), before.max(after));
    let room = slack.absolute + slack.share * high.abs();
    agent.is_some_and(|agent| agent >= low - room && agent <= high + room)
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
GPU-6f1b1f5e-2a0b-4d0c-9c3a-1f6f0a3b7c11, 143771, 612, 142564, 700.00, 76.41, 28, 345, 2619, 0
GPU-0d9b6a52-7f0e-4b86-8a44-5f2f6f1e9a07, 15360, 0, 15095, 70.00, [N/A], 41, 300, 405, [Not Supported]

";

    #[test]
    fn answers_in_its_format_are_read() {
        let gpus = parse(TEXT).expect("it is as nvidia-smi prints it");
        assert_eq!(gpus.len(), 2);
        assert_eq!(gpus[0].values[0], Some(143_771.0));
        assert_eq!(gpus[0].values[4], Some(76.41));
        assert_eq!(gpus[1].values[4], None);
        assert_eq!(gpus[1].values[8], None);
        for broken in [
            "",
            "No devices were found",
            "GPU-1, 1, 2",
            "GPU-1, 1, 2, 3, 4, 5, 6, 7, 8, nine",
        ] {
            assert!(parse(broken).is_err(), "{broken:?}");
        }
    }

    fn look(agent: &str) -> Look {
        let gpus = parse(TEXT).expect("it is as nvidia-smi prints it");
        Look {
            when: "idle",
            before: gpus[..1].to_vec(),
            agent: Exposition::parse(agent).expect("metrics"),
            after: gpus[..1].to_vec(),
        }
    }

    fn metrics(change: &str, to: &str) -> String {
        let uuid = "GPU-6f1b1f5e-2a0b-4d0c-9c3a-1f6f0a3b7c11";
        let values = [
            ("gpu_memory_total_bytes", "150755868672"),
            ("gpu_memory_used_bytes", "641728512"),
            ("gpu_memory_free_bytes", "149489188864"),
            ("gpu_power_limit_watts", "700"),
            ("gpu_power_watts", "77"),
            ("gpu_temperature_celsius", "28"),
            ("gpu_sm_clock_hertz", "345000000"),
            ("gpu_memory_clock_hertz", "2619000000"),
            ("gpu_utilization_ratio", "0"),
        ];
        let line = |(name, value): (&str, &str)| {
            let value = if name == change { to } else { value };
            format!("{name}{{gpu=\"0\",uuid=\"{uuid}\"}} {value}\n")
        };
        let kept = values
            .into_iter()
            .filter(|(name, _)| *name != change || !to.is_empty());
        kept.map(line).collect()
    }

    #[test]
    fn each_value_has_its_bound_and_an_absent_one_is_no_zero() {
        let failed = |change: &str, to: &str| {
            let sections = sections(&[look(&metrics(change, to))]);
            let of = |section: &Section| section.verdicts[0].1 == Verdict::Fail;
            sections.iter().filter(|section| of(section)).count()
        };
        assert_eq!(failed("", ""), 0);
        for (metric, value, broken) in [
            ("gpu_memory_used_bytes", "642777088", 0),
            ("gpu_memory_used_bytes", "643825665", 1),
            ("gpu_power_watts", "97", 0),
            ("gpu_power_watts", "99", 1),
            ("gpu_utilization_ratio", "0.16", 1),
            ("gpu_temperature_celsius", "", 1),
        ] {
            assert_eq!(failed(metric, value), broken, "{metric} {value}");
        }
        let silent = [None, None];
        let slack = Slack {
            absolute: 1.0,
            share: 0.0,
        };
        assert!(fits(silent, None, slack) && !fits(silent, Some(0.0), slack));
        assert!(!fits([Some(1.0), None], Some(1.0), slack));
    }
}
