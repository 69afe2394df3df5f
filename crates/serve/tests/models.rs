//! Models on candle behind the server: what clients get is what the model writes alone.

use gpulab_nn::gpt::{LanguageModel, Sampling, Text};
use gpulab_nn::llama::{ChatModel, WeightDtype, write_practice};
use gpulab_nn::{Device, Gpu};
use gpulab_serve::Limits;
use gpulab_serve::server::{BatchedModel, CandleModel, Options, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

fn options() -> Options {
    let limits = Limits { sequences: 4, step_tokens: 24, ..Limits::default() };
    Options { address: ([127, 0, 0, 1], 0).into(), limits, blocks: 40, block_size: 8, ..Options::default() }
}

fn start(path: &Path) -> Server {
    let options = options();
    let (model, text) = CandleModel::load(path, &Device::Cpu).unwrap().with_cache(&options).unwrap();
    Server::start(model, text, options).unwrap()
}

fn post(address: SocketAddr, path: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let head = "host: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length";
    write!(stream, "POST {path} HTTP/1.1\r\n{head}: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Several clients at once, with parts of prompts beside answers: each gets what `alone` writes.
fn clients_get_what_the_model_writes_alone(server: &Server, alone: &(dyn Fn(&str, usize) -> String + Sync)) {
    let prompts =
        ["The warp waits for memory, and ", "The warp waits", "A block of 32 threads is the least that a scheduler"];
    std::thread::scope(|scope| {
        for (number, prompt) in prompts.iter().enumerate() {
            scope.spawn(move || {
                let most = 6 + 3 * number;
                let body = json!({"prompt": prompt, "max_tokens": most, "temperature": 0});
                let answer = post(server.address(), "/v1/completions", &body);
                assert_eq!(answer["choices"][0]["text"], alone(prompt, most), "{prompt}: {answer}");
            });
        }
    });
    let (free, blocks) = server.audit().unwrap();
    assert_eq!(free, blocks);
}

#[test]
fn the_courses_gpt_is_served() {
    let model = LanguageModel::course(&Device::Cpu).unwrap();
    let server = start(&Text::folder());
    let alone = |prompt: &str, most| {
        let all = model.generate(&[prompt], most, Sampling::Greedy, &mut |_, _| {}).unwrap();
        all[0].text.clone()
    };
    clients_get_what_the_model_writes_alone(&server, &alone);
    // It reads bytes, and was never tuned to answer.
    let chat = post(server.address(), "/v1/chat/completions", &json!({"messages": [{"role": "user", "content": "x"}]}));
    assert!(chat["error"]["message"].as_str().unwrap().contains("POST /v1/completions"), "{chat}");
    let seeded = json!({"prompt": "The ", "max_tokens": 20, "temperature": 0.9, "seed": 5});
    let twice = [0, 1].map(|_| post(server.address(), "/v1/completions", &seeded)["choices"].clone());
    assert_eq!(twice[0], twice[1]);
}

#[test]
fn a_llama_from_a_gguf_file_is_served_with_its_chat_template() {
    let path = std::env::temp_dir().join(format!("gpulab-serve-{}.gguf", std::process::id()));
    write_practice(&path).unwrap();
    let model = ChatModel::load(&path, &Device::Cpu, WeightDtype::AsStored).unwrap();
    let server = start(&path);
    let alone = |prompt: &str, most| {
        let all = model.generate(&[prompt], most, Sampling::Greedy, &mut |_, _| {}).unwrap();
        all[0].text.clone()
    };
    clients_get_what_the_model_writes_alone(&server, &alone);
    let messages = json!([{"role": "user", "content": "hello"}]);
    let body = json!({"messages": messages, "max_tokens": 8, "temperature": 0});
    let chat = post(server.address(), "/v1/chat/completions", &body);
    let mut alone = model.chat(None, 200).unwrap();
    let wanted = alone.ask(&model, "hello", 8, Sampling::Greedy, &mut |_| {}).unwrap();
    assert_eq!(chat["choices"][0]["message"]["content"], wanted.text);
    let read = chat["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(read > "hello".len() as u64, "the template adds its own tokens: {chat}");
    drop(server);
    std::fs::remove_file(&path).unwrap();
    let missing = CandleModel::load(&path, &Device::Cpu).err().unwrap().to_string();
    assert!(missing.contains("\nnext: "), "{missing}");
}

#[test]
fn a_llama_on_the_courses_kernels_answers_each_client_as_if_it_were_alone() {
    let path = std::env::temp_dir().join(format!("gpulab-serve-batched-{}.gguf", std::process::id()));
    write_practice(&path).unwrap();
    let gpu = Gpu::simulated().unwrap();
    let options = Options { limits: Limits { context: 64, ..options().limits }, ..options() };
    let (model, text) = BatchedModel::load(&path, &gpu, 64).unwrap().with_cache(&options).unwrap();
    let server = Server::start(model, text, options).unwrap();
    std::fs::remove_file(&path).unwrap();
    let bodies = [
        json!({"prompt": "A warp", "max_tokens": 2, "temperature": 0}),
        json!({"prompt": "Sums", "max_tokens": 3, "temperature": 0.8, "seed": 3}),
    ];
    let ask = |body: &Value| post(server.address(), "/v1/completions", body)["choices"].clone();
    let alone: Vec<Value> = bodies.iter().map(ask).collect();
    assert!(alone.iter().all(|choices| choices[0]["text"].is_string()), "{alone:?}");
    let together: Vec<Value> = std::thread::scope(|scope| {
        let asked: Vec<_> = bodies.iter().map(|body| scope.spawn(|| ask(body))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
    let (free, blocks) = server.audit().unwrap();
    assert_eq!(free, blocks);
}
