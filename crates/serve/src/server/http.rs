//! What is answered at which path.

use super::api::{Ask, Interface, Problem, Prompt, Shape, Usage, reason};
use super::engine::{Answer, Denied, Engine, Ticket};
use super::metrics::{Exposition, Statuses};
use super::model::TextCodec;
use super::options::Options;
use super::writer::Writer;
use crate::scheduler::{Refusal, Request as Wanted};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PAGE: &str = include_str!("page.html");
const ROUTES: &str =
    "POST /v1/chat/completions, POST /v1/completions, GET /v1/models, /healthz, /metrics, /status or /";
/// A comment in a stream, so that nobody between takes a request that waits for one that is dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What all requests share.
pub(super) struct App {
    pub engine: Engine,
    pub text: Arc<dyn TextCodec>,
    options: Options,
    statuses: Mutex<Statuses>,
    /// Drawn when the server starts: request ids of two runs differ.
    run: u64,
    requests: AtomicU64,
    started: u64,
}

impl App {
    pub fn new(engine: Engine, text: Arc<dyn TextCodec>, options: Options) -> App {
        App {
            engine,
            text,
            options,
            statuses: Mutex::default(),
            run: RandomState::new().hash_one(0),
            requests: AtomicU64::new(0),
            started: now(),
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The request's id, as logs and answers have it.
#[derive(Debug, Clone)]
struct Label(Arc<str>);

type Shared = State<Arc<App>>;

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .fallback(nowhere)
        .method_not_allowed_fallback(other_method)
        .layer(from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

// ----------------------------------------------------------------------
// Before and behind every request: its id, who may ask, what is logged and counted.

async fn guard(State(app): Shared, mut request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let label = label(&app, request.headers());
    request.extensions_mut().insert(Label(label.clone()));
    let (method, path) = (request.method().clone(), request.uri().path().to_string());
    let mut response = match may_ask(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let value = HeaderValue::from_str(&label).expect("ids are letters, digits and dashes");
    response.headers_mut().insert(REQUEST_ID, value);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let status = response.status().as_u16();
    app.statuses.lock().unwrap_or_else(PoisonError::into_inner).add(route(&path), status);
    let ms = 1e3 * begin.elapsed().as_secs_f64();
    // What asks every second is not told at the usual level.
    match matches!(path.as_str(), "/healthz" | "/metrics" | "/status") {
        true => tracing::debug!(request_id = %label, %method, path, status, ms, "request"),
        false => tracing::info!(request_id = %label, %method, path, status, ms, "request"),
    }
    response
}

/// The client's own id where it is one, else a new one.
fn label(app: &App, headers: &HeaderMap) -> Arc<str> {
    let is_plain = |text: &&str| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(is_plain) {
        Some(own) => own.into(),
        None => format!("{:08x}-{}", app.run as u32, app.requests.fetch_add(1, Ordering::Relaxed)).into(),
    }
}

/// A path of this server, or one name for all others: clients do not name our metrics.
fn route(path: &str) -> &'static str {
    const KNOWN: [&str; 7] =
        ["/", "/healthz", "/metrics", "/status", "/v1/models", "/v1/chat/completions", "/v1/completions"];
    KNOWN.into_iter().find(|known| *known == path).unwrap_or("other")
}

fn may_ask(app: &App, request: &Request) -> Result<(), Problem> {
    if matches!(request.uri().path(), "/" | "/healthz") {
        return Ok(());
    }
    let header = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(token) = &app.options.token else {
        // A page of another server could have its own name lead to this machine.
        let host = header(header::HOST).unwrap_or("localhost");
        let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
        return match matches!(name, "localhost" | "127.0.0.1" | "[::1]") {
            true => Ok(()),
            false => Err(Problem::new(
                403,
                "without a token this server answers only to its own machine's names",
                "ask http://127.0.0.1, or start the server with a token (GPULAB_SERVE_TOKEN, or --token-file)",
            )),
        };
    };
    let given = header(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    match given {
        Some(given) if same(given.trim().as_bytes(), token.as_bytes()) => Ok(()),
        Some(_) => Err(Problem::new(401, "this is not the server's token", "send the one that it was started with")),
        None => Err(Problem::new(
            401,
            "this server asks for a token",
            "send the header `Authorization: Bearer TOKEN`; OpenAI's clients call it api_key",
        )),
    }
}

/// In a time that does not depend on where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).expect("the statuses in this module are HTTP's");
        let mut response = (status, Json(self.json())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == 401 {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

struct Json(Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0.to_string()).into_response()
    }
}

// ----------------------------------------------------------------------
// What watches and lists.

async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)];
    (headers, PAGE).into_response()
}

async fn healthz(State(app): Shared) -> Response {
    match app.engine.is_stopping() {
        true => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "stopping"}))).into_response(),
        false => Json(json!({"status": "ok"})).into_response(),
    }
}

async fn metrics(State(app): Shared) -> Response {
    let mut text = Exposition::default();
    app.engine.show(&mut text);
    app.statuses.lock().unwrap_or_else(PoisonError::into_inner).show(&mut text);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text.text()).into_response()
}

async fn status(State(app): Shared) -> Json {
    let mut status = app.engine.status();
    status["model"] = app.text.name().into();
    status["gpu"] = app.options.gpu.as_ref().map_or(Value::Null, |gpu| {
        let gpu = gpu.lock().unwrap_or_else(PoisonError::into_inner);
        json!({"name": gpu.name, "utilization_percent": gpu.utilization_percent, "memory_used_bytes": gpu.memory_used_bytes,
            "memory_total_bytes": gpu.memory_total_bytes, "power_w": gpu.power_w})
    });
    Json(status)
}

fn description(app: &App) -> Value {
    json!({"id": app.text.name(), "object": "model", "created": app.started, "owned_by": "gpulab"})
}

async fn models(State(app): Shared) -> Json {
    Json(json!({"object": "list", "data": [description(&app)]}))
}

async fn model(State(app): Shared, Path(name): Path<String>) -> Result<Json, Problem> {
    match name == app.text.name() {
        true => Ok(Json(description(&app))),
        false => Err(Problem::new(404, "there is no such model here", "GET /v1/models lists what there is")),
    }
}

async fn nowhere() -> Problem {
    Problem::new(404, "there is nothing at this path", &format!("use {ROUTES}"))
}

async fn other_method(method: Method) -> Problem {
    Problem::new(405, format!("{method} is not what this path takes"), &format!("use {ROUTES}"))
}

// ----------------------------------------------------------------------
// Answers.

async fn chat(State(app): Shared, Extension(label): Extension<Label>, request: Request) -> Result<Response, Problem> {
    answer(app, label, request, Interface::Chat).await
}

async fn completions(
    State(app): Shared,
    Extension(label): Extension<Label>,
    request: Request,
) -> Result<Response, Problem> {
    answer(app, label, request, Interface::Completions).await
}

async fn answer(app: Arc<App>, label: Label, request: Request, interface: Interface) -> Result<Response, Problem> {
    let body = body(&app, request).await?;
    let ask = Ask::read(&body, interface, app.text.name())?;
    let (stream, usage) = (ask.stream, ask.usage);
    let of_thread = app.clone();
    // Minutes of work for a tokenizer would fit into a body; other requests do not wait for it.
    let (wanted, ask) = tokio::task::spawn_blocking(move || wanted(&of_thread, &ask).map(|wanted| (wanted, ask)))
        .await
        .map_err(|error| Problem::new(500, format!("the tokenizer failed: {error}"), "send another text"))??;
    let prompt = wanted.prompt.len();
    let ticket = app.engine.submit(wanted, ask.sampling).map_err(|denied| denied_as(&app, denied))?;
    let kind = if interface == Interface::Chat { "chatcmpl" } else { "cmpl" };
    let shape =
        Shape { interface, id: format!("{kind}-{}", label.0), model: app.text.name().to_string(), created: now() };
    let reply = Reply {
        ticket,
        writer: Writer::new(ask.stops),
        usage: Usage { prompt, answer: 0 },
        label,
        begin: Instant::now(),
        outcome: "cancelled",
        app,
    };
    match stream {
        true => Ok(streamed(reply, shape, usage)),
        false => whole(reply, shape).await,
    }
}

/// The request's body, when it is JSON, arrives in time, and is not too long.
async fn body(app: &App, request: Request) -> Result<Bytes, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // A browser asks this server before a page of another one may send JSON, and text it sends at once.
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let next = "send the header `Content-Type: application/json`";
        return Err(Problem::new(415, "the body is not said to be JSON", next));
    }
    let most = app.options.body_bytes;
    let too_long = || {
        let what = format!("the body has more than {most} bytes");
        Problem::new(413, what, "send a shorter prompt, or start the server with --body-kib")
    };
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|length| length > most as u64) {
        return Err(too_long());
    }
    let read = tokio::time::timeout(app.options.read_limit, to_bytes(request.into_body(), most));
    match read.await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if format!("{error:?}").contains("LengthLimit") => Err(too_long()),
        Ok(Err(_)) => Err(Problem::new(400, "the body is cut off", "send as many bytes as Content-Length says")),
        Err(_) => {
            let what = format!("the body did not arrive within {} s", app.options.read_limit.as_secs());
            Err(Problem::new(408, what, "send the request again, at once"))
        }
    }
}

/// The prompt's tokens, and how many may follow.
fn wanted(app: &App, ask: &Ask) -> Result<Wanted, Problem> {
    let read = |text: &str| app.text.encode(text);
    let prompt = match &ask.prompt {
        Prompt::Turns(turns) => app.text.chat(turns).and_then(|text| read(&text)),
        Prompt::Text(text) => read(text),
        Prompt::Tokens(tokens) => Ok(tokens.clone()),
    };
    let prompt = prompt.map_err(|error| Problem::told(400, error.to_string()))?;
    if let Some(token) = prompt.iter().find(|token| **token as usize >= app.text.vocabulary()) {
        let what = format!("the prompt names token {token}, and the model has {}", app.text.vocabulary());
        return Err(Problem::new(400, what, "send text, or tokens of this model").of("prompt"));
    }
    let room = app.engine.context().saturating_sub(prompt.len());
    // Where the prompt leaves no room, the scheduler says so.
    let most_new = ask.most_new.unwrap_or_else(|| room.clamp(1, app.options.most_new));
    Ok(Wanted::new(prompt, most_new))
}

fn denied_as(app: &App, denied: Denied) -> Problem {
    match denied {
        Denied::Stopping => Problem {
            retry_after: Some(app.options.stop_limit.as_secs().max(1)),
            ..Problem::new(503, "the server is about to stop", "send the request again when it is back")
        },
        Denied::Refused(refusal @ Refusal::QueueFull { .. }) => {
            let seconds = app.engine.retry_after();
            Problem { retry_after: Some(seconds), ..Problem::told(429, refusal.to_string()) }
        }
        Denied::Refused(refusal) => Problem::told(400, refusal.to_string()),
    }
}

/// One answer on its way. Dropped before its end, it takes its request out of the batch.
struct Reply {
    app: Arc<App>,
    ticket: Ticket,
    writer: Writer,
    usage: Usage,
    label: Label,
    begin: Instant,
    outcome: &'static str,
}

/// What comes next of an answer.
enum Part {
    Text(String),
    /// The rest of the text, and why it is over.
    End(String, &'static str),
    Failed(Problem),
}

impl Reply {
    async fn next(&mut self) -> Part {
        loop {
            // The engine says how each answer ends before it lets go of it.
            let heard = self.ticket.answer.recv().await.unwrap_or(Answer::Stopped);
            let seconds = self.app.options.answer_limit.as_secs();
            let failed = |status, what: String, next: &str| Part::Failed(Problem::new(status, what, next));
            let part = match heard {
                Answer::Token(token) => {
                    self.usage.answer += 1;
                    let (text, stopped) = self.writer.push(&*self.app.text, token);
                    if stopped {
                        self.ticket.stop();
                        Part::End(text, "stop")
                    } else if text.is_empty() {
                        continue;
                    } else {
                        Part::Text(text)
                    }
                }
                Answer::Finished(finish) => Part::End(self.writer.finish(&*self.app.text), reason(finish)),
                Answer::Failed(why) => Part::Failed(Problem::told(500, why)),
                Answer::Shed(why) => {
                    let seconds = self.app.engine.retry_after();
                    // What an error tells to do is for who runs the server, and stands in its log.
                    let what = why.split("\nnext: ").next().unwrap_or_default();
                    let next = format!("send it again after {seconds} s, as Retry-After says, when fewer are served");
                    let what = format!("this request gave way to others in a step that failed: {what}");
                    Part::Failed(Problem { retry_after: Some(seconds), ..Problem::new(503, what, &next) })
                }
                Answer::Late => failed(
                    504,
                    format!("the answer was not complete after {seconds} s"),
                    "ask for fewer tokens (`max_tokens`), or when fewer requests are served",
                ),
                Answer::Stopped => {
                    failed(503, "the server has stopped".to_string(), "send the request again when it is back")
                }
            };
            match &part {
                Part::End(_, reason) => self.outcome = reason,
                Part::Failed(_) => self.outcome = "failed",
                Part::Text(_) => {}
            }
            return part;
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        tracing::info!(
            request_id = %self.label.0,
            outcome = self.outcome,
            prompt_tokens = self.usage.prompt,
            answer_tokens = self.usage.answer,
            ms = 1e3 * self.begin.elapsed().as_secs_f64(),
            "answer"
        );
    }
}

async fn whole(mut reply: Reply, shape: Shape) -> Result<Response, Problem> {
    let mut text = String::new();
    loop {
        match reply.next().await {
            Part::Text(more) => text.push_str(&more),
            Part::End(more, reason) => {
                text.push_str(&more);
                return Ok(Json(shape.whole(&text, reason, reply.usage)).into_response());
            }
            Part::Failed(problem) => return Err(problem),
        }
    }
}

/// Server-sent events: a piece of the text in each, and `[DONE]` at the end.
struct Events {
    reply: Reply,
    shape: Shape,
    usage: bool,
    ready: VecDeque<Bytes>,
    over: bool,
}

impl Events {
    fn send(&mut self, value: &Value) {
        self.ready.push_back(format!("data: {value}\n\n").into());
    }

    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Events)> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some((Ok(ready), self));
            }
            if self.over {
                return None;
            }
            match tokio::time::timeout(KEEP_ALIVE, self.reply.next()).await {
                Err(_) => self.ready.push_back(Bytes::from_static(b": waiting\n\n")),
                Ok(Part::Text(text)) => self.send(&self.shape.more(&text)),
                Ok(Part::End(text, reason)) => {
                    if !text.is_empty() {
                        self.send(&self.shape.more(&text));
                    }
                    self.send(&self.shape.end(reason));
                    if self.usage {
                        self.send(&self.shape.usage(self.reply.usage));
                    }
                    self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
                    self.over = true;
                }
                // The status was sent long ago.
                Ok(Part::Failed(problem)) => {
                    self.send(&problem.json());
                    self.over = true;
                }
            }
        }
    }
}

fn streamed(reply: Reply, shape: Shape, usage: bool) -> Response {
    let mut events = Events { reply, shape, usage, ready: VecDeque::new(), over: false };
    if let Some(begin) = events.shape.begin() {
        events.send(&begin);
    }
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(stream::unfold(events, Events::next))).into_response()
}
