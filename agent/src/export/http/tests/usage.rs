//! `/api/v1/cost`, `/api/v1/heaviest`, `/api/v1/growth`: what they answer, and what they refuse.

use super::*;
use infertap_core::ledger::{ContextLimit, LimitSource};

#[tokio::test]
async fn usage_is_told_by_scene_and_the_heaviest_first() {
    let server = server().await;
    let exporter = &server.exporter;
    let limit = ContextLimit {
        tokens: 48,
        source: LimitSource::Files,
    };
    exporter.context_limit(&"e".into(), Some(limit));
    for (scene, n) in [("chat", 1), ("rag", 3)] {
        for _ in 0..n {
            exporter.apply(&request(&labels("e", "m", scene), Status::Ok));
        }
    }
    let cost = get(server.address, "/api/v1/cost").await;
    assert_eq!(cost.status, 200);
    assert_eq!(cost.header("content-type"), Some("application/json"));
    let told = |answer: &Value| -> Vec<String> {
        let rows = answer["rows"].as_array().expect("rows");
        rows.iter()
            .map(|row| format!("{} {} {}", row["name"], row["requests"], row["input_tokens"]))
            .collect()
    };
    let cost = cost.json();
    assert_eq!(told(&cost), ["\"rag\" 3 114", "\"chat\" 1 38"]);
    assert_eq!(cost["total"]["output_tokens"], 24);
    assert_eq!(cost["total"]["cached_input_tokens"], 64);
    assert_eq!(cost["total"]["reasoning_tokens"], Value::Null);
    assert_eq!(cost["total"]["near_context_limit"], 4, "38 + 6 of 48");
    let by_model = get(server.address, "/api/v1/cost?by=model&since=30d")
        .await
        .json();
    assert_eq!(told(&by_model), ["\"m\" 4 152"]);
    let heaviest = get(server.address, "/api/v1/heaviest?scene=rag&limit=2")
        .await
        .json();
    let requests = heaviest["requests"].as_array().expect("requests");
    assert_eq!(requests.len(), 2);
    assert_eq!(
        (&requests[0]["scene"], &requests[0]["input_tokens"]),
        (&json!("rag"), &json!(38))
    );
    let growth = get(server.address, "/api/v1/growth?hours=2").await.json();
    assert_eq!(growth["complete"], false);
    let text = exporter
        .metrics()
        .encode(crate::export::metrics::Format::Text)
        .expect("encodes");
    for line in [
        r#"llm_near_context_limit_total{model="m",scene="rag"} 3"#,
        "infertap_usage_overflow_total 0",
    ] {
        assert!(text.contains(line), "{line}");
    }
    assert!(
        !text.contains("llm_context_limit_tokens{"),
        "of an engine that is not up"
    );
}

#[tokio::test]
async fn limits_are_told_for_as_long_as_the_engine_is_here() {
    let server = server().await;
    let exporter = &server.exporter;
    let info = Arc::new(engine("vllm-1", 7));
    exporter.engine_up(&info);
    let series = || {
        let text = exporter
            .metrics()
            .encode(crate::export::metrics::Format::Text)
            .expect("encodes");
        let lines = text
            .lines()
            .filter(|line| line.starts_with("llm_context_limit_tokens"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for (tokens, source, expected) in [
        (
            8192,
            LimitSource::Files,
            r#"llm_context_limit_tokens{engine="vllm-1",source="files"} 8192"#,
        ),
        (
            4096,
            LimitSource::CommandLine,
            r#"llm_context_limit_tokens{engine="vllm-1",source="command_line"} 4096"#,
        ),
    ] {
        exporter.context_limit(&info.id, Some(ContextLimit { tokens, source }));
        assert_eq!(series(), [expected]);
    }
    exporter.engine_down(&info.id);
    assert_eq!(series(), [""; 0]);
}

#[tokio::test]
async fn nonsense_is_refused_with_what_would_be_right() {
    let server = server().await;
    for (path, told) in [
        ("/api/v1/cost?by=user", "by must be one of scene, model, client"),
        (
            "/api/v1/cost?since=soon",
            "since must be a time from 15m to 400d, as in 24h",
        ),
        (
            "/api/v1/cost?since=1s",
            "since must be a time from 15m to 400d, as in 24h",
        ),
        (
            "/api/v1/cost?since=401d",
            "since must be a time from 15m to 400d, as in 24h",
        ),
        (
            "/api/v1/cost?until=1",
            "unknown field `until`, expected `by` or `since`",
        ),
        ("/api/v1/heaviest?order=size", "order must be one of tokens, cost"),
        (
            "/api/v1/heaviest?limit=0",
            "limit must be a number from 1 to 1000",
        ),
        (
            "/api/v1/heaviest?limit=1001",
            "limit must be a number from 1 to 1000",
        ),
        (
            "/api/v1/heaviest?since=3d",
            "since must be a time from 15m to 2d, as in 24h",
        ),
        ("/api/v1/growth?hours=25", "hours must be a number from 1 to 24"),
        ("/api/v1/growth?hours=x", "hours must be a number from 1 to 24"),
    ] {
        let answer = get(server.address, path).await;
        assert_eq!(answer.status, 400, "{path}");
        let error = answer.json()["error"].as_str().expect("an error").to_owned();
        assert!(error.contains(told), "{path}: {error}");
    }
}
