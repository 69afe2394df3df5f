//! What a training run needs to go on as if it had never stopped.

use super::Parameters;
use crate::tensors::{HostTensor, TensorFile};
use candle_core::DType;
use gpulab::error::{Error, Result};
use std::path::Path;

/// Where a run stands, and what it has seen so far.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingState {
    /// Updates that were made: a step for each, but for those whose gradients did not fit into f16.
    pub step: u64,
    /// The epoch that it is in, from 0.
    pub epoch: u64,
    /// Images of this epoch that it was trained on.
    pub seen: u64,
    /// What first values and the order of the images follow from ([`super::order`]).
    pub seed: u64,
    /// The images' name, such as `MNIST`: a run goes on with the same ones.
    pub data: String,
    /// What a loss is multiplied by before the backward pass; 1 where nothing needs it.
    pub loss_scale: f32,
    /// Steps since the scale last changed.
    pub steady: u64,
    /// Seconds of training that this epoch took so far.
    pub seconds: f32,
    /// The loss of every step.
    pub losses: Vec<f32>,
    /// The share of each batch that was right, step by step.
    pub right: Vec<f32>,
    /// What came of each epoch that is over.
    pub epochs: Vec<Epoch>,
}

impl TrainingState {
    /// The start of a run.
    pub fn new(seed: u64, data: &str) -> TrainingState {
        TrainingState {
            step: 0,
            epoch: 0,
            seen: 0,
            seed,
            data: data.to_string(),
            loss_scale: 1.0,
            steady: 0,
            seconds: 0.0,
            losses: Vec::new(),
            right: Vec::new(),
            epochs: Vec::new(),
        }
    }

    /// Steps that were made, whether or not they changed anything.
    pub fn taken(&self) -> u64 {
        self.losses.len() as u64
    }

    /// Notes an epoch that is over, and begins the next.
    pub(super) fn next_epoch(&mut self, epoch: Epoch) {
        self.epochs.push(epoch);
        self.epoch += 1;
        (self.seen, self.seconds) = (0, 0.0);
    }
}

/// One epoch's figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// The share of the test images that the network reads right, 0 to 1.
    pub accuracy: f32,
    /// The mean loss over the test images.
    pub loss: f32,
    /// Seconds of training, without the test.
    pub seconds: f32,
}

/// Parameters, AdamW's two moments of each, and where the run stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The network.
    pub parameters: Parameters,
    /// AdamW's mean of the gradients.
    pub m: Parameters,
    /// AdamW's mean of their squares.
    pub v: Parameters,
    /// Where the run stands.
    pub state: TrainingState,
}

impl Checkpoint {
    /// The start of a run: random parameters, moments of 0.
    pub fn new(seed: u64, data: &str) -> Checkpoint {
        Checkpoint {
            parameters: Parameters::random(seed),
            m: Parameters::zeros(),
            v: Parameters::zeros(),
            state: TrainingState::new(seed, data),
        }
    }

    /// Writes it as a safetensors file, whole or not at all: a file of that name stays as it was until the new one is complete.
    ///
    /// Arrays: the parameters by name, the moments as `adamw.m.NAME` and `adamw.v.NAME`, `history.…`. All else is in the
    /// file's metadata.
    ///
    /// # Errors
    /// [`gpulab::Error::File`] when the folder is not writable or the disk is full.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut file = TensorFile::default();
        for (prefix, all) in self.groups() {
            for ((name, shape), numbers) in Parameters::SHAPES.iter().zip(&all.arrays) {
                file.tensors.insert(format!("{prefix}{name}"), HostTensor::new(shape, numbers.clone()));
            }
        }
        let state = &self.state;
        let epochs: Vec<f32> = state.epochs.iter().flat_map(|e| [e.accuracy, e.loss, e.seconds]).collect();
        for (name, shape, numbers) in [
            ("history.loss", vec![state.losses.len()], state.losses.clone()),
            ("history.right", vec![state.right.len()], state.right.clone()),
            ("history.epochs", vec![state.epochs.len(), 3], epochs),
        ] {
            file.tensors.insert(name.to_string(), HostTensor::new(&shape, numbers));
        }
        let metadata = [
            ("format", "gpulab cnn 1".to_string()),
            ("step", state.step.to_string()),
            ("epoch", state.epoch.to_string()),
            ("seen", state.seen.to_string()),
            ("seed", state.seed.to_string()),
            ("data", state.data.clone()),
            ("loss_scale", state.loss_scale.to_string()),
            ("steady", state.steady.to_string()),
            ("seconds", state.seconds.to_string()),
        ];
        file.metadata = metadata.into_iter().map(|(name, text)| (name.to_string(), text)).collect();
        file.write(path, DType::F32)
    }

    /// Reads what [`Checkpoint::write`] wrote.
    ///
    /// # Errors
    /// [`gpulab::Error::File`] when there is no such file or it is damaged, [`gpulab::Error::Invalid`] when it is of another network: the
    /// message names the first array that is missing or of another shape.
    pub fn read(path: &Path) -> Result<Checkpoint> {
        let mut file = TensorFile::read(path)?;
        let wrong = |text: String| {
            Error::invalid(
                format!("{} is no checkpoint of this network: {text}", path.display()),
                "name a file that `gpulab train` wrote, or train without --resume",
            )
        };
        let mut group = |prefix: &str| -> Result<Parameters> {
            let mut found = Parameters::zeros();
            for ((name, shape), numbers) in Parameters::SHAPES.iter().zip(&mut found.arrays) {
                let name = format!("{prefix}{name}");
                let array = file.tensors.remove(&name).ok_or_else(|| wrong(format!("`{name}` is missing")))?;
                if array.shape != *shape {
                    return Err(wrong(format!("`{name}` has the shape {:?}, and {shape:?} is needed", array.shape)));
                }
                *numbers = array.values;
            }
            Ok(found)
        };
        let (parameters, m, v) = (group("")?, group("adamw.m.")?, group("adamw.v.")?);
        let mut history = |name: &str| file.tensors.remove(name).map_or_else(Vec::new, |array| array.values);
        let (losses, right, epochs) = (history("history.loss"), history("history.right"), history("history.epochs"));
        let text = |name: &str| file.metadata.get(name).map_or("", String::as_str);
        let number = |name: &str| {
            let value = text(name).parse::<u64>();
            value.map_err(|_| wrong(format!("`{name}` in its metadata is `{}`, no whole number", text(name))))
        };
        let state = TrainingState {
            step: number("step")?,
            epoch: number("epoch")?,
            seen: number("seen")?,
            seed: number("seed")?,
            data: text("data").to_string(),
            loss_scale: text("loss_scale").parse().unwrap_or(1.0),
            steady: text("steady").parse().unwrap_or(0),
            seconds: text("seconds").parse().unwrap_or(0.0),
            losses,
            right,
            epochs: epochs
                .as_chunks::<3>()
                .0
                .iter()
                .map(|&[accuracy, loss, seconds]| Epoch { accuracy, loss, seconds })
                .collect(),
        };
        Ok(Checkpoint { parameters, m, v, state })
    }

    fn groups(&self) -> [(&'static str, &Parameters); 3] {
        [("", &self.parameters), ("adamw.m.", &self.m), ("adamw.v.", &self.v)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Checkpoint {
        let mut some = Checkpoint::new(7, "generated digits, seed 7");
        some.m = Parameters::random(8);
        some.state.losses = vec![2.3, 1.9];
        some.state.right = vec![0.1, 0.4];
        (some.state.step, some.state.seen) = (2, 256);
        some.state.epochs = vec![Epoch { accuracy: 0.98, loss: 0.06, seconds: 12.5 }];
        some
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("gpulab-checkpoint-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_is_written_comes_back_bit_for_bit() {
        let folder = folder("back");
        let path = folder.join("cnn.safetensors");
        example().write(&path).unwrap();
        assert_eq!(Checkpoint::read(&path).unwrap(), example());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        // candle reads the same file, with the same names.
        let tensors = candle_core::safetensors::load(&path, &candle_core::Device::Cpu).unwrap();
        assert_eq!(tensors["adamw.m.conv2.weight"].dims(), [64, 32, 3, 3]);
        let fc2: Vec<f32> = tensors["fc2.bias"].to_vec1().unwrap();
        assert_eq!(fc2, example().parameters.arrays[7]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn another_networks_file_is_told_apart() {
        let folder = folder("damage");
        let path = folder.join("cnn.safetensors");
        let message = |change: fn(&mut TensorFile)| {
            example().write(&path).unwrap();
            let mut file = TensorFile::read(&path).unwrap();
            change(&mut file);
            file.write(&path, DType::F32).unwrap();
            let text = Checkpoint::read(&path).unwrap_err().to_string();
            assert!(text.contains("is no checkpoint of this network: ") && text.contains("\nnext: "), "{text}");
            text
        };
        let turned = message(|file| file.tensors.get_mut("adamw.m.fc1.weight").unwrap().shape = vec![9216, 128]);
        assert!(turned.contains("`adamw.m.fc1.weight` has the shape [9216, 128]"), "{turned}");
        let missing = message(|file| drop(file.tensors.remove("fc2.bias")));
        assert!(missing.contains("`fc2.bias` is missing"), "{missing}");
        let step = message(|file| drop(file.metadata.insert("step".to_string(), "x".to_string())));
        assert!(step.contains("`step` in its metadata is `x`"), "{step}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let folder = folder("cut");
        let path = folder.join("cnn.safetensors");
        example().write(&path).unwrap();
        let good = std::fs::read(&path).unwrap();
        for length in [0, 5, 300, good.len() - 1] {
            std::fs::write(&path, &good[..length]).unwrap();
            assert!(Checkpoint::read(&path).unwrap_err().to_string().contains("it is cut off"));
        }
        assert!(Checkpoint::read(&folder.join("none")).unwrap_err().to_string().contains("none: No such file"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
