//! What only trying tells: BPF system calls, mounting tracefs, the GPU's library, the listening address.
//!
//! Owns: the trials, each of which leaves nothing behind. Refuses: judging their outcome.

use super::facts::{BpfFailure, CudaFacts, GpuDevice, GpuFacts, Nvml, Tracefs};
use crate::probe::cuda::libraries as cuda_libraries;
use crate::sampler::nvml::{GpuConfig, NvmlMode, NvmlOpener, OpenError};
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

/// GPUs that are asked; a host has up to 16.
const MAX_GPUS: u32 = 64;

/// bpf(2) commands and types (include/uapi/linux/bpf.h).
const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const MAP_TYPE_RINGBUF: u32 = 27;
const PROG_TYPE_TRACEPOINT: u32 = 5;

/// The head of `union bpf_attr` for `BPF_MAP_CREATE`; shorter ones are taken as followed by zeros.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The head of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
}

fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is a live, initialised prefix of `union bpf_attr` of the size that is passed; the kernel only reads it.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands return a new descriptor, which is owned from here on.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Makes a ring buffer and loads a program that does nothing; both are gone on return.
pub(super) fn try_bpf() -> Result<(), BpfFailure> {
    let failure = |step| {
        move |error: io::Error| BpfFailure {
            step,
            errno: error.raw_os_error().unwrap_or(0),
        }
    };
    let ring = MapCreate {
        map_type: MAP_TYPE_RINGBUF,
        key_size: 0,
        value_size: 0,
        max_entries: 65_536,
        map_flags: 0,
    };
    bpf(MAP_CREATE, &ring).map_err(failure("making a ring buffer"))?;
    // r0 = 0; exit
    let insns: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];
    let license = c"GPL";
    let program = ProgLoad {
        prog_type: PROG_TYPE_TRACEPOINT,
        insn_cnt: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
    };
    bpf(PROG_LOAD, &program).map_err(failure("loading a tracing program"))?;
    Ok(())
}

/// Tries to mount tracefs in a mount namespace that ends with the thread that makes it.
pub(super) fn try_tracefs(seen: &Tracefs) -> Tracefs {
    let trial = std::thread::spawn(|| -> io::Result<bool> {
        // SAFETY: the calls take constant, nul-terminated strings; the new mount namespace is this thread's alone.
        unsafe {
            if libc::unshare(libc::CLONE_NEWNS) != 0 {
                return Err(io::Error::last_os_error());
            }
            let none = std::ptr::null();
            if libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_REC | libc::MS_PRIVATE,
                none.cast(),
            ) != 0
            {
                return Err(io::Error::last_os_error());
            }
            let (name, place) = (c"tracefs".as_ptr(), c"/sys/kernel/tracing".as_ptr());
            if libc::mount(name, place, name, 0, none.cast()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(std::fs::read("/sys/kernel/tracing/events/syscalls/sys_enter_read/id").is_ok())
    });
    match trial.join() {
        Ok(Ok(true)) => Tracefs::Mountable,
        Ok(Ok(false)) => Tracefs::NoSyscalls,
        Ok(Err(error)) => match seen {
            Tracefs::Refused(why) => Tracefs::Refused(format!("{why}, and mounting it is refused: {error}")),
            other => other.clone(),
        },
        Err(_) => seen.clone(),
    }
}

/// Loads NVML, as `infertap run` would, and asks it what there is.
pub(super) fn gpu(config: &GpuConfig) -> Nvml {
    if config.nvml == NvmlMode::Off {
        return Nvml::Off;
    }
    let nvml = match NvmlOpener::new(config).load() {
        Ok(nvml) => nvml,
        Err(OpenError::Absent(why)) if config.nvml == NvmlMode::Auto => return Nvml::Absent(why),
        Err(OpenError::Absent(why) | OpenError::Failed(why)) => return Nvml::Failed(why),
    };
    let device = |index| {
        let found = nvml.device_by_index(index);
        let on = |ask: fn(&nvml_wrapper::Device<'_>) -> bool| found.as_ref().is_ok_and(ask);
        GpuDevice {
            mig: on(|device| device.mig_mode().is_ok_and(|mode| mode.current == 1)),
            counters: on(|device| device.gpm_support().unwrap_or(false)),
            name: found
                .and_then(|device| device.name())
                .map_err(|error| error.to_string()),
        }
    };
    let facts = || {
        Ok::<_, nvml_wrapper::error::NvmlError>(GpuFacts {
            driver: nvml.sys_driver_version()?,
            nvml: nvml.sys_nvml_version()?,
            devices: (0..nvml.device_count()?.min(MAX_GPUS)).map(device).collect(),
        })
    };
    facts().map_or_else(|error| Nvml::Failed(error.to_string()), Nvml::There)
}

/// CUDA's libraries that these processes of an engine have mapped, each file once.
pub(super) fn cuda(proc: &Path, engine: &str, pids: &[u32]) -> Vec<CudaFacts> {
    let mut seen = BTreeSet::new();
    let each = pids.iter().flat_map(|pid| cuda_libraries(proc, *pid));
    each.filter(|library| seen.insert(library.name.clone()))
        .map(|library| CudaFacts {
            engine: engine.to_owned(),
            library: library.name,
            functions: library.functions,
        })
        .collect()
}

/// Binds the address of the HTTP server, and lets go of it.
pub(super) fn try_listen(address: SocketAddr) -> Result<String, String> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(address.to_string()),
        Err(error) => Err(format!("{address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listening_address_is_tried() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = taken.local_addr().expect("address");
        assert!(try_listen(address).is_err());
        drop(taken);
        assert_eq!(try_listen(address), Ok(address.to_string()));
    }

    #[test]
    fn trials_leave_nothing_behind() {
        let mounts = || std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        let before = mounts();
        let _ = try_tracefs(&Tracefs::NoSyscalls);
        let _ = try_bpf();
        assert_eq!(mounts(), before);
    }

    #[test]
    fn a_refused_call_tells_its_error() {
        // No map has type 0xffff: EINVAL, or EPERM where BPF is not ours to use.
        let bad = MapCreate {
            map_type: 0xffff,
            key_size: 0,
            value_size: 0,
            max_entries: 0,
            map_flags: 0,
        };
        let error = bpf(MAP_CREATE, &bad).expect_err("refused").raw_os_error();
        assert!(
            [Some(libc::EINVAL), Some(libc::EPERM), Some(libc::ENOSYS)].contains(&error),
            "{error:?}"
        );
    }
}
