#!/usr/bin/env python3
"""A federated client written from docs/federated-protocol.md alone, without Shoal's code. What it "trains" is a fixed
step of every value. It also misbehaves, to show what a server answers.

  client.py URL TOKEN sha256:HEX honest          takes part until the training is over
  client.py URL TOKEN sha256:HEX NAME...         one line "NAME STATUS TEXT" for each attack
"""
import hashlib
import http.client
import math
import os
import ssl
import struct
import sys
import tempfile
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

CHUNK = 1 << 20


class Server:
    def __init__(self, url, ca_text=None, own=None):
        host, port = url.removeprefix("https://").rsplit(":", 1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if ca_text is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context.load_verify_locations(cadata=ca_text)
        if own:
            context.load_cert_chain(own)
        self.connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)

    def ask(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body=body, headers=headers or {})
        answer = self.connection.getresponse()
        return answer.status, answer.read()


def join(url, token, fingerprint):
    _, pem = Server(url).ask("GET", "/v1/ca")
    ca = x509.load_pem_x509_certificate(pem)
    assert "sha256:" + ca.fingerprint(hashes.SHA256()).hex() == fingerprint, "another authority"
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    body = token.encode() + b"\n" + request.public_bytes(serialization.Encoding.PEM)
    status, answer = Server(url, pem.decode()).ask("POST", "/v1/join", body)
    assert status == 200, (status, answer)
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(text + answer)
    return Server(url, pem.decode(), file.name), body, pem.decode(), file.name


def read_task(data):
    magic, version, kind, length = struct.unpack_from("<4sHHI", data)
    assert (magic, version, kind, length) == (b"SFED", 1, 1, len(data) - 12), data[:12]
    names = "action round attempt counted wait_ms model proximal vectors flags".split()
    return dict(zip(names, struct.unpack("<BQIQI32sdIB", data[12:]), strict=True))


def message(task, values, samples=10, vectors=1, version=1):
    count = len(values) // vectors
    body = struct.pack("<QI32sQdddIQ", task["round"], task["attempt"], task["model"], samples, 1.0, 0.5, math.nan,
                       vectors, count) + struct.pack(f"<{len(values)}f", *values)
    return struct.pack("<4sHHI", b"SFED", version, 2, len(body)) + body


def send(server, data):
    whole = hashlib.sha256(data).hexdigest()
    _, have = server.ask("GET", f"/v1/update/{whole}")
    for index in range(struct.unpack("<I", have)[0], (len(data) + CHUNK - 1) // CHUNK):
        chunk = data[index * CHUNK:(index + 1) * CHUNK]
        path = f"/v1/update/{whole}/{len(data)}/{index}/{hashlib.sha256(chunk).hexdigest()}"
        status, answer = server.ask("PUT", path, chunk)
        if status != 200:
            return status, answer
    return server.ask("POST", f"/v1/update/{whole}", b"")


def receipt(status, data):
    if status != 200:
        return data.decode().strip()
    verdict, _, _, length = struct.unpack_from("<BQII", data, 12)
    return ("counted", "duplicate", "not now", "late", "refused")[verdict] + " " + data[29:29 + length].decode()


def train_task(server):
    while True:
        task = read_task(server.ask("GET", "/v1/task")[1])
        if task["action"] != 0:
            return task
        time.sleep(task["wait_ms"] / 1000)


def fetch(server, task):
    path = "/v1/model/" + task["model"].hex()
    status, model = server.ask("GET", path)
    assert status == 200 and hashlib.sha256(model).digest() == task["model"], status
    status, rest = server.ask("GET", path, headers={"Range": "bytes=100-"})
    assert status == 206 and rest == model[100:], status
    return len(model) // 4


def take_part(server):
    counted = 0
    while (task := train_task(server))["action"] == 1:
        status, answer = send(server, message(task, [1e-4] * fetch(server, task)))
        counted += receipt(status, answer).startswith("counted")
        time.sleep(0.05)
    print("honest", counted)


def attack(name, server, joined, url, ca, own):
    task = train_task(server)
    size = fetch(server, task)
    if name == "nan":
        return (lambda s, a: (s, receipt(s, a)))(*send(server, message(task, [math.nan] * size)))
    if name == "huge":
        return (lambda s, a: (s, receipt(s, a)))(*send(server, message(task, [1e30] * size)))
    if name == "shape":
        return (lambda s, a: (s, receipt(s, a)))(*send(server, message(task, [0.0] * (size - 1))))
    if name == "model":
        return (lambda s, a: (s, receipt(s, a)))(*send(server, message({**task, "model": bytes(32)}, [0.0] * size)))
    if name == "version":
        return (lambda s, a: (s, a.decode().strip()))(*send(server, message(task, [0.0] * size, version=2)))
    if name == "long":  # longer than any update may be
        return (lambda s, a: (s, a.decode().strip()))(*send(server, message(task, [0.0] * (size + 1))))
    if name == "replay":
        other = ec.generate_private_key(ec.SECP256R1())
        request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(other, hashes.SHA256())
        body = joined.split(b"\n")[0] + b"\n" + request.public_bytes(serialization.Encoding.PEM)
        return (lambda s, a: (s, a.decode().strip()))(*Server(url, ca).ask("POST", "/v1/join", body))
    if name == "nobody":
        return (lambda s, a: (s, a.decode().strip()))(*Server(url, ca).ask("GET", "/v1/task"))
    if name == "path":
        found = [Server(url, ca, own).ask("GET", path)[0]
                 for path in ("/v1/model/../../authority.pem", "/v1/model/%2e%2e/federated.db", "//v1/task", "/v1/update/",
                              "/v1/model/" + "0" * 64, "/v1/update/" + "g" * 64)]
        return max(found), " ".join(map(str, found))
    if name == "endless":  # a length that nobody could hold
        with_length = Server(url, ca, own)
        with_length.connection.putrequest("PUT", "/v1/update/" + "0" * 64 + "/1/0/" + "0" * 64)
        with_length.connection.putheader("Content-Length", str(1 << 40))
        with_length.connection.endheaders()
        answer = with_length.connection.getresponse()
        return answer.status, answer.read().decode().strip()
    raise SystemExit(f"no attack {name}")


def main():
    url, token, fingerprint, *names = sys.argv[1:]
    server, joined, ca, own = join(url, token, fingerprint)
    try:
        if names == ["honest"]:
            take_part(server)
            return
        for name in names:
            print(name, *attack(name, Server(url, ca, own), joined, url, ca, own), flush=True)
    finally:
        os.unlink(own)


main()
