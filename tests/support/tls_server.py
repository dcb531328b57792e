"""A TLS server on Python's ssl, for tests of what speaks to it: it tells of each request what it knows of the connection.

Arguments: one JSON object with certificate, key, and optionally ca (a client certificate signed by it is asked for),
require (it must come), announced (a PROXY header of version 1 comes before TLS), silent (connections are accepted and left alone). It says its port, then answers until it is killed.
"""
import json
import socket
import ssl
import sys
import threading

options = json.loads(sys.argv[1])
names = {}
headers = {}


def context():
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(options["certificate"], options["key"])
    made.set_alpn_protocols(options.get("alpn", ["http/1.1"]))
    if "ca" in options:
        made.load_verify_locations(options["ca"])
        made.verify_mode = ssl.CERT_REQUIRED if options.get("require") else ssl.CERT_OPTIONAL
    made.sni_callback = lambda stream, name, _: names.__setitem__(id(stream), name)
    return made


def read_head(stream, kept):
    while b"\r\n\r\n" not in kept:
        piece = stream.recv(65536)
        if not piece:
            return None, b""
        kept += piece
    head, rest = kept.split(b"\r\n\r\n", 1)
    return head.decode("latin-1"), rest


def read_body(stream, length, kept):
    while len(kept) < length:
        piece = stream.recv(65536)
        if not piece:
            break
        kept += piece
    return kept[:length], kept[length:]


def end(stream):
    try:
        stream.unwrap()
    except OSError:
        pass
    stream.close()


def answer(stream, number, head, body):
    target = head.split(" ")[1]
    if target in ("/until-close", "/cut"):
        stream.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall that there is")
        if target == "/cut":
            stream.shutdown(socket.SHUT_RDWR)
        else:
            end(stream)
        return False
    if target == "/tunnel":
        stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        while piece := stream.recv(65536):
            stream.sendall(piece.upper())
        end(stream)
        return False
    if target == "/echo":
        content = body
    elif target.startswith("/bytes/"):
        content = bytes(at % 251 for at in range(251)) * (int(target[7:]) // 251 + 1)
        content = content[: int(target[7:])]
    else:
        peer = stream.getpeercert() or {}
        subject = [f"{name}={value}" for part in peer.get("subject", ()) for name, value in part]
        content = json.dumps({
            "connection": number,
            "sni": names.get(id(stream)),
            "alpn": stream.selected_alpn_protocol(),
            "version": stream.version(),
            "resumed": stream.session_reused,
            "subject": ",".join(subject),
            "announced": headers[number],
            "head": head,
        }).encode()
    is_last = target == "/last"
    close = "Connection: close\r\n" if is_last else ""
    stream.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n{close}\r\n".encode() + content)
    if is_last:
        end(stream)
    return not is_last


def serve(tcp, made, number):
    try:
        announced = b""
        while options.get("announced") and not announced.endswith(b"\r\n"):
            announced += tcp.recv(1)
        headers[number] = announced.decode().strip()
        stream = made.wrap_socket(tcp, server_side=True)
        kept = b""
        while True:
            head, kept = read_head(stream, kept)
            if head is None:
                return
            lengths = [line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length:")]
            body, kept = read_body(stream, int(lengths[0]) if lengths else 0, kept)
            if not answer(stream, number, head, body):
                return
    except OSError:
        tcp.close()


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    made = context()
    kept = []
    number = 0
    while True:
        tcp, _ = listener.accept()
        number += 1
        if options.get("silent"):
            kept.append(tcp)
        else:
            threading.Thread(target=serve, args=(tcp, made, number), daemon=True).start()


main()
