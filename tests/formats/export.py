"""Models that leave: the outputs of exported C source, compiled as a stranger would, and of the ONNX file, checked
by ONNX's own checker and evaluated with numpy, are those of `shoal predict`."""
import ctypes
import os
import pathlib
import subprocess
import sys

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SHOAL, CC = os.environ["SHOAL"], os.environ.get("CC", "cc")
TOLERANCE = 1e-5  # of the largest output


def shoal(*arguments, code=0):
    done = subprocess.run([SHOAL, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"shoal {arguments}: exit {done.returncode}\n{done.stderr[-3000:]}"
    return done


# ---- ONNX's operators, from their definitions ----

def pad_image(x, pads, value):
    return np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=value)


def windows(x, kernel, strides, dilations=(1, 1)):
    """(N, C, OH, OW, KH, KW)"""
    high, wide = [d * (k - 1) + 1 for k, d in zip(kernel, dilations)]
    all_of = np.lib.stride_tricks.sliding_window_view(x, (high, wide), axis=(2, 3))
    return all_of[:, :, ::strides[0], ::strides[1], ::dilations[0], ::dilations[1]]


def conv(a, x, w, b=None):
    parts = windows(pad_image(x, a["pads"], 0), a["kernel_shape"], a["strides"], a["dilations"])
    group = a["group"]
    outs = []
    for g in range(group):
        cin, cout = x.shape[1] // group, w.shape[0] // group
        outs.append(np.einsum("nchwij,ocij->nohw", parts[:, g * cin:(g + 1) * cin], w[g * cout:(g + 1) * cout]))
    y = np.concatenate(outs, axis=1)
    return y if b is None else y + b[:, None, None]


def max_pool(a, x):
    return windows(pad_image(x, a["pads"], -np.inf), a["kernel_shape"], a["strides"]).max(axis=(4, 5))


def average_pool(a, x):
    assert a["count_include_pad"] == 1
    return windows(pad_image(x, a["pads"], 0), a["kernel_shape"], a["strides"]).mean(axis=(4, 5))


def batch_norm(a, x, scale, bias, mean, variance):
    shape = [1, -1] + [1] * (x.ndim - 2)
    return (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + a["epsilon"]) * scale.reshape(shape) + bias.reshape(shape)


def layer_norm(a, x, scale, bias=0):
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + a["epsilon"]) * scale + bias


def softmax(a, x):
    e = np.exp(x - x.max(axis=a["axis"], keepdims=True))
    return e / e.sum(axis=a["axis"], keepdims=True)


def erf(a, x):
    from math import erf as one
    return np.vectorize(one)(x)


def reshape(a, x, shape):
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape)])


OPERATORS = {
    "Gemm": lambda a, x, w, b=0: x @ w.T + b, "MatMul": lambda a, x, y: x @ y,
    "Transpose": lambda a, x: x.transpose(a["perm"]), "Conv": conv, "MaxPool": max_pool, "AveragePool": average_pool,
    "GlobalAveragePool": lambda a, x: x.mean(axis=(2, 3), keepdims=True), "Flatten": lambda a, x: x.reshape(x.shape[0], -1),
    "BatchNormalization": batch_norm, "LayerNormalization": layer_norm, "Softmax": softmax, "Reshape": reshape,
    "Gather": lambda a, table, i: table[i], "Add": lambda a, x, y: x + y, "Sub": lambda a, x, y: x - y,
    "Mul": lambda a, x, y: x * y, "Relu": lambda a, x: np.maximum(x, 0), "Tanh": lambda a, x: np.tanh(x),
    "Sigmoid": lambda a, x: 1 / (1 + np.exp(-x)), "Erf": erf, "Identity": lambda a, x: x,
    "Split": lambda a, x, sizes: np.split(x, np.cumsum(sizes)[:-1], axis=a["axis"]),
    "Concat": lambda a, *x: np.concatenate(x, axis=a["axis"]),
}


def run_onnx(path, x):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    values = {c.name: numpy_helper.to_array(c).astype(np.float64) if c.data_type == 1 else numpy_helper.to_array(c)
              for c in model.graph.initializer}
    values["input"] = x
    for node in model.graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        result = OPERATORS[node.op_type](attributes, *[values[name] for name in node.input])
        for name, value in zip(node.output, result if isinstance(result, list) else [result]):
            values[name] = value
    return values["output"]


def run_c(source, x, outputs):
    library = source.with_suffix(".so")
    strict = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([CC, *strict, "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
    run = ctypes.CDLL(str(library.absolute())).model_run
    kind = ctypes.c_int if x.dtype == np.int32 else ctypes.c_float
    rows = []
    for sample in x:
        sample, out = np.ascontiguousarray(sample), np.empty(outputs, np.float32)
        code = run(sample.ctypes.data_as(ctypes.POINTER(kind)), out.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
        assert code == 0, code
        rows.append(out)
    return np.array(rows)


def check(name, x, predicted):
    folder = pathlib.Path("runs") / name
    source, graph = pathlib.Path(name) / "model.c", pathlib.Path(name) / "model.onnx"
    source.parent.mkdir()
    shoal("export", folder, "--c", source, "--onnx", graph)
    bound = TOLERANCE * max(1, np.abs(predicted).max())
    from_c = run_c(source, x, predicted.shape[1])
    assert np.abs(from_c - predicted).max() <= bound, (name, "C", np.abs(from_c - predicted).max(), bound)
    exact = x if x.dtype == np.int32 else x.astype(np.float64)
    from_onnx = run_onnx(str(graph), exact).reshape(predicted.shape)
    assert np.abs(from_onnx - predicted).max() <= bound, (name, "ONNX", np.abs(from_onnx - predicted).max(), bound)


# ---- models ----

EVERYTHING = """model:
  - {conv: 16, kernel: 3, padding: 1, stride: 1, name: first}
  - {batchnorm: , name: bn}
  - silu
  - {conv: 16, kernel: 3, padding: 2, dilation: 2, groups: 4, bias: false, name: grouped}
  - {gelu: , name: act}
  - {add: , from: [act, first, bn], name: sum}
  - {maxpool: 3, stride: 2, padding: 1, name: most}
  - {avgpool: 3, stride: 2, padding: 1, from: sum, name: mean}
  - {concat: , from: [most, mean], name: both}
  - {conv: 8, kernel: 3, kernel_w: 1, stride: 2, name: narrow}
  - tanh
  - {droppath: 0.5, name: path}
  - globalpool
  - {dense: 12, name: hidden}
  - layernorm
  - {gelu: true, name: rough}
  - {dropout: 0.5, name: drop}
  - sigmoid
  - softmax
  - dense
"""


def images(name, size, channels, *options):
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 255, (24, channels, size, size)).astype(np.float32)
    y = rng.integers(0, 4, 24).astype(np.int64)
    y[:4] = range(4)
    np.save(f"{name}-x.npy", x)
    np.save(f"{name}-y.npy", y)
    shoal("train", *options, "--data", f"{name}-x.npy", "--labels", f"{name}-y.npy", "--batch", 8, "--steps", 4,
          "--lr", 0.01, "--out", f"runs/{name}", "-q")
    shoal("predict", f"runs/{name}", "--data", f"{name}-x.npy", "-o", f"{name}-out.npy")
    check(name, x, np.load(f"{name}-out.npy"))


def text():
    rng = np.random.default_rng(2)
    written = rng.integers(0, 256, 3000).astype(np.uint8)
    pathlib.Path("words.txt").write_bytes(bytes(written))
    tokens = 12
    shoal("train", "--model", "{name: gpt, layers: 2, width: 24, heads: 3}", "--data", "words.txt", "--tokens", "bytes",
          "--context", tokens, "--batch", 8, "--steps", 3, "--out", "runs/gpt", "-q")
    shoal("predict", "runs/gpt", "--data", "words.txt", "-o", "gpt-out.npy")
    predicted = np.load("gpt-out.npy")[:20]
    x = written[:20 * tokens].reshape(20, tokens).astype(np.int32)
    check("gpt", x, predicted)
    # A token that there is not is refused, not read behind the table.
    run = ctypes.CDLL(str(pathlib.Path("gpt/model.so").absolute())).model_run
    bad, out = np.full(tokens, 256, np.int32), np.empty(predicted.shape[1], np.float32)
    assert run(bad.ctypes.data_as(ctypes.POINTER(ctypes.c_int)), out.ctypes.data_as(ctypes.POINTER(ctypes.c_float))) == 1


def refusals():
    assert "nothing to write" in shoal("export", "runs/mlp", code=2).stderr
    assert "cannot begin names" in shoal("export", "runs/mlp", "--c", "x.c", "--name", "1st", code=2).stderr
    shoal("export", "runs/nothing", "--c", "x.c", code=1)
    shoal("export", "runs/mlp", "--c", "no/such/folder/x.c", code=1)
    assert not pathlib.Path("x.c").exists()


pathlib.Path("everything.yaml").write_text(EVERYTHING)
images("mlp", 8, 1, "--model", "{name: mlp, hidden: [20, 10]}")
images("lenet", 28, 1, "--model", "{name: lenet, hidden: 24}")
images("everything", 13, 3, "everything.yaml")
text()
refusals()
