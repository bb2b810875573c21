//! Which trace a request belongs to, by the headers that clients and gateways send.
//!
//! Owns: each kind of header over real sockets, in one connection. Refuses: which values are valid (the core's tables).

use super::*;

/// What is sent: a name, headers; the trace and the parent that are told.
type Case<'a> = (
    &'a str,
    &'a [(&'a str, &'a str)],
    Option<&'a str>,
    Option<&'a str>,
);

#[test]
fn traces_are_those_of_the_headers() {
    let bench = bench(&[], &["--set", "trace.header=X-Correlation-Id"]);
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let (traceparent, b3) = (format!("00-{trace}-{span}-01"), format!("{trace}-{span}-1"));
    let own = ("X-Correlation-Id", "463ac35c9f6413ad48485a3953bb6124");
    let cases: [Case<'_>; 6] = [
        (
            "traceparent",
            &[("traceparent", &traceparent)],
            Some(trace),
            Some(span),
        ),
        ("b3", &[("b3", &b3)], Some(trace), Some(span)),
        (
            "b3",
            &[
                ("X-B3-TraceId", trace),
                ("X-B3-SpanId", span),
                ("X-B3-Sampled", "1"),
            ],
            Some(trace),
            Some(span),
        ),
        (
            "request_id",
            &[("X-Request-Id", "4bf92f35-77b3-4da6-a3ce-929d0e0e4736")],
            Some(trace),
            None,
        ),
        ("header", &[("traceparent", &traceparent), own], Some(own.1), None),
        ("derived", &[], None, None),
    ];
    let mut connection = bench.connect();
    let truths: Vec<ClientTruth> = (0..)
        .zip(&cases)
        .map(|(index, (_, headers, ..))| {
            let mut plan = Plan {
                index,
                ..scripted(&json!({"chunks": 2}), true)
            };
            let headers = headers.iter();
            plan.headers
                .extend(headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            connection.exchange(&plan)
        })
        .collect();
    for (truth, record) in bench.assert_agree(&truths, "traces") {
        let (source, headers, id, parent) = cases[truth.index];
        assert_eq!(record.trace_source.as_deref(), Some(source), "{headers:?}");
        assert_eq!(record.parent_span_id.as_deref(), parent, "{headers:?}");
        if let Some(id) = id {
            assert_eq!(record.trace_id, id, "{headers:?}");
        }
    }
}
