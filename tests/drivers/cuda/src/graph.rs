//! Graphs: made of nodes or captured, instantiated, launched.
//!
//! Owns: how long a graph takes: its nodes one after the other. Refuses: dependencies between nodes.

use crate::{
    ffi::Ptr,
    state::{Error, StreamHandle, state},
};

/// `CUDA_KERNEL_NODE_PARAMS`, as far as it matters.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelNode {
    function: usize,
}

cuda! {
    fn cuGraphCreate(_entry, graph: Ptr<usize>, _flags: u32) {
        let mut state = state();
        let handle = state.new_handle();
        state.graphs.insert(handle, 0);
        graph.set(handle)
    }

    fn cuGraphAddKernelNode_v2(
        _entry, node: Ptr<usize>, graph: usize, _dependencies: *const usize, _count: usize, parameters: Ptr<KernelNode>,
    ) {
        let mut state = state();
        let function = parameters.get()?.function;
        let kernel = function.checked_sub(1).and_then(|at| state.kernels.get(at)).copied();
        let nanoseconds = kernel.ok_or(Error::InvalidHandle)?;
        *state.graphs.get_mut(&graph).ok_or(Error::InvalidHandle)? += nanoseconds;
        node.set(state.new_handle())
    }

    fn cuGraphInstantiateWithFlags(_entry, executable: Ptr<usize>, graph: usize, _flags: u64) {
        let mut state = state();
        let nanoseconds = *state.graphs.get(&graph).ok_or(Error::InvalidHandle)?;
        let handle = state.new_handle();
        state.graphs.insert(handle, nanoseconds);
        executable.set(handle)
    }

    fn cuGraphLaunch | cuGraphLaunch_ptsz (entry, executable: usize, stream: StreamHandle) {
        let mut state = state();
        let nanoseconds = *state.graphs.get(&executable).ok_or(Error::InvalidHandle)?;
        let stream = state.stream(entry, stream)?;
        state.put(stream, nanoseconds)
    }

    fn cuGraphExecDestroy(_entry, executable: usize) {
        state().graphs.remove(&executable).map(|_| ()).ok_or(Error::InvalidHandle)
    }

    fn cuGraphDestroy(_entry, graph: usize) {
        state().graphs.remove(&graph).map(|_| ()).ok_or(Error::InvalidHandle)
    }

    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz (entry, stream: StreamHandle, _mode: u32) {
        let mut state = state();
        let stream = state.stream(entry, stream)?;
        state.captures.insert(stream, 0);
        Ok(())
    }

    fn cuStreamEndCapture | cuStreamEndCapture_ptsz (entry, stream: StreamHandle, graph: Ptr<usize>) {
        let mut state = state();
        let stream = state.stream(entry, stream)?;
        let nanoseconds = state.captures.remove(&stream).ok_or(Error::InvalidValue)?;
        let handle = state.new_handle();
        state.graphs.insert(handle, nanoseconds);
        graph.set(handle)
    }
}
