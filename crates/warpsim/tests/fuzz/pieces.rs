//! Whole PTX files cut into small ones, a kernel each: small inputs are quick, and every mutation hits.

/// The fixtures' kernels, each with the header and whatever else it names.
pub fn kernels() -> Vec<String> {
    let folders = ["ptx", "ptx/12", "ptx/100", "ptx/learners", "findings"];
    let inside = |folder: &str| {
        let folder = format!("{}/tests/{folder}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_dir(folder).expect("fixtures").flatten().map(|f| f.path())
    };
    let mut paths: Vec<_> = folders.into_iter().flat_map(inside).collect();
    paths.sort();
    let ptx = paths.iter().filter(|p| p.extension().is_some_and(|e| e == "ptx"));
    ptx.flat_map(|p| split(&std::fs::read_to_string(p).expect("text"))).collect()
}

fn split(text: &str) -> Vec<String> {
    let parts = parts(text);
    let (header, rest) = parts.split_first().expect("a header");
    let entries = rest.iter().filter(|p| p.contains(".entry "));
    entries.map(|entry| format!("{header}{}{entry}", needed(rest, entry))).collect()
}

/// Top-level parts: the header, then each variable, function and kernel.
fn parts(text: &str) -> Vec<String> {
    let starts = [".visible", ".entry", ".func", ".weak", ".extern", ".global", ".const", ".shared"];
    let mut parts = vec![String::new()];
    for line in text.lines() {
        if starts.iter().any(|s| line.starts_with(s)) {
            parts.push(String::new());
        }
        let last = parts.last_mut().expect("never empty");
        last.push_str(line);
        last.push('\n');
    }
    parts
}

/// Functions and variables that a kernel names, and those that they name in turn, in the file's order.
fn needed(rest: &[String], entry: &str) -> String {
    let others: Vec<(&String, &str)> = rest.iter().filter(|p| !p.contains(".entry ")).map(|p| (p, name(p))).collect();
    let mut wanted = vec![false; others.len()];
    loop {
        let before = wanted.clone();
        for (at, (_, name)) in others.iter().enumerate() {
            let named = |text: &str| text.contains(name);
            wanted[at] |= named(entry) || others.iter().zip(&before).any(|((p, _), taken)| *taken && named(p));
        }
        if wanted == before {
            break;
        }
    }
    others.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|((p, _), _)| p.as_str()).collect()
}

/// What a part declares: the last name before its parameters, its size or its value.
fn name(part: &str) -> &str {
    let mut head = part.split('{').next().unwrap_or(part).split(" = ").next().unwrap_or(part).trim();
    if part.contains(".func") {
        // A return value in parentheses may stand before the name.
        head = head.split_once(") ").map_or(head, |(_, after)| after);
        head = head.split(['(', '\n']).next().unwrap_or(head);
    }
    let word = head.split_whitespace().last().unwrap_or(head);
    word.split(['[', '(', ';', ',']).next().unwrap_or(word)
}
