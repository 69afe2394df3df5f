//! Real checkpoints from the Hugging Face hub, by `curl`, which Linux and macOS have.

use super::Text;
use crate::data::curl;
use gpulab::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where `HF_ENDPOINT` names no other.
const HUB: &str = "https://huggingface.co";
/// What a checkpoint is made of; the last one is the large one.
const FILES: [&str; 3] = ["config.json", "tokenizer.json", "model.safetensors"];
/// The largest GPT-2 has 6 GB.
const LIMIT: Duration = Duration::from_secs(3600);

/// Fetches a GPT-2 checkpoint, such as `openai-community/gpt2`, into `models/hub/NAME`, and gives that folder. Files that
/// are there are kept. `endpoint` is another hub than the one that `HF_ENDPOINT` names, or huggingface.co.
///
/// # Errors
/// [`Error::Invalid`] when the name is not like `owner/name`, [`Error::File`] when a file cannot be fetched.
pub fn fetch(name: &str, endpoint: Option<&str>) -> Result<PathBuf> {
    fetch_into(&Text::folder().with_file_name("hub"), name, endpoint)
}

fn fetch_into(models: &Path, name: &str, endpoint: Option<&str>) -> Result<PathBuf> {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    // The name becomes a folder and a part of an address.
    if !matches!(name.split('/').collect::<Vec<_>>()[..], [owner, model] if plain(owner) && plain(model)) {
        return Err(Error::invalid(
            format!("`{name}` is no model's name on the hub"),
            "give owner and name, such as openai-community/gpt2",
        ));
    }
    let named = std::env::var("HF_ENDPOINT").ok().filter(|text| !text.trim().is_empty());
    let hub = endpoint.or(named.as_deref()).unwrap_or(HUB).trim_end_matches('/');
    let folder = models.join(name);
    for file in FILES {
        let (path, url) = (folder.join(file), format!("{hub}/{name}/resolve/main/{file}"));
        if !path.exists() {
            let fix = "see that this machine has a network and the name is right, or put config.json, model.safetensors and \
                       tokenizer.json into a folder yourself: every command takes one with --model";
            download(&url, &path).map_err(|text| Error::file(&path, "fetch", text, fix))?;
        }
    }
    Ok(folder)
}

/// Under another name first: a download that was stopped leaves no half a file.
fn download(url: &str, path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let kept = curl(url, &part, LIMIT).and_then(|()| std::fs::rename(&part, path).map_err(failed));
    // Where it failed, what is left of it is of no use.
    let _ = std::fs::remove_file(&part);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::{Config, Tokenizer, Weights};
    use candle_core::DType;
    use gpulab::command;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A hub on this machine that has the files of a folder; gives its address.
    fn hub(folder: PathBuf) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut asked) = (stream.unwrap(), [0; 4096]);
                let n = stream.read(&mut asked).unwrap_or(0);
                let text = String::from_utf8_lossy(&asked[..n]).into_owned();
                let file = text.split(' ').nth(1).and_then(|path| path.strip_prefix("/owner/small/resolve/main/"));
                let body = file.and_then(|file| std::fs::read(folder.join(file)).ok());
                let head = if body.is_some() { "200 OK" } else { "404 Not Found" };
                let body = body.unwrap_or_default();
                let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            }
        });
        address
    }

    #[test]
    fn a_checkpoint_is_fetched_once_and_what_is_missing_is_named() {
        if command::output_of("curl", &["--version"], Duration::from_secs(10)).is_err() {
            println!("skipped: curl is not installed");
            return;
        }
        let folder = std::env::temp_dir().join(format!("gpulab-hub-{}", std::process::id()));
        let (there, models) = (folder.join("there"), folder.join("models"));
        let config = Config { n_layer: 1, n_head: 1, n_embd: 4, n_ctx: 8, vocab_size: 256 };
        let weights = Weights::random(config, 1).unwrap();
        weights.save(&there, DType::F32).unwrap();
        let address = hub(there.clone());
        let text = fetch_into(&models, "owner/small", Some(&address)).unwrap_err().to_string();
        assert!(text.contains("tokenizer.json") && text.contains("404") && text.contains("\nnext: "), "{text}");
        std::fs::write(there.join("tokenizer.json"), "{}").unwrap();
        let got = fetch_into(&models, "owner/small", Some(&address)).unwrap();
        assert_eq!(Weights::load(&got).unwrap(), weights);
        assert!(Tokenizer::load(&got, config).is_err());
        // What is there is not fetched again, and nothing else is left.
        assert_eq!(fetch_into(&models, "owner/small", Some("http://127.0.0.1:1")).unwrap(), got);
        assert_eq!(std::fs::read_dir(&got).unwrap().count(), 3);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        for name in ["gpt2", "../../x", "a/b/c", "a/..", "/a", "a/b?c"] {
            let text = fetch(name, Some("http://127.0.0.1:1")).unwrap_err().to_string();
            assert!(text.contains("no model's name") && text.contains("\nnext: "), "{text}");
        }
    }
}
