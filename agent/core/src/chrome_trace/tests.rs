//! Small traces as a whole, and properties of any.
//!
//! Refuses: the format, which the tests' schema judges.

use super::*;
use crate::observation::StepKind;
use crate::{Source, Status};
use expect_test::expect;
use proptest::prelude::*;
use serde_json::Value;

const MS: u64 = 1_000_000;

/// A streamed request that ended well, its points in milliseconds.
fn request(id: &str, points: [Option<u64>; 5]) -> RequestRecord {
    let at = |index: usize| points[index].map(|ms| ms * MS);
    serde_json::from_value(json!({
        "id": id, "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "response_id": null, "engine": "vllm-8000",
        "model": "m", "scene": "default", "protocol": "openai_chat", "streamed": true, "status": "ok",
        "http_status": 200, "finish_reason": "stop",
        "t0_ns": at(0), "t1_ns": at(1), "t2_ns": at(2), "t3_ns": at(3), "t4_ns": at(4),
        "queue_s": null, "prefill_s": null, "decode_s": null, "tokenize_s": null, "ttft_s": null, "tpot_s": null,
        "e2e_s": null, "input_tokens": 38, "output_tokens": 6, "cached_input_tokens": null, "reasoning_tokens": null,
        "chunks": 6, "request_bytes": 300, "response_bytes": 2000, "sources": {"t1": "engine", "t2": "engine"},
        "t1_error_s": null, "gpu_alloc_failures": null, "incomplete": [], "diagnosis": null, "cost": null,
    }))
    .expect("a record")
}

fn step(start: Option<u64>, end: u64, kind: Option<StepKind>) -> Moment {
    Moment::Step(EngineStep {
        engine: "vllm-8000".into(),
        model: None,
        start: start.map(|ms| ms * MS),
        end: end * MS,
        kind,
        prefill_tokens: Some(38),
        decode_tokens: None,
        requests: Some(1),
        source: Source::Engine,
    })
}

fn reading(since: Option<u64>, at: u64, utilization: Option<f64>) -> Moment {
    Moment::Gpu(GpuMoment {
        gpu: "0".into(),
        since: since.map(|ms| ms * MS),
        at: at * MS,
        utilization,
        power_watts: Some(312.5),
        memory_used_bytes: Some(3.0 * 1_048_576.0),
        away: false,
    })
}

/// A gateway's part: its points in milliseconds.
fn through(id: &str, begin: Option<u64>, end: Option<u64>) -> GatewayPart {
    let at = |ms: Option<u64>| ms.map(|ms| ms * MS);
    let part = json!({
        "id": id, "name": "nginx-8080", "parent_span_id": null, "joined_by": "trace", "status": "ok", "http_status": 200,
        "t0_ns": at(begin), "first_byte_ns": null, "t4_ns": at(end), "before_s": 0.01, "after_s": 0.005,
    });
    serde_json::from_value(part).expect("a part")
}

fn encode(requests: &[RequestRecord], moments: &[Moment]) -> Vec<u8> {
    let history = History {
        requests: requests.iter().collect(),
        moments: moments.iter().collect(),
        to: 1000 * MS,
        version: "0",
        ..History::default()
    };
    history.encode(usize::MAX).expect("small enough")
}

/// One line an event: phase, process, lane, time and duration, name and arguments.
fn told(json: &[u8]) -> String {
    let trace: Value = serde_json::from_slice(json).expect("JSON");
    let lines = events(&trace).map(|event| {
        let number = |key: &str| {
            event[key]
                .as_u64()
                .map_or(String::new(), |value| value.to_string())
        };
        let args = event["args"].as_object().map(|args| {
            args.iter()
                // What every request here has.
                .filter(|(key, _)| {
                    ![
                        "trace_id",
                        "scene",
                        "protocol",
                        "streamed",
                        "http_status",
                        "finish_reason",
                    ]
                    .contains(&key.as_str())
                })
                .map(|(key, value)| format!(" {key}={value}"))
                .collect::<String>()
        });
        format!(
            "{} {}/{} {}+{} {}{}",
            event["ph"].as_str().expect("a phase"),
            number("pid"),
            number("tid"),
            number("ts"),
            number("dur"),
            event["name"].as_str().expect("a name"),
            args.unwrap_or_default()
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn events(trace: &Value) -> impl Iterator<Item = &Value> {
    trace["traceEvents"].as_array().expect("events").iter()
}

#[test]
fn a_request_its_phases_the_steps_and_a_gpu() {
    let mut first = request("1", [Some(100), Some(110), Some(150), Some(190), Some(195)]);
    first.ttft_s = Some(0.052);
    let mut second = request("2", [Some(120), None, Some(160), Some(180), Some(181)]);
    second.status = Status::Cancelled;
    let moments = [
        step(Some(110), 150, Some(StepKind::Prefill)),
        step(None, 160, None),
        Moment::Load {
            engine: "vllm-8000".into(),
            at: 111 * MS,
            load: EngineLoad {
                running: 1,
                waiting: 1,
                kv_cache_usage: Some(0.123_456_78),
            },
        },
        reading(None, 100, None),
        reading(Some(100), 200, Some(0.5)),
    ];
    expect![[r#"
        M 1/ 0+ process_name name="vllm-8000"
        M 1/ 0+ process_sort_index sort_index=1
        X 1/1 110000+40000 prefill prefill_tokens=38 requests=1 source="engine"
        i 1/1 160000+ step prefill_tokens=38 requests=1 source="engine"
        M 1/1 0+ thread_name name="engine steps"
        M 1/1 0+ thread_sort_index sort_index=1
        M 1/2 0+ thread_name name="requests"
        M 1/2 0+ thread_sort_index sort_index=2
        M 1/3 0+ thread_name name="requests"
        M 1/3 0+ thread_sort_index sort_index=3
        X 1/2 100000+95000 m id="1" input_tokens=38 output_tokens=6 status="ok" ttft_s=0.052
        X 1/2 100000+10000 queue source="engine"
        X 1/2 110000+40000 prefill source="engine"
        X 1/2 150000+40000 decode
        X 1/2 190000+5000 response
        i 1/2 152000+ first token sent
        X 1/3 120000+61000 m id="2" input_tokens=38 output_tokens=6 status="cancelled"
        X 1/3 120000+40000 to first token source="engine"
        X 1/3 160000+20000 decode
        X 1/3 180000+1000 response
        C 1/ 111000+ requests running=1 waiting=1
        C 1/ 111000+ KV cache used %=12.346
        M 2/ 0+ process_name name="GPU 0"
        M 2/ 0+ process_sort_index sort_index=10000
        C 2/ 100000+ power W=312.5
        C 2/ 100000+ memory used MiB=3.0
        C 2/ 100000+ utilization %=50.0
        C 2/ 100000+ power W=312.5
        C 2/ 200000+ memory used MiB=3.0"#]]
    .assert_eq(&told(&encode(&[first, second], &moments)));
}

/// A gateway that tried again, around both requests; of one whose beginning is not known nothing is drawn.
#[test]
fn a_gateway_is_drawn_around_what_it_asked() {
    let mut refused = request("1", [Some(110), None, None, None, Some(120)]);
    refused.status = Status::ServerError;
    let again = request("2", [Some(125), None, Some(150), Some(180), Some(190)]);
    let other = request("3", [Some(130), None, None, None, Some(140)]);
    let part = through("aa", Some(100), Some(195));
    let late = through("bb", None, Some(195));
    let history = History {
        requests: vec![&refused, &again, &other],
        gateways: vec![(&again, &part), (&refused, &part), (&other, &late)],
        labels: [("nginx-8080".into(), "gateway".to_owned())].into(),
        pids: [("nginx-8080".into(), 700)].into(),
        to: 1000 * MS,
        version: "0",
        ..History::default()
    };
    let trace = history.encode(usize::MAX).expect("small enough");
    let told = told(&trace);
    let gateway = told.find("M 700/").expect("a process of the gateway");
    expect![[r#"
        M 700/ 0+ process_name name="nginx-8080"
        M 700/ 0+ process_labels labels="gateway"
        M 700/ 0+ process_sort_index sort_index=1
        X 700/1 100000+95000 m after_s=0.005 before_s=0.01 id="aa" joined_by="trace" requests="1, 2" status="ok"
        X 700/1 100000+10000 before
        X 700/1 110000+10000 engine
        X 700/1 120000+5000 between
        X 700/1 125000+65000 engine
        X 700/1 190000+5000 after
        s 700/1 110000+ asks
        f 1/1 110000+ asks
        s 700/1 125000+ asks
        f 1/1 125000+ asks
        M 700/1 0+ thread_name name="exchanges"
        M 700/1 0+ thread_sort_index sort_index=1"#]].assert_eq(&told[gateway..]);
    assert!(
        told.starts_with(
            "M 1/ 0+ process_name name=\"vllm-8000\"\nM 1/ 0+ process_sort_index sort_index=2\n"
        )
    );
    let trace: Value = serde_json::from_slice(&trace).expect("JSON");
    assert_eq!(nests(&trace), Ok(()));
}

#[test]
fn nothing_is_drawn_of_which_nothing_is_known() {
    expect![""].assert_eq(&told(&encode(&[], &[])));
    // Neither a track of steps, nor a slice for a phase that is not known or not in order.
    let backwards = request("1", [Some(100), Some(90), Some(150), None, Some(195)]);
    let without = request("2", [None, None, None, None, Some(5)]);
    let trace = encode(&[backwards, without], &[]);
    expect![[r#"
        M 1/ 0+ process_name name="vllm-8000"
        M 1/ 0+ process_sort_index sort_index=1
        M 1/1 0+ thread_name name="requests"
        M 1/1 0+ thread_sort_index sort_index=1
        X 1/1 100000+95000 m id="1" input_tokens=38 output_tokens=6 status="ok""#]]
    .assert_eq(&told(&trace));
    let trace: Value = serde_json::from_slice(&trace).expect("JSON");
    assert_eq!(trace["otherData"]["requests"], 1);
    assert_eq!(trace["otherData"]["requests_without_times"], 1);
}

#[test]
fn whom_a_request_stood_still_for_is_an_arrow() {
    let blamed = request("aa", [Some(100), Some(150), Some(180), Some(300), Some(301)]);
    let mut victim = request("bb", [Some(90), Some(100), Some(120), Some(170), Some(171)]);
    let diagnosis = json!({"cause": "interference", "queue": 0.0, "prefill": 0.0, "decode": 1.0, "interference": 0.5, "client": 0.0,
        "interference_s": 0.02, "interference_by": [
            {"id": "aa", "response_id": null, "seconds": 0.02}, {"id": "gone", "response_id": null, "seconds": 0.01}],
        "client_stall_s": null, "in_flight_at_arrival": 1, "running_at_arrival": 1, "source": "engine"});
    victim.diagnosis = serde_json::from_value(diagnosis).expect("a diagnosis");
    let trace: Value = serde_json::from_slice(&encode(&[blamed, victim], &[])).expect("JSON");
    let arrows: Vec<&Value> = events(&trace)
        .filter(|event| event["cat"] == "interference")
        .collect();
    let [from, to] = arrows[..] else {
        panic!("one arrow: {arrows:?}")
    };
    assert_eq!(
        (&from["ph"], &from["ts"], &from["tid"]),
        (&json!("s"), &json!(150_000), &json!(2))
    );
    assert_eq!(
        (&to["ph"], &to["ts"], &to["tid"]),
        (&json!("f"), &json!(170_000), &json!(1))
    );
    assert_eq!((&from["id"], &to["bp"]), (&to["id"], &json!("e")));
    assert!(from["id"].is_string(), "{from}");
}

#[test]
fn what_is_not_known_any_more_is_said() {
    let history = History {
        from: 100 * MS,
        to: 200 * MS,
        requests_from: Some(150 * MS),
        moments_from: Some(50 * MS),
        unix_us_at_zero: Some(-5),
        version: "0",
        ..History::default()
    };
    let trace = history.encode(10_000).expect("small enough");
    assert!(
        told(&trace).ends_with("i 1/ 150000+ older requests are not known any more"),
        "{}",
        told(&trace)
    );
    let trace: Value = serde_json::from_slice(&trace).expect("JSON");
    let about = json!({"made_by": "infertap 0", "clock": "CLOCK_MONOTONIC", "from_us": 100_000, "to_us": 200_000, "requests": 0,
        "requests_without_times": 0, "unix_us_at_zero": -5, "requests_known_from_us": 150_000, "moments_known_from_us": 50_000});
    assert_eq!(trace["otherData"], about);
}

#[test]
fn a_trace_past_its_limit_is_refused() {
    let requests: Vec<RequestRecord> = (0..100)
        .map(|id| request(&id.to_string(), [Some(1), Some(2), Some(3), Some(4), Some(5)]))
        .collect();
    let whole = encode(&requests, &[]).len();
    let history = History {
        requests: requests.iter().collect(),
        ..History::default()
    };
    assert_eq!(history.encode(whole / 2), Err(TooLarge { limit: whole / 2 }));
    assert!(history.encode(whole + 100).is_ok());
}

/// Slices of a lane nest or do not touch.
fn nests(trace: &Value) -> Result<(), String> {
    let mut open: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for event in events(trace).filter(|event| event["ph"] == "X") {
        let number = |key: &str| event[key].as_u64().ok_or_else(|| format!("no {key}: {event}"));
        let (from, lane) = (
            number("ts")?,
            open.entry((number("pid")?, number("tid")?)).or_default(),
        );
        let to = from + number("dur")?;
        // They come in the order in which they open, the outer one first.
        while lane.last().is_some_and(|(_, end)| *end <= from) {
            lane.pop();
        }
        if let Some((begin, end)) = lane.last()
            && (from < *begin || to > *end)
        {
            return Err(format!("{event} leaves {begin}..{end}"));
        }
        lane.push((from, to));
    }
    Ok(())
}

fn point() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 6 => (0_u64..40).prop_map(Some)]
}

proptest! {
    /// Whatever the points, in whatever order and however close.
    #[test]
    fn slices_nest(
        points in proptest::collection::vec([point(), point(), point(), point(), point()], 0..20),
        steps in proptest::collection::vec((proptest::option::of(0_u64..40), 0_u64..40), 0..10),
        parts in proptest::collection::vec((0_u64..4, point(), point()), 0..20),
    ) {
        let mut requests: Vec<RequestRecord> = points
            .iter()
            .enumerate()
            .map(|(id, points)| request(&format!("{id:02}"), *points))
            .collect();
        for record in &mut requests {
            // Not whole microseconds.
            for at in [&mut record.t0_ns, &mut record.t1_ns, &mut record.t2_ns, &mut record.t3_ns, &mut record.t4_ns] {
                *at = at.map(|at| at / MS * 333);
            }
        }
        let moments: Vec<Moment> = steps.iter().map(|(start, end)| step(*start, *end, None)).collect();
        let parts: Vec<GatewayPart> = parts
            .iter()
            .map(|(id, begin, end)| {
                let mut part = through(&format!("{id:02}"), *begin, *end);
                for at in [&mut part.t0_ns, &mut part.t4_ns] {
                    *at = at.map(|at| at / MS * 333);
                }
                part
            })
            .collect();
        let history = History {
            requests: requests.iter().collect(),
            gateways: requests.iter().zip(&parts).collect(),
            moments: moments.iter().collect(),
            ..History::default()
        };
        let trace = history.encode(usize::MAX).expect("small enough");
        let trace: Value = serde_json::from_slice(&trace).expect("JSON");
        prop_assert_eq!(nests(&trace), Ok(()));
    }
}
