//! What each path answers.
//!
//! Owns: paths, parameters, JSON errors. Refuses: connections and their limits (`http`). Answers are read from memory:
//! no request from outside makes the agent touch a file, a process or an engine.

use super::{Limits, negotiate::negotiate, trace, usage};
use crate::export::{
    EngineStatus, Exporter, Filter, RecentRequest, gpus::Answer as GpusAnswer, metrics::Format,
};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use infertap_core::{EngineInfo, Status, budget::BudgetReport, prefix::PrefixReport};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

/// Requests that are told when no limit is given.
const DEFAULT_LIMIT: usize = 100;

/// Largest limit.
const MAX_LIMIT: usize = 10_000;

const INDEX: &str = "\
infertap: a tap on LLM inference

/metrics           Prometheus metrics (text, or OpenMetrics with exemplars by Accept)
/healthz           the agent is alive
/readyz            the agent observes what it should; 503 and why when not
/api/v1/budgets    what is used of budgets, and when they will be used up
/api/v1/engines    inference engines found on this host, and gateways before them
/api/v1/gpus       NVIDIA GPUs: last reading, processes and engines, what is not supported
/api/v1/prefix     how much of the prompts begins like prompts before them, what was hit, and what breaks it
/api/v1/requests   requests that ended lately, newest first: ?limit=N&engine=&model=&scene=&status=
/api/v1/trace      the last time as trace-event JSON, to open in ui.perfetto.dev: ?since=60s&engine=
/api/v1/cost       who used how much: ?by=scene|model|client&since=24h
/api/v1/heaviest   the heaviest requests: ?order=tokens|cost&since=1h&limit=N&model=&scene=
/api/v1/growth     the last hours against those before them, and what growth comes from: ?hours=1
";

/// What the paths share.
pub(super) struct App {
    exporter: Arc<Exporter>,
    /// One permit an answer that may be large, held until its last byte is with the kernel.
    answers: Arc<Semaphore>,
    /// Held while such an answer is made, which takes more memory than the answer.
    making: Arc<Mutex<()>>,
    limits: Limits,
}

impl App {
    pub(super) fn new(exporter: Arc<Exporter>, limits: Limits) -> App {
        App {
            exporter,
            answers: Arc::new(Semaphore::new(limits.answers)),
            making: Arc::default(),
            limits,
        }
    }

    /// Makes an answer that may be large: away from the threads that serve connections, one after the other,
    /// and only so many at once, those included that clients are slow to read.
    pub(super) async fn large(
        &self,
        make: impl FnOnce(&Exporter) -> Result<Vec<u8>, Problem> + Send + 'static,
    ) -> Result<Bytes, Problem> {
        let permit = timeout(self.limits.answer_wait, Arc::clone(&self.answers).acquire_owned());
        let Ok(Ok(permit)) = permit.await else {
            return Err(Problem(
                StatusCode::SERVICE_UNAVAILABLE,
                "other clients are still reading large answers; try again".to_owned(),
            ));
        };
        let making = Arc::clone(&self.making).lock_owned().await;
        let exporter = Arc::clone(&self.exporter);
        // Both go with the work: it runs to its end also when the client hangs up and nobody awaits it any more.
        let answer = spawn_blocking(move || {
            let _making = making;
            make(&exporter).map(|body| Answer {
                body,
                _permit: permit,
            })
        });
        Ok(Bytes::from_owner(answer.await.map_err(internal)??))
    }
}

/// A body that gives its permit back when it is dropped.
struct Answer {
    body: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

pub(super) fn router(app: App) -> Router {
    Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { Json(Health { status: "alive" }) }))
        .route("/readyz", get(readyz))
        .route("/api/v1/budgets", get(budgets))
        .route("/api/v1/engines", get(engines))
        .route("/api/v1/gpus", get(gpus))
        .route("/api/v1/prefix", get(prefix))
        .route("/api/v1/requests", get(requests))
        .route("/api/v1/trace", get(trace::trace))
        .route("/api/v1/cost", get(usage::cost))
        .route("/api/v1/heaviest", get(usage::heaviest))
        .route("/api/v1/growth", get(usage::growth))
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
        .with_state(Arc::new(app))
}

/// A failure, as `{"error": "…"}`.
pub(super) struct Problem(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
        }
        (self.0, Json(Body { error: self.1 })).into_response()
    }
}

pub(super) fn internal(error: impl std::fmt::Display) -> Problem {
    Problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<impl IntoResponse, Problem> {
    let accept = headers.get_all(header::ACCEPT);
    let accept: Vec<&str> = accept.iter().filter_map(|value| value.to_str().ok()).collect();
    let format: Format = negotiate(&accept.join(","));
    let body = app.large(move |exporter| {
        let body = exporter.metrics().encode(format);
        body.map(String::into_bytes).map_err(|error| {
            exporter.metrics().export_failed("prometheus");
            internal(error)
        })
    });
    let headers = [
        (header::CONTENT_TYPE, format.content_type()),
        (header::VARY, "accept"),
    ];
    Ok((headers, body.await?))
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    let readiness = app.exporter.readiness();
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
    gateways: Vec<Arc<EngineInfo>>,
}

async fn engines(State(app): State<Arc<App>>) -> Json<Engines> {
    Json(Engines {
        engines: app.exporter.engines(),
        gateways: app.exporter.gateways(),
    })
}

/// The answer of `/api/v1/budgets`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BudgetsAnswer {
    /// All of them, as configured.
    pub(crate) budgets: Vec<BudgetReport>,
}

async fn budgets(State(app): State<Arc<App>>) -> Json<BudgetsAnswer> {
    Json(BudgetsAnswer {
        budgets: app.exporter.budgets().report(),
    })
}

async fn gpus(State(app): State<Arc<App>>) -> Response {
    Json(GpusAnswer::new(&app.exporter.gpus())).into_response()
}

#[derive(Serialize)]
struct Prefixes {
    prefixes: Vec<Arc<PrefixReport>>,
}

async fn prefix(State(app): State<Arc<App>>) -> Result<impl IntoResponse, Problem> {
    let body = app.large(|exporter| {
        let prefixes = exporter.prefixes();
        serde_json::to_vec(&Prefixes { prefixes }).map_err(internal)
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], body.await?))
}

#[derive(Serialize)]
struct Requests {
    requests: Vec<Arc<RecentRequest>>,
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
    State(app): State<Arc<App>>,
    query: Result<Query<RequestsQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
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
    let body = app.large(move |exporter| {
        let requests = exporter.recent().newest(limit, &filter);
        serde_json::to_vec(&Requests { requests }).map_err(internal)
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], body.await?))
}
