//! A receiver of OTLP for tests, over HTTP and gRPC.
//!
//! Owns: refusing what real receivers refuse: other content types and encodings, bodies that are no protobuf or too large,
//! missing credentials, spans with ids that are short or zero, that end before they begin or do not nest; and failures by
//! script. Refuses: nothing in silence: what it took can be asked for.

use crate::export::metrics::lock;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use std::collections::{HashMap, VecDeque};
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tonic::{Code, Request, Status};

/// What it does with a batch before it looks at it.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// Looks at it.
    Look,
    /// Never answers.
    Hang,
    /// Answers with this status, and `Retry-After` in seconds.
    Fail(u16, Option<u64>),
    /// The same over gRPC.
    Status(Status),
    /// Takes it but for so many spans.
    Reject(i64),
}

/// What it asks for.
#[derive(Debug, Clone)]
pub(super) struct Demands {
    /// The value of `authorization`.
    pub(super) authorization: Option<String>,
    /// Bytes of a message, decompressed.
    pub(super) max_bytes: usize,
}

/// What it saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) script: VecDeque<Act>,
    pub(super) attempts: usize,
    /// Attempts that were compressed.
    pub(super) compressed: usize,
    /// Spans that it took.
    pub(super) spans: Vec<Span>,
    /// What it refused, and why.
    pub(super) refused: Vec<String>,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Receiver {
    pub(super) demands: Arc<Mutex<Demands>>,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl Receiver {
    pub(super) fn new(script: impl IntoIterator<Item = Act>) -> Receiver {
        Receiver {
            demands: Arc::new(Mutex::new(Demands {
                authorization: None,
                max_bytes: 4 << 20,
            })),
            seen: Arc::new(Mutex::new(Seen {
                script: script.into_iter().collect(),
                ..Seen::default()
            })),
        }
    }

    /// Ids of the records that it took, sorted: those of spans of kind server.
    pub(super) fn records(&self) -> Vec<u64> {
        let server = |span: &&Span| span.kind == 2;
        let id = |span: &Span| u64::from_be_bytes(span.span_id.clone().try_into().expect("eight bytes"));
        let mut ids: Vec<u64> = lock(&self.seen).spans.iter().filter(server).map(id).collect();
        ids.sort_unstable();
        ids
    }

    /// Serves HTTP; in TLS where that is given.
    pub(super) async fn http(&self, tls: Option<Arc<rustls::ServerConfig>>) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("an address");
        let app = Router::new()
            .route("/v1/traces", post(traces))
            .with_state(self.clone());
        let Some(tls) = tls else {
            tokio::spawn(async move { axum::serve(listener, app).await });
            return address;
        };
        let acceptor = tokio_rustls::TlsAcceptor::from(tls);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, app) = (acceptor.clone(), app.clone());
                tokio::spawn(async move {
                    // A client that does not trust us, or that we do not, is gone.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let service = hyper_util::service::TowerToHyperService::new(app);
                        let io = hyper_util::rt::TokioIo::new(stream);
                        let _ = hyper::server::conn::http1::Builder::new()
                            .serve_connection(io, service)
                            .await;
                    }
                });
            }
        });
        address
    }

    /// Serves gRPC; in TLS where that is given.
    pub(super) async fn grpc(&self, tls: Option<tonic::transport::ServerTlsConfig>) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let limit = lock(&self.demands).max_bytes;
        let service = TraceServiceServer::new(self.clone())
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
            .send_compressed(tonic::codec::CompressionEncoding::Gzip)
            .max_decoding_message_size(limit);
        let mut server = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).expect("certificates");
        }
        tokio::spawn(server.add_service(service).serve(address));
        while tokio::net::TcpStream::connect(address).await.is_err() {
            tokio::task::yield_now().await;
        }
        address
    }

    fn next(&self) -> Act {
        let mut seen = lock(&self.seen);
        seen.attempts += 1;
        seen.script.pop_front().unwrap_or(Act::Look)
    }

    fn refuse<T>(&self, status: T, why: impl Into<String>) -> T {
        lock(&self.seen).refused.push(why.into());
        status
    }

    /// Takes a batch, or says what is wrong with it.
    fn take(&self, request: ExportTraceServiceRequest) -> Result<(), String> {
        let spans: Vec<Span> = request
            .resource_spans
            .into_iter()
            .flat_map(|of| of.scope_spans)
            .flat_map(|of| of.spans)
            .collect();
        if spans.is_empty() {
            return Err("no spans".to_owned());
        }
        let by_id: HashMap<&[u8], &Span> = spans.iter().map(|span| (&*span.span_id, span)).collect();
        if by_id.len() != spans.len() {
            return Err("a span id twice".to_owned());
        }
        for span in &spans {
            let id = |id: &[u8], bytes| id.len() == bytes && id.iter().any(|byte| *byte != 0);
            if !id(&span.trace_id, 16) || !id(&span.span_id, 8) {
                return Err(format!("{}: an id that is none", span.name));
            }
            if !span.parent_span_id.is_empty() && !id(&span.parent_span_id, 8) {
                return Err(format!("{}: a parent that is none", span.name));
            }
            let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
            if span.name.is_empty() || start == 0 || start > end {
                return Err(format!("{}: ends before it begins", span.name));
            }
            if let Some(parent) = by_id.get(&*span.parent_span_id)
                && (parent.trace_id != span.trace_id
                    || parent.start_time_unix_nano > start
                    || parent.end_time_unix_nano < end)
            {
                return Err(format!("{}: not within its parent", span.name));
            }
            for link in &span.links {
                if !id(&link.trace_id, 16) || !id(&link.span_id, 8) {
                    return Err(format!("{}: a link to nothing", span.name));
                }
            }
        }
        lock(&self.seen).spans.extend(spans);
        Ok(())
    }
}

fn partial(rejected: i64) -> ExportTraceServiceResponse {
    ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess {
            rejected_spans: rejected,
            error_message: "as the script says".to_owned(),
        }),
    }
}

async fn traces(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Response {
    let act = receiver.next();
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match act {
        Act::Hang => std::future::pending().await,
        Act::Fail(status, after) => {
            let status = StatusCode::from_u16(status).expect("a status");
            let after = after.map(|after| [("retry-after", after.to_string())]);
            return after.map_or_else(|| status.into_response(), |after| (status, after).into_response());
        }
        Act::Reject(rejected) => return partial(rejected).encode_to_vec().into_response(),
        Act::Look | Act::Status(_) => {}
    }
    let demands = lock(&receiver.demands).clone();
    if demands
        .authorization
        .as_deref()
        .is_some_and(|asked| header("authorization") != Some(asked))
    {
        let said = header("authorization").unwrap_or("nothing").to_owned();
        return receiver
            .refuse((StatusCode::UNAUTHORIZED, format!("{said} is not it")), "auth")
            .into_response();
    }
    if header("content-type") != Some("application/x-protobuf") {
        return receiver
            .refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content type")
            .into_response();
    }
    let mut plain = Vec::new();
    match header("content-encoding") {
        None => plain = body.to_vec(),
        Some("gzip") => {
            lock(&receiver.seen).compressed += 1;
            let most = demands.max_bytes as u64 + 1;
            if flate2::read::GzDecoder::new(&*body)
                .take(most)
                .read_to_end(&mut plain)
                .is_err()
            {
                return receiver.refuse(StatusCode::BAD_REQUEST, "gzip").into_response();
            }
        }
        Some(_) => {
            return receiver
                .refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding")
                .into_response();
        }
    }
    if plain.len() > demands.max_bytes {
        return receiver
            .refuse(StatusCode::PAYLOAD_TOO_LARGE, "too large")
            .into_response();
    }
    let Ok(request) = ExportTraceServiceRequest::decode(&*plain) else {
        return receiver
            .refuse(StatusCode::BAD_REQUEST, "no protobuf")
            .into_response();
    };
    match receiver.take(request) {
        Ok(()) => {
            let answer = ExportTraceServiceResponse::default().encode_to_vec();
            ([("content-type", "application/x-protobuf")], answer).into_response()
        }
        Err(why) => receiver
            .refuse((StatusCode::BAD_REQUEST, why.clone()), why)
            .into_response(),
    }
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        match self.next() {
            Act::Hang => std::future::pending().await,
            Act::Status(status) => return Err(status),
            Act::Reject(rejected) => return Ok(tonic::Response::new(partial(rejected))),
            Act::Look | Act::Fail(..) => {}
        }
        let header = |name| request.metadata().get(name).and_then(|value| value.to_str().ok());
        let asked = lock(&self.demands).authorization.clone();
        if asked.is_some() && header("authorization") != asked.as_deref() {
            let said = header("authorization").unwrap_or("nothing");
            let status = Status::new(Code::Unauthenticated, format!("{said} is not it"));
            return Err(self.refuse(status, "auth"));
        }
        if header("grpc-encoding") == Some("gzip") {
            lock(&self.seen).compressed += 1;
        }
        self.take(request.into_inner())
            .map(|()| tonic::Response::new(ExportTraceServiceResponse::default()))
            .map_err(|why| self.refuse(Status::invalid_argument(why.clone()), why))
    }
}
