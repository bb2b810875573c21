//! Every kind of CUDA call that the probes tell apart, made by either API.
//!
//! Owns: how each is made, and the count of what was made. Refuses: how many (`cuda-program`).

use super::api::{Api, Dim3, LaunchConfig, planes, rows};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ptr};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
#[allow(missing_docs, reason = "they are the names of CUDA's functions")]
pub enum Kind {
    Launch,
    LaunchCooperative,
    LaunchEx,
    Graph,
    Alloc,
    AllocAsync,
    AllocFromPool,
    AllocManaged,
    AllocPitch,
    Free,
    FreeAsync,
    /// Of an address at which nothing was allocated: it fails.
    FreeUnknown,
    /// Physical memory, created, mapped.
    Map,
    /// Unmapped, released.
    Unmap,
    /// Physical memory, created, mapped, and released at once, which its mapping outlives.
    MapOnly,
    /// Unmapped, which is the end of what was released before.
    UnmapOnly,
    HostToDevice,
    HostToDeviceAsync,
    DeviceToHost,
    DeviceToHostAsync,
    DeviceToDevice,
    DeviceToDeviceAsync,
    Copy,
    CopyAsync,
    Peer,
    PeerAsync,
    /// From the host to the device, in rows.
    Copy2d,
    /// From the device to the host, in rows.
    Copy2dAsync,
    /// From the device to the host, in planes of rows; the driver's alone.
    Copy3dAsync,
    /// From the host to a variable on the device; the runtime's alone.
    ToSymbol,
    StreamSynchronize,
    EventSynchronize,
    ContextSynchronize,
    EventQuery,
}

/// What was made of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Calls.
    pub calls: u64,
    /// Bytes that they asked for or moved, those of failed calls not counted.
    pub bytes: u64,
    /// Calls that returned an error.
    pub failures: u64,
}

/// What a program made, by kind.
pub type Counts = BTreeMap<Kind, Made>;

/// One thread of a program.
#[derive(Debug)]
pub struct Caller<'a> {
    api: &'a Api,
    streams: Vec<usize>,
    kernel: usize,
    graph: usize,
    event: usize,
    /// Bytes of each allocation and copy.
    bytes: usize,
    held: Vec<u64>,
    mapped: Vec<(u64, u64)>,
    made: u64,
    /// What was made.
    pub counts: Counts,
}

/// Host functions are told apart by their address; any that is not a real one will do.
const HOST: usize = 0x4000;
const DEVICE_ADDRESS: u64 = 0x7000_0000_0000;
const HOST_ADDRESS: u64 = 0x5000_0000_0000;
const NOWHERE: u64 = 0x4_2000;

impl<'a> Caller<'a> {
    /// Makes streams, a kernel and a graph. With no streams it uses the default one.
    pub fn new(api: &'a Api, streams: usize, kernel_us: u64, bytes: usize) -> anyhow::Result<Caller<'a>> {
        api.register(HOST, kernel_us)?;
        let mut event = 0;
        (api.driver.cuEventCreate)(&raw mut event, 0);
        Ok(Caller {
            api,
            streams: (0..streams).map(|_| api.stream()).collect::<Result<_, _>>()?,
            kernel: api.kernel(kernel_us)?,
            graph: api.graph(10, kernel_us)?,
            event,
            bytes,
            held: Vec::new(),
            mapped: Vec::new(),
            made: 0,
            counts: Counts::new(),
        })
    }

    /// Bytes of allocations and copies from now on.
    pub fn set_bytes(&mut self, bytes: usize) {
        self.bytes = bytes;
    }

    /// Makes one call, by the runtime or by the driver; the driver makes those that the runtime does not have. Its
    /// `CUresult` or `cudaError_t`.
    pub fn make(&mut self, kind: Kind, by_runtime: bool) -> u32 {
        let streams = self.streams.len().max(1) as u64;
        let at = (self.made % streams) as usize;
        let stream = self.streams.get(at).copied().unwrap_or(0);
        self.made += 1;
        let (code, bytes) = if by_runtime {
            self.by_runtime(kind, stream)
        } else {
            self.by_driver(kind, stream)
        };
        let made = self.counts.entry(kind).or_default();
        made.calls += 1;
        if code == 0 {
            made.bytes += bytes as u64;
        } else {
            made.failures += 1;
        }
        code
    }

    fn config(stream: usize) -> LaunchConfig {
        LaunchConfig {
            size: [1; 6],
            shared: 0,
            stream,
            attributes: 0,
            attribute_count: 0,
        }
    }

    fn hold(&mut self, (code, pointer, bytes): (u32, u64, usize)) -> (u32, usize) {
        if code == 0 {
            self.held.push(pointer);
        }
        (code, bytes)
    }

    fn by_driver(&mut self, kind: Kind, stream: usize) -> (u32, usize) {
        let cuda = &self.api.driver;
        let (bytes, null) = (self.bytes, ptr::null_mut());
        let mut pointer = 0;
        let place = &raw mut pointer;
        let copied = |code| (code, bytes);
        let done = |code| (code, 0);
        match kind {
            Kind::Launch => done((cuda.cuLaunchKernel)(
                self.kernel,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                null,
                null,
            )),
            Kind::LaunchCooperative => done((cuda.cuLaunchCooperativeKernel)(
                self.kernel,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                null,
            )),
            Kind::LaunchEx => {
                let config = Self::config(stream);
                done((cuda.cuLaunchKernelEx)(
                    &raw const config,
                    self.kernel,
                    null,
                    null,
                ))
            }
            Kind::Graph => done((cuda.cuGraphLaunch)(self.graph, stream)),
            Kind::Alloc => {
                let code = (cuda.cuMemAlloc_v2)(place, bytes);
                self.hold((code, pointer, bytes))
            }
            Kind::AllocAsync => {
                let code = (cuda.cuMemAllocAsync)(place, bytes, stream);
                self.hold((code, pointer, bytes))
            }
            Kind::AllocFromPool => {
                let code = (cuda.cuMemAllocFromPoolAsync)(place, bytes, 0x9001, stream);
                self.hold((code, pointer, bytes))
            }
            Kind::AllocManaged => {
                let code = (cuda.cuMemAllocManaged)(place, bytes, 1);
                self.hold((code, pointer, bytes))
            }
            Kind::AllocPitch => {
                let mut pitch = 0;
                let code = (cuda.cuMemAllocPitch_v2)(place, &raw mut pitch, bytes, 2, 4);
                self.hold((code, pointer, pitch * 2))
            }
            Kind::Free => done((cuda.cuMemFree_v2)(self.held.pop().unwrap_or(0))),
            Kind::FreeAsync => done((cuda.cuMemFreeAsync)(self.held.pop().unwrap_or(0), stream)),
            Kind::FreeUnknown => done((cuda.cuMemFree_v2)(NOWHERE)),
            Kind::Map | Kind::MapOnly => {
                let mut handle = 0;
                let mut code = (cuda.cuMemCreate)(&raw mut handle, bytes, ptr::null(), 0);
                if code == 0 {
                    code = (cuda.cuMemAddressReserve)(place, bytes, 0, 0, 0)
                        | (cuda.cuMemMap)(pointer, bytes, 0, handle, 0);
                    if kind == Kind::MapOnly {
                        code |= (cuda.cuMemRelease)(handle);
                    }
                    self.mapped.push((pointer, handle));
                }
                copied(code)
            }
            Kind::Unmap | Kind::UnmapOnly => match self.mapped.pop() {
                None => done(1),
                Some((pointer, handle)) => {
                    let mut code = (cuda.cuMemUnmap)(pointer, bytes);
                    if kind == Kind::Unmap {
                        code |= (cuda.cuMemRelease)(handle);
                    }
                    done(code)
                }
            },
            Kind::HostToDevice => copied((cuda.cuMemcpyHtoD_v2)(DEVICE_ADDRESS, HOST_ADDRESS, bytes)),
            Kind::HostToDeviceAsync => copied((cuda.cuMemcpyHtoDAsync_v2)(
                DEVICE_ADDRESS,
                HOST_ADDRESS,
                bytes,
                stream,
            )),
            Kind::DeviceToHost => copied((cuda.cuMemcpyDtoH_v2)(HOST_ADDRESS, DEVICE_ADDRESS, bytes)),
            Kind::DeviceToHostAsync => copied((cuda.cuMemcpyDtoHAsync_v2)(
                HOST_ADDRESS,
                DEVICE_ADDRESS,
                bytes,
                stream,
            )),
            Kind::DeviceToDevice => copied((cuda.cuMemcpyDtoD_v2)(DEVICE_ADDRESS, DEVICE_ADDRESS, bytes)),
            Kind::DeviceToDeviceAsync => copied((cuda.cuMemcpyDtoDAsync_v2)(
                DEVICE_ADDRESS,
                DEVICE_ADDRESS,
                bytes,
                stream,
            )),
            Kind::Copy => copied((cuda.cuMemcpy)(DEVICE_ADDRESS, HOST_ADDRESS, bytes)),
            Kind::CopyAsync => copied((cuda.cuMemcpyAsync)(DEVICE_ADDRESS, HOST_ADDRESS, bytes, stream)),
            Kind::Peer => copied((cuda.cuMemcpyPeer)(DEVICE_ADDRESS, 1, DEVICE_ADDRESS, 1, bytes)),
            Kind::PeerAsync => copied((cuda.cuMemcpyPeerAsync)(
                DEVICE_ADDRESS,
                1,
                DEVICE_ADDRESS,
                1,
                bytes,
                stream,
            )),
            Kind::Copy2d => ((cuda.cuMemcpy2D_v2)(&rows(1, 2, bytes)), bytes * 3),
            Kind::Copy2dAsync => ((cuda.cuMemcpy2DAsync_v2)(&rows(2, 1, bytes), stream), bytes * 3),
            Kind::Copy3dAsync => ((cuda.cuMemcpy3DAsync_v2)(&planes(bytes), stream), bytes * 6),
            Kind::ToSymbol => self.by_runtime(kind, stream),
            Kind::StreamSynchronize => done((cuda.cuStreamSynchronize)(stream)),
            Kind::EventSynchronize => {
                (cuda.cuEventRecord)(self.event, stream);
                done((cuda.cuEventSynchronize)(self.event))
            }
            Kind::ContextSynchronize => done((cuda.cuCtxSynchronize)()),
            Kind::EventQuery => done((cuda.cuEventQuery)(self.event)),
        }
    }

    fn by_runtime(&mut self, kind: Kind, stream: usize) -> (u32, usize) {
        let cuda = &self.api.runtime;
        let (bytes, null) = (self.bytes, ptr::null_mut());
        let one = Dim3(1, 1, 1);
        let mut pointer = 0;
        let place = &raw mut pointer;
        let copied = |code| (code, bytes);
        let done = |code| (code, 0);
        match kind {
            Kind::Launch => done((cuda.cudaLaunchKernel)(HOST, one, one, null, 0, stream)),
            Kind::LaunchCooperative => done((cuda.cudaLaunchCooperativeKernel)(
                HOST, one, one, null, 0, stream,
            )),
            Kind::LaunchEx => {
                let config = Self::config(stream);
                done((cuda.cudaLaunchKernelExC)(&raw const config, HOST, null))
            }
            Kind::Graph => done((cuda.cudaGraphLaunch)(self.graph, stream)),
            Kind::Alloc => {
                let code = (cuda.cudaMalloc)(place, bytes);
                self.hold((code, pointer, bytes))
            }
            Kind::AllocAsync => {
                let code = (cuda.cudaMallocAsync)(place, bytes, stream);
                self.hold((code, pointer, bytes))
            }
            Kind::AllocFromPool => {
                let code = (cuda.cudaMallocFromPoolAsync)(place, bytes, 0x9001, stream);
                self.hold((code, pointer, bytes))
            }
            Kind::AllocManaged => {
                let code = (cuda.cudaMallocManaged)(place, bytes, 1);
                self.hold((code, pointer, bytes))
            }
            Kind::AllocPitch => {
                let mut pitch = 0;
                let code = (cuda.cudaMallocPitch)(place, &raw mut pitch, bytes, 2);
                self.hold((code, pointer, pitch * 2))
            }
            Kind::Free => done((cuda.cudaFree)(self.held.pop().unwrap_or(0))),
            Kind::FreeAsync => done((cuda.cudaFreeAsync)(self.held.pop().unwrap_or(0), stream)),
            Kind::HostToDevice => copied((cuda.cudaMemcpy)(DEVICE_ADDRESS, HOST_ADDRESS, bytes, 1)),
            Kind::HostToDeviceAsync => copied((cuda.cudaMemcpyAsync)(
                DEVICE_ADDRESS,
                HOST_ADDRESS,
                bytes,
                1,
                stream,
            )),
            Kind::DeviceToHost => copied((cuda.cudaMemcpy)(HOST_ADDRESS, DEVICE_ADDRESS, bytes, 2)),
            Kind::DeviceToHostAsync => copied((cuda.cudaMemcpyAsync)(
                HOST_ADDRESS,
                DEVICE_ADDRESS,
                bytes,
                2,
                stream,
            )),
            Kind::DeviceToDevice => copied((cuda.cudaMemcpy)(DEVICE_ADDRESS, DEVICE_ADDRESS, bytes, 3)),
            Kind::DeviceToDeviceAsync => copied((cuda.cudaMemcpyAsync)(
                DEVICE_ADDRESS,
                DEVICE_ADDRESS,
                bytes,
                3,
                stream,
            )),
            Kind::Copy => copied((cuda.cudaMemcpy)(DEVICE_ADDRESS, HOST_ADDRESS, bytes, 4)),
            Kind::CopyAsync => copied((cuda.cudaMemcpyAsync)(
                DEVICE_ADDRESS,
                HOST_ADDRESS,
                bytes,
                4,
                stream,
            )),
            Kind::Peer => copied((cuda.cudaMemcpyPeer)(DEVICE_ADDRESS, 0, DEVICE_ADDRESS, 0, bytes)),
            Kind::PeerAsync => copied((cuda.cudaMemcpyPeerAsync)(
                DEVICE_ADDRESS,
                0,
                DEVICE_ADDRESS,
                0,
                bytes,
                stream,
            )),
            Kind::Copy2d => (
                (cuda.cudaMemcpy2D)(DEVICE_ADDRESS, bytes, HOST_ADDRESS, bytes, bytes, 3, 1),
                bytes * 3,
            ),
            Kind::Copy2dAsync => (
                (cuda.cudaMemcpy2DAsync)(HOST_ADDRESS, bytes, DEVICE_ADDRESS, bytes, bytes, 3, 2, stream),
                bytes * 3,
            ),
            Kind::ToSymbol => copied((cuda.cudaMemcpyToSymbol)(
                DEVICE_ADDRESS,
                HOST_ADDRESS,
                bytes,
                0,
                1,
            )),
            Kind::FreeUnknown => done((cuda.cudaFree)(NOWHERE)),
            Kind::StreamSynchronize => done((cuda.cudaStreamSynchronize)(stream)),
            Kind::EventSynchronize => {
                (cuda.cudaEventRecord)(self.event, stream);
                done((cuda.cudaEventSynchronize)(self.event))
            }
            Kind::ContextSynchronize => done((cuda.cudaDeviceSynchronize)()),
            Kind::EventQuery => done((cuda.cudaEventQuery)(self.event)),
            Kind::Map | Kind::Unmap | Kind::MapOnly | Kind::UnmapOnly | Kind::Copy3dAsync => {
                self.by_driver(kind, stream)
            }
        }
    }
}
