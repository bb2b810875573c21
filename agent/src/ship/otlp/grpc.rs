//! OTLP over gRPC.
//!
//! Owns: the channel, again when its certificates change, and the message that is sent. Refuses: waiting for a connection longer
//! than an attempt may take; encoding or compressing on the threads of the runtime, where the client would do it.

use super::http::accepted;
use super::spans::Encoder;
use super::status::verdict;
use crate::clock::unix_offset_ns;
use crate::ship::answer::forgotten;
use crate::ship::current::Current;
use crate::ship::file;
use crate::ship::http::gzip;
use crate::ship::link::given;
use crate::ship::tls::FILE_LIMIT;
use crate::ship::{Destination, LinkConfig, Verdict};
use crate::store::tables::record::KeptRecord;
use bytes::Bytes;
use hyper::http;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use reqwest::header::{HeaderMap, HeaderValue};
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tower_service::Service;

/// See the module.
#[derive(Debug)]
pub(super) struct OtlpGrpc {
    encoder: Encoder,
    link: Arc<LinkConfig>,
    current: Current<Channel>,
}

/// An attempt that is given up leaves its connection behind, which may be a dead one: who is on the other side can have vanished
/// without a word. One of HTTP/2 is not closed for that by itself, and the next attempts would wait for it too.
struct Attempt<'a> {
    current: &'a Current<Channel>,
    answered: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.current.forget();
        }
    }
}

/// Spans as they are sent, and of how many records.
#[derive(Debug)]
pub(super) struct Batch {
    message: Message,
    records: usize,
}

/// A message of gRPC with the five bytes before it.
#[derive(Debug, Clone)]
struct Message {
    bytes: Bytes,
    compressed: bool,
}

impl Message {
    fn new(plain: Vec<u8>, compressed: bool) -> Message {
        let body = if compressed { gzip(&plain) } else { plain };
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(5 + body.len());
        bytes.push(u8::from(compressed));
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&body);
        Message {
            bytes: bytes.into(),
            compressed,
        }
    }
}

/// Sends a message that is encoded already in the place of the one that it is given.
#[derive(Debug, Clone)]
struct Sends {
    channel: Channel,
    message: Message,
}

impl Service<http::Request<Body>> for Sends {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let message = &self.message;
        *request.body_mut() = Body::new(reqwest::Body::from(message.bytes.clone()));
        if message.compressed {
            let headers = request.headers_mut();
            headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
        }
        self.channel.call(request)
    }
}

impl OtlpGrpc {
    pub(super) fn new(encoder: Encoder, link: LinkConfig) -> OtlpGrpc {
        let link = Arc::new(link);
        OtlpGrpc {
            encoder,
            current: Current::new(Arc::clone(&link)),
            link,
        }
    }

    /// The channel for the files as they are, and the headers that all requests have. Connects when it is used.
    async fn current(&self) -> Result<(Channel, HeaderMap), String> {
        let runtime = tokio::runtime::Handle::current();
        let connect = move |link: &LinkConfig| {
            let endpoint = endpoint(link)?;
            let _inside = runtime.enter();
            Ok(endpoint.connect_lazy())
        };
        self.current.get(connect).await
    }

    async fn once(
        &self,
        channel: Channel,
        batch: &Batch,
        headers: &HeaderMap,
    ) -> Result<ExportTraceServiceResponse, Status> {
        let message = batch.message.clone();
        let mut client =
            TraceServiceClient::new(Sends { channel, message }).accept_compressed(CompressionEncoding::Gzip);
        let mut request = Request::new(ExportTraceServiceRequest::default());
        *request.metadata_mut() = MetadataMap::from_headers(headers.clone());
        let mut attempt = Attempt {
            current: &self.current,
            answered: false,
        };
        let answer = client.export(request).await;
        attempt.answered = true;
        answer.map(tonic::Response::into_inner)
    }
}

impl Destination for OtlpGrpc {
    type Payload = Batch;

    fn name(&self) -> &'static str {
        "otlp"
    }

    fn encode(&self, records: &[Arc<KeptRecord>]) -> Batch {
        let plain = self.encoder.encode(records, unix_offset_ns()).encode_to_vec();
        Batch {
            message: Message::new(plain, self.link.gzip),
            records: records.len(),
        }
    }

    async fn send(&self, batch: &Batch) -> Verdict {
        let (channel, headers) = match self.current().await {
            Ok(current) => current,
            Err(reason) => return Verdict::retry(reason),
        };
        let mut answer = self.once(channel, batch, &headers).await;
        let mut sent = headers;
        if let Err(status) = &answer
            && matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
            && let Ok((channel, headers)) = self.current().await
            && headers != sent
        {
            // They have just been rotated.
            answer = self.once(channel, batch, &headers).await;
            sent = headers;
        }
        match answer {
            Ok(response) => forgotten(accepted(batch.records, response), &sent),
            Err(status) => verdict(&status, &sent),
        }
    }
}

/// May block.
fn endpoint(link: &LinkConfig) -> Result<Endpoint, String> {
    let failed = |error: tonic::transport::Error| crate::ship::with_causes(&error);
    let mut endpoint = Endpoint::from_shared(link.endpoint.clone())
        .map_err(failed)?
        .user_agent(concat!("infertap/", env!("CARGO_PKG_VERSION")))
        .map_err(failed)?
        .connect_timeout(link.attempt());
    if link.endpoint.starts_with("https://") {
        let mut tls = ClientTlsConfig::new();
        tls = match given(&link.ca_file) {
            Some(file) => tls.ca_certificate(Certificate::from_pem(file::read(file, FILE_LIMIT)?)),
            None => tls.with_native_roots(),
        };
        if let (Some(cert), Some(key)) = (given(&link.cert_file), given(&link.key_file)) {
            tls = tls.identity(Identity::from_pem(
                file::read(cert, FILE_LIMIT)?,
                file::read(key, FILE_LIMIT)?,
            ));
        }
        if !link.server_name.is_empty() {
            tls = tls.domain_name(link.server_name.clone());
        }
        endpoint = endpoint.tls_config(tls).map_err(failed)?;
    }
    Ok(endpoint)
}
