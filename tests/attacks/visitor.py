"""A visitor without a credential: raw TLS connections, HTTP/1 by hand, HTTP/2 frames and agent frames."""

import json
import socket
import ssl
import struct

AGENT = "neap-agent/1"


def connect(server, alpn="http/1.1", certificate=None, timeout=10):
    """A TLS connection to the server; `certificate` is a (certificate file, key file) pair."""
    context = ssl.create_default_context(cafile=server.vars["REQUESTS_CA_BUNDLE"])
    context.set_alpn_protocols([alpn])
    if certificate:
        context.load_cert_chain(*certificate)
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=timeout)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def is_closed(stream, within=0.0):
    """Whether the server has ended this connection, or does within so many seconds. Reads what there is."""
    stream.settimeout(max(within, 0.001))
    try:
        while stream.recv(65536):
            pass
        return True
    except (TimeoutError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def resident_bytes(server):
    with open(f"/proc/{server.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


# --- HTTP/1 ------------------------------------------------------------------------------------------------------------


def head(method, path, length=0, **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer(stream, timeout=10):
    """(status, body) of the next answer."""
    stream.settimeout(timeout)
    buffer = b""
    while b"\r\n\r\n" not in buffer:
        piece = stream.recv(65536)
        if not piece:
            raise OSError(f"closed after {buffer!r}")
        buffer += piece
    top, body = buffer.split(b"\r\n\r\n", 1)
    lines = top.decode().split("\r\n")
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
    while len(body) < length:
        body += stream.recv(65536)
    return int(lines[0].split()[1]), body


# --- agents ------------------------------------------------------------------------------------------------------------


def frame(kind, body):
    return struct.pack(">IB", len(body) + 1, kind) + body


def message(**fields):
    return frame(0, json.dumps(fields).encode())


def log_frame(job, attempt, offset, text):
    return frame(1, struct.pack(">QIQB", job, attempt, offset, 0) + text)


def read_message(stream, timeout=10):
    """The next message from the server; None when it has hung up."""
    stream.settimeout(timeout)

    def exactly(count):
        buffer = b""
        while len(buffer) < count:
            piece = stream.recv(count - len(buffer))
            if not piece:
                return None
            buffer += piece
        return buffer

    try:
        start = exactly(4)
        return start and json.loads(exactly(struct.unpack(">I", start)[0])[1:])
    except (ConnectionError, ssl.SSLEOFError):
        return None


# --- HTTP/2 ------------------------------------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def h2_frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def h2_headers(path, authority="127.0.0.1", method="GET", extra=()):
    """A header block without compression."""
    fields = [(":method", method), (":scheme", "https"), (":path", path), (":authority", authority), *extra]
    return b"".join(literal(name.encode(), value.encode()) for name, value in fields)


def literal(name, value):
    return b"\x00" + h2_length(len(name)) + name + h2_length(len(value)) + value


def h2_length(count):
    if count < 127:
        return bytes([count])
    out, count = b"\x7f", count - 127
    while count >= 128:
        out, count = out + bytes([count % 128 + 128]), count // 128
    return out + bytes([count])


def h2_connect(server, settings=b""):
    stream = connect(server, "h2")
    stream.sendall(PREFACE + h2_frame(SETTINGS, 0, 0, settings))
    return stream


def h2_send(stream, data):
    """Sends as much as the server takes. False when it has hung up."""
    stream.settimeout(5)
    try:
        stream.sendall(data)
        return True
    except OSError:
        return False
