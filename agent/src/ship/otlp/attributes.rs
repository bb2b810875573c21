//! Attributes of spans.
//!
//! Owns: their names: OpenTelemetry's conventions for generative AI and HTTP where there is one, `infertap.*` otherwise.
//! Refuses: what is not known: it has no attribute.

use crate::store::tables::record::KeptRecord;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value};

/// A list of attributes.
#[derive(Debug, Default)]
pub(super) struct Attributes(pub(super) Vec<KeyValue>);

impl Attributes {
    fn add(&mut self, key: &str, value: Value) {
        self.0.push(KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        });
    }

    pub(super) fn text(&mut self, key: &str, text: impl Into<String>) {
        self.add(key, Value::StringValue(text.into()));
    }

    pub(super) fn count(&mut self, key: &str, count: Option<u64>) {
        if let Some(count) = count {
            self.add(key, Value::IntValue(i64::try_from(count).unwrap_or(i64::MAX)));
        }
    }

    pub(super) fn number(&mut self, key: &str, number: Option<f64>) {
        if let Some(number) = number {
            self.add(key, Value::DoubleValue(number));
        }
    }

    fn flag(&mut self, key: &str, flag: bool) {
        self.add(key, Value::BoolValue(flag));
    }

    fn texts<'a>(&mut self, key: &str, texts: impl IntoIterator<Item = &'a String>) {
        let text = |text: &String| AnyValue {
            value: Some(Value::StringValue(text.clone())),
        };
        let values: Vec<AnyValue> = texts.into_iter().map(text).collect();
        if !values.is_empty() {
            self.add(key, Value::ArrayValue(ArrayValue { values }));
        }
    }
}

/// `gen_ai.operation.name`.
pub(super) fn operation(protocol: &str) -> &str {
    match protocol {
        "openai_completions" => "text_completion",
        chat if chat.contains("chat") || chat.contains("messages") => "chat",
        other => other,
    }
}

/// Those of a request's span.
pub(super) fn of_request(kept: &KeptRecord) -> Attributes {
    let record = &kept.record;
    let mut out = Attributes::default();
    out.text("gen_ai.operation.name", operation(&record.protocol));
    // An engine's id is its kind and its port.
    let kind = record.engine.split('-').next().unwrap_or_default();
    out.text("gen_ai.provider.name", kind);
    out.text("gen_ai.request.model", &*record.model);
    if let Some(id) = &record.response_id {
        out.text("gen_ai.response.id", id);
    }
    out.texts("gen_ai.response.finish_reasons", &record.finish_reason);
    out.count("gen_ai.usage.input_tokens", record.input_tokens);
    out.count("gen_ai.usage.output_tokens", record.output_tokens);
    out.count("gen_ai.usage.cache_read.input_tokens", record.cached_input_tokens);
    out.count("gen_ai.usage.reasoning.output_tokens", record.reasoning_tokens);
    out.count("http.response.status_code", record.http_status.map(u64::from));
    if let Some(client) = record.client {
        out.text("client.address", client.to_string());
    }
    // The conventions' own k8s.* would say where the server runs.
    for (key, value) in [
        ("infertap.client.k8s.namespace.name", &record.client_namespace),
        ("infertap.client.k8s.pod.name", &record.client_pod),
        ("infertap.client.k8s.workload.name", &record.client_workload),
        ("infertap.client.k8s.workload.kind", &record.client_workload_kind),
    ] {
        if let Some(value) = value {
            out.text(key, &**value);
        }
    }
    if failed(kept) {
        let code = record.http_status.filter(|code| *code >= 500);
        out.text(
            "error.type",
            code.map_or_else(|| record.status.as_str().to_owned(), |code| code.to_string()),
        );
    }
    out.text("infertap.status", record.status.as_str());
    out.text("infertap.engine", &*record.engine);
    out.text("infertap.scene", &*record.scene);
    out.text("infertap.protocol", &record.protocol);
    out.texts("infertap.rules", &kept.rules);
    out.flag("infertap.streamed", record.streamed);
    out.texts("infertap.incomplete", &record.incomplete);
    out.number("infertap.ttft_seconds", record.ttft_s);
    out.number("infertap.tpot_seconds", record.tpot_s);
    out.number("infertap.e2e_seconds", record.e2e_s);
    out.number("infertap.energy_joules", record.energy_j);
    out.count("infertap.request_bytes", Some(record.request_bytes));
    out.count("infertap.response_bytes", Some(record.response_bytes));
    if let Some(source) = record.sources.input_tokens {
        out.text("infertap.input_tokens.source", source.as_str());
    }
    if let Some(source) = record.sources.output_tokens {
        out.text("infertap.output_tokens.source", source.as_str());
    }
    if let Some(cost) = &record.cost {
        out.number("infertap.cost", cost.total.to_string().parse().ok());
        out.text("infertap.cost.currency", cost.currency.as_str());
    }
    if let Some(diagnosis) = &record.diagnosis {
        if let Some(cause) = diagnosis.cause {
            out.text("infertap.cause", cause.as_str());
        }
        out.number("infertap.interference_seconds", diagnosis.interference_s);
        out.number("infertap.client_stall_seconds", diagnosis.client_stall_s);
        out.count("infertap.in_flight_at_arrival", diagnosis.in_flight_at_arrival);
    }
    super::content::add(kept, &mut out);
    out
}

/// Whether the server failed it. What a client did wrong, or gave up, is no failure of the server's span.
pub(super) fn failed(kept: &KeptRecord) -> bool {
    use infertap_core::Status;
    matches!(kept.record.status, Status::ServerError | Status::Timeout)
}
