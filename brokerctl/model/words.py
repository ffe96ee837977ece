"""Names that the C library has for signals and errors; the model may not ask the system for them."""

from __future__ import annotations

SIGNALS = {
    1: "Hangup", 2: "Interrupt", 3: "Quit", 4: "Illegal instruction", 5: "Trace/breakpoint trap", 6: "Aborted",
    7: "Bus error", 8: "Floating point exception", 9: "Killed", 10: "User defined signal 1", 11: "Segmentation fault",
    12: "User defined signal 2", 13: "Broken pipe", 14: "Alarm clock", 15: "Terminated", 16: "Stack fault",
    18: "Continued", 19: "Stopped (signal)", 20: "Stopped", 21: "Stopped (tty input)", 22: "Stopped (tty output)",
    23: "Urgent I/O condition", 24: "CPU time limit exceeded", 25: "File size limit exceeded",
    26: "Virtual timer expired", 27: "Profiling timer expired", 28: "Window changed", 29: "I/O possible",
    30: "Power failure", 31: "Bad system call",
}  # fmt: skip

SHORT = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 6: "SIGABRT", 9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2",
    13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 18: "SIGCONT", 19: "SIGSTOP",
}  # fmt: skip

ENOENT = 2
ESRCH = 3
EHOSTUNREACH = 113

ERRORS = {
    1: "Operation not permitted", 2: "No such file or directory", 3: "No such process", 5: "Input/output error",
    7: "Argument list too long", 8: "Exec format error", 11: "Resource temporarily unavailable",
    12: "Cannot allocate memory", 13: "Permission denied", 20: "Not a directory", 21: "Is a directory",
    22: "Invalid argument", 23: "Too many open files in system", 24: "Too many open files", 26: "Text file busy",
    28: "No space left on device", 30: "Read-only file system", 36: "File name too long",
    40: "Too many levels of symbolic links",
    113: "No route to host",
}  # fmt: skip


def signal_text(signum: int) -> str:
    """`Hangup` for 1, as strsignal(3)."""
    return SIGNALS.get(signum) or (f"Real-time signal {signum - 34}" if signum >= 34 else f"Unknown signal {signum}")


def signal_name(signum: int) -> str:
    """`SIGHUP` for 1."""
    return SHORT.get(signum) or f"signal {signum}"


def short_name(signum: int) -> str:
    """`HUP` for 1."""
    return signal_name(signum).removeprefix("SIG")


def error_text(errno: int) -> str:
    """`No such file or directory` for 2, as strerror(3)."""
    return ERRORS.get(errno) or f"Unknown error {errno}"
