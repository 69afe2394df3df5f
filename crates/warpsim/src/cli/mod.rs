//! The command line: `warpsim FILE.ptx` looks at kernels, `warpsim run …` runs one.

mod buffer;
mod json;
mod names;
mod nvrtc;
mod options;
mod text;

use std::io::Write;

use crate::{Device, PtxModule, Report, survey};
use options::Options;

const USAGE: &str = "usage: warpsim FILE.ptx
       warpsim run FILE.cu|FILE.ptx --kernel NAME --grid X[,Y[,Z]] --block X[,Y[,Z]] [--shared BYTES]
               [--arch sm_90] [--arg SPEC]... [--out INDEX=FILE]... [--json] [--no-check] [--steps N] [-I FOLDER]...
               [--block-order forward|reverse|random:SEED] [--cooperative]
SPEC, one for each parameter: i32:5 u32:5 i64:5 f32:1.5 f64:1.5 for scalars; TYPE[N]=zeros, =ones, =iota, =rand:SEED
or =@FILE for buffers, TYPE one of i8 u8 i32 u32 i64 f16 bf16 f32 f64
--out writes the buffer of an --arg, counted from 0, after the run. --no-check runs without the checks; accesses outside of
all memory are told even so. --steps bounds a block's instructions. -I names folders of headers.
--block-order is the order in which blocks start; with --cooperative all of them run at the same time.
Exit status: 0 if all is well, 1 for findings, 2 for a bad call.";

/// Does what the arguments (without the program's name) ask for; gives the exit status: 0 if all is well, 1 for
/// findings or kernels that cannot run, 2 for a bad call.
pub fn main(args: &[String], out: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let help = |word: &String| word == "--help" || word == "-h";
    let done = match args {
        [word, ..] | [_, word, ..] if help(word) => writeln!(out, "{USAGE}").map(|()| true).map_err(|e| e.to_string()),
        [path] if !path.starts_with('-') => look(path, out),
        [run, rest @ ..] if run == "run" && !rest.is_empty() => launch(rest, out),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(message) => {
            // A closed pipe leaves nobody to tell.
            let _ = writeln!(errors, "warpsim: {message}");
            2
        }
    }
}

/// The text of a file.
fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => {
            format!("{path}: this is no text\nnext: pass CUDA C or PTX, not a compiled program")
        }
        _ => format!("{path}: {e}\nnext: check the path"),
    })
}

/// Prints the kernels of a file; true if all can run.
fn look(path: &str, out: &mut dyn Write) -> Result<bool, String> {
    if path.ends_with(".cu") {
        return Err(format!("{path}: only PTX is looked at\nnext: `warpsim run {path} ...` compiles and runs it"));
    }
    let survey = survey(&read(path)?).map_err(|e| e.to_string())?;
    text::survey(&survey, out).map_err(|e| e.to_string())?;
    Ok(survey.refused.is_empty())
}

fn launch(args: &[String], out: &mut dyn Write) -> Result<bool, String> {
    let options = Options::parse(args)?;
    if !options.file.ends_with(".cu") && !options.file.ends_with(".ptx") {
        return Err(format!("{}: neither a .cu nor a .ptx file\nnext: name it so", options.file));
    }
    let ptx = match options.file.ends_with(".cu") {
        true => nvrtc::compile(&options.file, &read(&options.file)?, &options.arch, &options.includes)?,
        false => read(&options.file)?,
    };
    let module = PtxModule::load(&ptx).map_err(|e| e.to_string())?;
    let mut device = Device::new();
    device.set_checks(options.checks);
    device.set_block_order(options.order);
    if let Some(steps) = options.steps {
        device.set_step_budget(steps);
    }
    let (values, buffers) = buffer::prepare(&mut device, &options.args)?;
    let outputs = options.outputs.iter().map(|(index, path)| {
        let buffer = buffers.get(*index).copied().flatten();
        let buffer = buffer.ok_or_else(|| {
            format!("--out {index}: that argument is no buffer\nnext: name one, counting the --arg from 0")
        })?;
        Ok::<_, String>((buffer, path))
    });
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    let launched = match options.cooperative {
        true => device.launch_cooperative(&module, &options.kernel, options.launch, &values),
        false => device.launch(&module, &options.kernel, options.launch, &values),
    };
    let mut report = launched.map_err(|e| e.to_string())?;
    if options.file.ends_with(".cu") {
        names::name(&mut report.findings, &read(&options.file)?, &options.kernel);
    }
    for ((address, bytes), path) in outputs {
        let mut data = vec![0; bytes];
        device.read(address, &mut data).map_err(|e| e.to_string())?;
        std::fs::write(path, data).map_err(|e| format!("{path}: {e}\nnext: check the path"))?;
    }
    print(&report, options.json, out).map_err(|e| e.to_string())?;
    Ok(report.findings.is_empty())
}

fn print(report: &Report, as_json: bool, out: &mut dyn Write) -> std::io::Result<()> {
    if as_json { writeln!(out, "{}", json::report(report)) } else { text::report(report, out) }
}
