"""A logger with its own handler for each job: the manager keeps all, and more are added (DIRACGrid/DIRAC#5280)."""

import logging
import logging.handlers
import time


class Job:
    def __init__(self, number):
        self.number = number
        self.log = logging.getLogger(f"jobs.{number:08d}")
        handler = logging.handlers.MemoryHandler(10_000, target=None)
        self.log.addHandler(handler)
        self.log.propagate = False

    def run(self):
        for step in range(30):
            self.log.warning("job %d step %d took %.3f s", self.number, step, step * 0.25)


number = 0
while number < 400:
    Job(number).run()
    number += 1
print("READY", flush=True)
while True:
    Job(number).run()
    number += 1
    time.sleep(0.01)
