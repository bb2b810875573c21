//! What each path answers.
//!
//! Owns: paths, parameters, JSON errors. Refuses: connections and their limits (`http`). Answers are read from memory:
//! no request from outside makes the agent touch a file, a process or an engine.

use super::negotiate::negotiate;
use crate::export::{EngineStatus, Exporter, Filter, metrics::Format};
use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use infertap_core::{RequestRecord, Status};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Requests that are told when no limit is given.
const DEFAULT_LIMIT: usize = 100;

/// Largest limit.
const MAX_LIMIT: usize = 10_000;

const INDEX: &str = "\
infertap: a tap on LLM inference

/metrics           Prometheus metrics (text, or OpenMetrics with exemplars by Accept)
/healthz           the agent is alive
/readyz            the agent observes what it should; 503 and why when not
/api/v1/engines    inference engines found on this host
/api/v1/requests   requests that ended lately, newest first: ?limit=N&engine=&model=&scene=&status=
";

pub(super) fn router(exporter: Arc<Exporter>) -> Router {
    Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { Json(Health { status: "alive" }) }))
        .route("/readyz", get(readyz))
        .route("/api/v1/engines", get(engines))
        .route("/api/v1/requests", get(requests))
        .fallback(|uri: Uri| async move {
            Problem(
                StatusCode::NOT_FOUND,
                format!("no such path: {}; / lists what is here", uri.path()),
            )
        })
        .method_not_allowed_fallback(|method: Method| async move {
            Problem(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("{method} is not allowed; use GET"),
            )
        })
        .with_state(exporter)
}

/// A failure, as `{"error": "…"}`.
struct Problem(StatusCode, String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
        }
        (self.0, Json(Body { error: self.1 })).into_response()
    }
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

async fn metrics(State(exporter): State<Arc<Exporter>>, headers: HeaderMap) -> Response {
    let accept: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let format: Format = negotiate(&accept.join(","));
    match exporter.metrics().encode(format) {
        Ok(body) => (
            [
                (header::CONTENT_TYPE, format.content_type()),
                (header::VARY, "accept"),
            ],
            body,
        )
            .into_response(),
        Err(error) => {
            exporter.metrics().export_failed("prometheus");
            Problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
}

async fn readyz(State(exporter): State<Arc<Exporter>>) -> Response {
    let readiness = exporter.readiness();
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(readiness)).into_response()
}

#[derive(Serialize)]
struct Engines {
    engines: Vec<EngineStatus>,
}

async fn engines(State(exporter): State<Arc<Exporter>>) -> Json<Engines> {
    Json(Engines {
        engines: exporter.engines(),
    })
}

#[derive(Serialize)]
struct Requests {
    requests: Vec<Arc<RequestRecord>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestsQuery {
    limit: Option<String>,
    engine: Option<String>,
    model: Option<String>,
    scene: Option<String>,
    status: Option<String>,
}

async fn requests(
    State(exporter): State<Arc<Exporter>>,
    query: Result<Query<RequestsQuery>, QueryRejection>,
) -> Result<Json<Requests>, Problem> {
    let bad = |message: String| Problem(StatusCode::BAD_REQUEST, message);
    let Query(query) = query.map_err(|rejection| bad(rejection.body_text()))?;
    let limit = match query.limit.as_deref() {
        None => DEFAULT_LIMIT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=MAX_LIMIT).contains(limit))
            .ok_or_else(|| bad(format!("limit must be a number from 1 to {MAX_LIMIT}")))?,
    };
    let status = match query.status.as_deref() {
        None => None,
        Some(text) => {
            let known = Status::ALL.into_iter().find(|status| status.as_str() == text);
            let names: Vec<&str> = Status::ALL.into_iter().map(Status::as_str).collect();
            Some(known.ok_or_else(|| bad(format!("status must be one of {}", names.join(", "))))?)
        }
    };
    let filter = Filter {
        engine: query.engine,
        model: query.model,
        scene: query.scene,
        status,
    };
    Ok(Json(Requests {
        requests: exporter.recent().newest(limit, &filter),
    }))
}
