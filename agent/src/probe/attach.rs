//! Which program goes where: tables, read by the loader, by `infertap doctor` and by the contract test.

use infertap_abi::Function;

/// One tracepoint and the program that goes on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracepointSpec {
    /// Program in the object.
    pub program: &'static str,
    /// Tracepoint category.
    pub category: &'static str,
    /// Tracepoint name.
    pub name: &'static str,
    /// Without it the probe is not up. Calls that some architectures lack (`dup2` on arm64) are not required.
    pub required: bool,
}

/// One libc function, its entry program, and the program on its return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibcSpec {
    /// Program at entry.
    pub program: &'static str,
    /// Program at return, where the result matters.
    pub exit: Option<&'static str>,
    /// Exported symbol.
    pub symbol: &'static str,
    /// Without it the probe is not up.
    pub required: bool,
}

/// One function of engines or tokenizers, and the programs that go on it wherever it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSpec {
    /// What its records say that it is.
    pub function: Function,
    /// Program at entry.
    pub enter: &'static str,
    /// Program at return; without one, the entry makes the record.
    pub leave: Option<&'static str>,
}

const fn enter(program: &'static str, name: &'static str) -> TracepointSpec {
    TracepointSpec {
        program,
        category: "syscalls",
        name,
        required: true,
    }
}

const fn maybe(program: &'static str, name: &'static str) -> TracepointSpec {
    TracepointSpec {
        program,
        category: "syscalls",
        name,
        required: false,
    }
}

const fn exit(name: &'static str) -> TracepointSpec {
    enter("exit_io", name)
}

/// Socket family in tracepoint mode.
pub const SOCKET_TRACEPOINTS: &[TracepointSpec] = &[
    // Exits first: a call that begins between two attachments must find its exit probed, or it would stay in the table.
    exit("sys_exit_read"),
    exit("sys_exit_recvfrom"),
    exit("sys_exit_readv"),
    exit("sys_exit_recvmsg"),
    exit("sys_exit_recvmmsg"),
    exit("sys_exit_write"),
    exit("sys_exit_sendto"),
    exit("sys_exit_writev"),
    exit("sys_exit_sendmsg"),
    exit("sys_exit_sendmmsg"),
    exit("sys_exit_sendfile64"),
    exit("sys_exit_splice"),
    maybe("exit_accept", "sys_exit_accept"),
    enter("exit_accept", "sys_exit_accept4"),
    enter("exit_made", "sys_exit_socket"),
    enter("exit_made", "sys_exit_socketpair"),
    enter("exit_made", "sys_exit_dup"),
    maybe("exit_made", "sys_exit_dup2"),
    enter("exit_made", "sys_exit_dup3"),
    enter("exit_made", "sys_exit_fcntl"),
    enter("enter_close", "sys_enter_close"),
    enter("enter_shutdown", "sys_enter_shutdown"),
    enter("enter_dup", "sys_enter_dup"),
    maybe("enter_dup", "sys_enter_dup2"),
    enter("enter_dup", "sys_enter_dup3"),
    enter("enter_fcntl", "sys_enter_fcntl"),
    enter("enter_socket", "sys_enter_socket"),
    enter("enter_socketpair", "sys_enter_socketpair"),
    enter("enter_connect", "sys_enter_connect"),
    maybe("enter_accept", "sys_enter_accept"),
    enter("enter_accept", "sys_enter_accept4"),
    enter("enter_read", "sys_enter_read"),
    enter("enter_recvfrom", "sys_enter_recvfrom"),
    enter("enter_readv", "sys_enter_readv"),
    enter("enter_recvmsg", "sys_enter_recvmsg"),
    enter("enter_recvmmsg", "sys_enter_recvmmsg"),
    enter("enter_write", "sys_enter_write"),
    enter("enter_write", "sys_enter_sendto"),
    enter("enter_writev", "sys_enter_writev"),
    enter("enter_sendmsg", "sys_enter_sendmsg"),
    enter("enter_sendmmsg", "sys_enter_sendmmsg"),
    enter("enter_sendfile", "sys_enter_sendfile64"),
    enter("enter_splice", "sys_enter_splice"),
];

/// Arrival family: the taking first, or what was noted before it would look unread.
pub const ARRIVAL_TRACEPOINTS: &[TracepointSpec] = &[
    TracepointSpec {
        program: "bytes_taken",
        category: "tcp",
        name: "tcp_rcv_space_adjust",
        required: true,
    },
    TracepointSpec {
        program: "segment_arrived",
        category: "tcp",
        name: "tcp_probe",
        required: true,
    },
];

/// Fields that the arrival family reads: tracepoint, field, its bytes, and the constant that takes its offset.
pub const ARRIVAL_FIELDS: &[(&str, &str, u32, &str)] = &[
    ("tcp_probe", "sport", 2, "PROBE_SPORT_OFFSET"),
    ("tcp_probe", "data_len", 2, "PROBE_LEN_OFFSET"),
    ("tcp_probe", "sock_cookie", 8, "PROBE_COOKIE_OFFSET"),
    ("tcp_rcv_space_adjust", "sport", 2, "ADJUST_SPORT_OFFSET"),
    ("tcp_rcv_space_adjust", "daddr_v6", 16, "ADJUST_PEER_OFFSET"),
    ("tcp_rcv_space_adjust", "sock_cookie", 8, "ADJUST_COOKIE_OFFSET"),
];

/// Process family.
pub const PROCESS_TRACEPOINTS: &[TracepointSpec] = &[
    TracepointSpec {
        program: "process_exit",
        category: "sched",
        name: "sched_process_exit",
        required: true,
    },
    TracepointSpec {
        program: "process_exec",
        category: "sched",
        name: "sched_process_exec",
        required: true,
    },
    TracepointSpec {
        program: "process_fork",
        category: "sched",
        name: "sched_process_fork",
        required: true,
    },
    enter("enter_clone", "sys_enter_clone"),
    maybe("enter_clone3", "sys_enter_clone3"),
    maybe("enter_fork", "sys_enter_fork"),
    maybe("enter_fork", "sys_enter_vfork"),
];

const fn io(program: &'static str, symbol: &'static str) -> LibcSpec {
    LibcSpec {
        program,
        exit: Some("libc_exit_io"),
        symbol,
        required: true,
    }
}

const fn made(program: &'static str, symbol: &'static str) -> LibcSpec {
    LibcSpec {
        program,
        exit: Some("libc_exit_made"),
        symbol,
        required: true,
    }
}

const fn mmsg(program: &'static str, symbol: &'static str) -> LibcSpec {
    LibcSpec {
        program,
        exit: Some("libc_exit_mmsg"),
        symbol,
        required: true,
    }
}

const fn optional(spec: LibcSpec) -> LibcSpec {
    LibcSpec {
        required: false,
        ..spec
    }
}

/// Socket family in uprobe mode. musl and older glibc lack some of the optional ones.
pub const SOCKET_LIBC: &[LibcSpec] = &[
    LibcSpec {
        program: "libc_close",
        exit: None,
        symbol: "close",
        required: true,
    },
    LibcSpec {
        program: "libc_shutdown",
        exit: None,
        symbol: "shutdown",
        required: true,
    },
    LibcSpec {
        program: "libc_connect",
        exit: None,
        symbol: "connect",
        required: true,
    },
    made("libc_accept", "accept"),
    made("libc_accept", "accept4"),
    made("libc_socket", "socket"),
    // The descriptors come through memory: a return of 0 is success.
    made("libc_socketpair", "socketpair"),
    made("libc_dup", "dup"),
    made("libc_dup", "dup2"),
    made("libc_dup", "dup3"),
    optional(made("libc_fcntl", "fcntl")),
    optional(made("libc_fcntl", "fcntl64")),
    io("libc_read", "read"),
    io("libc_recv", "recv"),
    io("libc_recv", "recvfrom"),
    io("libc_readv", "readv"),
    io("libc_recvmsg", "recvmsg"),
    optional(mmsg("libc_recvmmsg", "recvmmsg")),
    io("libc_write", "write"),
    io("libc_write", "send"),
    io("libc_write", "sendto"),
    io("libc_writev", "writev"),
    io("libc_sendmsg", "sendmsg"),
    optional(mmsg("libc_sendmmsg", "sendmmsg")),
    optional(io("libc_sendfile", "sendfile")),
    optional(io("libc_sendfile", "sendfile64")),
];

const fn call(function: Function, enter: &'static str, leave: &'static str) -> CallSpec {
    CallSpec {
        function,
        enter,
        leave: Some(leave),
    }
}

const fn entry(function: Function, enter: &'static str) -> CallSpec {
    CallSpec {
        function,
        enter,
        leave: None,
    }
}

/// Engine family: functions of engines and tokenizers.
pub const CALLS: &[CallSpec] = &[
    call(Function::LlamaDecode, "call_llama_decode", "return_llama_decode"),
    call(
        Function::LlamaProcess,
        "call_llama_process",
        "return_llama_process",
    ),
    call(
        Function::LlamaTokenize,
        "call_llama_tokenize",
        "return_llama_tokenize",
    ),
    call(
        Function::LlamaTaskId,
        "call_llama_task_id",
        "return_llama_task_id",
    ),
    entry(Function::LlamaTaskDefer, "call_llama_task_defer"),
    call(
        Function::LlamaSlotLaunch,
        "call_llama_slot_launch",
        "return_llama_slot_launch",
    ),
    entry(Function::LlamaSlotToken, "call_llama_slot_token"),
    entry(Function::LlamaSlotRelease, "call_llama_slot_release"),
    entry(Function::LlamaUpdateSlots, "call_llama_update_slots"),
    call(
        Function::HfTokenizersEncode,
        "call_hf_tokenizers_encode",
        "return_hf_tokenizers_encode",
    ),
    call(
        Function::TiktokenEncode,
        "call_tiktoken_encode",
        "return_tiktoken_encode",
    ),
];

/// Maps that the user side opens, or whose layout it knows.
pub const MAPS: &[&str] = &[
    "TARGETS",
    "FDS",
    "CONNS",
    "CALLS",
    "FRAMES",
    "FORKING",
    "PORTS",
    "ARRIVALS",
    "DROPS",
    "EVENTS",
    "CUDA_PROCESSES",
    "CUDA_WORK",
    "CUDA_COUNTS",
    "CUDA_ALLOCS",
    "CUDA_THREADS",
];
