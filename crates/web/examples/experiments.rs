//! Writes what the book's pages need of the experiments: texts, sliders, sources with their PTX, and the picture that stands
//! there before any script has run. `make book` calls it: `cargo run -p gpulab-web --example experiments -- OUT.json`

use gpulab::prelude::*;
use gpulab_kernels::ladder;
use gpulab_web::experiments::{EXPERIMENTS, Experiment, Origin};
use gpulab_web::{KernelText, run};
use serde_json::{Value, json};
use std::path::Path;

fn main() -> Result<()> {
    let out = std::env::args().nth(1).expect("usage: experiments OUT.json");
    let all = EXPERIMENTS.iter().map(described).collect::<Result<Vec<_>>>()?;
    std::fs::write(&out, Value::from(all).to_string()).unwrap_or_else(|error| panic!("{out}: {error}"));
    Ok(())
}

fn described(one: &Experiment) -> Result<Value> {
    let kernels = one.origins.iter().map(|&origin| text(one, origin)).collect::<Result<Vec<_>>>()?;
    let first: Vec<i64> = one.sliders.iter().map(|slider| slider.values[slider.first]).collect();
    let shown = run(one, &first, &kernels).unwrap_or_else(|error| panic!("{}: {error}", one.name));
    let slider = |it: &gpulab_web::experiments::Slider| json!({ "label": it.label, "values": it.values, "words": it.words, "first": it.first });
    let kernel = |it: &KernelText| json!({ "file": it.file, "text": it.text, "ptx": it.ptx });
    Ok(json!({
        "name": one.name, "title": one.title, "task": one.task, "lesson": one.lesson,
        "sliders": one.sliders.iter().map(slider).collect::<Vec<_>>(),
        "kernels": kernels.iter().map(kernel).collect::<Vec<_>>(),
        "picture": shown.picture, "table": shown.table,
    }))
}

/// A kernel's source and PTX: from NVRTC, or from the pack where that is missing.
fn text(one: &Experiment, origin: Origin) -> Result<KernelText> {
    let source = match origin {
        Origin::Rung(path) => ladder::rung(path)?.source()?,
        Origin::Cell => Source::from(&in_notebook(one)),
    };
    let module = Gpu::simulated()?.compile(source.clone())?;
    let ptx = module.ptx()?.to_string();
    Ok(KernelText { file: source.name, text: source.text, ptx })
}

/// The string literal of the lesson's notebook that defines the kernel.
fn in_notebook(one: &Experiment) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../notebooks/{}.ipynb", one.lesson));
    let notebook: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("the notebook")).expect("JSON");
    let cells = notebook["cells"].as_array().expect("cells");
    let lines = |cell: &Value| -> String {
        cell["source"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let literals = cells.iter().filter(|cell| cell["cell_type"] == "code").flat_map(|cell| {
        let code = lines(cell);
        code.split("r#\"")
            .skip(1)
            .filter_map(|rest| rest.split_once("\"#"))
            .map(|(text, _)| text.to_string())
            .collect::<Vec<_>>()
    });
    let begins = format!("void {}(", one.entry);
    literals
        .into_iter()
        .find(|text| text.contains(&begins))
        .unwrap_or_else(|| panic!("{}: no kernel `{}`", one.lesson, one.entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab_web::answer;

    fn settings(one: &Experiment) -> Vec<Vec<i64>> {
        let add = |all: Vec<Vec<i64>>, values: &[i64]| {
            all.iter().flat_map(|so_far| values.iter().map(|&value| [&so_far[..], &[value]].concat())).collect()
        };
        one.sliders.iter().fold(vec![Vec::new()], |all, slider| add(all, slider.values))
    }

    fn asked(one: &Experiment, values: &[i64], kernels: &[KernelText]) -> Value {
        let kernels: Vec<Value> =
            kernels.iter().map(|it| json!({ "file": it.file, "text": it.text, "ptx": it.ptx })).collect();
        let question = json!({ "experiment": one.name, "values": values, "kernels": kernels });
        serde_json::from_str(&answer(&question.to_string())).expect("JSON")
    }

    fn by_name(name: &str) -> (&'static Experiment, Vec<KernelText>) {
        let one = EXPERIMENTS.iter().find(|one| one.name == name).expect("it is there");
        (one, one.origins.iter().map(|&origin| text(one, origin).expect("compiled")).collect())
    }

    #[test]
    fn every_setting_of_every_slider_has_its_picture_and_no_finding() {
        for one in EXPERIMENTS {
            let (_, kernels) = by_name(one.name);
            let mut pictures = std::collections::BTreeSet::new();
            for values in settings(one) {
                let shown =
                    run(one, &values, &kernels).unwrap_or_else(|error| panic!("{} {values:?}: {error}", one.name));
                assert!(shown.picture.contains("<svg"), "{} {values:?}", one.name);
                assert_eq!(shown.findings, 0, "{} {values:?}: {}", one.name, shown.table);
                pictures.insert(shown.picture);
            }
            assert!(pictures.len() > 2, "{}: the sliders change nothing", one.name);
        }
    }

    #[test]
    fn the_constant_in_the_reductions_ptx_is_the_blocks_size() {
        for origin in by_name("banks").0.origins {
            let Origin::Rung(path) = origin else { panic!("rungs alone") };
            assert_eq!(ladder::rung(path).unwrap().block.0, gpulab_web::experiments::THREADS, "{path}");
        }
    }

    #[test]
    fn an_edited_kernel_is_told_what_is_wrong_and_a_faulty_question_too() {
        let (one, mut kernels) = by_name("launch");
        let right = kernels[0].ptx.clone();
        // Without the guard of the last block.
        let guard = right.lines().find(|line| line.contains("@%p") && line.contains("bra")).expect("a guard");
        kernels[0].ptx = right.replace(guard, "");
        let table = asked(one, &[500, 256], &kernels)["table"].as_str().unwrap().to_string();
        assert!(table.contains("out of bounds") && table.contains("next:"), "{table}");
        kernels[0].ptx = right.replace("add.f32", "add.f33");
        let error = asked(one, &[500, 256], &kernels)["error"].as_str().unwrap().to_string();
        assert!(error.contains("add.f33") || error.contains("f33"), "{error}");
        kernels[0].ptx = right;
        for (values, words) in [(vec![7, 256], "next: choose one of"), (vec![500], "2 sliders, not 1")] {
            let error = asked(one, &values, &kernels)["error"].as_str().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(asked(one, &[500, 256], &[])["error"].as_str().unwrap().contains("lacks this kernel"));
        assert!(answer("{").contains("error") && answer("{}").contains("there is no experiment"));
    }
}
