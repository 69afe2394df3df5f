//! What can be typed behind `gpulab`, and what each option takes.
//!
//! All of it is there in every build, so that `--help` and the errors do not depend on the features.
#![cfg_attr(not(all(feature = "onnx", feature = "serve")), allow(dead_code))]

use clap::{Args, Parser, Subcommand, ValueEnum};
use gpulab_kernels::Size;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Looks at this machine for the course's notebooks, and does what must not happen in a notebook's own process
#[derive(Debug, Parser)]
#[command(name = "gpulab", version)]
pub struct Gpulab {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// What was found: CPU, GPUs, drivers, libraries, and how to add what is missing
    Verify {
        /// The same for programs
        #[arg(long)]
        json: bool,
    },
    /// Kernels that fault, an allocation that fails, and runs for a profiler to start
    #[command(subcommand)]
    Demo(Demo),
    /// Fetch images or a model
    #[command(subcommand)]
    Data(Data),
    /// Train the CNN of lesson 20 to read digits (`make train-cpu`, `make train-cuda`, `make train-mps`)
    Train(Train),
    /// Train a GPT on a text, the course's own or one of yours (`make train-gpt`)
    TrainGpt(TrainGpt),
    /// Continue a prompt with the course's GPT, or with a GPT-2 checkpoint
    Generate(Generate),
    /// Write the trained CNN and the small GPT as ONNX files (`make export-onnx`)
    #[command(args_conflicts_with_subcommands = true)]
    ExportOnnx(ExportOnnx),
    /// Latency and throughput of an ONNX file on every provider (`make trt-benchmark`)
    ///
    /// ONNX Runtime on the CPU, CUDA, TensorRT in fp32 and fp16, CoreML; those that are missing are named, each with the
    /// command that adds it. Without --model it is the CNN of lesson 20, beside candle.
    TrtBenchmark(TrtBenchmark),
    /// Judge a kernel for the contest of a class: CUDA C from the standard input, a line of JSON to the standard output
    Contest {
        /// transpose or row_sums
        task: String,
        /// Time it on the NVIDIA GPU, too
        #[arg(long)]
        gpu: bool,
    },
    /// Summarise results/metrics.csv: CPU against GPU by experiment (`make report`)
    Report(ReportOptions),
    /// Watch the GPUs: utilisation, memory, power, clocks, alerts; record, replay, export to Prometheus (`make monitor`)
    Monitor(Monitor),
    /// Serve a language model over HTTP as OpenAI's clients speak it, with a page to chat and to watch (`make serve`)
    Serve(Serve),
    /// Fully sharded training of lesson 61's network on ranks that torchrun, Slurm or MPI start (docs/cluster)
    TrainSharded(TrainSharded),
}

#[derive(Debug, Subcommand)]
pub enum Demo {
    /// A kernel that writes outside its buffer, and when that comes to light
    LateError,
    /// One run of each rung, for ncu and nsys: gpulab demo ladder 4194304 reduction/02_tree
    Ladder {
        /// One to three numbers, such as 4096, 32768x8192 or 4096x4096x4096
        #[arg(value_parser = Size::from_name)]
        size: Size,
        /// Paths of rungs, such as reduction/02_tree
        #[arg(required = true)]
        rungs: Vec<String>,
    },
    /// One launch of a kernel (const float *, float *, int), for compute-sanitizer
    Launch {
        /// A file with CUDA C
        file: PathBuf,
        /// The kernel's name
        kernel: String,
        /// How many elements
        #[arg(value_parser = count::<u32>)]
        n: u32,
    },
    /// What lesson 62 watches: a GPU idle, at work, copying, waiting; says what it does in the file that GPULAB_JOB names
    Load {
        /// The training that the lesson asks about, and nothing else
        #[arg(long)]
        case: bool,
    },
    /// The forward pass of the course's CNN in a process whose memory is limited
    OutOfMemory {
        /// Images
        #[arg(value_parser = count::<usize>)]
        batch: usize,
        /// MiB that the process may take beyond what it has
        #[arg(value_parser = clap::value_parser!(u64).range(..=MOST_MIB))]
        mib: u64,
    },
}

#[derive(Debug, Subcommand)]
pub enum Data {
    /// MNIST into data/mnist/, from mirrors or a data set of the Hugging Face hub (`make mnist`)
    Mnist {
        /// A data set that keeps the four IDX files
        #[arg(long, value_name = "OWNER/NAME")]
        hub: Option<String>,
    },
    /// A GPT-2 from the Hugging Face hub into models/hub/
    Gpt {
        /// The model, such as openai-community/gpt2
        #[arg(value_name = "OWNER/NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct Train {
    /// Where to compute; mps is a Mac's GPU
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// How often all images are gone through
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count::<u64>)]
    pub epochs: u64,
    /// Images of a step
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = count::<usize>)]
    pub batch_size: usize,
    /// The numbers that layers compute in; tf32 takes the course's kernels on an NVIDIA GPU
    #[arg(long, value_enum, default_value_t = TrainDtype::F32)]
    pub dtype: TrainDtype,
    /// Whose layers compute: without it the fastest for the device, which are the course's own on a CPU and on an NVIDIA GPU
    #[arg(long, value_enum)]
    pub kernels: Option<KernelChoice>,
    /// MNIST's folder; without it data/mnist, and where that is empty, generated digits
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The folder of the checkpoint, rows and plots [default: results]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What first values and the order of the images follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// AdamW's learning rate
    #[arg(long, value_name = "X", default_value_t = 1e-3, value_parser = positive)]
    pub learning_rate: f64,
    /// Steps from one checkpoint to the next [default: 100; 1000 for the course's kernels on an NVIDIA GPU]
    #[arg(long, value_name = "STEPS", value_parser = count::<u64>)]
    pub every: Option<u64>,
    /// Only the first N images to train on, and a sixth of that to test
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub images: Option<usize>,
    /// Continue from DIR/cnn-DEVICE.safetensors, which is written after each epoch, at --every and at Ctrl-C
    #[arg(long)]
    pub resume: bool,
}

#[derive(Debug, Args)]
pub struct TrainGpt {
    /// bytes: the course's own, which reads bytes; small: like lesson 22's, and larger, with a BPE tokenizer of 1024 tokens; gpt2: the shape
    /// of GPT-2's smallest, 124 million parameters, for a GPU
    #[arg(long, value_enum, default_value_t = GptModel::Bytes)]
    pub model: GptModel,
    /// Where to compute; mps is a Mac's GPU
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// Steps in all [default: 3000; small: 1000; gpt2: 2000]
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    pub steps: Option<u64>,
    /// Whole contexts of text that go through the model at once [default: 4; small and gpt2: 8]
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub batch_size: Option<usize>,
    /// Batches whose gradients are added up for one step [default: 1; gpt2: 4]
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub accumulate: Option<usize>,
    /// The highest learning rate; with --resume another one than before [default: 1.5e-3; small: 3e-3; gpt2: 6e-4]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub rate: Option<f64>,
    /// What forward and backward pass compute in; parameters, gradients and moments are f32. With --resume another one than before
    /// [default: f32; gpt2: bf16]
    #[arg(long, value_enum)]
    pub dtype: Option<GptDtype>,
    /// What makes the steps: the course's own kernels (heads of 64, bf16; on the CPU in the simulator, for a tiny model), candle, or candle's
    /// autograd with operators that are the course's kernels (the same models; on a GPU with candle built for CUDA) [default: kernels with
    /// --device cuda, where GPU and model allow it]
    #[arg(long, value_enum)]
    pub engine: Option<GptEngineChoice>,
    /// Layers in place of the model's
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub layers: Option<usize>,
    /// Heads in place of the model's
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub heads: Option<usize>,
    /// Width in place of the model's: the heads share it
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub width: Option<usize>,
    /// Context in place of the model's, in tokens
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub context: Option<usize>,
    /// Tokens of the vocabulary in place of the model's; 256 reads bytes
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub vocabulary: Option<usize>,
    /// What the first weights and the choice of pieces follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The text to learn [default: models/course/text.txt; small and gpt2: data/corpus/text.txt, where `make corpus` has made it]
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// A tokenizer.json, in place of one that learns from the text
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// The folder of the checkpoint, the model, the log, samples and plots [default: results/gpt]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Steps from one checkpoint to the next [default: 100; kernels on a GPU: 500]
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    pub every: Option<u64>,
    /// Held-out tokens that the loss is measured on [default: 131072, and all at the end]
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub held_out: Option<usize>,
    /// On the course's kernels: the same bits in each run, also in one that was stopped and resumed, for some of the speed
    #[arg(long)]
    pub deterministic: bool,
    /// Continue from DIR/checkpoint.safetensors, with the plan that it had; each engine goes on from another's
    #[arg(long)]
    pub resume: bool,
}

#[derive(Debug, Args)]
pub struct Generate {
    /// The folder of a GPT-2 checkpoint [default: models/course]
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Where to compute; mps is a Mac's GPU
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// What weights are kept as
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    pub dtype: Dtype,
    /// New tokens at most
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub tokens: usize,
    /// Always the likeliest token
    #[arg(long)]
    pub greedy: bool,
    /// What logits are divided by: below 1 likely tokens become likelier
    #[arg(long, value_name = "X", default_value_t = 0.8, value_parser = positive)]
    pub temperature: f64,
    /// Choose from the likeliest tokens that together have this probability
    #[arg(long, value_name = "X", default_value_t = 0.9, value_parser = share)]
    pub top_p: f64,
    /// The same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The text to continue
    pub prompt: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ExportOnnx {
    #[command(subcommand)]
    pub check: Option<Check>,
    /// One model alone; without it all of them. int8 is the CNN in 8 bits, by the ranges of images that it was trained on
    #[arg(value_enum)]
    pub model: Option<ModelChoice>,
    /// The trained CNN [default: the newest results/cnn-DEVICE.safetensors]
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// The small GPT, or `random`: 124 million random weights, to time [default: models/course]
    #[arg(long, value_name = "FOLDER")]
    pub gpt: Option<PathBuf>,
    /// The folder of the files [default: results]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// More bytes of weights than this are in a file of their own [default: just below 2 GiB, which one file can hold]
    #[arg(long, value_name = "BYTES")]
    pub external_above: Option<u64>,
    /// Version of ONNX's operators; ONNX Runtime's CUDA provider has kernels for all of 21 [default: 24]
    #[arg(long, value_name = "N")]
    pub opset: Option<i64>,
    /// Write random inputs and candle's outputs beside each model, in DIR/cnn.reference and DIR/gpt.reference
    #[arg(long)]
    pub reference: bool,
    /// int8: MNIST's folder; without it data/mnist, and where that is empty, generated digits
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// int8: the integers of the values between layers
    #[arg(long, value_enum, default_value_t = ActivationChoice::U8)]
    pub activations: ActivationChoice,
    /// int8: the share of the numbers at each end of a range that is cut off
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = below_half)]
    pub outside: f64,
    /// int8: test images that it is judged by
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = count::<usize>)]
    pub images: usize,
}

#[derive(Debug, Subcommand)]
pub enum Check {
    /// Read an ONNX file whole, and say what it holds, or what is wrong with it
    Check {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct TrtBenchmark {
    /// An ONNX file
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Batch sizes
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64,128,256",
        value_parser = count::<usize>
    )]
    pub batches: Vec<usize>,
    /// The folder of rows and plots [default: results]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReportOptions {
    /// The rows [default: results/metrics.csv, else the recorded run]
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// The folder of the page and the chart [default: results]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TrainSharded {
    /// Where checkpoints are written, and the newest is read: a folder that all ranks share
    #[arg(long, value_name = "FOLDER", default_value = "results/train-sharded")]
    pub folder: PathBuf,
    /// Steps in all, with those before the newest checkpoint
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = count::<usize>)]
    pub steps: usize,
    /// Steps from one checkpoint to the next
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count::<usize>)]
    pub every: usize,
    /// Examples of a step, of all ranks together
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = count::<usize>)]
    pub batch: usize,
    /// Numbers between two blocks
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count::<usize>)]
    pub width: usize,
    /// Blocks
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = count::<usize>)]
    pub blocks: usize,
    /// Seconds after which a rank that others wait for is late, which ends the job
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = positive)]
    pub limit: f64,
}

#[derive(Debug, Args)]
pub struct Monitor {
    /// A GPU by NVML's number, again for another; without it all of them
    #[arg(long, value_name = "N")]
    pub gpu: Vec<u32>,
    /// Seconds from one sample to the next
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// End after so many seconds; without it at Ctrl-C, or with the command
    #[arg(long, value_name = "S", value_parser = positive)]
    pub seconds: Option<f64>,
    /// Write each sample to a new file: a line of JSON, or of CSV where its name ends so
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Show a recorded trace in the place of this machine's GPUs
    #[arg(long, value_name = "FILE", conflicts_with = "gpu", conflicts_with = "job", conflicts_with = "command")]
    pub replay: Option<PathBuf>,
    /// How many times faster than it was recorded
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive)]
    pub speed: f64,
    /// Export the samples at this address, such as 127.0.0.1:9400, path /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub prometheus: Option<String>,
    /// Alert rules as a JSON list, in the place of the built-in ones
    #[arg(long, value_name = "FILE", conflicts_with = "hot", conflicts_with = "idle")]
    pub alerts: Option<PathBuf>,
    /// Degrees Celsius above which a GPU is hot [default: 85]
    #[arg(long, value_name = "C", value_parser = positive)]
    pub hot: Option<f64>,
    /// Seconds after which a GPU that is idle while a job runs is an alert [default: 60]
    #[arg(long, value_name = "S", value_parser = positive)]
    pub idle: Option<f64>,
    /// The file in which a job says what it does: {"phase": "train", "step": 3, "loss": 0.5, "loader_wait": 0.1}
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// A job to start and to watch until it ends; it finds the name of its file in GPULAB_JOB
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// A GGUF file of a Llama, or the folder of a GPT-2 checkpoint [default: what `make model` has fetched, else models/course]
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Random weights in the shape of a model in place of one, to measure on an NVIDIA GPU
    #[arg(long, value_enum, conflicts_with = "model")]
    pub random: Option<RandomShape>,
    /// Where to compute; mps is a Mac's GPU
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub device: Device,
    /// The address to listen at; one that others can reach asks for a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// The port; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 8000)]
    pub port: u16,
    /// A file with what clients send as `Authorization: Bearer …`; without it GPULAB_SERVE_TOKEN, where that is set
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Requests in a batch
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count::<usize>)]
    pub batch: usize,
    /// Tokens that a step computes, of answers and of prompts
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = count::<usize>, visible_alias = "max-num-batched-tokens")]
    pub step_tokens: usize,
    /// The same while the batch is busy: three quarters of it are being answered, and hardly a slot is free. A smaller number spreads prompts over more steps [default: as --step-tokens]
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub chunked_prefill_size: Option<usize>,
    /// Requests that wait; the next one is told when to come again
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count::<usize>)]
    pub queue: usize,
    /// Memory of the KV cache
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = count::<usize>)]
    pub cache_mib: usize,
    /// The longest text, in tokens [default: the model's]
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    pub context: Option<usize>,
    /// Tokens of an answer to a chat that names no limit
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count::<usize>)]
    pub max_tokens: usize,
    /// Seconds of a whole answer, waiting included
    #[arg(long, value_name = "S", default_value_t = 300.0, value_parser = positive)]
    pub time_limit: f64,
    /// The largest body of a request
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = count::<usize>)]
    pub body_kib: usize,
    /// Also log what asks every second, and connections that end early
    #[arg(long)]
    pub verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RandomShape {
    /// Llama 3.2's with 1.2 billion parameters
    #[value(name = "llama-1b")]
    Llama1B,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Device {
    Cpu,
    Cuda,
    #[value(alias = "metal")]
    Mps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrainDtype {
    F32,
    Tf32,
    Bf16,
    F16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GptModel {
    Bytes,
    Small,
    Gpt2,
}

/// What makes the steps of a GPT's training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GptEngineChoice {
    /// The course's own kernels.
    Kernels,
    /// candle.
    Candle,
    /// candle's autograd, with the course's kernels for norms, attention, biases, GELU, the loss and AdamW.
    Operators,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GptDtype {
    F32,
    Bf16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    F32,
    Bf16,
    F16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KernelChoice {
    Own,
    Candle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModelChoice {
    Cnn,
    Gpt,
    Int8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ActivationChoice {
    U8,
    I8,
}

/// More is no number of bytes.
const MOST_MIB: u64 = u64::MAX >> 20;

fn count<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number = text.trim().parse().ok().filter(|n| *n >= T::from(1));
    number.ok_or_else(|| "it takes a whole number, 1 or more".to_string())
}

fn interval(text: &str) -> Result<f64, String> {
    number(text, |x| (0.01..=3600.0).contains(&x), "from 0.01 to 3600")
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0 && x.is_finite(), "above 0")
}

fn share(text: &str) -> Result<f64, String> {
    number(text, |x| (0.0..=1.0).contains(&x), "from 0 to 1")
}

fn below_half(text: &str) -> Result<f64, String> {
    number(text, |x| (0.0..0.5).contains(&x), "from 0 to below 0.5")
}

fn number(text: &str, sound: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x| sound(*x)).ok_or_else(|| format!("it takes a number {wanted}"))
}
