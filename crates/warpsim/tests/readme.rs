//! The commands in README.md print what stands there. Its Rust is a doctest.

/// Lines of a block: a command, and what is shown of its output, where `…` stands for what is left out.
#[test]
fn commands_print_what_is_shown() {
    let readme = include_str!("../README.md");
    let blocks: Vec<&str> =
        readme.split("```text\n$ warpsim ").skip(1).map(|rest| rest.split("```").next().expect("a block")).collect();
    assert!(blocks.len() >= 3, "{} commands", blocks.len());
    for block in blocks {
        let (command, shown) = block.split_once('\n').expect("output");
        let args: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        // Cargo runs tests in the package's folder, where the paths of README.md begin.
        warpsim::cli::main(&args, &mut out, &mut errors);
        let printed = String::from_utf8(out).expect("text");
        assert_eq!(String::from_utf8(errors).expect("text"), "", "{command}");
        let mut rest = printed.as_str();
        for part in shown.split("…\n").filter(|part| !part.is_empty()) {
            let at = rest.find(part).unwrap_or_else(|| panic!("{command} prints\n{printed}\nand not\n{part}"));
            rest = &rest[at + part.len()..];
        }
        assert!(rest.is_empty() || shown.ends_with("…\n"), "{command} prints more:\n{rest}");
    }
}
