//! Series that come and go with engines.

use super::*;

#[test]
fn running_requests_are_paired_and_go_with_their_engine() {
    let metrics = metrics();
    let labels = labels("llama_cpp-8080", "m", "s");
    let running = || samples(&metrics, "llm_requests_running");
    let line = |n: i32| {
        vec![format!(
            r#"llm_requests_running{{engine="llama_cpp-8080",model="m"}} {n}"#
        )]
    };
    let start = Observation::Started(labels.clone());
    let end = finished(&labels, record(&labels, Status::Ok));

    metrics.apply(&end);
    assert_eq!(
        running(),
        [""; 0],
        "an end without a start is no request in flight"
    );
    metrics.engine_up(&engine("llama_cpp-8080", 7));
    metrics.apply_all(&[start.clone(), start.clone()]);
    assert_eq!(running(), line(2));
    metrics.apply(&end);
    assert_eq!(running(), line(1));
    metrics.engine_down("llama_cpp-8080");
    assert_eq!(running(), line(1), "its last request is still in flight");
    assert_eq!(samples(&metrics, "llm_engine_info"), [""; 0]);
    metrics.apply(&end);
    assert_eq!(running(), [""; 0]);

    metrics.engine_up(&engine("llama_cpp-8080", 8));
    metrics.apply_all(&[start, end]);
    assert_eq!(running(), line(0), "an idle engine that is there has a zero");
    metrics.engine_down("llama_cpp-8080");
    assert_eq!(running(), [""; 0]);
    metrics.engine_down("never seen");
}

#[test]
fn engine_info_follows_what_is_learned() {
    let metrics = metrics();
    let mut info = engine("vllm-8000", 7);
    info.model = None;
    info.version = Some("0.1\n\"x\"".into());
    metrics.engine_up(&info);
    assert_eq!(
        samples(&metrics, "llm_engine_info"),
        [
            r#"llm_engine_info{container="",engine="vllm-8000",gpus="",kind="llama_cpp",model="",namespace="",pid="7",pod="",version="0.1_\"x\""} 1"#
        ]
    );
    info.model = Some("smollm2".into());
    info.pod_uid = Some("1234".into());
    metrics.engine_up(&info);
    let samples = samples(&metrics, "llm_engine_info");
    assert_eq!(samples.len(), 1);
    assert!(
        samples[0].contains(r#"model="smollm2""#) && samples[0].contains(r#"pod="1234""#),
        "{samples:?}"
    );
}

#[test]
fn what_the_scheduler_tells_goes_with_its_engine() {
    let metrics = metrics();
    let value = |family: &str| {
        let samples = samples(&metrics, family);
        samples
            .first()
            .and_then(|line| Some(line.rsplit_once(' ')?.1.to_owned()))
    };
    let families = [
        ("llm_queue_length", "4"),
        ("llm_kv_cache_usage_ratio", "0.25"),
        ("llm_preemptions_total", "2"),
        ("llm_prefix_cache_queried_tokens_total", "108"),
        ("llm_prefix_cache_hit_tokens_total", "96"),
    ];
    metrics.apply_all(&[engine_report("vllm-8000", 3), engine_report("vllm-8000", 4)]);
    for (family, expected) in families {
        assert_eq!(value(family).as_deref(), Some(expected), "{family}");
    }
    metrics.engine_down("vllm-8000");
    for (family, _) in families {
        assert_eq!(value(family), None, "{family}");
    }
}
