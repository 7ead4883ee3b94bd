//! The NVIDIA GPUs of this machine: which there are, whose device files they have, and how much they are used.
//!
//! The driver's library is asked where it can be opened (`nvml`); without it the driver's files still say which GPUs
//! there are, and nothing says how much they are used. Which GPU is given to whom is decided elsewhere.

mod nvml;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use nvml::Nvml;

/// The variable that says which GPUs a process may use; the server itself goes by it too.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// What there can be at most on one machine: an odd answer of the driver is not believed beyond this.
pub const GPUS_MAX: u32 = 256;

/// One GPU, by the name that no reboot changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// `GPU-…`, as the driver has it.
    pub uuid: String,
    pub name: String,
    /// `/dev/nvidia<minor>`
    pub minor: u32,
    /// Zero where nobody says.
    pub memory_mb: u64,
    /// There is no such GPU: somebody asked for it to be pretended.
    #[serde(default)]
    pub emulated: bool,
}

/// How much a GPU is used at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    /// Of the last sample period (a second or less), how much of it something ran, in percent.
    pub utilization: u32,
    pub memory_used_mb: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    pub list: Vec<Gpu>,
    pub driver: Option<String>,
    /// What is missing or left out, each as a sentence.
    pub remarks: Vec<String>,
}

/// Looks for GPUs. May take a second where the driver must wake them up.
pub fn gpus() -> Gpus {
    let mut found = match Nvml::open().and_then(|nvml| nvml.list()) {
        Ok(found) => found,
        Err(why) => by_files(Path::new("/proc/driver/nvidia"), &why),
    };
    let here = device_files(Path::new("/dev"));
    let (usable, not): (Vec<_>, Vec<_>) =
        found.list.into_iter().partition(|gpu| here.iter().any(|(minor, _)| *minor == gpu.minor));
    found.list = usable;
    found.remarks.extend(not.iter().map(|gpu| format!("{} has no /dev/nvidia{} here.", gpu.uuid, gpu.minor)));
    let asked = std::env::var(VISIBLE).ok();
    let all = found.list.len();
    found.list = visible(found.list, asked.as_deref());
    if found.list.len() < all {
        found.remarks.push(format!(
            "{VISIBLE} is set to '{}': {} of {all} GPUs are used.",
            asked.unwrap_or_default(),
            found.list.len()
        ));
    }
    found
}

/// So many GPUs that are not there.
pub fn emulated(count: u32) -> Vec<Gpu> {
    (0..count.min(GPUS_MAX))
        .map(|minor| Gpu {
            uuid: format!("GPU-emulated-{minor}"),
            name: "emulated".to_owned(),
            minor,
            memory_mb: 0,
            emulated: true,
        })
        .collect()
}

/// The device files of GPUs, by minor number: `/dev/nvidia0`.
pub fn device_files(dev: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<_> = fs::read_dir(dev)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let digits = entry.file_name().to_str()?.strip_prefix("nvidia")?.to_owned();
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten().map(|minor| (minor, entry.path()))
        })
        .collect();
    found.sort_unstable();
    found
}

/// What the variable leaves of them, by the driver library's own rules: numbers or beginnings of names, up to the
/// first that means nothing.
fn visible(all: Vec<Gpu>, asked: Option<&str>) -> Vec<Gpu> {
    let Some(asked) = asked else { return all };
    let mut kept: Vec<Gpu> = Vec::new();
    for word in asked.split(',').map(str::trim) {
        let one = match word.parse::<usize>() {
            Ok(at) => all.get(at),
            Err(_) if word.starts_with("GPU-") => all.iter().find(|gpu| gpu.uuid.starts_with(word)),
            Err(_) => None,
        };
        match one {
            Some(gpu) if !kept.contains(gpu) => kept.push(gpu.clone()),
            Some(_) | None => break,
        }
    }
    kept
}

/// What the driver's files say, where its library cannot be asked.
fn by_files(driver: &Path, why: &str) -> Gpus {
    let mut list: Vec<Gpu> = fs::read_dir(driver.join("gpus"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| read_information(&fs::read_to_string(entry.path().join("information")).ok()?))
        .collect();
    list.sort_by_key(|gpu| gpu.minor);
    let version = fs::read_to_string(driver.join("version")).ok();
    let driver = version.as_deref().and_then(|text| {
        text.split_whitespace().find(|word| word.split('.').count() > 1 && is_version(word))
    });
    let remarks = if list.is_empty() {
        vec![format!("No NVIDIA GPU was found ({why}).")]
    } else {
        vec![format!("How much the GPUs are used is not known: {why}.")]
    };
    Gpus { list, driver: driver.map(str::to_owned), remarks }
}

fn is_version(word: &str) -> bool {
    word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `/proc/driver/nvidia/gpus/<bus>/information`
fn read_information(text: &str) -> Option<Gpu> {
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    let uuid = value("GPU UUID").filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?'))?;
    Some(Gpu {
        uuid,
        name: value("Model").unwrap_or_default(),
        minor: value("Device Minor")?.parse().ok()?,
        memory_mb: 0,
        emulated: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Gpu> {
        (0..3)
            .map(|minor| Gpu { uuid: format!("GPU-{minor}abc"), emulated: false, ..emulated(1).remove(0) })
            .map(|gpu| Gpu { minor: gpu.uuid.as_bytes()[4].into(), ..gpu })
            .collect()
    }

    #[test]
    fn the_variable_chooses_by_number_or_name_up_to_the_first_mistake() {
        let kept = |asked| -> Vec<String> {
            visible(three(), asked).into_iter().map(|gpu| gpu.uuid[4..5].to_owned()).collect()
        };
        assert_eq!(kept(None), ["0", "1", "2"]);
        assert_eq!(kept(Some("2,0")), ["2", "0"]);
        assert_eq!(kept(Some("GPU-1")), ["1"]);
        assert_eq!(kept(Some("1,7,0")), ["1"]);
        assert_eq!(kept(Some("1,1")), ["1"]);
        for none in ["", "-1", "none", "NoDevFiles"] {
            assert!(kept(Some(none)).is_empty(), "{none}");
        }
    }

    #[test]
    fn the_drivers_files_name_a_gpu() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 18\nGPU UUID: \t GPU-5f3a-11\nBus Location: \t 0000:00:05.0\nDevice Minor: \t 3\n";
        let gpu = read_information(text).unwrap();
        assert_eq!((gpu.name.as_str(), gpu.uuid.as_str(), gpu.minor), ("NVIDIA H200", "GPU-5f3a-11", 3));
        assert_eq!(read_information("Model: x\nGPU UUID: GPU-????????\nDevice Minor: 0\n"), None);
        assert_eq!(read_information(""), None);
    }

    #[test]
    fn without_a_driver_there_are_none_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let found = by_files(folder.path(), "no library");
        assert_eq!((found.list.len(), found.driver), (0, None));
        assert_eq!(found.remarks, ["No NVIDIA GPU was found (no library)."]);
        let gpu = folder.path().join("gpus/0000:00:05.0");
        fs::create_dir_all(&gpu).unwrap();
        fs::write(gpu.join("information"), "GPU UUID: GPU-1\nDevice Minor: 0\n").unwrap();
        fs::write(folder.path().join("version"), "NVRM version: NVIDIA UNIX x86_64  550.54.15  Tue\n")
            .unwrap();
        let found = by_files(folder.path(), "no library");
        assert_eq!((found.list.len(), found.driver.as_deref()), (1, Some("550.54.15")));
    }

    #[test]
    fn device_files_are_numbered_ones_alone() {
        let dev = tempfile::tempdir().unwrap();
        for name in ["nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia", "null"] {
            fs::write(dev.path().join(name), "").unwrap();
        }
        let minors: Vec<u32> = device_files(dev.path()).into_iter().map(|(minor, _)| minor).collect();
        assert_eq!(minors, [0, 1]);
    }

    #[test]
    fn pretended_ones_say_what_they_are() {
        let two = emulated(2);
        assert_eq!(
            two.iter().map(|gpu| gpu.uuid.as_str()).collect::<Vec<_>>(),
            ["GPU-emulated-0", "GPU-emulated-1"]
        );
        assert!(two.iter().all(|gpu| gpu.emulated));
    }
}
