//! The driver's own library (NVML), opened at run time: what GPUs there are, and how much each is used.
//!
//! Nothing of it is needed to build. Signatures are those of the library's published interface; only calls that
//! every driver of the last ten years has are used. It never changes anything on a GPU.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use super::{GPUS_MAX, Gpu, GpuUse, Gpus};

const LIBRARY: &CStr = c"libnvidia-ml.so.1";
const SUCCESS: c_int = 0;
/// Longer than any name the library gives.
const TEXT_BYTES: usize = 128;

type Device = *mut c_void;

#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// The library, ready to be asked from any thread. It stays loaded until the process ends.
#[derive(Debug)]
pub struct Nvml {
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    by_index: unsafe extern "C" fn(c_uint, *mut Device) -> c_int,
    by_uuid: unsafe extern "C" fn(*const c_char, *mut Device) -> c_int,
    uuid: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int,
    name: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int,
    minor: unsafe extern "C" fn(Device, *mut c_uint) -> c_int,
    memory: unsafe extern "C" fn(Device, *mut Memory) -> c_int,
    utilization: unsafe extern "C" fn(Device, *mut Utilization) -> c_int,
    driver: unsafe extern "C" fn(*mut c_char, c_uint) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Nvml {
    /// Loads and starts the library; else why not.
    pub fn open() -> Result<Self, String> {
        // SAFETY: the name is a valid C string. Loading runs the library's own initialisers, as linking to it would.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!("{} cannot be opened", LIBRARY.to_string_lossy()));
        }
        // SAFETY: each name has, in the library's published interface, the type of the field it is put into; the
        // library is never unloaded.
        let (this, init) = unsafe {
            let init: unsafe extern "C" fn() -> c_int = symbol(library, c"nvmlInit_v2")?;
            let this = Self {
                count: symbol(library, c"nvmlDeviceGetCount_v2")?,
                by_index: symbol(library, c"nvmlDeviceGetHandleByIndex_v2")?,
                by_uuid: symbol(library, c"nvmlDeviceGetHandleByUUID")?,
                uuid: symbol(library, c"nvmlDeviceGetUUID")?,
                name: symbol(library, c"nvmlDeviceGetName")?,
                minor: symbol(library, c"nvmlDeviceGetMinorNumber")?,
                memory: symbol(library, c"nvmlDeviceGetMemoryInfo")?,
                utilization: symbol(library, c"nvmlDeviceGetUtilizationRates")?,
                driver: symbol(library, c"nvmlSystemGetDriverVersion")?,
                error: symbol(library, c"nvmlErrorString")?,
            };
            (this, init)
        };
        // SAFETY: takes nothing; may be called any number of times.
        let started = unsafe { init() };
        this.check(started, "starting the driver's library")?;
        Ok(this)
    }

    /// Every GPU that the driver lets this process see.
    pub fn list(&self) -> Result<Gpus, String> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the call.
        self.check(unsafe { (self.count)(&raw mut count) }, "counting GPUs")?;
        let mut found = Gpus {
            driver: text(|at, bytes| {
                // SAFETY: `text` gives a buffer of that many bytes.
                unsafe { (self.driver)(at, bytes) }
            }),
            ..Gpus::default()
        };
        for index in 0..count.min(GPUS_MAX) {
            match self.describe(index) {
                Ok(gpu) => found.list.push(gpu),
                Err(why) => found.remarks.push(format!("GPU {index} is left out: {why}.")),
            }
        }
        if found.list.is_empty() && found.remarks.is_empty() {
            found.remarks.push("The NVIDIA driver is there and knows of no GPU.".to_owned());
        }
        Ok(found)
    }

    fn describe(&self, index: c_uint) -> Result<Gpu, String> {
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        self.check(unsafe { (self.by_index)(index, &raw mut device) }, "asking for it")?;
        let mut minor = 0;
        // SAFETY: the device is the library's own; the pointer is valid for the call.
        self.check(unsafe { (self.minor)(device, &raw mut minor) }, "asking for its device file")?;
        let uuid = text(|at, bytes| {
            // SAFETY: the device is the library's own; `text` gives a buffer of that many bytes.
            unsafe { (self.uuid)(device, at, bytes) }
        });
        let name = text(|at, bytes| {
            // SAFETY: as above.
            unsafe { (self.name)(device, at, bytes) }
        });
        let memory_mb = self.memory_of(device).map_or(0, |memory| memory.total >> 20);
        Ok(Gpu {
            uuid: uuid.ok_or("it has no UUID")?,
            name: name.unwrap_or_else(|| "NVIDIA GPU".to_owned()),
            minor,
            memory_mb,
            emulated: false,
        })
    }

    /// How much a GPU is used now; none where the driver does not say.
    pub fn used(&self, uuid: &str) -> Option<GpuUse> {
        let uuid = CString::new(uuid).ok()?;
        let mut device: Device = std::ptr::null_mut();
        // SAFETY: a valid C string, and a pointer that is valid for the call.
        if unsafe { (self.by_uuid)(uuid.as_ptr(), &raw mut device) } != SUCCESS {
            return None;
        }
        let mut rates = Utilization::default();
        // SAFETY: the device is the library's own; the structure has the library's layout.
        if unsafe { (self.utilization)(device, &raw mut rates) } != SUCCESS {
            return None;
        }
        let memory_used_mb = self.memory_of(device)?.used >> 20;
        Some(GpuUse { utilization: rates.gpu.min(100), memory_used_mb })
    }

    fn memory_of(&self, device: Device) -> Option<Memory> {
        let mut memory = Memory::default();
        // SAFETY: the device is the library's own; the structure has the library's layout.
        (unsafe { (self.memory)(device, &raw mut memory) } == SUCCESS).then_some(memory)
    }

    fn check(&self, code: c_int, doing: &str) -> Result<(), String> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: takes any number, and gives a text that stays, or nothing.
        let words = unsafe {
            let at = (self.error)(code);
            if at.is_null() {
                format!("error {code}")
            } else {
                CStr::from_ptr(at).to_string_lossy().into_owned()
            }
        };
        Err(format!("{doing}: {words}"))
    }
}

/// A function of the library.
///
/// # Safety
/// `T` must be the type of a pointer to that function.
unsafe fn symbol<T: Copy>(library: *mut c_void, name: &CStr) -> Result<T, String> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    // SAFETY: an open library and a valid C string.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    if at.is_null() {
        return Err(format!("the driver's library has no {}", name.to_string_lossy()));
    }
    // SAFETY: by the caller's word `T` is what a pointer to this function is; sizes are compared above.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, T>(&at) })
}

/// A text that the library writes into a buffer.
fn text(write: impl FnOnce(*mut c_char, c_uint) -> c_int) -> Option<String> {
    let mut buffer = [0u8; TEXT_BYTES];
    let code = write(buffer.as_mut_ptr().cast::<c_char>(), (TEXT_BYTES - 1) as c_uint);
    let words = CStr::from_bytes_until_nul(&buffer).ok()?.to_str().ok()?.trim();
    (code == SUCCESS && !words.is_empty()).then(|| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_or_says_why_not() {
        match Nvml::open() {
            Err(why) => assert!(!why.is_empty()),
            Ok(nvml) => {
                let found = nvml.list().unwrap();
                assert!(
                    found
                        .list
                        .iter()
                        .all(|gpu| nvml.used(&gpu.uuid).is_some_and(|used| used.utilization <= 100))
                );
                assert_eq!(nvml.used("GPU-no-such"), None);
            }
        }
    }
}
