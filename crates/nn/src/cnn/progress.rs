//! How far a run is, as a line.

use std::fmt;
use std::time::Instant;

/// How far a run is. Its text is one line: notebooks show whole lines only.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The epoch, from 1, and how many there will be.
    pub epoch: (u64, u64),
    /// The step of this epoch, from 1, and how many it has.
    pub step: (u64, u64),
    /// The mean loss since the line before.
    pub loss: f64,
    /// The share of images, 0 to 1, that were right since the line before.
    pub right: f64,
    /// Images a second since the line before.
    pub images_per_s: f64,
    /// Seconds until the last epoch is over, at that speed, without the tests.
    pub left_s: f64,
    /// Of an epoch's last step: the share of test images that are right, 0 to 1.
    pub accuracy: Option<f64>,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { epoch, step, loss, images_per_s, .. } = self;
        write!(f, "epoch {}/{}  step {:>4}/{}  loss {loss:.4}  ", epoch.0, epoch.1, step.0, step.1)?;
        write!(f, "right {:5.1} %  {images_per_s:>7.0} images/s  ", 100.0 * self.right)?;
        match self.accuracy {
            Some(accuracy) => write!(f, "test images right: {:.2} %", 100.0 * accuracy),
            None => write!(f, "{} left", duration(self.left_s)),
        }
    }
}

/// `9 s`, `2 min 05 s`, `1 h 02 min`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// What happened since the last line.
#[derive(Debug)]
pub(super) struct Since {
    start: Instant,
    losses: f64,
    right: f64,
    steps: u64,
    images: u64,
}

impl Since {
    pub(super) fn now() -> Since {
        Since { start: Instant::now(), losses: 0.0, right: 0.0, steps: 0, images: 0 }
    }

    pub(super) fn step(&mut self, loss: f32, right: f32, images: usize) {
        self.losses += f64::from(loss);
        self.right += f64::from(right) * images as f64;
        self.steps += 1;
        self.images += images as u64;
    }

    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// The figures so far; `left` images are still to come.
    pub(super) fn progress(&self, epoch: (u64, u64), step: (u64, u64), left: u64) -> Progress {
        let images_per_s = self.images as f64 / self.seconds().max(1e-9);
        Progress {
            epoch,
            step,
            loss: self.losses / self.steps.max(1) as f64,
            right: self.right / self.images.max(1) as f64,
            images_per_s,
            left_s: left as f64 / images_per_s.max(1e-9),
            accuracy: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
