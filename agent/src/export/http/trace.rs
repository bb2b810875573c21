//! `/api/v1/trace`: the last time, as trace-event JSON.
//!
//! Owns: its parameters. Refuses: what is in it (`export::trace`).

use super::routes::{App, Problem};
use crate::config::Span;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::IntoResponse,
};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// What is told when nothing is asked for.
const DEFAULT_SINCE: Duration = Duration::from_mins(1);

/// The longest time that can be asked for. What is kept in memory is mostly less, and the trace says so.
const MAX_SINCE: Duration = Duration::from_hours(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceQuery {
    since: Option<String>,
    engine: Option<String>,
}

pub(super) async fn trace(
    State(app): State<Arc<App>>,
    query: Result<Query<TraceQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
    let bad = |message: String| Problem(StatusCode::BAD_REQUEST, message);
    let Query(query) = query.map_err(|rejection| bad(rejection.body_text()))?;
    let since = match query.since.as_deref() {
        None => DEFAULT_SINCE,
        Some(text) => text
            .parse::<Span>()
            .ok()
            .map(Span::duration)
            .filter(|since| (Duration::from_secs(1)..=MAX_SINCE).contains(since))
            .ok_or_else(|| bad("since must be a time from 1s to 1h, as in 60s".to_owned()))?,
    };
    let body = app.large(move |exporter| {
        exporter
            .trace(since, query.engine.as_deref())
            .map_err(|error| bad(error.to_string()))
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], body.await?))
}
