//! Content of requests: no secret of the redactor's corpus is found where it must not be, by a search for its bytes.
//!
//! Owns: sending the corpus as prompts and having it answered, and looking through all that the agent writes and serves. Refuses:
//! how well the redactor finds (its own tests).

use super::*;
use infertap::store::Reader;
use infertap_tests::http;
use infertap_tests::receive::{Faults, Reply, Request, Server, Service, elastic::Elastic, loki::Loki};
use std::sync::{Arc, Mutex};

/// Credentials as clients send them; made up.
const HEADERS: [(&str, &str); 6] = [
    ("Authorization", "Bearer hdr4uthorization9Zq2LmXv7Tk"),
    ("Proxy-Authorization", "Basic aGRyUHJveHk6aGRyOVNlY3JldA=="),
    ("Cookie", "session=hdrc00kie5Rw8YpNc3Jd; theme=dark"),
    ("X-Api-Key", "hdr4pikey6Bn1VtGs0Hf"),
    ("api-key", "hdr4zurekey2Mk9PqWe4Ui"),
    ("X-Goog-Api-Key", "hdrgooglekey7Xc3Za8Lo"),
];
const CREDENTIALS: [&str; 6] = [
    "hdr4uthorization9Zq2LmXv7Tk",
    "aGRyUHJveHk6aGRyOVNlY3JldA==",
    "hdrc00kie5Rw8YpNc3Jd",
    "hdr4pikey6Bn1VtGs0Hf",
    "hdr4zurekey2Mk9PqWe4Ui",
    "hdrgooglekey7Xc3Za8Lo",
];

/// A text of the corpus and the secrets in it.
fn corpus() -> Vec<(String, Vec<String>)> {
    let text = include_str!("../../../agent/core/tests/redaction/corpus.txt");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let line = line.replace('‖', "").replace('␤', "\n");
            let (mut text, mut secrets) = (String::new(), Vec::new());
            let mut rest = &*line;
            while let Some((before, marked)) = rest.split_once('⟦') {
                let (marked, after) = marked.split_once('⟧').unwrap();
                let (_, secret) = marked.split_once(' ').unwrap();
                text.extend([before, secret]);
                secrets.push(secret.to_owned());
                rest = after;
            }
            (text + rest, secrets)
        })
        .collect()
}

/// A server whose own files are not among those that are looked through.
fn apart(folder: &Path) -> ServerProcess {
    let own = folder.join("server");
    std::fs::create_dir(&own).unwrap();
    server(&own, &[])
}

/// Takes what another service takes, and notes every body that comes.
struct Noting<S> {
    inner: S,
    faults: Faults,
    bodies: Mutex<Vec<u8>>,
}

impl<S: Service> Service for Noting<S> {
    fn handle(&self, request: &Request) -> Reply {
        self.bodies.lock().unwrap().extend(request.decoded().unwrap());
        self.inner.handle(request)
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// Takes spans. What they must look like is tested where the exporter is.
#[derive(Default)]
struct Spans(Faults);

impl Service for Spans {
    fn handle(&self, _: &Request) -> Reply {
        Reply::text(200, "").with("Content-Type", "application/x-protobuf")
    }

    fn faults(&self) -> &Faults {
        &self.0
    }
}

/// A destination and what came to it.
struct Destination<S> {
    server: Server,
    noting: Arc<Noting<S>>,
}

impl<S: Service> Destination<S> {
    fn start(inner: S) -> Destination<S> {
        let noting = Arc::new(Noting {
            inner,
            faults: Faults::default(),
            bodies: Mutex::default(),
        });
        let server = Server::start(&noting).unwrap();
        Destination { server, noting }
    }

    fn came(&self) -> Vec<u8> {
        self.noting.bodies.lock().unwrap().clone()
    }
}

/// All destinations that records may be sent to over HTTP. The file of lines is among the agent's own.
struct Destinations {
    loki: Destination<Loki>,
    elastic: Destination<Elastic>,
    spans: Destination<Spans>,
}

impl Destinations {
    fn start() -> Destinations {
        Destinations {
            loki: Destination::start(Loki::default()),
            elastic: Destination::start(Elastic::default()),
            spans: Destination::start(Spans::default()),
        }
    }

    /// What sends records to them and to `records.jsonl` in this folder.
    fn config(&self, folder: &Path) -> String {
        format!(
            "[loki]\nendpoint = {:?}\n[elasticsearch]\nendpoint = {:?}\n[otlp]\nendpoint = {:?}\n\
             [json_lines]\npath = \"{}\"\n",
            self.loki.server.url(),
            self.elastic.server.url(),
            self.spans.server.url(),
            folder.join("records.jsonl").display(),
        )
    }

    /// Waits until all of them have so many records, and tells what came.
    fn came(&self, agent: &Agent, records: usize) -> Vec<(String, Vec<u8>)> {
        for exporter in ["loki", "elasticsearch", "otlp", "json_lines"] {
            wait(agent, exporter, || {
                let labels = [("exporter", exporter), ("outcome", "sent")];
                let sent = agent
                    .metrics()
                    .unwrap()
                    .sum("infertap_export_records_total", &labels);
                sent > records as f64 - 0.5
            });
        }
        let came = [
            ("Loki", self.loki.came()),
            ("Elasticsearch", self.elastic.came()),
            ("OTLP", self.spans.came()),
        ];
        came.map(|(name, bytes)| (name.to_owned(), bytes)).into()
    }
}

/// An agent that keeps every record and the content in this mode, sends them everywhere, and logs all that it can.
fn keeper(folder: &Path, server: &ServerProcess, mode: &str, to: &Destinations) -> Agent {
    let path = folder.join("content.toml");
    let store = folder.join("store.db");
    let text = format!(
        "[store]\npath = \"{}\"\n[records]\nhead_rate = 1.0\nunusual_after = 0\nper_minute = 10000\n\
         [content]\nmode = \"{mode}\"\n[log]\nlevel = \"trace\"\n{}",
        store.display(),
        to.config(folder)
    );
    std::fs::write(&path, text).unwrap();
    let store = format!("store.path={}", store.display());
    let arguments = [
        "--config",
        path.to_str().unwrap(),
        "--set",
        &store,
        "--set",
        "log.level=trace",
    ];
    watch(folder, server, &arguments).0
}

/// Sends every text, and has it said back in pieces that cut secrets; as many records as there are texts are then kept.
fn converse(agent: &Agent, server: &ServerProcess, cases: &[(String, Vec<String>)]) {
    let mut connection = Connection::open(&server.address).unwrap();
    for (number, (text, _)) in cases.iter().enumerate() {
        let chars: Vec<char> = text.chars().collect();
        let say: Vec<String> = chars.chunks(7).map(|piece| piece.iter().collect()).collect();
        let script = json!({"chunks": say.len(), "say": say});
        let extra = json!({"stream": number % 4 > 0, "script": script});
        let mut plan = traced(Plan::chat("content", "model-a", text, &extra), number);
        let headers = HEADERS.iter();
        plan.headers
            .extend(headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let truth = connection.exchange(&plan);
        assert_eq!(truth.outcome, Outcome::Complete, "{text}");
    }
    let made = |side: &str| {
        let labels = [("side", side), ("outcome", "kept")];
        agent.metrics().unwrap().sum("infertap_content_total", &labels)
    };
    wait(agent, "not all content is kept", || {
        made("input").min(made("output")) > cases.len() as f64 - 0.5
    });
}

/// All that the agent has written and serves, each with its name: files as they are, and what is compressed in them.
fn written(folder: &Path, agent: &Agent) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let binary = std::env::var_os(infertap_tests::agent::BINARY_VARIABLE).unwrap();
    for command in [
        &["requests", "--json", "--limit", "1000"][..],
        &["requests", "--limit", "1000"],
    ] {
        let output = std::process::Command::new(&binary)
            .args(command)
            .arg("--config")
            .arg(folder.join("content.toml"))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        all.push((command.join(" "), output.stdout));
    }
    for path in [
        "/api/v1/requests?limit=1000",
        "/api/v1/engines",
        "/metrics",
        "/api/v1/cost",
    ] {
        let answer = http::get(&agent.address, path).unwrap();
        all.push((path.to_owned(), answer.body.into_bytes()));
    }
    for body in bodies(folder) {
        all.push(("a record, decompressed".to_owned(), body));
    }
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    for file in files.filter(|file| file.is_file()) {
        all.push((file.display().to_string(), std::fs::read(&file).unwrap()));
    }
    let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
    for needed in ["store.db", "store.db-wal", "agent.log", "records.jsonl"] {
        assert!(
            names.iter().any(|name| name.ends_with(needed)),
            "{needed} of {names:?}"
        );
    }
    all
}

/// The records as they are in the store.
fn bodies(folder: &Path) -> Vec<Vec<u8>> {
    let reader = Reader::open(&folder.join("store.db")).unwrap();
    let packed: Vec<Vec<u8>> = reader
        .read(|db| {
            let mut rows = db.prepare("SELECT body FROM request_record")?;
            rows.query_map([], |row| row.get(0))?.collect()
        })
        .unwrap();
    let unpack = |body: Vec<u8>| zstd::bulk::decompress(&body, 16 << 20).unwrap();
    packed.into_iter().map(unpack).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

/// A text as it is, and as JSON has it.
fn forms(text: &str) -> [String; 2] {
    let json = json!(text).to_string();
    [text.to_owned(), json.trim_matches('"').to_owned()]
}

#[test]
fn no_secret_is_found_in_what_is_redacted() {
    /// Shorter ones are by chance among the digits of times: `88888888`.
    const LONG: usize = 10;
    let folder = tempfile::tempdir().unwrap();
    let server = apart(folder.path());
    let destinations = Destinations::start();
    let agent = keeper(folder.path(), &server, "redacted", &destinations);
    let cases = corpus();
    converse(&agent, &server, &cases);

    let sent = destinations.came(&agent, cases.len());
    for (name, bytes) in &sent {
        let (harmless, _) = cases
            .iter()
            .find(|(text, secrets)| {
                secrets.is_empty() && text.len() > LONG && forms(text)[0] == forms(text)[1]
            })
            .unwrap();
        assert!(holds(bytes, harmless), "{name} has content: {harmless}");
    }
    let mut written = written(folder.path(), &agent);
    written.extend(sent);
    let bytes: usize = written.iter().map(|(_, bytes)| bytes.len()).sum();
    let secrets = || cases.iter().flat_map(|(_, secrets)| secrets);
    let long: Vec<&String> = secrets().filter(|secret| secret.len() >= LONG).collect();
    for (name, bytes) in &written {
        for secret in long.iter().map(|secret| secret.as_str()).chain(CREDENTIALS) {
            assert!(
                !forms(secret).iter().any(|form| holds(bytes, form)),
                "{secret} is in {name}"
            );
        }
    }
    // Short ones too are not in the content of their own requests; and what is no secret is there, so this looks at what it should.
    let mut harmless = 0;
    for body in bodies(folder.path()) {
        let record: Value = serde_json::from_slice(&body).unwrap();
        let number =
            u64::from_str_radix(record["trace_id"].as_str().unwrap(), 16).unwrap() as usize - 0xabc_0000;
        let (text, secrets) = &cases[number];
        let content = record["content"].to_string();
        for secret in secrets {
            assert!(
                !forms(secret).iter().any(|form| holds(content.as_bytes(), form)),
                "{secret} is in {content}"
            );
        }
        for side in ["input", "output"] {
            let kept = &record["content"][side]["messages"][0]["parts"][0]["content"];
            assert!(kept.is_string(), "{side} of {record}");
            harmless += usize::from(secrets.is_empty() && kept == text);
        }
    }
    let without = cases.iter().filter(|(_, secrets)| secrets.is_empty()).count();
    assert_eq!(harmless, 2 * without, "look-alikes are kept as they were");
    println!(
        "{} requests with {} secrets ({} of {LONG} bytes or more): none of them in {bytes} bytes of {} files, answers, records and exports",
        cases.len(),
        secrets().count(),
        long.len(),
        written.len(),
    );
}

#[test]
fn credentials_of_headers_are_nowhere_even_where_all_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = apart(folder.path());
    let destinations = Destinations::start();
    let agent = keeper(folder.path(), &server, "full", &destinations);
    let cases = &corpus()[..40];
    converse(&agent, &server, cases);
    let sent = destinations.came(&agent, cases.len());
    let mut written = written(folder.path(), &agent);
    written.extend(sent);
    for (name, bytes) in &written {
        for credential in CREDENTIALS {
            assert!(!holds(bytes, credential), "{credential} is in {name}");
        }
    }
    let kept = bodies(folder.path());
    for (text, _) in cases {
        let [_, json] = forms(text);
        assert!(kept.iter().any(|body| holds(body, &json)), "full keeps {text}");
    }
    // A change takes effect while the agent runs.
    let path = folder.path().join("content.toml");
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace("\"full\"", "\"hash\"");
    std::fs::write(&path, text).unwrap();
    wait(&agent, "the change is not read", || {
        let metrics = agent.metrics().unwrap();
        metrics.sum("infertap_config_reloads_total", &[("outcome", "applied")]) > 0.5
    });
    let before = kept.len();
    let mut connection = Connection::open(&server.address).unwrap();
    let prompt = "marker-of-a-hashed-prompt";
    for _ in 0..2 {
        let plan = Plan::chat(
            "content",
            "model-a",
            prompt,
            &json!({"stream": true, "script": {"chunks": 2}}),
        );
        assert_eq!(connection.exchange(&plan).outcome, Outcome::Complete);
    }
    wait(&agent, "the records are not there", || {
        bodies(folder.path()).len() == before + 2
    });
    let hashes: Vec<Value> = bodies(folder.path())
        .iter()
        .map(|body| serde_json::from_slice::<Value>(body).unwrap())
        .filter(|record| record["content"]["mode"] == "hash")
        .map(|record| record["content"]["input"]["hash"].clone())
        .collect();
    assert_eq!(hashes.len(), 2);
    assert!(
        hashes[0].is_string() && hashes[0] == hashes[1],
        "equal prompts have equal hashes"
    );
    assert!(!bodies(folder.path()).iter().any(|body| holds(body, prompt)));
}
