//! Listings and comparisons as a learner meets them, and that they say the truth of the files.

use super::*;
use crate::ladder::{RUNGS, rung};

fn listing(text: &str) -> Listing {
    Listing { name: "t.cu".to_string(), text: text.to_string(), constants: Vec::new() }
}

fn diff(before: &str, after: &str) -> Diff {
    Diff { before: listing(before), after: listing(after) }
}

#[test]
fn tokens_lose_no_letter_of_any_kernel() {
    for rung in RUNGS {
        let text = rung.source().unwrap().text;
        for (tokens, line) in lines(&text).iter().zip(text.lines()) {
            assert_eq!(tokens.iter().map(|token| token.text).collect::<String>(), line, "{}", rung.path);
        }
    }
}

#[test]
fn tokens_have_their_kind() {
    let kinds = |text: &str| -> Vec<(Kind, String)> {
        let tokens = lines(text).concat();
        let seen = tokens.iter().filter(|token| token.kind != Kind::Space);
        seen.map(|token| (token.kind, token.text.to_string())).collect()
    };
    let is = |kind: Kind, text: &str| (kind, text.to_string());
    assert_eq!(
        kinds("__shared__ float s[1.5e3f]; // x\n"),
        [
            is(Kind::Cuda, "__shared__"),
            is(Kind::Keyword, "float"),
            is(Kind::Name, "s"),
            is(Kind::Sign, "["),
            is(Kind::Number, "1.5e3f"),
            is(Kind::Sign, "]"),
            is(Kind::Sign, ";"),
            is(Kind::Comment, "// x"),
        ]
    );
    assert_eq!(
        kinds("/* a\nint b */ c"),
        [is(Kind::Comment, "/* a"), is(Kind::Comment, "int b */"), is(Kind::Name, "c")]
    );
    assert_eq!(kinds("  #if A // b"), [is(Kind::Directive, "  #if A "), is(Kind::Comment, "// b")]);
    assert_eq!(kinds(r#""a \" b" ü"#), [is(Kind::Text, r#""a \" b""#), is(Kind::Name, "ü")]);
    assert_eq!(kinds("\"open"), [is(Kind::Text, "\"open")]);
}

#[test]
fn a_changed_word_is_marked_and_its_neighbours_are_not() {
    let it = diff("int a = sums[thread];\nreturn;", "int a = sums[first];\nreturn;");
    assert_eq!(it.changed(), (1, 1));
    let html = it.html();
    assert!(html.contains("sums[<b>thread</b>];") && html.contains("sums[<b>first</b>];"), "{html}");
    let text = it.to_string();
    let html = diff("f(a);", "f(x, y + z);").html();
    assert!(html.contains("f(<b>x, y + z</b>);") && html.contains("f(<b>a</b>);"), "{html}");
    assert!(text.contains("1   - int a = sums[thread];\n  1 + int a = sums[first];\n2 2   return;"), "{text}");
}

#[test]
fn lines_without_anything_in_common_are_not_marked_word_by_word() {
    let html = diff("a();\nx = y + z;\nb();", "a();\n__syncthreads();\nb();").html();
    assert!(!html.contains("<b>") && html.contains("l add") && html.contains("l del"), "{html}");
}

#[test]
fn lines_that_a_new_loop_moves_in_are_no_new_code() {
    let it = diff("a();\nb();", "for (;;) {\n    a();\n    b();\n}");
    assert_eq!(it.changed(), (2, 0));
    let text = it.to_string();
    assert!(
        text.contains("2 lines added, 0 removed, 2 with another indent (>)") && text.contains("1 2 >     a();"),
        "{text}"
    );
    assert!(it.html().contains(" 1 2 &gt; ") && !it.html().contains("<b>"), "{}", it.html());
}

#[test]
fn far_lines_are_counted_and_code_is_escaped() {
    let many: String = (0..40).map(|n| format!("line{n}();\n")).collect();
    let it = diff(&many, &many.replace("line20()", "if (a < b && c) d()"));
    let text = it.to_string();
    assert!(text.contains("… 17 unchanged lines") && text.contains("… 16 unchanged lines"), "{text}");
    assert!(it.html().contains("a &lt; b &amp;&amp; c") && !it.html().contains("a < b"), "{}", it.html());
    assert_eq!(diff(&many, &many).changed(), (0, 0));
    assert!(diff(&many, &many).to_string().contains("… 40 unchanged lines"));
    assert!(diff("", "").html().contains("0 lines added"));
}

#[test]
fn a_rungs_heading_stands_above_and_its_constants_where_they_are_new() {
    let after = rung("reduction/05_add_while_loading").unwrap();
    let it = after.diff_from(&rung("reduction/04_no_conflicts").unwrap()).unwrap();
    let text = it.to_string();
    assert!(text.contains("\nidea: ") && text.contains("\nchanged: ") && !text.contains("// idea"), "{text}");
    assert!(!text.contains("constants:"), "{text}");
    let it = rung("reduction/07_grid_stride").unwrap().diff_from(&after).unwrap();
    assert!(it.to_string().contains("\nconstants: THREADS = 512 (256 before), VECTORS = 4 (new), BLOCKS = 4 (new)\n"));
    let back = after.diff_from(&rung("reduction/07_grid_stride").unwrap()).unwrap();
    assert!(back.to_string().contains("constants: THREADS = 256 (512 before), VECTORS (gone), BLOCKS (gone)\n"));
    assert!(it.html().contains("<em>idea:</em>"));
    assert_eq!(header(&it.after.text, "nothing"), "");
    let listing = after.listing().unwrap();
    assert!(
        listing.html().contains("<span class=\"u\">__shared__</span>") && listing.to_string().contains("\n 1  // idea")
    );
}

/// What the comparison shows is what stands in the files: the text after, rebuilt from the text before.
#[test]
fn the_comparison_of_all_neighbours_rebuilds_the_file() {
    for pair in RUNGS.windows(2) {
        let it = pair[1].diff_from(&pair[0]).unwrap();
        let (old, new): (Vec<&str>, Vec<&str>) = (it.before.text.lines().collect(), it.after.text.lines().collect());
        let (mut at_old, mut rebuilt) = (0, Vec::new());
        for row in rows(&lines(&it.before.text), &lines(&it.after.text), 0) {
            match row {
                Row::Gap(count, moved) => {
                    let own = &new[rebuilt.len()..rebuilt.len() + count];
                    let (same, indented): (Vec<_>, Vec<_>) =
                        own.iter().zip(&old[at_old..]).partition(|(new, old)| new == old);
                    assert!(
                        same.len() + moved == count && indented.iter().all(|(a, b)| a.trim_start() == b.trim_start())
                    );
                    rebuilt.extend(own);
                    at_old += count;
                }
                Row::Same { before, after, moved } => {
                    assert_eq!((before - 1, after - 1), (at_old, rebuilt.len()));
                    assert_eq!(old[at_old].trim_start(), new[after - 1].trim_start());
                    rebuilt.push(if moved { new[after - 1] } else { old[at_old] });
                    at_old += 1;
                }
                Row::Removed { before, .. } => {
                    assert_eq!(before - 1, at_old);
                    at_old += 1;
                }
                Row::Added { after, .. } => rebuilt.push(new[after - 1]),
            }
        }
        assert_eq!(rebuilt, new, "{} to {}", pair[0].path, pair[1].path);
    }
}
