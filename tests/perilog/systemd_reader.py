"""A model of how systemd reads an environment file, from what it was seen to do (SYSTEMD.md 109–113).

Independent of what writes the file: it knows the whole language, single quotes, comments and joined lines included.
"""

BLANKS = b" \t\r\n"
FIRST = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
NAME = FIRST | frozenset(b"0123456789")
ENTRY_MAX = 131_071


def read(data: bytes) -> dict[bytes, bytes] | None:
    """The variables that a service gets; None where the whole file is ignored, or the service can't be started."""
    found = {}
    at = 0
    while at < len(data):
        if data[at : at + 1] in (b" ", b"\t", b"\r", b"\n"):
            at += 1
        elif data[at : at + 1] in (b"#", b";"):
            at = _line_end(data, at)
        else:
            equals = data.find(b"=", at)
            end = _line_end(data, at)
            if equals < 0 or equals > end:
                at = end
                continue
            name = data[at:equals].rstrip(b" \t")
            value, at = _value(data, equals + 1)
            if not _is_text(name) or not _is_text(value):
                return None
            if name[:1] and name[0] in FIRST and NAME.issuperset(name):
                found[name] = value
    if any(len(name) + 1 + len(value) > ENTRY_MAX for name, value in found.items()):
        return None
    return found


def _line_end(data, at):
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _value(data, at):
    """One value and where it ends: quoted parts, a backslash, blanks at both ends."""
    while data[at : at + 1] in (b" ", b"\t"):
        at += 1
    value = bytearray()
    kept = 0  # up to here blanks at the end belong to the value
    while at < len(data) and data[at : at + 1] not in (b"\n", b"\r"):
        char = data[at : at + 1]
        at += 1
        if char == b"'" and len(value) == kept == 0:
            end = data.find(b"'", at)
            end = len(data) if end < 0 else end
            value += data[at:end]
            at = end + 1
            kept = len(value)
        elif char == b'"' and len(value) == kept == 0:
            at = _double(data, at, value)
            kept = len(value)
        elif char == b"\\":
            if data[at : at + 1] != b"\n":
                value += data[at : at + 1]
                kept = len(value)
            at += 1
        else:
            value += char
            if char not in (b" ", b"\t"):
                kept = len(value)
    return bytes(value[:kept]), at


def _double(data, at, value):
    while at < len(data):
        char = data[at : at + 1]
        at += 1
        if char == b'"':
            break
        if char == b"\\":
            following = data[at : at + 1]
            at += 1
            if following in (b'"', b"\\", b"$", b"`"):
                value += following
            elif following != b"\n":
                value += char + following
        else:
            value += char
    return at


def _is_text(data):
    if b"\0" in data:
        return False
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return not any(0xFDD0 <= ord(char) <= 0xFDEF or ord(char) & 0xFFFE == 0xFFFE for char in text)
