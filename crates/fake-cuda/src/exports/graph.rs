//! Graphs as a whole.

use std::ffi::{c_int, c_uint};

use crate::abi::{InstantiateParams, UpdateResult};
use crate::code::{CallResult, Code};
use crate::execution::graph::{self, EXECS, GRAPHS, UPLOAD};
use crate::execution::stream;
use crate::library::device;
use crate::pointers::{In, Out};
use crate::table::{Handle, lock};

calls! { CALLS = call;
    fn cuGraphCreate(handle: Out<Handle>, _flags: c_uint) {
        handle.check()?;
        handle.put(graph::create()?)
    }

    fn cuGraphDestroy(handle: Handle) { graph::destroy(handle) }

    fn cuGraphClone(copy: Out<Handle>, handle: Handle) {
        copy.check()?;
        copy.put(graph::copy_of(handle)?)
    }

    fn cuGraphGetNodes(handle: Handle, nodes: Out<Handle>, count: Out<usize>) {
        let all = GRAPHS.with(handle, |graph| Ok(graph.nodes.clone()))?;
        if nodes.is_null() {
            return count.put(all.len());
        }
        let room = count.read()?;
        nodes.put_list(&all, room)?;
        count.put(all.len().min(room))
    }

    fn cuGraphInstantiate(
        exec: Out<Handle>,
        handle: Handle,
        _error_node: Out<Handle>,
        _log: usize,
        _log_size: usize,
    ) {
        instantiate(exec, handle, 0)
    }

    fn cuGraphInstantiate_v2(
        exec: Out<Handle>,
        handle: Handle,
        _error_node: Out<Handle>,
        _log: usize,
        _log_size: usize,
    ) {
        instantiate(exec, handle, 0)
    }

    fn cuGraphInstantiateWithFlags(exec: Out<Handle>, handle: Handle, flags: u64) {
        instantiate(exec, handle, flags)
    }

    fn cuGraphInstantiateWithParams(
        exec: Out<Handle>,
        handle: Handle,
        params: Out<InstantiateParams>,
    ) {
        let wanted = params.read()?;
        instantiate(exec, handle, wanted.flags)?;
        params.put(InstantiateParams { error_node: 0, result: 0, ..wanted })
    }

    fn cuGraphExecDestroy(exec: Handle) { EXECS.remove(exec).map(drop) }

    fn cuGraphExecGetFlags(exec: Handle, flags: Out<u64>) {
        flags.put(EXECS.with(exec, |exec| Ok(exec.flags))?)
    }

    fn cuGraphExecUpdate(
        exec: Handle,
        handle: Handle,
        error_node: Out<Handle>,
        result: Out<c_uint>,
    ) {
        let answer = graph::update(exec, handle);
        error_node.offer(0);
        result.offer(answer.is_err().into());
        answer
    }

    fn cuGraphExecUpdate_v2(exec: Handle, handle: Handle, result: Out<UpdateResult>) {
        let answer = graph::update(exec, handle);
        result.offer(UpdateResult { result: answer.is_err().into(), node: 0, from: 0 });
        answer
    }
}

stream_calls! { STREAM = hot_call;
    fn cuGraphUpload, cuGraphUpload_ptsz(default, exec: Handle, stream: Handle) {
        stream::with(stream, default, |_| Ok(()))?;
        graph::upload(exec)
    }

    fn cuGraphLaunch, cuGraphLaunch_ptsz(default, exec: Handle, stream: Handle) {
        graph::launch(exec, stream, default)
    }
}

calls! { MEMORY = call;
    fn cuDeviceGraphMemTrim(ordinal: c_int) {
        graph::trim(device(ordinal)?);
        Ok(())
    }

    fn cuDeviceGetGraphMemAttribute(ordinal: c_int, attribute: c_uint, value: Out<u64>) {
        let memory = lock(&device(ordinal)?.graph_memory);
        value.put(match attribute {
            0 => memory.used.current,
            1 => memory.used.high,
            2 => memory.reserved.current,
            3 => memory.reserved.high,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// Only the high-water marks can be set, and only reset.
    fn cuDeviceSetGraphMemAttribute(ordinal: c_int, attribute: c_uint, value: In<u64>) {
        let mut memory = lock(&device(ordinal)?.graph_memory);
        match (attribute, value.read()?) {
            (1, 0) => memory.used.high = memory.used.current,
            (3, 0) => memory.reserved.high = memory.reserved.current,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}

fn instantiate(exec: Out<Handle>, handle: Handle, flags: u64) -> CallResult {
    exec.check()?;
    let made = graph::instantiate(handle, flags)?;
    if flags & UPLOAD != 0 {
        graph::upload(made).inspect_err(|_| drop(EXECS.remove(made)))?;
    }
    exec.put(made)
}
