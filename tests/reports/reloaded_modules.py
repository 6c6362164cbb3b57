"""A scheduler loads a plan again and again under new module names; sys.modules keeps all (PrefectHQ/prefect#21692)."""

import importlib.util
import sys
from pathlib import Path

PLAN = """
import datetime
TABLE = {n: f"task-{n}" for n in range(1200)}
class Plan:
    def __init__(self):
        self.steps = [dict(name=k, after=k - 1) for k in range(150)]
PLAN = Plan()
def run(step):
    return PLAN.steps[step]
"""

Path("daily_report.py").write_text(PLAN)
for turn in range(400):
    name = f"plan_{turn * 2654435761 % 2**32:08x}_daily_report"
    spec = importlib.util.spec_from_file_location(name, "daily_report.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
print("READY", flush=True)
sys.stdin.readline()
