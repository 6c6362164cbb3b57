"""A session of onnxruntime with ten weights, and its last output."""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

SIDE = 1500


def random(rows):
    return np.random.rand(rows, SIDE).astype("f4")


def model():
    names = [f"w{n}" for n in range(10)]
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [SIDE, SIDE], random(SIDE).tobytes(), raw=True) for name in names
    ]
    nodes = [helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]) for n in range(10)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, SIDE]) for name in ("x0", "x10")]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made.SerializeToString()


session = onnxruntime.InferenceSession(model(), providers=["CPUExecutionProvider"])
outputs = session.run(None, {"x0": random(4000)})
print("READY", flush=True)
sys.stdin.readline()
