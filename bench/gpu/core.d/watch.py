"""Runs a command and samples the driver's memory counts of its processes.

    watch.py OUTPUT COMMAND...

Writes a line of JSON to OUTPUT: the most bytes at a sample, and how they were counted. Ends as the command does.
"""

import json
import subprocess
import sys

from nvml import Watch

output, command = sys.argv[1], sys.argv[2:]
watch = Watch()
run = subprocess.Popen(command)
watch.start([run.pid])
code = run.wait()
with open(output, "w") as file:
    print(json.dumps(watch.stop()), file=file)
sys.exit(code if code >= 0 else 128 - code)
