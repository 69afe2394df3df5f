//! The command line, called as a function.

/// Exit status, output, errors.
fn call(args: &[&str]) -> (u8, String, String) {
    let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let status = warpsim::cli::main(&args, &mut out, &mut errors);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status, text(out), text(errors))
}

fn ptx(name: &str) -> String {
    format!("{}/tests/ptx/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_run_counts_and_writes_buffers() {
    let out = std::env::temp_dir().join(format!("warpsim-cli-{}.bin", std::process::id()));
    let out_arg = format!("1={}", out.display());
    let file = ptx("transpose.ptx");
    let args = [
        "run",
        &file,
        "--kernel",
        "transpose_plain",
        "--grid",
        "2,2",
        "--block",
        "32,32",
        "--arg",
        "f32[4096]=iota",
        "--arg",
        "f32[4096]=zeros",
        "--arg",
        "i32:64",
        "--arg",
        "i32:64",
        "--out",
        &out_arg,
        "--json",
    ];
    let (status, text, errors) = call(&args);
    assert_eq!((status, errors.as_str()), (0, ""));
    for (name, value) in [
        ("global_load_requests", 128),
        ("global_load_sectors", 512),
        ("global_store_requests", 128),
        ("global_store_sectors", 512),
        ("shared_load_wavefronts", 4096),
        ("shared_load_bank_conflicts", 3968),
        ("shared_store_wavefronts", 128),
        ("shared_store_bank_conflicts", 0),
        ("divergent_branches", 0),
        ("global_atomics", 0),
        ("shared_atomics", 0),
        ("active_lanes_per_instruction", 32),
    ] {
        assert!(text.contains(&format!("\"{name}\": {value}")), "{name} in {text}");
    }
    assert!(
        text.starts_with("{\"counters\": {") && text.trim_end().ends_with("\"findings\": [], \"printed\": \"\"}"),
        "{text}"
    );
    let bytes = std::fs::read(&out).expect("the buffer");
    std::fs::remove_file(&out).expect("it is ours");
    let words: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect();
    assert_eq!((words.len(), words[1], words[64]), (4096, 64.0, 1.0));
}

#[test]
fn findings_make_the_status_1() {
    let file = ptx("races.ptx");
    let run = ["run", &file, "--kernel", "reverse", "--grid", "1", "--block", "64", "--arg", "i32[64]=zeros", "--arg"];
    let (status, text, _) = call(&[&run[..], &["i32:0", "--json"]].concat());
    assert_eq!(status, 1);
    assert!(text.contains("\"kind\": \"shared_race\"") && text.contains("\"block\": [0, 0, 0]"), "{text}");
    assert_eq!(call(&[&run[..], &["i32:0", "--no-check"]].concat()).0, 0);
    let (status, text, _) = call(&[&run[..], &["i32:1"]].concat());
    assert_eq!(status, 0);
    assert!(text.contains("barriers "), "{text}");
}

#[test]
fn random_buffers_repeat() {
    let out = std::env::temp_dir().join(format!("warpsim-rand-{}.bin", std::process::id()));
    let file = ptx("vector_add.ptx");
    let run = |ty: &str, seed: &str| {
        let (a, o) = (format!("{ty}[256]=rand:{seed}"), format!("0={}", out.display()));
        let zeros = format!("{ty}[256]=zeros");
        let args = [
            "run",
            &file,
            "--kernel",
            "vector_add",
            "--grid",
            "1",
            "--block",
            "32",
            "--arg",
            &a,
            "--arg",
            &zeros,
            "--arg",
            &zeros,
            "--arg",
            "i32:8",
            "--out",
            &o,
        ];
        let (status, _, errors) = call(&args);
        assert_eq!(status, 0, "{errors}");
        std::fs::read(&out).expect("the buffer")
    };
    let floats: Vec<f32> =
        run("f32", "1").chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect();
    assert!(floats.iter().all(|x| (0.0..1.0).contains(x)));
    let mean = floats.iter().sum::<f32>() / 256.0;
    assert!((mean - 0.5).abs() < 0.1, "{mean}");
    assert_eq!(run("f32", "1"), run("f32", "1"));
    assert_ne!(run("f32", "1"), run("f32", "2"));
    // Sign and exponent of every f16 below 1.
    assert!(run("f16", "3").chunks_exact(2).all(|b| b[1] < 0x3c));
    assert_eq!(run("u8", "4").len() + run("f64", "4").len(), 256 * 9);
    std::fs::remove_file(&out).expect("it is ours");
}

#[test]
fn bad_calls_say_what_to_do() {
    let file = ptx("vector_add.ptx");
    let start = ["run", file.as_str(), "--kernel", "vector_add", "--grid", "1", "--block", "32"];
    let add = |more: &[&'static str]| -> Vec<String> {
        start.iter().copied().chain(more.iter().copied()).map(str::to_owned).collect()
    };
    let cases: [(Vec<String>, &str); 13] = [
        (add(&["--arg", "i32:x"]), "is not of the form i32:5"),
        (add(&["--arg", "u32:-1"]), "-1 does not fit into u32"),
        (add(&["--arg", "f32[99999999999999]=zeros"]), "more than 64 GiB"),
        (add(&["--arg", "f32[4]=ones", "--arg", "f32[4]=twos"]), "TYPE[N]=zeros"),
        (add(&["--arg", "f32[4]=@/no/such"]), "check the path"),
        (add(&["--arg", "f32[4]=ones"]), "has 4 parameters, 1 were given"),
        (add(&["--out", "3=x"]), "that argument is no buffer"),
        (add(&["--grid", "1,2,3,4"]), "X[,Y[,Z]]"),
        (add(&["--grid", "x"]), "not a whole number"),
        (add(&["--grid", "4294967296"]), "too large"),
        (add(&["--shared"]), "needs a value"),
        (add(&["--frobnicate"]), "is not known"),
        (add(&[])[..4].to_vec(), "--grid X[,Y[,Z]] is missing"),
    ];
    for (args, words) in cases {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (status, out, errors) = call(&args);
        assert_eq!((status, out.as_str()), (2, ""), "{args:?}");
        assert!(errors.contains(words) && errors.contains("next: "), "{args:?}: {errors}");
    }
    assert_eq!(call(&[]).0, 2);
}

#[test]
fn a_look_names_kernels_and_what_they_cannot() {
    let (status, text, _) = call(&[&ptx("reduce.ptx")]);
    assert_eq!(status, 0);
    assert!(text.contains("tickets: 3 parameters, 16 instructions, 0 bytes shared, 0 bytes local, blocks in order"));
    let (status, text, _) = call(&[&ptx("recursion_arrays.ptx")]);
    assert_eq!(status, 1);
    assert!(text.contains("arrays: cannot run") && text.contains("recursion_arrays.cu:2"), "{text}");
}

#[test]
fn what_is_no_file_of_this_kind_is_said_first() {
    let run = |path: &str| call(&["run", path, "--kernel", "k", "--grid", "1", "--block", "1"]);
    let (status, _, errors) = run("kernel.txt");
    assert!(status == 2 && errors.contains("neither a .cu nor a .ptx file\nnext: "), "{errors}");
    let path = std::env::temp_dir().join(format!("warpsim-newer-{}.ptx", std::process::id()));
    let text = ".version 10.1\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
    std::fs::write(&path, text).expect("the temporary folder");
    let (status, _, errors) = run(path.to_str().expect("a plain path"));
    std::fs::write(&path, text.replace("10.1", "9.1")).expect("the temporary folder");
    let (newest, ..) = run(path.to_str().expect("a plain path"));
    std::fs::remove_file(&path).expect("it is there");
    assert!(status == 2 && errors.contains("`.version 10.1` is newer than this simulator"), "{errors}");
    assert_eq!(newest, 0);
}

#[test]
fn help_is_no_mistake() {
    for args in [&["--help"][..], &["run", "--help"], &["-h"]] {
        let (status, text, errors) = call(args);
        assert_eq!((status, errors.as_str()), (0, ""), "{args:?}");
        assert!(text.contains("--kernel NAME") && text.contains("-I FOLDER"), "{text}");
    }
}

#[test]
fn blocks_start_in_the_order_that_was_asked_for() {
    let file = ptx("waits.ptx");
    let run =
        ["run", &file, "--kernel", "last_waits", "--grid", "9", "--block", "64", "--arg", "i32[576]=iota", "--arg"];
    let run = [&run[..], &["i32[1]=zeros"]].concat();
    assert_eq!(call(&run).0, 0);
    assert_eq!(call(&[&run[..], &["--block-order", "forward"]].concat()).0, 0);
    for order in ["reverse", "random:5"] {
        let (status, text, _) = call(&[&run[..], &["--block-order", order, "--json"]].concat());
        assert!(status == 1 && text.contains("\"kind\": \"block_order\""), "{text}");
        let (status, text, _) = call(&[&run[..], &["--block-order", order, "--cooperative"]].concat());
        assert_eq!(status, 0, "{text}");
    }
    let (status, _, errors) = call(&[&run[..], &["--block-order", "backward"]].concat());
    assert!(status == 2 && errors.contains("forward, reverse or random:SEED"), "{errors}");
    let large: Vec<&str> = run.iter().map(|&word| if word == "9" { "65" } else { word }).collect();
    let (status, _, errors) = call(&[&large[..], &["--cooperative"]].concat());
    assert!(status == 2 && errors.contains("64 of `last_waits` run at a time"), "{errors}");
}
