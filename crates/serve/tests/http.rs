//! The server through its socket: right answers, faults of clients and of the model, and nothing lost by any of them.

use gpulab_serve::server::{Babble, GpuReading, Options, SamplingParams, ServedModel, Server};
use gpulab_serve::{Error, Limits, RequestId, Result, Step};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCKS: usize = 64;

fn options() -> Options {
    let limits = Limits { sequences: 8, step_tokens: 64, queue: 64, context: 512, ..Limits::default() };
    let address = ([127, 0, 0, 1], 0).into();
    Options { address, limits, blocks: BLOCKS, block_size: 8, stop_limit: Duration::from_secs(2), ..Options::default() }
}

fn babble(options: &Options, wait_ms: u64) -> Box<Babble> {
    Box::new(Babble::new(options.blocks, options.block_size, Duration::from_millis(wait_ms)))
}

/// A server whose steps take that long.
fn start(options: Options, wait_ms: u64) -> Server {
    let model = babble(&options, wait_ms);
    Server::start(model, Babble::text(), options).unwrap()
}

/// An answer: status, head in small letters, body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap().to_string()
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Reads one answer, whatever comes behind it.
fn receive(stream: &mut impl BufRead) -> Answer {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "the connection ended: {head:?}");
    }
    let head = head.to_lowercase();
    let field =
        |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_string());
    let mut body = Vec::new();
    if let Some(length) = field("content-length:") {
        body.resize(length.parse().unwrap(), 0);
        stream.read_exact(&mut body).unwrap();
    } else if field("transfer-encoding:").is_some() {
        while let Some(chunk) = chunk(stream) {
            body.extend(chunk);
        }
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: String::from_utf8(body).unwrap() }
}

/// One chunk of a stream; nothing at its end.
fn chunk(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let length = usize::from_str_radix(line.trim(), 16).unwrap();
    let mut chunk = vec![0; length + 2];
    stream.read_exact(&mut chunk).unwrap();
    chunk.truncate(length);
    (length > 0).then_some(chunk)
}

fn send(stream: &mut TcpStream, method: &str, path: &str, headers: &str, body: &[u8]) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
}

fn request(server: &Server, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let mut stream = connect(server);
    send(&mut stream, method, path, headers, body);
    receive(&mut BufReader::new(stream))
}

const JSON: &str = "content-type: application/json\r\n";

fn post(server: &Server, path: &str, body: &Value) -> Answer {
    request(server, "POST", path, JSON, body.to_string().as_bytes())
}

fn get(server: &Server, path: &str) -> Answer {
    request(server, "GET", path, "", b"")
}

fn completion(server: &Server, prompt: &str, most: usize) -> Answer {
    post(server, "/v1/completions", &json!({"prompt": prompt, "max_tokens": most}))
}

/// Waits until nobody is served any more; then all blocks must be free.
fn nothing_is_lost(server: &Server) {
    let until = Instant::now() + Duration::from_secs(30);
    while server.audit().unwrap() != (BLOCKS, BLOCKS) {
        assert!(Instant::now() < until, "blocks were lost: {:?}", server.audit());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number of `/metrics`.
fn metric(server: &Server, name: &str) -> f64 {
    let text = get(server, "/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("gpulab_serve_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

fn events(answer: &Answer) -> Vec<Value> {
    let lines: Vec<&str> = answer.body.split("\n\n").filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.last(), Some(&"data: [DONE]"), "{}", answer.body);
    lines[..lines.len() - 1]
        .iter()
        .map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

#[test]
fn answers_have_the_form_of_openais() {
    let server = start(options(), 0);
    let wanted = Babble::answer("The warp", 40);
    let answer = completion(&server, "The warp", 40).json();
    assert_eq!(answer["choices"][0]["text"], wanted);
    assert_eq!((answer["object"].as_str(), answer["model"].as_str()), (Some("text_completion"), Some("babble")));
    assert_eq!(
        (answer["usage"]["prompt_tokens"].as_u64(), answer["usage"]["completion_tokens"].as_u64()),
        (Some(8), Some(wanted.len() as u64))
    );

    let turns = json!([{"role": "developer", "content": "short"}, {"role": "user", "content": [{"type": "text", "text": "hello"}]}]);
    let wanted = Babble::answer("system: short\nuser: hello\nassistant:", 12);
    let body = json!({"model": "babble", "messages": turns, "max_completion_tokens": 12, "temperature": 0, "n": 1, "user": "me"});
    let chat = post(&server, "/v1/chat/completions", &body).json();
    assert_eq!(chat["choices"][0]["message"], json!({"role": "assistant", "content": wanted}));
    assert_eq!(
        (chat["object"].as_str(), chat["choices"][0]["finish_reason"].as_str()),
        (Some("chat.completion"), Some("length"))
    );
    assert!(chat["id"].as_str().unwrap().starts_with("chatcmpl-") && chat["created"].as_u64().unwrap() > 1_700_000_000);

    let models = get(&server, "/v1/models").json();
    assert_eq!(models["data"][0]["id"], "babble");
    assert_eq!(get(&server, "/v1/models/babble").json(), models["data"][0]);
    let tokens: Vec<u8> = "The warp".bytes().collect();
    let by_tokens = post(&server, "/v1/completions", &json!({"prompt": tokens, "max_tokens": 40})).json();
    assert_eq!(by_tokens["choices"], answer["choices"]);
    nothing_is_lost(&server);
}

#[test]
fn a_stream_gives_the_same_text_and_its_usage() {
    let server = start(options(), 0);
    let body = |stream| json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 50, "stream": stream, "stream_options": {"include_usage": true}});
    let whole = post(&server, "/v1/chat/completions", &body(false)).json();
    let stream = post(&server, "/v1/chat/completions", &body(true));
    assert!(stream.head.contains("content-type: text/event-stream"), "{}", stream.head);
    let events = events(&stream);
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    let [.., end, usage] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(end["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
    assert_eq!((&usage["usage"], &usage["choices"]), (&whole["usage"], &json!([])));
    let body = json!({"prompt": "hello", "max_tokens": 20, "stream": true});
    let stream = self::events(&post(&server, "/v1/completions", &body));
    let text: String = stream.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, Babble::answer("hello", 20));
    nothing_is_lost(&server);
}

#[test]
fn a_stop_sequence_ends_the_answer_and_is_no_part_of_it() {
    let server = start(options(), 0);
    let all = Babble::answer("stop here", 60);
    let stop = &all[10..13];
    for stream in [false, true] {
        let body = json!({"prompt": "stop here", "max_tokens": 60, "stop": [stop, "%"], "stream": stream});
        let answer = post(&server, "/v1/completions", &body);
        let choices: Vec<Value> = if stream { events(&answer) } else { vec![answer.json()] };
        let text: String = choices.iter().filter_map(|one| one["choices"][0]["text"].as_str()).collect();
        assert_eq!(text, all[..all.find(stop).unwrap()]);
        assert_eq!(choices.last().unwrap()["choices"][0]["finish_reason"], "stop");
    }
    nothing_is_lost(&server);
    assert_eq!(metric(&server, "cancelled_total"), 0.0);
}

#[test]
fn many_clients_get_what_each_would_alone_and_half_of_them_go_away() {
    // A cache that is too small for all of them: blocks are taken away, and beginnings are shared.
    let server = start(Options { limits: Limits { queue: 1000, ..options().limits }, ..options() }, 0);
    std::thread::scope(|scope| {
        for client in 0..12 {
            let server = &server;
            scope.spawn(move || {
                for number in 0..25 {
                    let prompt =
                        format!("{} request {number} of {client}", "the same long beginning ".repeat(number % 4));
                    let most = 5 + 7 * number;
                    if number % 2 == 0 {
                        let answer = completion(server, &prompt, most);
                        assert_eq!(answer.status, 200, "{}", answer.body);
                        assert_eq!(answer.json()["choices"][0]["text"], Babble::answer(&prompt, most), "{prompt}");
                        continue;
                    }
                    let body = json!({"prompt": prompt, "max_tokens": 300, "stream": number % 3 == 0}).to_string();
                    let mut stream = connect(server);
                    send(&mut stream, "POST", "/v1/completions", JSON, body.as_bytes());
                    if number % 5 == 0 {
                        let _ = stream.read(&mut [0; 300]);
                    }
                }
            });
        }
    });
    nothing_is_lost(&server);
    assert!(metric(&server, "reused_tokens_total") > 0.0 && metric(&server, "failed_total") == 0.0);
}

#[test]
fn each_fault_of_a_client_has_a_status_and_a_reason_that_says_what_to_do() {
    let server = start(Options { body_bytes: 4096, ..options() }, 0);
    let chat = "/v1/chat/completions";
    let long = format!("{{\"prompt\": \"{}\"}}", "a".repeat(600));
    let huge = format!("{{\"prompt\": \"{}\"}}", "a".repeat(5000));
    let nested = format!("{{\"prompt\": {}1{}}}", "[".repeat(1000), "]".repeat(1000));
    let cases: &[(&str, &[u8], u16, &str)] = &[
        (chat, b"", 400, "no JSON"),
        (chat, b"{\"messages\": [", 400, "no JSON: EOF"),
        (chat, b"{} {}", 400, "no JSON: trailing"),
        (chat, b"[1]", 400, "a list of 1, and an object"),
        (chat, b"{\"messages\": \"\xff\"}", 400, "not UTF-8: byte 14 is 0xff"),
        (chat, b"{}", 400, "`messages` is missing"),
        (chat, b"{\"messages\": []}", 400, "at least one message"),
        (chat, b"{\"messages\": [5]}", 400, "`messages[0]` is the number 5"),
        (
            chat,
            b"{\"messages\": [{\"role\": \"cat\", \"content\": \"x\"}]}",
            400,
            "`messages[0].role` is the string \"cat\"",
        ),
        (chat, b"{\"messages\": [{\"role\": \"user\"}]}", 400, "`messages[0].content` is null"),
        (
            chat,
            b"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
            400,
            "parts of type `text`",
        ),
        (
            chat,
            b"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"max_token\": 5}",
            400,
            "no field `max_token`",
        ),
        ("/v1/completions", b"{\"prompt\": 5}", 400, "`prompt` is the number 5"),
        ("/v1/completions", b"{\"prompt\": \"\"}", 400, "the prompt has no tokens"),
        ("/v1/completions", b"{\"prompt\": [1, -2]}", 400, "token numbers"),
        ("/v1/completions", b"{\"prompt\": [100000]}", 400, "names token 100000"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"max_tokens\": 0}", 400, "`max_tokens` is the number 0"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"max_tokens\": \"5\"}", 400, "`max_tokens` is the string \"5\""),
        ("/v1/completions", b"{\"prompt\": \"a\", \"max_tokens\": 1e30}", 400, "`max_tokens` is the number 1e+30"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"max_tokens\": 600}", 400, "at most 511 tokens"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"temperature\": 3}", 400, "a number from 0 to 2"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"top_p\": true}", 400, "`top_p` is true"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"stream\": 1}", 400, "true or false"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"stop\": [\"\"]}", 400, "at most four"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"n\": 2}", 400, "`n` other than 1"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"logprobs\": 5}", 400, "`logprobs` other than false"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"model\": \"gpt-4\"}", 404, "no model `gpt-4`"),
        ("/v1/completions", b"{\"prompt\": \"a\", \"seed\": \"x\"}", 400, "a whole number"),
        ("/v1/completions", long.as_bytes(), 400, "shorten the prompt to at most 511"),
        ("/v1/completions", huge.as_bytes(), 413, "more than 4096 bytes"),
        ("/v1/completions", nested.as_bytes(), 400, "recursion limit"),
        ("/v1/embeddings", b"{}", 404, "nothing at this path"),
        ("/v1/models", b"{}", 405, "POST is not what"),
    ];
    for (path, body, status, wanted) in cases {
        let answer = request(&server, "POST", path, JSON, body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]);
        assert_eq!(answer.status, *status, "{shown}: {}", answer.body);
        let message = answer.message();
        assert!(message.contains(wanted) && message.contains("\nnext: "), "{shown}: {message}");
    }
    let text = request(&server, "POST", chat, "content-type: text/plain\r\n", b"{}");
    assert!(text.status == 415 && text.message().contains("Content-Type: application/json"));
    let missing = get(&server, "/v1/models/gpt-4");
    assert!(missing.status == 404 && missing.message().contains("\nnext: "));
    // HTTP that is none, and a body without a length that is too long.
    let mut stream = connect(&server);
    stream.write_all(b"hello\r\n\r\n").unwrap();
    assert_eq!(receive(&mut BufReader::new(stream)).status, 400);
    let mut stream = connect(&server);
    let head = format!("POST {chat} HTTP/1.1\r\nhost: localhost\r\n{JSON}transfer-encoding: chunked\r\n\r\n1400\r\n");
    stream.write_all(&[head.as_bytes(), &[b'a'; 5120], b"\r\n"].concat()).unwrap();
    assert_eq!(receive(&mut BufReader::new(stream)).status, 413);
    assert_eq!(completion(&server, "still there", 5).status, 200);
    nothing_is_lost(&server);
}

#[test]
fn without_the_token_nobody_is_served() {
    let server = start(Options { token: Some("s3cret".to_string()), ..options() }, 0);
    let ask = |headers: &str, path| request(&server, "GET", path, headers, b"");
    for headers in
        ["", "authorization: Bearer s3cre\r\n", "authorization: Bearer s3cret7\r\n", "authorization: Basic s3cret\r\n"]
    {
        for path in ["/v1/models", "/metrics", "/status", "/nothing"] {
            let answer = ask(headers, path);
            assert!(answer.status == 401 && answer.head.contains("www-authenticate: bearer"), "{headers}{path}");
            assert!(answer.message().contains("\nnext: ") && !answer.body.contains("s3cret"));
        }
    }
    assert_eq!(ask("authorization: Bearer s3cret\r\n", "/v1/models").status, 200);
    assert_eq!((ask("", "/healthz").status, ask("", "/").status), (200, 200));
    let body = json!({"prompt": "a"}).to_string();
    assert_eq!(request(&server, "POST", "/v1/completions", JSON, body.as_bytes()).status, 401);
}

#[test]
fn a_page_of_another_server_cannot_ask() {
    let server = start(options(), 0);
    for (host, status) in
        [("evil.example", 403), ("evil.example:80", 403), ("127.0.0.1:9000", 200), ("[::1]:9000", 200)]
    {
        let mut stream = connect(&server);
        write!(stream, "GET /v1/models HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
        assert_eq!(receive(&mut BufReader::new(stream)).status, status, "{host}");
    }
    let open = Options { address: ([0, 0, 0, 0], 0).into(), ..options() };
    let refused = Server::start(babble(&open, 0), Babble::text(), open.clone()).err().unwrap().to_string();
    assert!(refused.contains("everybody on the network") && refused.contains("\nnext: "), "{refused}");
    let bad = Options { token: Some("a b".to_string()), ..open };
    assert!(Server::start(babble(&bad, 0), Babble::text(), bad).is_err());
    let taken = Options { address: server.address(), ..options() };
    let refused = Server::start(babble(&taken, 0), Babble::text(), taken).err().unwrap();
    assert!(matches!(&refused, Error::Unsupported { fix, .. } if fix.contains("--port")), "{refused}");
}

#[test]
fn silent_and_slow_clients_lose_their_connection_and_nobody_else_waits() {
    let limit = Duration::from_secs(2);
    let server = start(Options { read_limit: limit, ..options() }, 0);
    let begin = Instant::now();
    let mut silent = connect(&server);
    let mut slow_head = connect(&server);
    slow_head.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: loc").unwrap();
    let mut slow_body = connect(&server);
    write!(
        slow_body,
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n{JSON}content-length: 50\r\n\r\n{{\"prompt\""
    )
    .unwrap();
    let mut cut = connect(&server);
    write!(cut, "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n{JSON}content-length: 50\r\n\r\n{{").unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    assert_eq!(completion(&server, "others", 5).status, 200);
    assert!(begin.elapsed() < limit, "others waited");
    let answer = receive(&mut BufReader::new(slow_body));
    assert!(answer.status == 408 && answer.message().contains("\nnext: "), "{}", answer.body);
    for stream in [&mut silent, &mut slow_head] {
        // Closed, with an answer or without.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    assert!(begin.elapsed() < 10 * limit);
    assert_eq!(completion(&server, "others", 5).status, 200);
}

#[test]
fn when_the_client_goes_away_its_request_ends() {
    let server = start(options(), 5);
    for stream in [true, false] {
        let body = json!({"prompt": "a long answer", "max_tokens": 400, "stream": stream}).to_string();
        let mut client = connect(&server);
        send(&mut client, "POST", "/v1/completions", JSON, body.as_bytes());
        let until = Instant::now() + Duration::from_secs(30);
        while get(&server, "/status").json()["batch"].as_array().unwrap().is_empty() {
            assert!(Instant::now() < until);
        }
        drop(client);
        nothing_is_lost(&server);
    }
    assert_eq!(metric(&server, "cancelled_total"), 2.0);
    // 400 tokens would take two seconds.
    assert!(metric(&server, "steps_total") < 300.0);
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let limits = Limits { sequences: 1, queue: 1, ..options().limits };
    let server = start(Options { limits, ..options() }, 20);
    let body = json!({"prompt": "wait", "max_tokens": 400, "stream": true}).to_string();
    let mut clients = Vec::new();
    for inside in 1..=2 {
        let mut client = connect(&server);
        send(&mut client, "POST", "/v1/completions", JSON, body.as_bytes());
        clients.push(client);
        let there = || {
            let status = get(&server, "/status").json();
            status["batch"].as_array().unwrap().len() + status["waiting"].as_u64().unwrap() as usize
        };
        let until = Instant::now() + Duration::from_secs(30);
        while there() < inside || (inside == 1 && get(&server, "/status").json()["batch"] == json!([])) {
            assert!(Instant::now() < until);
        }
    }
    let refused = completion(&server, "me too", 5);
    assert_eq!(refused.status, 429, "{}", refused.body);
    let seconds = refused.head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=60).contains(&seconds.parse::<u64>().unwrap()));
    assert!(refused.message().contains("\nnext: ") && refused.json()["error"]["type"] == "rate_limit_error");
    drop(clients);
    nothing_is_lost(&server);
    assert_eq!(completion(&server, "me too", 5).status, 200);
}

#[test]
fn an_answer_that_takes_too_long_ends() {
    let server = start(Options { answer_limit: Duration::from_millis(100), ..options() }, 20);
    let answer = completion(&server, "long", 400);
    assert_eq!(answer.status, 504, "{}", answer.body);
    assert!(answer.message().contains("\nnext: "));
    nothing_is_lost(&server);
}

/// A model that fails: for lack of memory with more than two texts, by a panic, or on one text alone.
struct Frail(Box<Babble>);

impl ServedModel for Frail {
    fn begin(&mut self, id: RequestId, sampling: SamplingParams) -> Result<()> {
        match sampling.seed {
            13 => Err(Error::invalid("the seed 13", "take another")),
            _ => self.0.begin(id, sampling),
        }
    }

    fn step(&mut self, step: &Step) -> Result<Vec<Result<u32>>> {
        assert!(
            !step.pieces.iter().any(|piece| piece.tokens.starts_with(b"panic".map(u32::from).as_slice())),
            "as asked"
        );
        if step.pieces.len() > 2 {
            return Err(Error::OutOfMemory { asked: 2, free: 1, total: 1, reserved: 0 });
        }
        let mut given = self.0.step(step)?;
        let asked = step.pieces.iter().filter(|piece| piece.samples);
        for (piece, token) in asked.zip(&mut given) {
            if piece.tokens.starts_with(b"nan".map(u32::from).as_slice()) {
                *token = Err(Error::invalid("the logits are NaN", "load the model again"));
            }
        }
        Ok(given)
    }

    fn end(&mut self, id: RequestId) {
        self.0.end(id);
    }

    fn cache_bytes(&self) -> u64 {
        self.0.cache_bytes()
    }
}

#[test]
fn a_model_that_fails_loses_the_request_and_not_the_server() {
    let options = options();
    let server = Server::start(Box::new(Frail(babble(&options, 5))), Babble::text(), options).unwrap();
    let panicked = completion(&server, "panic", 5);
    assert!(panicked.status == 503 && panicked.message().contains("panicked"), "{}", panicked.body);
    assert!(panicked.message().ends_with("s, as Retry-After says, when fewer are served"), "{}", panicked.body);
    let nan = completion(&server, "nan", 5);
    assert!(nan.status == 500 && nan.message().contains("NaN"), "{}", nan.body);
    let seed = post(&server, "/v1/completions", &json!({"prompt": "a", "seed": 13}));
    assert!(seed.status == 500 && seed.message().contains("seed 13"), "{}", seed.body);
    let (mut shed, mut served) = (0, 0);
    std::thread::scope(|scope| {
        let ask = |number| completion(&server, &format!("{number} of many"), 30);
        let clients: Vec<_> = (0..6).map(|number| scope.spawn(move || ask(number))).collect();
        for (number, client) in clients.into_iter().enumerate() {
            let answer = client.join().unwrap();
            match answer.status {
                200 => {
                    assert_eq!(answer.json()["choices"][0]["text"], Babble::answer(&format!("{number} of many"), 30));
                    served += 1;
                }
                503 => {
                    assert!(answer.head.contains("retry-after: "));
                    let message = answer.message();
                    // To drop buffers, or to take a smaller batch, is nothing that a client can do.
                    let (what, next) = message.split_once("\nnext: ").unwrap();
                    assert!(
                        what.contains("out of device memory") && next.starts_with("send it again after "),
                        "{message}"
                    );
                    assert!(!message.contains("buffers"), "{message}");
                    shed += 1;
                }
                other => panic!("{other}: {}", answer.body),
            }
        }
    });
    assert!(served >= 2 && shed >= 1, "{served} served, {shed} shed");
    nothing_is_lost(&server);
    assert_eq!(completion(&server, "still there", 5).status, 200);
}

#[test]
fn a_server_that_stops_ends_its_answers_first() {
    let server = start(options(), 5);
    let body = json!({"prompt": "the last one", "max_tokens": 60, "stream": true}).to_string();
    let mut client = connect(&server);
    send(&mut client, "POST", "/v1/completions", JSON, body.as_bytes());
    let mut client = BufReader::new(client);
    let mut first = String::new();
    client.read_line(&mut first).unwrap();
    let address = server.address();
    let stopping = std::thread::spawn(move || server.stop());
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    stopping.join().unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(TcpStream::connect(address).is_err());
    // One that would take longer than it may is cut off, and says so.
    let server = start(Options { stop_limit: Duration::from_millis(100), ..options() }, 50);
    let mut client = connect(&server);
    send(
        &mut client,
        "POST",
        "/v1/completions",
        JSON,
        json!({"prompt": "x", "max_tokens": 400}).to_string().as_bytes(),
    );
    std::thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_request_has_an_id_and_what_happens_is_counted() {
    let server = start(options(), 0);
    let own = request(&server, "GET", "/v1/models", "x-request-id: mine-7\r\n", b"");
    assert!(own.head.contains("x-request-id: mine-7"), "{}", own.head);
    for unfit in ["x-request-id: a b\r\n", "", "x-request-id: \r\n"] {
        let given = request(&server, "GET", "/v1/models", unfit, b"").head;
        let id = given.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
        assert!(id.contains('-') && !id.contains(' '), "{id}");
    }
    completion(&server, "count", 20);
    completion(&server, "", 20);
    let text = get(&server, "/metrics").body;
    let tokens = Babble::answer("count", 20).len();
    for line in [
        "gpulab_serve_requests_total{route=\"/v1/completions\",status=\"200\"} 1".to_string(),
        "gpulab_serve_requests_total{route=\"/v1/completions\",status=\"400\"} 1".to_string(),
        format!("gpulab_serve_answer_tokens_total {tokens}"),
        "gpulab_serve_first_token_seconds_count 1".to_string(),
        "gpulab_serve_queue 0".to_string(),
    ] {
        assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
    }
    // Each name has its kind before it.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {family} ")), "{line}");
    }
    let status = get(&server, "/status").json();
    assert_eq!((&status["batch"], &status["cache"]["blocks"]), (&json!([]), &json!(BLOCKS)));
}

#[test]
fn the_status_tells_of_the_gpu_where_there_is_one() {
    let server = start(options(), 0);
    assert_eq!(get(&server, "/status").json()["gpu"], Value::Null);
    let gpu = Arc::new(Mutex::new(GpuReading { name: "NVIDIA H200".into(), ..GpuReading::default() }));
    let server = start(Options { gpu: Some(gpu.clone()), ..options() }, 0);
    let told = get(&server, "/status").json()["gpu"].clone();
    assert_eq!((&told["name"], &told["power_w"]), (&json!("NVIDIA H200"), &Value::Null));
    gpu.lock().unwrap().power_w = Some(512.5);
    assert_eq!(get(&server, "/status").json()["gpu"]["power_w"], json!(512.5));
}

#[test]
fn random_bodies_are_answered_or_refused_and_none_ends_the_server() {
    let server = start(options(), 0);
    let mut state = 7_u64;
    let mut below = move |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let seeds = [
        json!({"prompt": "The warp", "max_tokens": 9, "stream": true, "stop": ["a", "b"], "seed": 3}).to_string(),
        json!({"messages": [{"role": "user", "content": "é→😀"}], "temperature": 0.5, "top_p": 0.9, "n": 1})
            .to_string(),
    ];
    let pieces: [&[u8]; 12] =
        [b"{", b"}", b"[", b"]", b"\"", b"null", b"1e999", b"\\ud800", b"\xff", b"-0", b"\0", b":"];
    let mut counts = std::collections::BTreeMap::<u16, usize>::new();
    let mut stream = BufReader::new(connect(&server));
    for round in 0..1500 {
        let which = below(2);
        let mut body = seeds[which].clone().into_bytes();
        for _ in 0..below(4) {
            let at = below(body.len());
            match below(4) {
                0 => body[at] = below(256) as u8,
                1 => drop(body.drain(at..(at + 1 + below(8)).min(body.len()))),
                2 => drop(body.splice(at..at, pieces[below(pieces.len())].iter().copied())),
                _ => body.truncate(at + 1),
            }
            if body.is_empty() {
                body.push(b' ');
            }
        }
        let path = if which == 0 { "/v1/completions" } else { "/v1/chat/completions" };
        send(stream.get_mut(), "POST", path, JSON, &body);
        let answer = receive(&mut stream);
        assert!(matches!(answer.status, 200 | 400 | 404), "{round}: {}: {}", answer.status, answer.body);
        if answer.status != 200 {
            assert!(answer.message().contains("\nnext: "), "{}", answer.body);
        }
        *counts.entry(answer.status).or_default() += 1;
    }
    assert!(counts[&200] > 100 && counts[&400] > 100, "{counts:?}");
    nothing_is_lost(&server);
}
