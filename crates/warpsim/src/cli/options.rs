//! Arguments of `warpsim run`.

use crate::{BlockOrder, Launch};

/// What to run, and how.
pub struct Options {
    pub file: String,
    pub kernel: String,
    pub launch: Launch,
    pub arch: String,
    pub args: Vec<String>,
    pub outputs: Vec<(usize, String)>,
    pub json: bool,
    pub checks: bool,
    pub steps: Option<u64>,
    pub order: BlockOrder,
    pub cooperative: bool,
    /// Folders of headers, beside the file's own.
    pub includes: Vec<String>,
}

impl Options {
    /// Reads the arguments after `run`.
    pub fn parse(args: &[String]) -> Result<Self, String> {
        let (mut file, mut kernel, mut grid, mut block) = (None, None, None, None);
        let mut options = Self {
            file: String::new(),
            kernel: String::new(),
            launch: Launch::linear(1, 1),
            arch: "sm_90".into(),
            args: Vec::new(),
            outputs: Vec::new(),
            json: false,
            checks: true,
            steps: None,
            order: BlockOrder::Forward,
            cooperative: false,
            includes: Vec::new(),
        };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().cloned().ok_or_else(|| format!("{arg} needs a value\nnext: add it"));
            match arg.as_str() {
                "--kernel" => kernel = Some(value()?),
                "--grid" => grid = Some(shape(arg, &value()?)?),
                "--block" => block = Some(shape(arg, &value()?)?),
                "--shared" => options.launch.shared_bytes = number(arg, &value()?)?,
                "--arch" => options.arch = value()?,
                "--arg" => options.args.push(value()?),
                "--steps" => options.steps = Some(number(arg, &value()?)?),
                "--out" => {
                    let value = value()?;
                    let (index, path) = value.split_once('=').ok_or_else(|| wrong(arg, &value, "INDEX=FILE"))?;
                    options.outputs.push((number(arg, index)?, path.to_owned()));
                }
                "-I" => options.includes.push(value()?),
                "--json" => options.json = true,
                "--block-order" => {
                    let order = value()?;
                    options.order = order.parse().map_err(|e| format!("{arg} {order}: {e}"))?;
                }
                "--cooperative" => options.cooperative = true,
                "--no-check" => options.checks = false,
                _ if arg.starts_with('-') || file.is_some() => {
                    return Err(format!("`{arg}` is not known\nnext: `warpsim --help` shows the usage"));
                }
                _ => file = Some(arg.clone()),
            }
        }
        let missing = |what: &str| format!("{what} is missing\nnext: add it; `warpsim --help` shows the usage");
        options.file = file.ok_or_else(|| missing("the file"))?;
        options.kernel = kernel.ok_or_else(|| missing("--kernel NAME"))?;
        options.launch.grid = grid.ok_or_else(|| missing("--grid X[,Y[,Z]]"))?;
        options.launch.block = block.ok_or_else(|| missing("--block X[,Y[,Z]]"))?;
        Ok(options)
    }
}

/// A message for a value of the wrong form.
pub fn wrong(arg: &str, value: &str, form: &str) -> String {
    format!("{arg} {value}: this is not of the form {form}\nnext: write it so")
}

fn number<T: std::str::FromStr>(arg: &str, text: &str) -> Result<T, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let what = if digits { "too large" } else { "not a whole number" };
    text.parse().map_err(|_| format!("{arg} {text}: this is {what}\nnext: `warpsim --help` shows what is asked for"))
}

fn shape(arg: &str, text: &str) -> Result<[u32; 3], String> {
    let mut out = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(wrong(arg, text, "X[,Y[,Z]]"));
    }
    for (axis, part) in out.iter_mut().zip(parts) {
        *axis = number(arg, part)?;
    }
    Ok(out)
}
