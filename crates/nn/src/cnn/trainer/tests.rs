use super::*;
use crate::cnn::engine::tests::on_gpu;
use crate::cnn::{Ended, Precision, Progress};
use std::ops::ControlFlow;

#[test]
fn a_line_says_where_the_run_is() {
    let mut progress = Progress {
        epoch: (1, 3),
        step: (20, 469),
        loss: 0.87451,
        right: 0.758,
        images_per_s: 1446.0,
        left_s: 125.0,
        accuracy: None,
    };
    let line = "epoch 1/3  step   20/469  loss 0.8745  right  75.8 %     1446 images/s  2 min 05 s left";
    assert_eq!(progress.to_string(), line);
    progress.accuracy = Some(0.98514);
    assert!(progress.to_string().ends_with("images/s  test images right: 98.51 %"));
    assert_eq!([59.4, 60.0, 3725.0].map(duration), ["59 s", "1 min 00 s", "1 h 02 min"]);
}

/// Two steps an epoch, the second of one image.
fn images() -> Images {
    Images::generated(1, 3, 1)
}

fn config(folder: &Path) -> TrainConfig {
    let checkpoint = Some(folder.join("cnn.safetensors"));
    TrainConfig { epochs: 2, batch: 2, checkpoint, every: 1, precision: Precision::F32, ..TrainConfig::default() }
}

/// What makes the steps: candle's layers, which are optimised in tests too, or the kernels of `CnnEngine`, on an NVIDIA
/// GPU where there is one and else in the simulator.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Candle,
    Gpu,
}

impl By {
    fn trainer(self, config: TrainConfig, start: Checkpoint, kept: Option<u64>) -> Trainer {
        if self == By::Candle {
            return Trainer::from(&images(), TrainConfig { kernels: Some(Kernels::Candle), ..config }, start, kept)
                .unwrap();
        }
        // Our f32 takes the simulator three times as long, and is no other way.
        let config = TrainConfig {
            precision: if config.precision == Precision::F32 { Precision::Tf32 } else { config.precision },
            ..config
        };
        let way = Box::new(on_gpu(&images(), &config, &start));
        Trainer::with(way, Kernels::Own, images().train.len(), config, kept)
    }

    fn begin(self, config: TrainConfig) -> Trainer {
        self.trainer(config, Checkpoint::new(1, &images().name), None)
    }

    fn resume(self, config: TrainConfig) -> Trainer {
        let start = config.kept(&images().name).unwrap();
        let taken = start.state.taken();
        self.trainer(config, start, Some(taken))
    }
}

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("gpulab-trainer-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn on(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_run_that_was_broken_off_goes_on_bit_for_bit() {
    // The simulator is slow; that the engine passes from epoch to epoch has a test of its own.
    for (by, epochs) in [(By::Candle, 2), (By::Gpu, 1)] {
        let folder = Folder::new("resume");
        let file = folder.0.join("cnn.safetensors");
        let config = TrainConfig { epochs, ..config(&folder.0) };
        let mut whole = by.begin(TrainConfig { checkpoint: None, ..config.clone() });
        whole.step().unwrap();
        // All that comes later is lost but for this file.
        whole.write(&file).unwrap();
        assert_eq!(whole.run(&mut on).unwrap(), Ended::Done);
        assert_eq!((whole.state().taken(), whole.state().step), (2 * epochs, 2 * epochs));
        let from = std::fs::read(&file).unwrap();
        let mut resumed = by.resume(config.clone());
        assert_eq!(resumed.state().step, 1);
        assert_eq!(resumed.run(&mut on).unwrap(), Ended::Done);
        assert_eq!(resumed.state().losses, whole.state().losses, "{by:?}");
        let figures =
            |trainer: &Trainer| trainer.state().epochs.iter().map(|e| (e.accuracy, e.loss)).collect::<Vec<_>>();
        assert_eq!(figures(&resumed), figures(&whole), "{by:?}");
        let kept = Checkpoint::read(&file).unwrap();
        let whole = whole.checkpoint().unwrap();
        assert!((&kept.parameters, &kept.m, &kept.v) == (&whole.parameters, &whole.m, &whole.v), "{by:?}");
        assert_eq!((kept.state.epoch, kept.state.seen), (epochs, 0));
        if by == By::Gpu {
            std::fs::write(&file, from).unwrap();
            candle_goes_on(config, &whole);
        }
    }
}

/// From the file that the GPU's first step left, candle makes the second as the GPU does.
fn candle_goes_on(config: TrainConfig, gpu: &Checkpoint) {
    let mut trainer = By::Candle.resume(config);
    trainer.step().unwrap();
    let candle = trainer.checkpoint().unwrap();
    assert!((gpu.state.losses[1] - candle.state.losses[1]).abs() < 2e-3);
    assert_eq!((&gpu.state.right, gpu.state.step), (&candle.state.right, candle.state.step));
    // TF32 turns a few ReLUs and pools the other way, which moves a gradient more than its own rounding does.
    for at in 0..8 {
        let off = [(&candle.m, &gpu.m), (&candle.v, &gpu.v)].map(|(a, b)| apart(&a.arrays[at], &b.arrays[at]));
        assert!(off.iter().all(|off| *off < 0.1), "{at}: {off:?}");
    }
}

/// ‖a − b‖ ÷ ‖a‖.
fn apart(a: &[f32], b: &[f32]) -> f64 {
    let sum = |all: &mut dyn Iterator<Item = f32>| all.map(|x| f64::from(x).powi(2)).sum::<f64>();
    (sum(&mut a.iter().zip(b).map(|(a, b)| a - b)) / sum(&mut a.iter().copied())).sqrt()
}

#[test]
fn own_layers_give_the_same_bits_each_time() {
    let parameters = || {
        let mut trainer = Trainer::new(&images(), TrainConfig { batch: 2, ..TrainConfig::default() }).unwrap();
        assert_eq!(trainer.kernels(), Kernels::Own);
        (0..2).for_each(|_| trainer.step().unwrap());
        trainer.checkpoint().unwrap().parameters
    };
    assert_eq!(parameters(), parameters());
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_file() {
    for by in [By::Candle, By::Gpu] {
        let folder = Folder::new("nan");
        let mut bad = Checkpoint::new(1, &images().name);
        bad.parameters.arrays[7][0] = f32::NAN;
        bad.state.losses.push(2.3);
        bad.state.right.push(0.5);
        bad.write(&folder.0.join("cnn.safetensors")).unwrap();
        let good = std::fs::read(folder.0.join("cnn.safetensors")).unwrap();
        let mut trainer = by.resume(config(&folder.0));
        let text = trainer.run(&mut on).unwrap_err().to_string();
        assert!(text.contains("the loss of step 2 is NaN") && text.contains("holds it after step 1"), "{by:?}: {text}");
        assert!(text.contains("\nnext: begin again with a smaller learning rate"), "{text}");
        assert_eq!(trainer.step().unwrap_err().to_string(), text);
        assert_eq!(trainer.keep().unwrap_err().to_string(), text);
        assert_eq!(std::fs::read(folder.0.join("cnn.safetensors")).unwrap(), good);
    }
}

#[test]
fn a_stop_is_kept_and_plans_that_cannot_be_done_are_named() {
    let folder = Folder::new("stop");
    let mut trainer = By::Candle.begin(config(&folder.0));
    assert_eq!(trainer.run(&mut |_| ControlFlow::Break(())).unwrap(), Ended::Stopped);
    let kept = Checkpoint::read(&folder.0.join("cnn.safetensors")).unwrap();
    assert_eq!(&kept.state, trainer.state());
    assert!(kept.state.step > 0 && kept.state.taken() == kept.state.step);
    let message = |images: &Images, change: fn(&mut TrainConfig)| {
        let mut config = config(&folder.0);
        change(&mut config);
        Trainer::resume(images, config).unwrap_err().to_string()
    };
    assert!(message(&images(), |config| config.batch = 0).contains("train nothing"));
    assert!(message(&images(), |config| config.batch = 4).contains("next: use a batch of 3 or less"));
    assert!(message(&images(), |config| config.learning_rate = f64::NAN).contains("the learning rate NaN"));
    assert!(message(&images(), |config| config.checkpoint = None).contains("the config names none"));
    assert!(message(&images(), |config| config.precision = Precision::Tf32).contains("TF32 is what tensor cores take"));
    let others = Images::generated(2, 3, 1);
    assert!(message(&others, |_| ()).contains("was trained on generated digits, seed 1, and these images are"));
    if !crate::DeviceKind::Metal.is_built() {
        assert!(message(&images(), |config| config.device = crate::DeviceKind::Metal).contains("a Mac's GPU"));
    }
}

#[test]
fn f16_scales_its_loss_and_lowers_the_scale_where_it_overflows() {
    let f16 = TrainConfig { precision: Precision::F16, batch: 1, checkpoint: None, ..config(Path::new("")) };
    let start = By::Candle.begin(f16.clone()).checkpoint().unwrap();
    assert_eq!(start.state.loss_scale, 65536.0);
    let after_a_step = |scale: f32, steady: u64| {
        let mut start = start.clone();
        (start.state.loss_scale, start.state.steady) = (scale, steady);
        let mut trainer = By::Candle.trainer(f16.clone(), start, None);
        trainer.step().unwrap();
        trainer.checkpoint().unwrap()
    };
    // Far too large: the gradients overflow, and the step is left out.
    let large = after_a_step(1e9, 7);
    let state = &large.state;
    assert_eq!((state.loss_scale, state.steady, state.step, state.taken()), (5e8, 0, 0, 1));
    assert_eq!(large.parameters, start.parameters);
    let good = after_a_step(1024.0, crate::cnn::backend::STEADY - 1);
    let state = &good.state;
    assert_eq!((state.loss_scale, state.steady, state.step, state.taken()), (2048.0, 0, 1, 1));
    assert_ne!(good.parameters, start.parameters);
}
