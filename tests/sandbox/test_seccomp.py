"""The filter's verdicts, worked out by running its instructions on made-up calls, for both machines."""

from __future__ import annotations

import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.sandbox import seccomp
from packhost.sandbox.seccomp import ALLOW, ASK_HOST, KILL, SUPERVISED, Filter
from packhost.sandbox.syscalls import AUDIT_ARCH, NEWEST, names, number

PID = 4321
MACHINES = tuple(AUDIT_ARCH)


def verdict(program: list[seccomp.Instruction], call: int, arch: int, *arguments: int) -> int:
    data = struct.pack("=IIQ6Q", call, arch, 0, *(a & (2**64 - 1) for a in (*arguments, *[0] * 6)[:6]))
    at = held = steps = 0
    while True:
        code, yes, no, value = program[at]
        steps += 1
        at += 1
        assert steps <= len(program), "a filter never goes back"
        if code == 0x06:
            return value
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif code == 0x15:
            at += yes if held == value else no
        elif code == 0x35:
            at += yes if held >= value else no
        elif code == 0x45:
            at += yes if held & value else no
        else:
            raise AssertionError(f"an instruction that is not used: {code}")


def said(wanted: Filter, machine: str, name: str, *arguments: int) -> int | None:
    call = number(name, machine)
    return (
        None
        if call is None
        else verdict(seccomp.program(wanted, machine), call, AUDIT_ARCH[machine], *arguments)
    )


def refused(answer: int | None) -> bool:
    return answer is None or (answer >> 16 == 5 and answer & 0xFFFF != 0)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("supervised", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *(
            "socket",
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "bpf",
            "keyctl",
            "add_key",
        ),
        *("mount", "umount2", "move_mount", "pivot_root", "chroot", "unshare", "setns", "open_by_handle_at"),
        *(
            "io_uring_setup",
            "io_uring_enter",
            "memfd_create",
            "execveat",
            "fork",
            "vfork",
            "execve",
            "clone3",
        ),
        *("chown", "fchown", "fchownat", "setxattr", "fsetxattr", "link", "linkat", "symlink", "mknodat"),
        *("shmget", "shmat", "msgget", "semget", "mq_open", "setsid", "setpgid", "perf_event_open", "kcmp"),
        *(
            "userfaultfd",
            "fsopen",
            "open_tree",
            "kexec_load",
            "init_module",
            "reboot",
            "syslog",
            "personality",
        ),
        *(
            "tkill",
            "rt_sigqueueinfo",
            "pidfd_send_signal",
            "setpriority",
            "sched_setaffinity",
            "openat2",
            "utime",
        ),
    ],
)
def test_a_call_is_refused_on_every_machine(machine: str, supervised: bool, name: str) -> None:
    assert refused(said(Filter(PID, supervised=supervised), machine, name, 1, 1, 1))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "allowed"),
    [
        ("socketpair", (socket.AF_UNIX, 1, 0), True),
        ("socketpair", (socket.AF_INET, 1, 0), False),
        ("socketpair", (socket.AF_UNIX, 1 | socket.SOCK_CLOEXEC, 0), True),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0), True),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM, 0), False),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0), False),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_RAW, 0), False),
        ("clone", (0x3D0F00,), True),
        ("clone", (17,), False),
        ("clone", (0x3D0F00 | 0x40000000,), False),
        ("kill", (PID, 9), True),
        ("kill", (PID + 1, 9), False),
        ("kill", (-1 & 0xFFFFFFFF, 9), False),
        ("kill", (0, 9), False),
        ("tgkill", (PID, 7, 9), True),
        ("tgkill", (1, 7, 9), False),
        ("prlimit64", (0, 7), True),
        ("prlimit64", (1, 7), False),
        ("prctl", (15,), True),
        ("prctl", (1, 0), False),
        ("ioctl", (0, 0x5401), True),
        ("ioctl", (0, 0x5412), False),
        ("ioctl", (0, 0x40086602), False),
        ("ioctl", (0, 0x5413), True),
        ("ioctl", (0, 0x5421), True),
        ("ioctl", (0, 0x5451), True),
        ("ioctl", (0, 0x40049409), True),
        ("ioctl", (0, 0x40806685), False),
        ("ioctl", (0, 0x5000940E), False),
        ("ioctl", (0, 0x5000940F), False),
        ("ioctl", (0, 0xC0506617), False),
        ("fcntl", (0, 3), True),
        ("fcntl", (0, 8), False),
    ],
)
def test_some_calls_are_judged_by_their_arguments(
    machine: str, name: str, arguments: tuple[int, ...], allowed: bool
) -> None:
    answer = said(Filter(PID), machine, name, *arguments)
    assert answer == ALLOW if allowed else refused(answer)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "high"), [("socketpair", 1 << 32 | 2), ("kill", 1 << 32 | (PID + 1)), ("ioctl", 0)]
)
def test_the_upper_half_of_an_argument_changes_nothing(machine: str, name: str, high: int) -> None:
    second = 1 << 32 | 0x5412
    assert refused(said(Filter(PID), machine, name, high, second))


@pytest.mark.parametrize("machine", MACHINES)
def test_programs_may_run_where_they_are_declared(machine: str) -> None:
    wanted = Filter(PID, may_exec=True)
    answers = [said(wanted, machine, name, 17) for name in ("execve", "fork", "vfork", "clone", "kill")]
    assert {answer for answer in answers if answer is not None} == {ALLOW}
    assert refused(said(wanted, machine, "clone", 0x10000000))
    assert refused(said(wanted, machine, "setsid"))


@pytest.mark.parametrize("machine", MACHINES)
def test_signals_stay_inside_by_the_filter_where_landlock_does_not_keep_them(machine: str) -> None:
    assert refused(said(Filter(PID, may_exec=True, scoped_signals=False), machine, "kill", 1, 9))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", SUPERVISED)
def test_file_calls_are_the_hosts_to_answer(machine: str, name: str) -> None:
    assert said(Filter(PID, supervised=True), machine, name) in (None, ASK_HOST)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["chmod", "fchmod", "fchmodat", "utimensat"])
def test_without_a_supervising_host_metadata_is_refused(machine: str, name: str) -> None:
    assert refused(said(Filter(PID), machine, name))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "flags"), [("open", (0, 0o1000)), ("openat", (0, 0, 0o1000)), ("truncate", (0, 0))]
)
def test_nothing_is_shortened_where_landlock_cannot_refuse_it(
    machine: str, name: str, flags: tuple[int, ...]
) -> None:
    assert refused(said(Filter(PID, handled_truncate=False), machine, name, *flags))
    assert said(Filter(PID), machine, name, *flags) in (None, ALLOW)


@given(st.integers(0, 2**32 - 1), st.sampled_from(MACHINES), st.booleans(), st.booleans())
def test_every_number_has_a_verdict_and_unknown_ones_do_not_exist(
    call: int, machine: str, may_exec: bool, supervised: bool
) -> None:
    program = seccomp.program(Filter(PID, may_exec=may_exec, supervised=supervised), machine)
    answer = verdict(program, call, AUDIT_ARCH[machine])
    if machine == "x86_64" and call >= 0x40000000:
        assert answer == KILL
    elif call > NEWEST:
        assert answer == 5 << 16 | errno.ENOSYS
    elif call not in names(machine):
        assert answer == ALLOW


@given(st.integers(0, 2**32 - 1), st.integers(0, NEWEST), st.sampled_from(MACHINES))
def test_a_foreign_architecture_ends_the_process(arch: int, call: int, machine: str) -> None:
    if arch != AUDIT_ARCH[machine]:
        assert verdict(seccomp.program(Filter(PID), machine), call, arch) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_no_jump_is_too_far_and_no_filter_too_long(machine: str) -> None:
    for may_exec in (False, True):
        for supervised in (False, True):
            program = seccomp.program(Filter(PID, may_exec=may_exec, supervised=supervised), machine)
            assert len(program) < 4096
            assert all(0 <= yes < 256 and 0 <= no < 256 for _, yes, no, _ in program)


def test_a_packed_filter_is_the_same_for_whatever_process_it_was_made_ahead() -> None:
    import os

    machine = os.uname().machine
    if machine not in MACHINES:
        pytest.skip("there is no filter for this machine")
    wanted = Filter(PID, supervised=True)
    plain = b"".join(struct.pack("=HBBI", *one) for one in seccomp.program(wanted, machine))
    assert seccomp.pack(wanted) == plain
    assert seccomp.pack(Filter(PID + 1, supervised=True)) != plain
