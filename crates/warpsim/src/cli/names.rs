//! The names that a source gives its kernel's parameters: PTX only numbers them.

use crate::Finding;

/// Puts the parameter's name where a finding has its number.
pub fn name(findings: &mut [Finding], source: &str, kernel: &str) {
    let names = parameters(source, kernel);
    for finding in findings {
        let name = finding.parameter.and_then(|number| names.get(number)).filter(|name| !name.is_empty());
        if let (Some(name), Some(known)) = (name, &mut finding.variable) {
            finding.message = finding.message.replace(known.as_str(), &format!("`{name}`"));
            known.clone_from(name);
        }
    }
}

/// Names of a kernel's parameters, in order; empty when its definition is not found.
fn parameters(source: &str, kernel: &str) -> Vec<String> {
    let text = without_comments(source);
    let letter = |c: char| c.is_alphanumeric() || c == '_';
    let plain = plain_name(kernel);
    let starts = text.match_indices(plain).filter(|(at, _)| !text[..*at].ends_with(letter));
    let lists = starts.filter_map(|(at, _)| text[at + plain.len()..].trim_start().strip_prefix('('));
    // Where it is defined, and not called or only declared: a body follows.
    let defined = lists.filter_map(split).find(|(_, rest)| rest.trim_start().starts_with('{'));
    let name = |part: &String| part.trim_end().rsplit(|c| !letter(c)).next().unwrap_or_default().to_owned();
    defined.map_or_else(Vec::new, |(parts, _)| parts.iter().map(name).collect())
}

/// The parts of a list up to its closing bracket, and what follows.
fn split(list: &str) -> Option<(Vec<String>, &str)> {
    let (mut depth, mut part, mut parts) = (0i32, String::new(), Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            ')' if depth == 0 => {
                parts.push(part);
                return Some((parts, &list[at + 1..]));
            }
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            c => {
                depth += i32::from("(<[".contains(c)) - i32::from(")>]".contains(c));
                part.push(c);
            }
        }
    }
    None
}

/// `add` for `_Z3addPKfS0_Pfi`, as C++ names a kernel that is not `extern "C"`.
fn plain_name(kernel: &str) -> &str {
    let Some(rest) = kernel.strip_prefix("_Z") else { return kernel };
    let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let length = rest[..rest.len() - name.len()].parse::<usize>().ok();
    length.and_then(|length| name.get(..length)).unwrap_or(kernel)
}

fn without_comments(source: &str) -> String {
    let (mut out, mut rest) = (String::new(), source);
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        out.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("//") { "\n" } else { "*/" };
        rest = rest[at..].find(end).map_or("", |length| &rest[at + length + end.len()..]);
        out.push(' ');
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::parameters;

    #[test]
    fn parameters_have_the_names_of_the_source() {
        let source = "// __global__ void add(int wrong)\nvoid add(int other);\ntemplate <int N> struct P {};\n\
                      extern \"C\" __global__ void __launch_bounds__(256) add(const float* __restrict__ a, /* b, */\n\
                      P<3> pair, float (&out)[4], unsigned long long n) { add(1); }";
        assert_eq!(parameters(source, "add"), ["a", "pair", "", "n"]);
        assert_eq!(parameters(source, "_Z3addPKf"), ["a", "pair", "", "n"]);
        assert!(parameters(source, "dd").is_empty() && parameters(source, "_Z99x").is_empty());
    }
}
