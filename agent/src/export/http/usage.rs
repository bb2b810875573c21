//! `/api/v1/cost`, `/api/v1/heaviest`, `/api/v1/growth`: who used how much, when.
//!
//! Owns: their parameters and bounds. Refuses: the sums (the core's `ledger`). Answers come from memory.

use super::routes::{App, Problem, internal};
use crate::config::Span;
use crate::export::Exporter;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use infertap_core::ledger::{BUCKET, By, DAY, HOURS, Heavy, Order};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Longest time that can be asked for: what the ledger may be told to keep.
const MAX_SINCE: u64 = 400 * DAY;
/// Most requests that are told.
const MAX_LIMIT: usize = 1000;
/// Contributions of each dimension that are told.
const CONTRIBUTIONS: usize = 10;
/// Longest windows that are compared, hours.
const MAX_HOURS: u64 = HOURS / 3600 / 2;

fn bad(message: String) -> Problem {
    Problem(StatusCode::BAD_REQUEST, message)
}

/// A time in the past, seconds: at least one bucket.
fn since(text: Option<&str>, default: u64, most: u64) -> Result<u64, Problem> {
    let Some(text) = text else { return Ok(default) };
    let seconds = text.parse::<Span>().ok().map(|span| span.duration().as_secs());
    seconds
        .filter(|seconds| (BUCKET..=most).contains(seconds))
        .ok_or_else(|| {
            let (least, most) = (Span::seconds(BUCKET), Span::seconds(most));
            bad(format!("since must be a time from {least} to {most}, as in 24h"))
        })
}

fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    name: &str,
    text: Option<&str>,
    default: T,
    (least, most): (T, T),
) -> Result<T, Problem> {
    let Some(text) = text else { return Ok(default) };
    let number = text.parse::<T>().ok().filter(|n| *n >= least && *n <= most);
    number.ok_or_else(|| bad(format!("{name} must be a number from {least} to {most}")))
}

fn named<T>(
    name: &str,
    text: Option<&str>,
    default: T,
    all: &[&str],
    find: fn(&str) -> Option<T>,
) -> Result<T, Problem> {
    let Some(text) = text else { return Ok(default) };
    find(text).ok_or_else(|| bad(format!("{name} must be one of {}", all.join(", "))))
}

async fn json<T: Serialize>(
    app: &App,
    make: impl FnOnce(&Exporter) -> T + Send + 'static,
) -> Result<Response, Problem> {
    let body = app.large(move |exporter| serde_json::to_vec(&make(exporter)).map_err(internal));
    Ok(([(header::CONTENT_TYPE, "application/json")], body.await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostQuery {
    by: Option<String>,
    since: Option<String>,
}

pub(super) async fn cost(
    State(app): State<Arc<App>>,
    query: Result<Query<CostQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|rejection| bad(rejection.body_text()))?;
    let by = named(
        "by",
        query.by.as_deref(),
        By::Scene,
        &By::ALL.map(By::as_str),
        By::named,
    )?;
    let since = since(query.since.as_deref(), DAY, MAX_SINCE)?;
    json(&app, move |exporter| {
        let ledger = exporter.usage();
        ledger.lock().report(ledger.now(), since, by)
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeaviestQuery {
    order: Option<String>,
    since: Option<String>,
    limit: Option<String>,
    model: Option<String>,
    scene: Option<String>,
}

#[derive(Serialize)]
struct Heaviest {
    order: Order,
    requests: Vec<Arc<Heavy>>,
}

pub(super) async fn heaviest(
    State(app): State<Arc<App>>,
    query: Result<Query<HeaviestQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|rejection| bad(rejection.body_text()))?;
    let orders = Order::ALL.map(Order::as_str);
    let order = named(
        "order",
        query.order.as_deref(),
        Order::Tokens,
        &orders,
        Order::named,
    )?;
    let since = since(query.since.as_deref(), 3600, HOURS)?;
    let limit = number("limit", query.limit.as_deref(), 20, (1, MAX_LIMIT))?;
    json(&app, move |exporter| {
        let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        let admits = |heavy: &Heavy| is(&query.model, &heavy.model) && is(&query.scene, &heavy.scene);
        let ledger = exporter.usage();
        let requests = ledger.lock().heaviest(ledger.now(), since, order, &admits, limit);
        Heaviest { order, requests }
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GrowthQuery {
    hours: Option<String>,
}

pub(super) async fn growth(
    State(app): State<Arc<App>>,
    query: Result<Query<GrowthQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query.map_err(|rejection| bad(rejection.body_text()))?;
    let hours = number("hours", query.hours.as_deref(), 1, (1, MAX_HOURS))?;
    json(&app, move |exporter| {
        let ledger = exporter.usage();
        ledger.lock().growth(ledger.now(), hours, CONTRIBUTIONS)
    })
    .await
}
