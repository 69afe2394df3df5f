//! The thread that makes the model's steps, and what requests and steps share.

use super::metrics::{Exposition, Histogram};
use super::model::{SamplingParams, ServedModel, TextCodec};
use super::options::Options;
use crate::scheduler::{Finish, Refusal, Request, RequestId, Scheduler, SequenceEvent, Step};
use gpulab_measure::Result;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What a request hears of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Token(u32),
    Finished(Finish),
    /// The model failed on this text.
    Failed(String),
    /// The model failed on a step of many texts, as for lack of memory, and this one gave way.
    Shed(String),
    /// It took too long.
    Late,
    /// The server stops.
    Stopped,
}

/// Why a request is not taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    Refused(Refusal),
    /// The server is about to stop.
    Stopping,
}

/// A request that was taken: its answer comes out here, and whoever drops it has gone away.
pub(super) struct Ticket {
    pub id: RequestId,
    // It ends with anything but a token; no more than the answer's tokens ever wait here.
    pub answer: UnboundedReceiver<Answer>,
    shared: Arc<Shared>,
}

impl Ticket {
    /// Ends the request as one that was answered: at a stop sequence, which the model does not know.
    pub fn stop(&mut self) {
        self.shared.lock().finish(self.id);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.clients.contains_key(&self.id) {
            state.cancelled += 1;
            state.leave(self.id);
        }
    }
}

/// The model's thread, and the way to it.
pub(super) struct Engine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    answer_limit: Duration,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    scheduler: Scheduler,
    clients: HashMap<RequestId, Client>,
    /// What the model has to hear before its next step.
    new: Vec<(RequestId, SamplingParams)>,
    gone: Vec<RequestId>,
    /// To the thread that passes answers on: to wake a client's task takes microseconds, in which the model would stand still.
    teller: mpsc::Sender<(UnboundedSender<Answer>, Answer)>,
    stopping: bool,
    ended: bool,
    cancelled: u64,
    failed: u64,
    first_token: Histogram,
    whole: Histogram,
    step: Histogram,
    cache_bytes: u64,
}

struct Client {
    answer: UnboundedSender<Answer>,
    arrived: Instant,
    deadline: Instant,
    any: bool,
}

impl Shared {
    /// A panic elsewhere leaves the books whole: each change of them is made under one lock, without a call to foreign code.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn leave(&mut self, id: RequestId) {
        self.scheduler.cancel(id);
        self.clients.remove(&id);
        self.gone.push(id);
    }

    fn finish(&mut self, id: RequestId) {
        if let Some(client) = self.clients.get(&id) {
            self.whole.add(client.arrived.elapsed().as_secs_f64());
            self.leave(id);
        }
    }

    fn tell(&mut self, id: RequestId, answer: Answer) {
        if let Some(client) = self.clients.get(&id) {
            // The teller lives as long as this state does.
            let _ = self.teller.send((client.answer.clone(), answer));
        }
    }

    fn fail(&mut self, id: RequestId, why: Answer) {
        self.failed += 1;
        self.tell(id, why);
        self.leave(id);
    }

    fn late(&mut self) {
        let now = Instant::now();
        let late: Vec<RequestId> =
            self.clients.iter().filter(|(_, client)| client.deadline <= now).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| self.fail(id, Answer::Late));
    }

    fn take_in(&mut self, step: &Step, given: Vec<Result<u32>>, text: &dyn TextCodec) {
        let asked = step.pieces.iter().filter(|piece| piece.samples).map(|piece| piece.id);
        let mut chosen = Vec::new();
        for (id, token) in asked.zip(given) {
            chosen.push(*token.as_ref().unwrap_or(&0));
            if let Err(error) = token {
                self.fail(id, Answer::Failed(error.to_string()));
            }
        }
        for event in self.scheduler.complete(step, &chosen, &|token| text.ends(token)) {
            match event {
                SequenceEvent::Token(id, token) => {
                    let Some(client) = self.clients.get_mut(&id) else { continue };
                    if !client.any {
                        client.any = true;
                        self.first_token.add(client.arrived.elapsed().as_secs_f64());
                    }
                    self.tell(id, Answer::Token(token));
                }
                SequenceEvent::Finished(id, finish) => {
                    self.tell(id, Answer::Finished(finish));
                    self.finish(id);
                }
            }
        }
    }
}

impl Engine {
    /// Starts the thread.
    pub fn start(mut model: Box<dyn ServedModel>, text: Arc<dyn TextCodec>, options: &Options) -> Result<Engine> {
        let limits = crate::Limits { context: options.limits.context.min(text.context()), ..options.limits };
        let (teller, told) = mpsc::channel::<(UnboundedSender<Answer>, Answer)>();
        std::thread::spawn(move || {
            for (client, answer) in told {
                // Nobody listens where the client has just gone away; its ticket says so in a moment.
                let _ = client.send(answer);
            }
        });
        let state = State {
            scheduler: Scheduler::new(limits, options.blocks, options.block_size)?
                .with_chunked_prefill(options.chunked_prefill.unwrap_or(limits.step_tokens)),
            clients: HashMap::new(),
            new: Vec::new(),
            gone: Vec::new(),
            teller,
            stopping: false,
            ended: false,
            cancelled: 0,
            failed: 0,
            first_token: Histogram::default(),
            whole: Histogram::default(),
            step: Histogram::default(),
            cache_bytes: model.cache_bytes(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), work: Condvar::new() });
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || work(&of_thread, model.as_mut(), text.as_ref()));
        Ok(Engine { shared, thread: Mutex::new(Some(thread)), answer_limit: options.answer_limit })
    }

    /// The longest text that is served.
    pub fn context(&self) -> usize {
        self.shared.lock().scheduler.limits().context
    }

    /// Takes a request on.
    pub fn submit(&self, request: Request, sampling: SamplingParams) -> std::result::Result<Ticket, Denied> {
        let mut state = self.shared.lock();
        if state.stopping {
            return Err(Denied::Stopping);
        }
        let id = state.scheduler.submit(request).map_err(Denied::Refused)?;
        let (sender, answer) = unbounded_channel();
        let arrived = Instant::now();
        let deadline = arrived + self.answer_limit;
        state.clients.insert(id, Client { answer: sender, arrived, deadline, any: false });
        state.new.push((id, sampling));
        self.shared.work.notify_one();
        Ok(Ticket { id, answer, shared: self.shared.clone() })
    }

    /// In how many seconds a place in the queue should be free: one of the batch ends that often, on average.
    pub fn retry_after(&self) -> u64 {
        let state = self.shared.lock();
        let each = state.whole.mean().unwrap_or(1.0) / state.scheduler.limits().sequences as f64;
        (each.ceil() as u64).clamp(1, 60)
    }

    /// Takes nothing on any more; what was taken on is answered.
    pub fn drain(&self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_one();
    }

    /// Ends the thread; who is still waiting for an answer hears so.
    pub fn stop(&self) {
        {
            let mut state = self.shared.lock();
            (state.stopping, state.ended) = (true, true);
            let ids: Vec<RequestId> = state.clients.keys().copied().collect();
            ids.into_iter().for_each(|id| state.fail(id, Answer::Stopped));
            self.shared.work.notify_one();
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Whether the server is about to stop.
    pub fn is_stopping(&self) -> bool {
        self.shared.lock().stopping
    }

    /// Blocks that are free and all blocks, where the books agree; what is wrong else.
    pub fn audit(&self) -> std::result::Result<(usize, usize), String> {
        let state = self.shared.lock();
        state.scheduler.audit().map(|()| (state.scheduler.pool().free(), state.scheduler.pool().blocks()))
    }

    /// Batch, queue and cache, for the page.
    pub fn status(&self) -> Value {
        let state = self.shared.lock();
        let (scheduler, counters) = (&state.scheduler, state.scheduler.counters());
        let batch: Vec<Value> = scheduler
            .running()
            .map(|one| {
                json!({"id": one.id.0, "prompt": one.prompt, "read": one.read, "answered": one.answered,
                    "blocks": one.blocks})
            })
            .collect();
        let pool = scheduler.pool();
        json!({
            "batch": batch,
            "waiting": scheduler.waiting(),
            "limits": {"batch": scheduler.limits().sequences, "queue": scheduler.limits().queue,
                "context": scheduler.limits().context, "step_tokens": scheduler.limits().step_tokens,
                "chunked_prefill": scheduler.chunked_prefill()},
            "cache": {"blocks": pool.blocks(), "free": pool.free(), "idle": pool.idle(),
                "idle_blocks": pool.idle_blocks().collect::<Vec<_>>(),
                "block_size": pool.block_size(), "bytes": state.cache_bytes},
            "counters": {"steps": counters.steps, "computed_tokens": counters.computed_tokens,
                "reused_tokens": counters.reused_tokens, "answer_tokens": counters.answer_tokens,
                "preemptions": counters.preemptions, "cancelled": state.cancelled, "failed": state.failed},
            "step_s": state.step.mean(),
            "first_token_s": state.first_token.mean(),
        })
    }

    /// The same for Prometheus.
    pub fn show(&self, to: &mut Exposition) {
        let state = self.shared.lock();
        let (scheduler, counters) = (&state.scheduler, state.scheduler.counters());
        let pool = scheduler.pool();
        let held = pool.blocks() - pool.free();
        to.one("queue", "gauge", "Requests that wait.", scheduler.waiting());
        to.one("batch", "gauge", "Requests in the batch.", scheduler.batch());
        to.labelled(
            "cache_blocks",
            "gauge",
            "Blocks of the KV cache: held by requests, idle with a known prefix, empty.",
            &[
                ("state=\"held\"", held as u64),
                ("state=\"idle\"", pool.idle() as u64),
                ("state=\"empty\"", (pool.free() - pool.idle()) as u64),
            ],
        );
        to.one("cache_bytes", "gauge", "Bytes of all blocks.", state.cache_bytes);
        for (name, help, value) in [
            ("steps_total", "Steps of the model.", counters.steps),
            ("computed_tokens_total", "Tokens that were computed, of prompts and answers.", counters.computed_tokens),
            ("reused_tokens_total", "Tokens of prompts that were found in the cache.", counters.reused_tokens),
            ("answer_tokens_total", "Tokens of answers.", counters.answer_tokens),
            ("preemptions_total", "Requests whose blocks were taken away for a while.", counters.preemptions),
            ("cancelled_total", "Requests whose client went away.", state.cancelled),
            ("failed_total", "Requests that failed in the model, took too long, or were cut off.", state.failed),
        ] {
            to.one(name, "counter", help, value);
        }
        to.histogram("first_token_seconds", "From a request to its first token.", &state.first_token);
        to.histogram("answer_seconds", "From a request to the end of its answer.", &state.whole);
        to.histogram("step_seconds", "A step of the model.", &state.step);
    }
}

/// Step after step, until the server stops.
fn work(shared: &Shared, model: &mut dyn ServedModel, text: &dyn TextCodec) {
    while let Some((step, new, gone)) = next(shared) {
        gone.into_iter().for_each(|id| model.end(id));
        for (id, sampling) in new {
            if let Err(error) = model.begin(id, sampling) {
                shared.lock().fail(id, Answer::Failed(error.to_string()));
            }
        }
        let begin = Instant::now();
        let given = catch_unwind(AssertUnwindSafe(|| model.step(&step)));
        let mut state = shared.lock();
        state.step.add(begin.elapsed().as_secs_f64());
        let why = match given {
            Ok(Ok(given)) => {
                state.take_in(&step, given, text);
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the model panicked\nnext: the log has the place".to_string(),
        };
        // The youngest gives way, and the others try again without it: each step that fails makes the next one smaller.
        let youngest = step.pieces.iter().map(|piece| piece.id).max();
        tracing::error!(request = youngest.map(|id| id.0), texts = step.pieces.len(), "a step failed: {why}");
        if let Some(id) = youngest {
            state.fail(id, Answer::Shed(why));
        }
    }
}

type Next = (Step, Vec<(RequestId, SamplingParams)>, Vec<RequestId>);

/// After how long without a request memory that is free goes back to the system.
const IDLE: Duration = Duration::from_millis(200);

/// Waits until there is something to compute; `None` at the end.
fn next(shared: &Shared) -> Option<Next> {
    let mut state = shared.lock();
    let mut given_back = false;
    loop {
        if state.ended || (state.stopping && state.scheduler.is_idle()) {
            return None;
        }
        state.late();
        let step = state.scheduler.plan();
        if !step.is_empty() {
            let (new, gone) = (std::mem::take(&mut state.new), std::mem::take(&mut state.gone));
            return Some((step, new, gone));
        }
        if given_back {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let (locked, waited) = shared.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = locked;
        if waited.timed_out() {
            drop(state);
            give_memory_back();
            given_back = true;
            state = shared.lock();
        }
    }
}

/// glibc keeps what was freed between blocks that are still in use, here some megabytes of activations and texts.
fn give_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
