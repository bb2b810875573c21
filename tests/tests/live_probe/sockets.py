"""Makes socket calls on command: reads a JSON string of Python from standard input, runs it, answers "ok". A command
that sets `answer` has it printed first. The test watches."""
import json
import os
import socket
import sys
import threading

scope = {"os": os, "socket": socket, "threading": threading}
print("ready", flush=True)
for line in sys.stdin:
    scope["answer"] = ""
    exec(json.loads(line), scope)
    print("ok", scope["answer"], flush=True)
